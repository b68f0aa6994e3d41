"""Defaults of a run's settings: those that it had, where this version has others."""

from __future__ import annotations

from search.record.events import Opening
from trainables.contract import Scalar, Trainable, find_trainable


def stated_defaults(trainable: Trainable) -> dict[str, Scalar]:
    """Return the defaults of a trainable's parameters, without those of which nothing is stated."""
    return {name: row.default for name, row in (trainable.PARAMETERS or {}).items() if row.default is not None}


def changed_defaults(info: Opening) -> dict[str, Scalar]:
    """Return the defaults of a run that have another value in this version, by name.

    Runs of earlier versions do not say theirs; a user's file has its own, which are read only where it is trained.
    """
    trainable = None if info.source else find_trainable(info.trainable)
    now = stated_defaults(trainable) if trainable else {}
    return {name: value for name, value in info.defaults.items() if name in now and now[name] != value}
