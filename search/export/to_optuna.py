"""Copy of a run as a study in an Optuna storage, for optuna-dashboard and other readers of studies."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import optuna
import sqlalchemy
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from search.exit_codes import InputError
from search.front.objective import measured
from search.record.dataframes import Run
from search.record.trial import Trial
from search.report.optuna_trials import distribution, new_study
from search.text.configurations import format_setting

STATES = {
    "running": TrialState.RUNNING,
    "complete": TrialState.COMPLETE,
    "stopped": TrialState.PRUNED,
    "infeasible": TrialState.FAIL,
    "failed": TrialState.FAIL,
}
DATABASES, JOURNALS = (".db", ".sqlite", ".sqlite3"), (".log",)
TIMEOUT_SECONDS = 20  # wait for a reader's lock on the file
# A value above zero excludes a trial that the run does not compare, so that study and run have the same front.
# The dashboard knows only this name, not the named constraints of Optuna 5.
CONSTRAINTS = "constraints"


def export(run: Run, path: Path) -> tuple[int, int]:
    """Write the run's trials into the storage, which is made if it is missing; return the numbers of all and of new.

    A later call adds the changes since, and a dashboard that has the file open shows them. If a finished trial has
    changed, which Optuna does not allow (its rate was measured again, or the front changed), the study is written anew.
    Probes that only prepare other trials are left out. The first objective of each epoch is the trial's intermediate
    value; settings that were not searched are attributes of the study.

    Raises:
        InputError: as `storage_of`; also, the storage has another run of this name.
    """
    compared = {trial.trial_id for trial in run.state.candidates()}
    kinds = {name: _distribution(run, name) for name in run.state.parameters()}
    wanted = {t.trial_id: _frozen(run, t, t.trial_id in compared, kinds) for t in run.state.counted()}
    storage = storage_of(path)
    try:
        study = _study(run, storage)
        if study.user_attrs.get("began", run.info.time) != run.info.time:
            raise InputError(f"--optuna {path}: has another run with the name {run.name}; choose another file")
        there = {each.user_attrs["trial_id"]: each for each in study.get_trials(deepcopy=False)}
        if not all(name in wanted and _may_become(old, wanted[name]) for name, old in there.items()):
            optuna.delete_study(study_name=run.name, storage=storage)
            study, there = _study(run, storage), {}
        for name, frozen in wanted.items():
            if name not in there:
                study.add_trial(frozen)
            elif not there[name].state.is_finished():
                _bring_up_to_date(storage, there[name], frozen)
    finally:
        if isinstance(storage, RDBStorage):
            storage.remove_session()
            storage.engine.dispose()
    return len(wanted), len(wanted) - len(there)


def storage_of(path: Path) -> BaseStorage:
    """Return an Optuna storage in that file: SQLite (.db, .sqlite), or the much faster journal of Optuna (.log).

    Raises:
        InputError: the name has another ending.
    """
    if path.suffix in JOURNALS:
        return JournalStorage(JournalFileBackend(str(path)))
    if path.suffix not in DATABASES:
        raise InputError(f"--optuna {path}: expected a name that ends in {', '.join((*DATABASES, *JOURNALS))}")
    url = sqlalchemy.URL.create("sqlite", database=str(path))
    storage = RDBStorage(url.render_as_string(), {"connect_args": {"timeout": TIMEOUT_SECONDS}})
    # the copy can be made again, so it need not be on the disk before the next trial is written
    sqlalchemy.event.listen(storage.engine, "connect", lambda connected, _: connected.execute("PRAGMA synchronous=OFF"))
    return storage


def _study(run: Run, storage: BaseStorage) -> optuna.Study:
    objectives = run.state.objectives
    study = new_study(
        study_name=run.name, storage=storage, directions=[o.goal for o in objectives], load_if_exists=True
    )
    if not study.user_attrs:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            study.set_metric_names([o.metric for o in objectives])
        info = run.info
        known = {
            "what": "a copy of a run's journal; changes here have no effect on the run",
            "began": info.time,
            "data": info.data.description,
            "machine": info.machine.to_mapping(),
            "versions": info.versions,
            "commit": info.commit,
            "constraints": info.constraints,
            "fixed": {name: format_setting(value) for name, value in info.fixed.items()},
        }
        for name, value in known.items():
            study.set_user_attr(name, value)
    return study


def _frozen(run: Run, trial: Trial, compared: bool, kinds: Mapping[str, BaseDistribution]) -> FrozenTrial:
    """Return the trial in Optuna's form; a complete trial that lacks an objective is a failed one there."""
    objectives = run.state.objectives
    state = STATES[trial.state]
    if state is TrialState.COMPLETE and not measured(trial.metrics, objectives):
        state = TrialState.FAIL
    known = {"trial_id": trial.trial_id, "state": trial.state, "epochs": trial.epochs}
    if trial.reason:
        known["reason"] = trial.reason
    if trial.verdict:
        known["bound by"] = trial.verdict.bound_by
    goals = [o.metric for o in objectives]
    distributions = {name: kind for name, kind in kinds.items() if name in trial.config}
    curve = {epoch: event.metrics.get(goals[0], math.nan) for epoch, event in sorted(trial.curve.items())}
    frozen = create_trial(
        state=state,
        values=[trial.metrics[goal] for goal in goals] if state is TrialState.COMPLETE else None,
        params={name: trial.config[name] for name in distributions},
        distributions=distributions,
        user_attrs=known | {k: v for k, v in trial.metrics.items() if k not in goals and math.isfinite(v)},
        intermediate_values={epoch: value for epoch, value in curve.items() if math.isfinite(value)},
        system_attrs={CONSTRAINTS: [-1.0 if compared else 1.0]} if state is TrialState.COMPLETE else None,
    )
    ends = (trial.finished_at, trial.started_at + trial.seconds, trial.started_at)
    ended = next(end for end in ends if math.isfinite(end))  # seconds since 1970
    frozen.datetime_start = datetime.fromtimestamp(trial.started_at)
    frozen.datetime_complete = datetime.fromtimestamp(ended) if state.is_finished() else None
    return frozen


def _distribution(run: Run, name: str) -> BaseDistribution:
    """Return the distribution of the space file, extended to all values that trials had."""
    stated = run.info.parameters[name]
    found = [t.config[name] for t in run.state.trials.values() if name in t.config]
    ends = stated["values"] if "values" in stated else [stated["min"], stated["max"]]
    return distribution(stated, [*ends, *found])


def _may_become(old: FrozenTrial, new: FrozenTrial) -> bool:
    """Return whether the stored trial can stay: a finished one must be equal, a running one may have grown."""
    if old.params != new.params:
        return False
    if not old.state.is_finished():
        return True
    stored, wanted = ([each.state, each.values, each.user_attrs, each.system_attrs] for each in (old, new))
    return json.dumps(stored, sort_keys=True) == json.dumps(wanted, sort_keys=True)


def _bring_up_to_date(storage: BaseStorage, old: FrozenTrial, new: FrozenTrial) -> None:
    """Update a stored trial that was still running at the last export."""
    number = old._trial_id
    for epoch, measured_value in sorted(new.intermediate_values.items()):
        if old.intermediate_values.get(epoch) != measured_value:
            storage.set_trial_intermediate_value(number, epoch, measured_value)
    for name, value in new.user_attrs.items():
        if old.user_attrs.get(name) != value:
            storage.set_trial_user_attr(number, name, value)
    for name, value in new.system_attrs.items():
        storage.set_trial_system_attr(number, name, value)
    if new.state.is_finished():
        storage.set_trial_state_values(number, new.state, new.values if new.state is TrialState.COMPLETE else None)
