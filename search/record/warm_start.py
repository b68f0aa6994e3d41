"""Measurements of earlier runs that a new run need not repeat: accuracies of any machine, rates of this one.

A measurement holds if the configuration is one of the new space, all settings that are not searched are equal, and the
data are the same. A metric of training also needs the same number of epochs, a metric of a probe the same machine with
the same versions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from search.record.events import Event, Opening
from search.record.journal import FILE_NAME, read_journal
from search.record.run_state import RunState
from search.space.space import Space
from trainables.contract import Scalar, load_trainable

MOST_RUNS = 20  # that are looked through without being asked for, the newest first


def recent_rates(space: Space, opening: Opening, results: Path) -> list[dict[str, Any]]:
    """Rates that the newest runs in a folder of runs measured, as the measurements of a `known` event.

    `opening`: the first event of the new run. A commit with changes, or none, is never taken as the same: then no rate
    is known.
    """
    if space.evaluation != "decoupled" or (opening.commit or "-dirty").endswith("-dirty"):
        return []
    paths = sorted(results.glob(f"*/{FILE_NAME}"), key=lambda path: path.stat().st_mtime, reverse=True)
    journals = {}
    for path in paths[:MOST_RUNS]:
        with contextlib.suppress(OSError, ValueError):  # not asked for, so no reason to complain
            journals[path.parent.name] = read_journal(path)
    return _known(space, opening, journals, probed_only=True)


def all_measurements(space: Space, opening: Opening, runs: Sequence[Path]) -> list[dict[str, Any]]:
    """All measurements of these runs that hold for the new one.

    Raises:
        OSError, ValueError: one of them is not the folder of a run.
    """
    journals = {folder.name: read_journal(folder / FILE_NAME) for folder in runs}
    return _known(space, opening, journals, probed_only=False)


def _known(
    space: Space, opening: Opening, journals: Mapping[str, list[Event]], probed_only: bool
) -> list[dict[str, Any]]:
    known = load_trainable(space.trainable or "").METRICS or {}
    probed = {limit.metric: limit.metric in known and known[limit.metric].probed for limit in space.all_constraints}
    probed |= {objective.metric: space.is_probed(objective) for objective in space.objectives}
    measurements: list[dict[str, Any]] = []
    for name, journal in journals.items():
        run_state = RunState(journal)
        first = run_state.info
        if _training(first) != _training(opening):
            continue
        here = _fingerprint(first) == _fingerprint(opening)
        if not here and probed_only:
            continue
        for trial in run_state.trials.values():
            if trial.state not in ("complete", "stopped"):
                continue
            whole = trial.state == "complete" and trial.epochs == space.last_epoch
            holds = {metric: here if is_probed else whole and not probed_only for metric, is_probed in probed.items()}
            found = trial.own_metrics
            metrics = {metric: found[metric] for metric in holds if holds[metric] and metric in found}
            config = _config(space, trial.config)
            if metrics and config is not None:
                measurements.append({"config": config, "metrics": metrics, "source": f"{name} {trial.trial_id}"})
    return measurements


def _training(opening: Opening) -> tuple[Any, ...]:
    """Return what any metric depends on besides the configuration."""
    return Path(opening.trainable).name, opening.source, opening.data


def _fingerprint(opening: Opening) -> tuple[Any, ...]:
    """Return what a rate depends on besides the configuration and the data."""
    machine = opening.machine
    return opening.versions, opening.commit, machine.cpu_name, machine.cores, machine.gpus, machine.num_nodes


def _config(space: Space, config: Mapping[str, Any]) -> dict[str, Scalar] | None:
    """Choices of the new space that give this configuration; None: it has none."""
    parameters = load_trainable(space.trainable or "").PARAMETERS or {}
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    there = {**defaults, **config}
    chosen: dict[str, Scalar] = {}
    for name, parameter in space.parameters.items():
        if space.active(name, chosen):
            if there.get(name) is None or not parameter.contains(there[name]):
                return None
            chosen[name] = there[name]
    here = {**defaults, **space.fixed}
    others = (there.keys() | here.keys()) - space.parameters.keys()
    return chosen if all(there.get(name) == here.get(name) for name in others) else None
