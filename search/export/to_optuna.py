"""A run as a study in an Optuna storage, for optuna-dashboard and all that reads one: a copy, never the run itself."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from search.front.objective import measured
from search.record.history import Trial
from search.results import Run
from search.text.wording import setting

STATES = {
    "running": TrialState.RUNNING,
    "complete": TrialState.COMPLETE,
    "stopped": TrialState.PRUNED,
    "infeasible": TrialState.FAIL,
    "failed": TrialState.FAIL,
}
DATABASES, JOURNALS = (".db", ".sqlite", ".sqlite3"), (".log",)
PATIENCE_SECONDS = 20  # for a reader to be done with the file
# Above zero: not compared by the run. So the front of the study is that of the run, to the dashboard too, which knows
# this name only, and not the constraints with names of Optuna 5.
CONSTRAINTS = "constraints"


def export(run: Run, path: Path) -> tuple[int, int]:
    """Write the run's trials into the storage (`storage_of`), making it if need be; how many there are, how many new.

    Called again while the run goes on, it adds what has happened since, and a dashboard that has the file open shows
    it. Where something changed that Optuna does not let change (a rate was measured again, the front is another), the
    study is written anew. Probes that only prepare other trials are left out. The first objective of each epoch is the
    trial's intermediate value; settings that were not searched are attributes of the study.

    Raises:
        ValueError: as `storage_of`.
    """
    storage = storage_of(path)
    try:
        return _export(run, storage)
    finally:
        if isinstance(storage, RDBStorage):
            storage.remove_session()
            storage.engine.dispose()


def _export(run: Run, storage: BaseStorage) -> tuple[int, int]:
    study = _study(run, storage)
    trials = run.history.counted()
    compared = {trial.trial_id for trial in run.history.candidates()}
    kinds = {name: _distribution(run, name) for name in run.history.parameters()}
    wanted = {trial.trial_id: _frozen(run, trial, trial.trial_id in compared, kinds) for trial in trials}
    there = {each.user_attrs["trial_id"]: each for each in study.get_trials(deepcopy=False)}
    if not all(name in wanted and _may_become(old, wanted[name]) for name, old in there.items()):
        optuna.delete_study(study_name=run.name, storage=storage)
        study, there = _study(run, storage), {}
    for name, frozen in wanted.items():
        if name not in there:
            study.add_trial(frozen)
        elif not there[name].state.is_finished():
            _bring_up_to_date(storage, there[name], frozen)
    return len(wanted), len(wanted) - len(there)


def storage_of(path: Path) -> BaseStorage:
    """An Optuna storage in that file: SQLite (.db, .sqlite), or Optuna's own journal (.log), which is far faster.

    Raises:
        ValueError: the name ends in none of them.
    """
    if path.suffix in JOURNALS:
        return JournalStorage(JournalFileBackend(str(path)))
    if path.suffix not in DATABASES:
        raise ValueError(f"{path}: expected a name that ends in {', '.join((*DATABASES, *JOURNALS))}")
    url = sqlalchemy.URL.create("sqlite", database=str(path))
    storage = RDBStorage(url.render_as_string(), {"connect_args": {"timeout": PATIENCE_SECONDS}})
    sqlalchemy.event.listen(storage.engine, "connect", _hasty)
    return storage


def _hasty(connection: Any, record: object) -> None:
    """A copy that can be made again need not be on the disk before the next trial is written."""
    connection.execute("PRAGMA synchronous=OFF")


def _study(run: Run, storage: BaseStorage) -> optuna.Study:
    objectives = run.history.objectives
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it announces each study
    study = optuna.create_study(
        study_name=run.name, storage=storage, directions=[o.goal for o in objectives], load_if_exists=True
    )
    optuna.logging.set_verbosity(level)
    if not study.user_attrs:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            study.set_metric_names([o.metric for o in objectives])
        for name, value in _described(run).items():
            study.set_user_attr(name, value)
    return study


def _described(run: Run) -> dict[str, Any]:
    info = run.info
    return {
        "what": "a copy of a run's journal; nothing that is changed here reaches the run",
        "data": info["data"]["description"],
        "machine": info["machine"],
        "versions": info["versions"],
        "commit": info.get("commit"),
        "constraints": info.get("constraints", []),
        "fixed": {name: setting(value) for name, value in info.get("space", {}).get("fixed", {}).items()},
    }


def _frozen(run: Run, trial: Trial, compared: bool, kinds: Mapping[str, BaseDistribution]) -> FrozenTrial:
    """The trial as Optuna has it; one that is complete without every objective has failed, as Optuna sees it."""
    objectives = run.history.objectives
    state = STATES[trial.state]
    if state is TrialState.COMPLETE and not measured(trial.metrics, objectives):
        state = TrialState.FAIL
    distributions = {name: kind for name, kind in kinds.items() if name in trial.config}
    first = objectives[0].metric
    curve = {epoch: event["metrics"].get(first, math.nan) for epoch, event in sorted(trial.curve.items())}
    frozen = create_trial(
        state=state,
        values=[trial.metrics[o.metric] for o in objectives] if state is TrialState.COMPLETE else None,
        params={name: trial.config[name] for name in distributions},
        distributions=distributions,
        user_attrs=_attributes(run, trial),
        intermediate_values={epoch: value for epoch, value in curve.items() if math.isfinite(value)},
        system_attrs={CONSTRAINTS: [-1.0 if compared else 1.0]} if state is TrialState.COMPLETE else None,
    )
    frozen.datetime_start = datetime.fromtimestamp(trial.started_at)
    frozen.datetime_complete = datetime.fromtimestamp(_ended(trial)) if state.is_finished() else None
    return frozen


def _ended(trial: Trial) -> float:
    """Seconds since 1970."""
    if math.isfinite(trial.finished_at):
        return trial.finished_at
    return trial.started_at + (trial.seconds if math.isfinite(trial.seconds) else 0.0)


def _attributes(run: Run, trial: Trial) -> dict[str, Any]:
    """What else is known of it: its name here, how it ended and why, and what it measured."""
    known = {"trial_id": trial.trial_id, "state": trial.state, "epochs": trial.epochs}
    if trial.reason:
        known["reason"] = trial.reason
    if trial.verdict:
        known["bound by"] = trial.verdict["bound_by"]
    objectives = {o.metric for o in run.history.objectives}
    others = {k: v for k, v in trial.metrics.items() if k not in objectives and math.isfinite(v)}
    return known | others


def _distribution(run: Run, name: str) -> BaseDistribution:
    """As the space file states it. The values of a list have places of their own; other values a range."""
    stated = run.info["space"]["parameters"][name]
    found = [t.config[name] for t in run.history.trials.values() if name in t.config]
    if "values" in stated:
        return CategoricalDistribution(list(dict.fromkeys([*stated["values"], *found])))
    low, high, log = min(stated["min"], *found), max(stated["max"], *found), bool(stated.get("log"))
    if all(type(value) is int for value in (low, high, *found)):
        return IntDistribution(low, high, log)
    return FloatDistribution(low, high, log=log)


def _may_become(old: FrozenTrial, new: FrozenTrial) -> bool:
    """Whether what the storage has can stay: a finished trial must be the same, another one may have grown."""
    if old.params != new.params:
        return False
    if not old.state.is_finished():
        return True
    stored, wanted = ([each.state, each.values, each.user_attrs, each.system_attrs] for each in (old, new))
    return json.dumps(stored, sort_keys=True) == json.dumps(wanted, sort_keys=True)


def _bring_up_to_date(storage: BaseStorage, old: FrozenTrial, new: FrozenTrial) -> None:
    """A trial that was running when it was written last."""
    number = old._trial_id
    for epoch in sorted(new.intermediate_values.keys() - old.intermediate_values.keys()):
        storage.set_trial_intermediate_value(number, epoch, new.intermediate_values[epoch])
    for name, value in new.user_attrs.items():
        if old.user_attrs.get(name) != value:
            storage.set_trial_user_attr(number, name, value)
    for name, value in new.system_attrs.items():
        storage.set_trial_system_attr(number, name, value)
    if new.state.is_finished():
        storage.set_trial_state_values(number, new.state, _values(new))


def _values(trial: FrozenTrial) -> Sequence[float] | None:
    return trial.values if trial.state is TrialState.COMPLETE else None
