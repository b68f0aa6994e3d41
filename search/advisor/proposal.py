"""Messages between the Advisor and the runner of the trials."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from trainables.contract import Scalar

Kind = Literal["train", "probe"]
State = Literal["complete", "stopped", "infeasible", "failed"]


class Decision(StrEnum):
    """Answer to a measurement."""

    CONTINUE = "continue"
    STOP = "stop"


@dataclass(frozen=True)
class Proposal:
    """Configuration to run. `probe`: measure only the metrics of a probe."""

    trial_id: str
    config: dict[str, Scalar]
    kind: Kind = "train"
