"""A results folder as DataFrames. Needs pandas, numpy, moocore and pydantic, so that a copied folder loads anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import pandas as pd

from search.record.columns import COLUMNS, describe_columns
from search.record.disk import write_atomically
from search.record.events import Opening
from search.record.journal import FILE_NAME, read_journal
from search.record.run_state import RunState, Trial
from search.text.configurations import format_setting


@dataclass(frozen=True)
class Run:
    """A run as read from its folder.

    `trials` has one row per trial started, with its last measurement; `curves` one per trial and epoch; `front` the
    rows of `trials` that make the Pareto front, best of the first objective first. Columns: `COLUMNS`, the settings as
    `config.<name>`, and the metrics, whose units and meanings `columns.md` in the folder tells.
    """

    folder: Path
    state: RunState  # the same as plain objects

    @property
    def name(self) -> str:
        """Of the folder, when the run began."""
        return str(self.info.name)

    @property
    def info(self) -> Opening:
        """The journal's `run` event: objectives, metrics with units, machine, data, versions, ..."""
        return self.state.info

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial started."""
        return _trials(self.state)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """One row per trial and epoch."""
        return _curves(self.state)

    @cached_property
    def front(self) -> pd.DataFrame:
        """The Pareto front, with the probability of each point that it truly belongs there."""
        front = self.trials.set_index("trial_id", drop=False).loc[[t.trial_id for t in self.state.front()]]
        front["front_probability"] = [self.front_probabilities[trial_id] for trial_id in front["trial_id"]]
        return front.reset_index(drop=True)

    @cached_property
    def front_probabilities(self) -> dict[str, float]:
        """How probable it is of each compared trial that it belongs to the front, as `RunState.front_probabilities`."""
        return self.state.front_probabilities()


def load(folder: str | Path) -> Run:
    """Read a results folder.

    Raises:
        FileNotFoundError: there is no journal in it.
        ValueError: what is called a journal is none.
    """
    journal = Path(folder) / FILE_NAME
    if not journal.is_file():
        raise FileNotFoundError(f"{folder}: not the folder of a run (no {FILE_NAME} in it)")
    return Run(Path(folder), RunState(read_journal(journal)))


def write_tables(run: Run) -> None:
    """Write trials, curves and front into the run's folder, each as .csv and .parquet, and what their columns mean."""
    for name, table in {"trials": run.trials, "curves": run.curves, "front": run.front}.items():
        write_atomically(run.folder / f"{name}.csv", partial(table.to_csv, index=False))
        write_atomically(run.folder / f"{name}.parquet", _one_type(table).to_parquet)
    text = describe_columns([*run.trials.columns, *run.curves.columns, *run.front.columns], run.info)
    write_atomically(run.folder / "columns.md", lambda path: path.write_text(text, encoding="utf-8"))


def _one_type(table: pd.DataFrame) -> pd.DataFrame:
    """Parquet has one type a column: a setting that is now a word, now a number is text there."""
    mixed = [name for name in table.columns if table[name].dtype == object]
    return table.assign(**{name: table[name].map(str, na_action="ignore").astype("string") for name in mixed})


def _trials(run_state: RunState) -> pd.DataFrame:
    trials = list(run_state.trials.values())
    columns: dict[str, Any] = {
        "trial_id": _words(t.trial_id for t in trials),
        "state": _words(t.state for t in trials),
        "reason": _words(t.reason for t in trials),
        "kind": _words(t.kind for t in trials),
    }
    for name in dict.fromkeys([*run_state.parameters(), *(name for t in trials for name in t.config)]):
        columns[f"config.{name}"] = _settings([t.config.get(name) for t in trials])
    for name in _metrics(run_state, trials):
        columns[name] = pd.array([t.metrics.get(name, math.nan) for t in trials], dtype="float64")
    columns |= {
        "epochs": pd.array([t.epochs for t in trials], dtype="int64"),
        "seconds": pd.array([t.seconds for t in trials], dtype="float64"),
        "setup_seconds": pd.array([t.setup_seconds for t in trials], dtype="float64"),
        **_verdicts(trials),
        "retries": pd.array([t.retries for t in trials], dtype="int64"),
        "started_at": pd.to_datetime(pd.Series([t.started_at for t in trials], dtype="float64"), unit="s", utc=True),
    }
    return pd.DataFrame(columns)


def _verdicts(trials: Sequence[Trial]) -> dict[str, Any]:
    """What bound each trial, and the first advice on it; the rest is in `Run.state`."""
    verdicts = [t.verdict for t in trials]
    first = [next(iter(v.advice), None) if v else None for v in verdicts]
    return {
        "bound_by": _words(v.bound_by if v else None for v in verdicts),
        "bound_share": pd.array([v.share if v else math.nan for v in verdicts], dtype="float64"),
        "advice": _words(f"{a.parameter}={format_setting(a.new)}" if a else None for a in first),
        "advice_gain": pd.array([a.gain if a else math.nan for a in first], dtype="float64"),
    }


def _curves(run_state: RunState) -> pd.DataFrame:
    trials = list(run_state.trials.values())
    rows = [(t.trial_id, epoch, t.curve[epoch]) for t in trials for epoch in sorted(t.curve)]
    columns: dict[str, Any] = {
        "trial_id": _words(trial_id for trial_id, _, _ in rows),
        "epoch": pd.array([epoch for _, epoch, _ in rows], dtype="int64"),
        "seconds": pd.array([event.seconds for _, _, event in rows], dtype="float64"),
        "decision": _words(event.decision for _, _, event in rows),
    }
    for name in _metrics(run_state, trials, tested=False):
        columns[name] = pd.array([e.metrics.get(name, math.nan) for _, _, e in rows], dtype="float64")
    return pd.DataFrame(columns)


def _metrics(run_state: RunState, trials: Sequence[Trial], tested: bool = True) -> list[str]:
    """The objectives first, then what the trainable says it reports, then whatever else was reported.

    A metric with the name of one of the `COLUMNS` cannot have a column beside it, and is in `Run.state` only.
    """
    reported = [name for t in trials for event in t.curve.values() for name in event.metrics]
    of_tests = [name for t in trials for name in t.test_metrics]
    names = dict.fromkeys([o.metric for o in run_state.objectives] + list(run_state.info.metrics))
    names |= dict.fromkeys(reported + of_tests)
    only_tested = set() if tested else set(of_tests) - set(reported)
    return [name for name in names if name not in COLUMNS and name not in only_tested]


def _words(values: Iterable[str | None]) -> Any:
    return pd.array(list(values), dtype="string")


def _settings(values: Sequence[Any]) -> Any:
    """Values of one setting, with the type that they share; absent ones (`when` did not hold) are NA."""
    types = {type(value) for value in values if value is not None}
    for shared, dtype in (({bool}, "boolean"), ({int}, "Int64"), ({int, float}, "Float64"), ({str}, "string")):
        if types <= shared:
            return pd.array(list(values), dtype=cast(Any, dtype))
    return pd.Series([pd.NA if value is None else value for value in values], dtype=object)
