"""The columns of a run's tables: what each means, and its unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from search.front.differences import FEWEST_ROUNDS
from search.front.roles import ENDS, is_interval_end
from search.front.targets import target_metrics, targets_of
from trainables.contract import Trainable, find_trainable

# name -> (unit, meaning). Metrics have their units in `run.info.metrics`, settings are called `config.<name>`.
COLUMNS = {
    "trial_id": ("", "the trial's name, t0001 onwards"),
    "state": ("", "running, complete, stopped (early), infeasible (cannot run here) or failed"),
    "reason": ("", "why it did not complete"),
    "kind": ("", "train, or probe (measured only what a short probe can)"),
    "epochs": ("epochs", "how many were measured; 0: it was a probe, or never reported"),
    "seconds": ("s", "on the workers, without the wait for them; in `curves`, until the end of that epoch"),
    "setup_seconds": ("s", "waiting for workers before that"),
    "bound_by": ("", "what took most of each step: input, transfer, host, compute, communication or memory"),
    "bound_share": ("fraction", "of each step that it took"),
    "advice": ("", "the change of one setting that helps most, as measured in turns, e.g. num_workers=2"),
    "advice_gain": ("", "rate with it over the rate without it"),
    "retries": ("", "how often it went on from its checkpoint after its workers died"),
    "front_probability": (
        "fraction",
        "in `front`: probability that the trial belongs there, from its intervals",
    ),
    "alternatives": ("", "in `front`: trials that cannot be told apart from it, the most probable first"),
    "place_probability": (
        "fraction",
        "in `front`: probability that the trial or one of its alternatives belongs there",
    ),
    "started_at": ("UTC", "when it started"),
    "epoch": ("epochs", "1, 2, ...; 0: a probe"),
    "other_trial_id": ("", "in `differences`: the trial that it is compared with"),
    "turns": ("", f"how often both had a turn; they count from {FEWEST_ROUNDS} on"),
    "rate_ratio": ("", f"rate of the trial over that of the other one, by turns if they had {FEWEST_ROUNDS} or more"),
    "rate_ratio_low": ("", "lower end of the ratio's 95% interval"),
    "rate_ratio_high": ("", "upper end of the ratio's 95% interval"),
    "decision": ("", "what the scheduler answered: continue or stop"),
}
DIFFERENCE = "_difference"  # ending of columns in `differences`

HEAD = """\
# Columns

`trials.csv` has a row for each trial started, with its last measurement; `curves.csv` one for each trial and epoch;
`front.csv` the trials of the Pareto front; `differences.csv` the pairs of those, and of trials whose rates were
measured in turns. The `.parquet` files are the same with types. An empty cell was not measured, or is a setting that
was not active.
"""


def describe_columns(columns: Iterable[str], training: str, units: Mapping[str, str]) -> str:
    """Return a table in Markdown of these columns, each once; `units`: of the metrics of the training."""
    trainable = find_trainable(training)
    lines = [HEAD, "| column | unit | meaning |", "| --- | --- | --- |"]
    for name in dict.fromkeys(columns):
        unit, meaning = _describe_column(name, units, trainable)
        lines.append(f"| `{name}` | {unit} | {meaning} |")
    return "\n".join(lines) + "\n"


def _describe_column(name: str, units: Mapping[str, str], trainable: Trainable | None) -> tuple[str, str]:
    """Unit and meaning of a column; both are empty if nothing explains it."""
    known, parameters = (trainable.METRICS or {}, trainable.PARAMETERS or {}) if trainable else ({}, {})
    if name in COLUMNS:
        return COLUMNS[name]
    if name.startswith("config."):
        setting = name.removeprefix("config.")
        return "", f"the setting `{setting}`" + (f": {parameters[setting].help}" if setting in parameters else "")
    known = {**target_metrics(targets_of(units), known), **known}
    if name.removesuffix("_low").removesuffix("_high").endswith(DIFFERENCE):
        stem, _, end = name.rpartition(DIFFERENCE)
        of = f"`{stem}` of the trial less that of the other one"
        return units.get(stem, ""), f"{ENDS[end]} of the 95% interval of it" if end else of
    if name in known:
        return known[name].unit or units.get(name, ""), known[name].help
    if is_interval_end(name, {*units, *known}):
        stem, _, end = name.rpartition("_")
        return units.get(stem, ""), f"{ENDS[f'_{end}']} of the 95% interval of `{stem}`"
    if name.startswith("test_"):
        of = f"as `{name.replace('test_', 'val_', 1)}`, on the test set, read once for the points of the front"
        return units.get(name.replace("test_", "val_", 1), ""), of
    return units.get(name, ""), ""
