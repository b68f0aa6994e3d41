"""What earlier runs measured and a new one need not: accuracies from anywhere, rates of this very machine.

A measurement counts where the configuration is one of the new space and whatever is not searched is the same, the data
are the same and, for what takes training, its length. What a probe measures counts only from the same machine with the
same versions of everything that could move it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from search.record.events import Event, Opening
from search.record.journal import FILE_NAME, read_journal
from search.record.run_state import RunState, Trial
from search.space.space import Space
from trainables.contract import Scalar, load_trainable

MOST_RUNS = 20  # that are looked through without being asked for, the newest first


def recent_rates(space: Space, opening: Opening, results: Path) -> list[dict[str, Any]]:
    """What the newest runs in a folder of runs know of rates: the measurements of a `known` event.

    `opening` is what the new run's first event will say.

    Of a commit with changes, or of none, nobody can say whether it is the same: then nothing is known.
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
    """The same of all that these runs know.

    Raises:
        OSError, ValueError: one of them is not the folder of a run.
    """
    journals = {folder.name: read_journal(folder / FILE_NAME) for folder in runs}
    return _known(space, opening, journals, probed_only=False)


def _known(
    space: Space, opening: Opening, journals: Mapping[str, list[Event]], probed_only: bool
) -> list[dict[str, Any]]:
    measurements: list[dict[str, Any]] = []
    for name, journal in journals.items():
        run_state = RunState(journal)
        first = run_state.info
        if (first.trainable, first.data) != (opening.trainable, opening.data):
            continue
        here = _fingerprint(first) == _fingerprint(opening)
        if not here and probed_only:
            continue
        for trial in run_state.trials.values():
            metrics = dict(_useful(space, trial, here, probed_only))
            config = _config(space, trial.config)
            if metrics and config is not None:
                measurements.append({"config": config, "metrics": metrics, "source": f"{name} {trial.trial_id}"})
    return measurements


def _fingerprint(opening: Opening) -> tuple[Any, ...]:
    """Return what a rate depends on besides the configuration and the data."""
    machine = opening.machine
    return opening.versions, opening.commit, machine.cpu_name, machine.cores, machine.gpus, machine.num_nodes


def _useful(space: Space, trial: Trial, here: bool, probed_only: bool) -> Iterator[tuple[str, float]]:
    """Of a trial's metrics, those that the search looks at and that hold for a new run."""
    known = load_trainable(space.trainable or "").METRICS or {}
    probed = {bound.metric: bound.metric in known and known[bound.metric].probed for bound in space.all_constraints}
    probed |= {objective.metric: space.is_probed(objective) for objective in space.objectives}
    whole = trial.state == "complete" and trial.epochs == space.last_epoch
    for name, is_probed in probed.items():
        holds = here if is_probed else whole and not probed_only
        if holds and name in trial.metrics and trial.state in ("complete", "stopped"):
            yield name, trial.metrics[name]


def _config(space: Space, config: Mapping[str, Any]) -> dict[str, Scalar] | None:
    """What the new space would have to choose to run this; None: it cannot."""
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
