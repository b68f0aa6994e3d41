"""Measurements of earlier runs: those that hold for a new run, and others that tell what may be good there.

A measurement holds if the configuration is one of the new space, all settings that are not searched are equal, and the
data are the same. A metric of training also needs the same number of epochs, a metric of a probe the same machine with
the same versions. Of runs that the user names, all other measurements of the same training count as `elsewhere`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from search.front.roles import is_interval_end
from search.front.targets import is_duration
from search.record.defaults import stated_defaults
from search.record.events import Event, Opening
from search.record.journal import FILE_NAME, read_journal
from search.record.run_state import RunState
from search.space.space import Space
from trainables.contract import Scalar

MOST_RUNS = 20  # that are looked through without being asked for, the newest first


def recent_rates(
    space: Space, opening: Opening, results: Path, other_than: Sequence[Path] = ()
) -> list[dict[str, Any]]:
    """Rates that the newest runs in a folder of runs measured, as the measurements of a `known` event.

    `other_than`: folders of runs whose measurements are known already.

    `opening`: the first event of the new run. A commit with changes, or none, is never taken as the same: then no rate
    is known.
    """
    if space.evaluation != "decoupled" or not _is_exact(opening.commit):
        return []
    known = {folder.resolve() for folder in other_than}
    paths = [path for path in results.glob(f"*/{FILE_NAME}") if path.parent.resolve() not in known]
    paths.sort(key=_changed_at, reverse=True)
    journals = list[tuple[str, list[Event]]]()
    for path in paths[:MOST_RUNS]:
        with contextlib.suppress(OSError, ValueError):  # not asked for, so no reason to complain
            journals.append((path.parent.name, read_journal(path)))
    return _known(space, opening, journals, probed_only=True)


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # it was removed meanwhile
        return 0.0


def all_measurements(space: Space, opening: Opening, runs: Sequence[Path]) -> list[dict[str, Any]]:
    """All measurements of these runs that hold for the new one.

    Raises:
        OSError, ValueError: one of them is not the folder of a run.
    """
    folders = list(dict.fromkeys(folder.resolve() for folder in runs))
    names = [folder.name for folder in folders]
    journals = list[tuple[str, list[Event]]]()
    for folder in folders:
        name = folder.name if names.count(folder.name) == 1 else f"{folder.parent.name}/{folder.name}"
        journals.append((name, read_journal(folder / FILE_NAME)))
    return _known(space, opening, journals, probed_only=False)


def _known(
    space: Space, opening: Opening, journals: Iterable[tuple[str, list[Event]]], probed_only: bool
) -> list[dict[str, Any]]:
    known = space.loaded_trainable.METRICS or {}
    probed = {limit.metric: limit.metric in known and known[limit.metric].probed for limit in space.all_constraints}
    probed |= {objective.metric: space.is_probed(objective) for objective in space.objectives}
    measurements: list[dict[str, Any]] = []
    for name, journal in journals:
        run_state = RunState(journal)
        first = run_state.info
        same_training = _training(first) == _training(opening)
        same_machine = _fingerprint(first) == _fingerprint(opening) and _is_exact(opening.commit)
        if Path(first.trainable).name != Path(opening.trainable).name or (probed_only and not same_machine):
            continue
        for trial in run_state.trials.values():
            chosen = _config(space, {**first.defaults, **trial.config})
            if trial.state not in ("complete", "stopped") or chosen is None:
                continue
            config, same_settings = chosen
            taken = [metric for metric in trial.own_metrics if metric in probed]
            if trial.state != "complete" or probed_only:
                taken = [metric for metric in taken if probed[metric]]
            as_long = trial.epochs == space.last_epoch(trial.config)
            holds = {
                metric: (same_machine or not (probed[metric] or is_duration(metric))) and (as_long or probed[metric])
                for metric in taken
            }
            holding = [metric for metric in taken if same_training and same_settings and holds[metric]]
            metrics = _with_intervals(trial.own_metrics, holding)
            elsewhere = _with_intervals(trial.own_metrics, set() if probed_only else {*taken} - {*holding})
            if metrics or elsewhere:
                source = f"{name} {trial.trial_id}"
                measurements.append({"config": config, "metrics": metrics, "source": source, "elsewhere": elsewhere})
    return measurements


def _is_exact(commit: str | None) -> bool:
    """Return whether a commit says what the code was: one with changes does not."""
    return commit is not None and not commit.endswith("-dirty")


def _with_intervals(measured: Mapping[str, float], names: Collection[str]) -> dict[str, float]:
    """Return these metrics, and the ends of their intervals as far as they are known."""
    return {name: value for name, value in measured.items() if name in names or is_interval_end(name, names)}


def _training(opening: Opening) -> tuple[Any, ...]:
    """Return what any metric depends on besides the configuration."""
    return Path(opening.trainable).name, opening.source, opening.data


def _fingerprint(opening: Opening) -> tuple[Any, ...]:
    """Return what a rate depends on besides the configuration and the data."""
    machine, share = opening.machine, opening.concurrent_trials
    return opening.versions, opening.commit, machine.cpu_name, machine.cores, machine.gpus, machine.num_nodes, share


def _config(space: Space, config: Mapping[str, Any]) -> tuple[dict[str, Scalar], bool] | None:
    """Choices of the new space that give this configuration, and whether all else is equal; None: there are none."""
    defaults = stated_defaults(space.loaded_trainable)
    there = {**defaults, **config}
    chosen: dict[str, Scalar] = {}
    for name, parameter in space.parameters.items():
        if space.active(name, chosen):
            if there.get(name) is None or not parameter.contains(there[name]):
                return None
            chosen[name] = there[name]
    here = {**defaults, **space.fixed}
    others = (there.keys() | here.keys()) - space.parameters.keys()
    return chosen, all(there.get(name) == here.get(name) for name in others)
