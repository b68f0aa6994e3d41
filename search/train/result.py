"""Result of a full training beside the measurement of the search: result.csv and summary.md."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from search.front.intervals import half_interval, least_value
from search.front.objective import Objective
from search.front.roles import is_interval_end, metric_label, wanted_test_metrics
from search.record.dataframes import Run
from search.record.disk import write_text_atomically
from search.record.trial import Trial
from search.text.durations import format_duration
from search.text.markdown import format_table, wrap
from search.text.metrics import CONTENDED_LEGEND, CONTENDED_MARK, slowed_windows
from search.text.numbers import format_number, plural, plus_minus, unknown_intervals
from search.train.child_process import CURVES, Epoch

RESULT, SUMMARY = "result.csv", "summary.md"
MOST_EVALUATIONS = 50  # of one training, unless told otherwise, and rows of its table


@dataclass(frozen=True)
class Training:
    """A finished full training of one trial's configuration."""

    run: Run
    trial: Trial
    folder: Path
    epochs: Sequence[Epoch]
    test_metrics: Mapping[str, float]

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the last epoch and of the test set."""
        return {**self.epochs[-1].metrics, **self.test_metrics}

    @property
    def seconds(self) -> float:
        """Duration of all epochs together; NaN if they were not timed."""
        return math.fsum(epoch.seconds for epoch in self.epochs)


def finished(folder: Path) -> str | None:
    """Describe the finished training in that folder; None if there is none."""
    try:
        with (folder / RESULT).open(newline="") as file:
            row = next(csv.DictReader(file), {})
    except FileNotFoundError:
        return None
    learned = [f"{k} {float(v):.4f}" for k, v in row.items() if v and _is_learned(k, row)]
    return ", ".join([plural(int(row.get("epochs") or 0), "epoch"), *learned])


def _is_learned(name: str, names: Mapping[str, str]) -> bool:
    return name.startswith(("val_", "test_")) and not is_interval_end(name, names)


def write_result(training: Training, conditions: Mapping[str, str | None], command: str) -> None:
    """Write summary.md, then result.csv, which marks the training as finished."""
    row = {
        "trial_id": training.trial.trial_id,
        "epochs": training.epochs[-1].number,
        "seconds": training.seconds if math.isfinite(training.seconds) else "",
        **{f"config.{name}": value for name, value in training.run.state.ordered_config(training.trial).items()},
        **training.metrics,
    }
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([row, row.values()])
    for name, text in ((SUMMARY, as_markdown(training, conditions, command)), (RESULT, table.getvalue())):
        write_text_atomically(training.folder / name, text)


def headline(training: Training) -> str:
    """Return `t0020 trained for 200 epochs in 2 h 5 min`."""
    duration = f" in {format_duration(training.seconds)}" if math.isfinite(training.seconds) else ""
    return f"{training.trial.trial_id} trained for {plural(training.epochs[-1].number, 'epoch')}{duration}"


def comparison(training: Training) -> str:
    """Return a table of the main metrics, after full training and as measured in the search, with its legend."""
    metrics, searched, data = training.metrics, training.trial.metrics, training.run.info.data.name
    objectives = [o.metric for o in training.run.state.objectives]
    tested = wanted_test_metrics(objectives, training.test_metrics)
    candidates = dict.fromkeys([*objectives, *tested, training.run.state.rate_metric])
    names = [name for name in candidates if name in metrics]
    fidelity = plural(training.trial.epochs, "epoch") if training.trial.epochs else "probe"
    rate = training.run.state.rate_metric
    table = format_table(
        {
            "metric": [metric_label(name, data) for name in names],
            "in full": [_cell(metrics, name, rate) for name in names],
            f"search ({fidelity})": [_cell(searched, name, rate) for name in names],
        }
    )
    contended = [CONTENDED_LEGEND] if f"{CONTENDED_MARK} " in table else []
    notes = [*unknown_intervals(table), *contended, slowed_windows(metrics, rate)]
    return "\n\n".join([table, *map(wrap, filter(None, notes))])


def curve(training: Training) -> str:
    """Return a table of the epochs: losses, objectives, rates and seconds; of a long training every n-th epoch."""
    objectives = (o.metric for o in training.run.state.objectives)
    names = dict.fromkeys(["train_loss", *objectives, training.run.state.rate_metric])
    every = math.ceil(len(training.epochs) / MOST_EVALUATIONS)
    shown = [epoch for epoch in training.epochs if epoch.number % every == 0 or epoch is training.epochs[-1]]
    columns = {"epoch": [f"{epoch.number}" for epoch in shown]}
    for name in (name for name in names if any(name in epoch.metrics for epoch in shown)):
        columns[name] = [format_number(epoch.metrics.get(name, math.nan)) for epoch in shown]
    columns["seconds"] = [format_number(epoch.seconds) for epoch in shown]
    left_out = f" One epoch in {every} is shown." if every > 1 else ""
    legend = f"The seconds of an epoch are those of training, evaluation and checkpoint, which {CURVES} has apart."
    return f"{format_table(columns)}\n\n{wrap(legend + left_out)}"


def as_markdown(training: Training, conditions: Mapping[str, str | None], command: str) -> str:
    """Return the text of summary.md: the metrics beside those of the search, the conditions, the command."""
    learned = next(
        (o for o in training.run.state.objectives if o.metric.startswith("val_")), Objective("val_accuracy", "maximize")
    )
    measured = [epoch for epoch in training.epochs if learned.metric in epoch.metrics]
    best = min(measured, key=lambda epoch: learned.loss(epoch.metrics[learned.metric]), default=None)
    notes = []
    if best is not None:
        value = f"{best.metrics[learned.metric]:.4f}, in epoch {best.number}"
        notes.append(wrap(f"Best {learned.metric}: {value}. The checkpoint is from the last epoch."))
    lines = [wrap(f"- {name}: {text}", "  ") for name, text in conditions.items() if text]
    blocks = [f"# {headline(training)}", comparison(training), *notes, "## Epochs", curve(training)]
    blocks += ["## Conditions", "\n".join(lines)]
    blocks += ["The command:", f"```sh\n{command}\n```"]
    return "\n\n".join(blocks) + "\n"


def _cell(metrics: Mapping[str, float], name: str, rate: str) -> str:
    if name not in metrics:
        return "–"
    mark = CONTENDED_MARK if name == rate and metrics.get("contended") else ""
    return plus_minus(metrics[name], half_interval(metrics, name), least_value(name)) + mark
