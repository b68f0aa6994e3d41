"""One configuration of a run as a space file of its own, and what it measured in words."""

from __future__ import annotations

import json
from typing import Any

from search.record.history import Trial
from search.report.picks import Pick
from search.results import Run
from search.text.wording import count, metric_label, spread


def as_yaml(run: Run, pick: Pick) -> str:
    """A space file of this configuration alone: the settings that the search chose have one value each."""
    trial, info = pick.trial, run.info
    chosen = [name for name in run.history.parameters() if name in trial.config]
    data = {key: value for key, value in info["space"].get("data", {}).items() if value is not None}
    lines = [
        f"# {trial.trial_id} of {run.name}: {pick.name}",
        f"# {', '.join(measured(run, trial, o.metric) for o in run.history.objectives)}, {trained_for(trial)}",
        f"trainable: {info['trainable']}",
        *([f"evaluation: {info['space']['evaluation']}"] if run.history.probes else []),
        "objectives:",
        *(f"  - {{metric: {o.metric}, goal: {o.goal}}}" for o in run.history.objectives),
        "parameters:",
        *(f"  {name}: {{values: [{_scalar(trial.config[name])}]}}" for name in chosen),
        "fixed:",
        *(f"  {name}: {_scalar(value)}" for name, value in trial.config.items() if name not in chosen),
        "data:",
        *(f"  {key}: {_scalar(value)}" for key, value in {**data, "name": info["data"]["name"]}.items()),
        "searcher: {name: grid}",
        *([f"budget: {{epochs: {trial.epochs}}}"] if trial.epochs else []),
    ]
    empty = [line for line, after in zip(lines, [*lines[1:], ""], strict=True) if _section(line) and after[:1] != " "]
    return "\n".join(line for line in lines if line not in empty)


def _section(line: str) -> bool:
    return line in ("fixed:", "data:", "parameters:")


def _scalar(value: Any) -> str:
    """In YAML; JSON's words and numbers are YAML's too."""
    return json.dumps(value, ensure_ascii=False)


def value_of(run: Run, trial: Trial, name: str) -> str:
    """With half of its 95% interval, where that is known."""
    deviation = run.history.deviation(trial, name)
    return spread(trial.metrics[name], 1.96 * deviation if deviation else None)


def measured(run: Run, trial: Trial, name: str) -> str:
    """`val_accuracy 0.612 ± 0.02`: a metric as people call it, and its value."""
    return f"{metric_label(name, run.info['data'])} {value_of(run, trial, name)}"


def trained_for(trial: Trial) -> str:
    """`4 epochs`."""
    return count(trial.epochs, "epoch") if trial.epochs else "a probe of some seconds"
