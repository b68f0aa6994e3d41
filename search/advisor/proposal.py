"""The words between the Advisor and whoever runs the trials."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from trainables.contract import Scalar

State = Literal["complete", "stopped", "infeasible", "failed"]


class Decision(StrEnum):
    """The answer to a measurement."""

    CONTINUE = "continue"
    STOP = "stop"


class UnknownTrialError(ValueError):
    """No trial of that name was ever proposed."""


@dataclass(frozen=True)
class Proposal:
    """A configuration to run. `probe`: only what a probe measures is wanted of it."""

    trial_id: str
    config: dict[str, Scalar]
    kind: Literal["train", "probe"] = "train"


@dataclass(frozen=True)
class FinishedTrial:
    """A trial that came to its end, with its last measurement. `metrics` holds finite values only."""

    trial_id: str
    config: dict[str, Scalar]
    metrics: dict[str, float]
    epoch: int
