"""One configuration of a run as a space file, with its measurements in a comment."""

from __future__ import annotations

import json
from functools import partial

from search.record.dataframes import Run
from search.record.defaults import changed_defaults
from search.record.source import absolute_file
from search.record.trial import Trial
from search.report.picks import Pick
from search.text.numbers import plural

_scalar = partial(json.dumps, ensure_ascii=False)  # JSON is a subset of YAML


def as_yaml(run: Run, pick: Pick) -> str:
    """Return a space file with this configuration alone: each searched parameter has one value."""
    trial, info = pick.trial, run.info
    chosen = [name for name in run.state.parameters() if name in trial.config]
    config = {**changed_defaults(info), **trial.config}
    fixed = {name: value for name, value in config.items() if name not in chosen}
    data = {key: value for key, value in info.data_settings.items() if value is not None}
    metrics = [o.metric for o in run.state.objectives]
    measured = ", ".join(f"{run.state.label(name)} {run.state.format_metric(trial, name)}" for name in metrics)
    lines = [
        f"# {trial.trial_id} of {run.name}: {pick.name}",
        f"# {measured}, {trained_for(trial)}",
        f"trainable: {_scalar(absolute_file(info.trainable, run.folder))}",
        *([f"evaluation: {info.evaluation}"] if run.state.is_probe_run else []),
        "objectives:",
        *(f"  - {{metric: {o.metric}, goal: {o.goal}}}" for o in run.state.objectives),
        *["parameters:"] * bool(chosen),
        *(f"  {name}: {{values: [{_scalar(trial.config[name])}]}}" for name in chosen),
        *["fixed:"] * bool(fixed),
        *(f"  {name}: {_scalar(value)}" for name, value in fixed.items()),
        "data:",
        *(f"  {key}: {_scalar(value)}" for key, value in {**data, "name": info.data.name}.items()),
        "searcher: {name: grid}",
        *([f"budget: {{epochs: {trial.epochs}}}"] if trial.epochs else []),
    ]
    return "\n".join(lines)


def trained_for(trial: Trial) -> str:
    """Return the training time of a trial, as in `4 epochs`."""
    return plural(trial.epochs, "epoch") if trial.epochs else "a probe of a few seconds"
