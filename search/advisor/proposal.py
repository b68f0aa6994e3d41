"""Messages between the Advisor and the runner of the trials."""

from dataclasses import dataclass
from enum import StrEnum

from search.states import Kind
from trainables.contract import Scalar


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
