"""A results folder as DataFrames. Needs pandas, numpy, moocore and pydantic, so that a copied folder loads anywhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import pandas as pd

from search.front.intervals import least_value
from search.front.neighbour import gains
from search.front.roles import ENDS
from search.record.columns import COLUMNS, DIFFERENCE, describe_columns
from search.record.disk import write_atomically, write_text_atomically
from search.record.events import Opening
from search.record.front_places import FrontPlace, front_places
from search.record.journal import FILE_NAME, read_journal
from search.record.run_end import is_wanted_end
from search.record.run_state import RunState
from search.text.configurations import format_setting
from search.text.numbers import plural

WORDS = ("trial_id", "state", "reason", "kind")  # columns of text that a trial has as attributes


@dataclass(frozen=True, repr=False)
class Run:
    """A run as read from its folder.

    `trials` has one row per trial started, with its last measurement; `curves` one per trial and epoch; `front` the
    rows of `trials` that make the Pareto front, best of the first objective first. Columns: `COLUMNS`, the settings as
    `config.<name>`, and the metrics, whose units and meanings `columns.md` in the folder tells.
    """

    folder: Path
    state: RunState  # the same as plain objects

    def __repr__(self) -> str:
        space = f" of {self.info.space_file}" if self.info.space_file else ""
        ended = f"ended: {self.state.end}" if is_wanted_end(self.state.end) else self.state.end or "not ended"
        trials = f"{plural(len(self.state.trials), 'trial')}, {self.state.counts()['complete']} complete"
        front = f"front of {plural(len(self.state.front()), 'point')}"
        return f"<Run {self.name}{space}; {ended}; {trials}; {front}; in {self.folder}>"

    @property
    def name(self) -> str:
        """Name of the folder when the run began."""
        return self.info.name

    @property
    def info(self) -> Opening:
        """The journal's `run` event: objectives, metrics with units, machine, data, versions, ..."""
        return self.state.info

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial started."""
        state, trials = self.state, list(self.state.trials.values())
        columns: dict[str, Any] = {name: _words(getattr(t, name) for t in trials) for name in WORDS}
        for name in state.setting_names(trials):
            columns[f"config.{name}"] = _settings([t.config.get(name) for t in trials])
        measured = [t.metrics for t in trials]
        for name in _metrics(state):
            columns[name] = _metric(name, measured)
        verdicts = [t.verdict for t in trials]
        advice = [next(iter(gains(t.neighbours)), None) for t in trials]  # the best; all of it is in `state`
        columns |= {
            "epochs": pd.array([t.epochs for t in trials], dtype="int64"),
            "seconds": _floats(t.seconds for t in trials),
            "setup_seconds": _floats(t.setup_seconds for t in trials),
            "bound_by": _words(v.bound_by if v else None for v in verdicts),
            "bound_share": _floats(v.share if v else math.nan for v in verdicts),
            "advice": _words(f"{a.parameter}={format_setting(a.new)}" if a else None for a in advice),
            "advice_gain": _floats(e.ratio[0] if a and (e := a.estimate) else math.nan for a in advice),
            "retries": pd.array([t.retries for t in trials], dtype="int64"),
            "started_at": pd.to_datetime(
                pd.Series([t.started_at for t in trials], dtype="float64"), unit="s", utc=True
            ),
        }
        return pd.DataFrame(columns)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """One row per trial and epoch."""
        rows = [(t.trial_id, epoch, t.curve[epoch]) for t in self.state.trials.values() for epoch in sorted(t.curve)]
        columns: dict[str, Any] = {
            "trial_id": _words(trial_id for trial_id, _, _ in rows),
            "epoch": pd.array([epoch for _, epoch, _ in rows], dtype="int64"),
            "seconds": _floats(event.seconds for _, _, event in rows),
            "decision": _words(event.decision for _, _, event in rows),
        }
        for name in _metrics(self.state, tested=False):
            columns[name] = _metric(name, [event.metrics for _, _, event in rows])
        return pd.DataFrame(columns)

    @cached_property
    def front(self) -> pd.DataFrame:
        """The Pareto front, with the probability of each point that it truly belongs there, and its alternatives."""
        front = self.trials.set_index("trial_id", drop=False).loc[[t.trial_id for t in self.state.front()]]
        front["front_probability"] = [place.probability for place in self.front_places]
        front["alternatives"] = _words(" ".join(t.trial_id for t in place.alternatives) for place in self.front_places)
        front["place_probability"] = [place.together for place in self.front_places]
        return front.reset_index(drop=True)

    @cached_property
    def differences(self) -> pd.DataFrame:
        """One row per pair of trials on the front, or whose rates were measured in turns.

        Rates are compared by their ratio, other objectives by their difference.
        """
        state = self.state
        on_front = itertools.combinations(state.front(), 2)
        named = {frozenset(trial.trial_id for trial in pair): pair for pair in (*on_front, *state.pairs)}
        pairs = list(named.values())
        columns = {
            "trial_id": _words(one.trial_id for one, _ in pairs),
            "other_trial_id": _words(other.trial_id for _, other in pairs),
            "turns": pd.array([state.num_rounds(*pair) for pair in pairs], dtype="int64"),
        }
        ratios = [ratio.ratio if ratio else (math.nan,) * 3 for ratio in (state.rate_ratio(*p) for p in pairs)]
        columns |= {f"rate_ratio{end}": _floats(ratio[i] for ratio in ratios) for i, end in enumerate(("", *ENDS))}
        for metric in [o.metric for o in state.objectives if o.metric != state.rate_metric]:
            found = [state.difference(*pair, metric) for pair in pairs]
            name = f"{metric}{DIFFERENCE}"
            columns[name] = _floats(each.mean for each in found)
            columns[f"{name}_low"] = _floats(each.low for each in found)
            columns[f"{name}_high"] = _floats(each.high for each in found)
        return pd.DataFrame(columns)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """All tables, by the names of their files."""
        return {name: getattr(self, name) for name in ("trials", "curves", "front", "differences")}

    @cached_property
    def front_probabilities(self) -> dict[str, float]:
        """Cached `RunState.front_probabilities`."""
        return self.state.front_probabilities()

    @cached_property
    def front_places(self) -> list[FrontPlace]:
        """Cached `front_places`."""
        return front_places(self.state)


def load(folder: str | Path) -> Run:
    """Read a results folder.

    Raises:
        FileNotFoundError: the folder contains no journal.
        ValueError: the journal is not one of a run.
    """
    journal = Path(folder) / FILE_NAME
    if not journal.is_file():
        raise FileNotFoundError(f"{folder}: not the folder of a run (no {FILE_NAME} in it)")
    return Run(Path(folder), RunState(read_journal(journal)))


def write_tables(run: Run) -> None:
    """Write all tables into the run's folder, each as .csv and .parquet, and `columns.md` about them."""
    for name, table in run.tables.items():
        write_atomically(run.folder / f"{name}.csv", partial(table.to_csv, index=False))
        # Parquet has one type per column: a setting that is partly text and partly numbers becomes text
        mixed = [column for column in table.columns if table[column].dtype == object]
        text = {column: table[column].map(str, na_action="ignore").astype("string") for column in mixed}
        write_atomically(run.folder / f"{name}.parquet", table.assign(**text).to_parquet)
    names = [name for table in run.tables.values() for name in table.columns]
    described = describe_columns(names, run.info.trainable, run.info.metrics)
    write_text_atomically(run.folder / "columns.md", described)


def _metrics(run_state: RunState, tested: bool = True) -> list[str]:
    """Return the objectives, then the metrics that the trainable names, then all others that were reported.

    A metric with the name of one of the `COLUMNS` cannot have a column beside it, and is in `Run.state` only.
    """
    trials = run_state.trials.values()
    reported = [name for t in trials for event in t.curve.values() for name in event.metrics]
    of_tests = [name for t in trials for name in t.test_metrics]
    names = dict.fromkeys([o.metric for o in run_state.objectives] + list(run_state.info.metrics))
    names |= dict.fromkeys(reported + of_tests)
    only_tested = set() if tested else set(of_tests) - set(reported)
    return [name for name in names if name not in COLUMNS and name not in only_tested]


def _words(values: Iterable[str | None]) -> Any:
    return pd.array(list(values), dtype="string")


def _metric(name: str, measured: Sequence[Mapping[str, float]]) -> Any:
    """Return the column of a metric."""
    least = least_value(name.removesuffix("_low")) if name.endswith("_low") else -math.inf
    return _floats(max(metrics.get(name, math.nan), least) for metrics in measured)


def _floats(values: Iterable[float | None]) -> Any:
    return pd.array(list(values), dtype="float64")


def _settings(values: Sequence[Any]) -> Any:
    """Values of one setting, with the type that they share; absent ones (`when` did not hold) are NA."""
    types = {type(value) for value in values if value is not None}
    for shared, dtype in (({bool}, "boolean"), ({int}, "Int64"), ({int, float}, "Float64"), ({str}, "string")):
        if types <= shared:
            return pd.array(list(values), dtype=cast(Any, dtype))
    return pd.Series([pd.NA if value is None else value for value in values], dtype=object)
