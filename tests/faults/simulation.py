"""Whole runs without Ray and without training, so that a test can break off hundreds of them at any event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from search.advisor.proposal import Decision, Proposal
from search.execution.trial_actor import Finished, Measured
from search.record.events import Event
from search.record.journal import FILE_NAME, Journal, Listener, read_journal
from search.record.run_state import RunState
from search.space.machine import describe_machine
from search.space.parsing import parse_space
from search.space.space import Space
from search.study.opening import description
from search.study.study import Study
from trainables.contract import Resources
from trainables.replay import curve

KEYS: dict[str, Any] = {
    "trainable": "replay",
    "objectives": [
        {"metric": "val_accuracy", "goal": "maximize"},
        {"metric": "images_per_second", "goal": "maximize"},
    ],
    "parameters": {
        "learning_rate": {"min": 0.001, "max": 0.5, "log": True},
        "batch_size": {"values": [64, 128, 256, 512]},
    },
    "searcher": {"name": "tpe"},
    "stopping": {"name": "none"},
    "budget": {"trials": 6, "epochs": 3},
    "data": {"name": "generated"},
}


class Killed(BaseException):
    """What a kill -9 looks like from within: nothing further happens."""


def a_space(**changed: Any) -> Space:
    """The space of `KEYS`, with some of them changed."""
    return parse_space({**KEYS, **changed})


def opening(space: Space, name: str = "run") -> dict[str, Any]:
    """What the first line of its journal says."""
    return {
        **description(space, space.data, Path("results")),
        "name": name,
        "machine": {**describe_machine().to_mapping(), "num_nodes": 1},
        "versions": {"python": "3"},
        "commit": None,
        "command": ["python", "-m", "search.run", "space.yaml"],
        "left_out": [],
        "space_file": "space.yaml",
    }


def simulate(folder: Path, space: Space, listeners: Sequence[Listener] = ()) -> list[Event]:
    """Run a search in `folder`, or go on with the one that is there; returns its journal."""
    (folder / "trials").mkdir(parents=True, exist_ok=True)
    path = folder / FILE_NAME
    past = read_journal(path) if path.exists() and path.stat().st_size else []
    with Journal(path, listeners, run_state=RunState(past)) as journal:
        if past:
            past.append(journal.append("resume", command=[], budget=space.budget.model_dump()))
        else:
            past.append(journal.append("run", **opening(space, folder.name)))
        study = Study(space, space.data, folder, journal, Resources(cpus=1), "pool", past)
        while (proposal := study.propose()) is not None:
            train(study, proposal, space.budget.epochs)
        journal.append("end", reason=study.why_ended())
    return read_journal(path)


def train(study: Study, proposal: Proposal, epochs: int) -> None:
    """As a trial's workers would, behind what the journal knows of it."""
    known = study.trial_config(proposal)["last_epoch"]
    for epoch in range(max(known, 0) + 1, epochs + 1):
        measured = Measured(epoch, curve(proposal.config, epoch), 0.1 * epoch, 0.0)
        if study.observe(proposal.trial_id, measured) is Decision.STOP:
            return
    study.finish(proposal.trial_id, Finished("complete", None, 0.1 * epochs, 0.0))


def killing(when: Callable[[int], bool]) -> Listener:
    """A listener that kills the run after the events, counted from 1, for which `when` says so; not after its end."""
    number = 0

    def listen(event: Event) -> None:
        nonlocal number
        number += 1
        if when(number) and event.event != "end":
            raise Killed

    return listen


def facts(events: Sequence[Event]) -> list[tuple[Any, ...]]:
    """What a search did, without the times: configurations, measured values, ends."""
    return [
        tuple(getattr(e, name, None) for name in ("event", "trial_id", "config", "epoch", "metrics", "state"))
        for e in events
        if e.event in ("start", "measurement", "finish")
    ]
