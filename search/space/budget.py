"""What proposes the trials, how long they are, what ends them early, and when the search is over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from search.limits import LARGEST
from search.space.faults import Fault
from search.space.parameters import STRICT, Choice, Range

Count = Annotated[int, Field(ge=1, lt=LARGEST)]
Evaluation = Literal["coupled", "decoupled", "probe"]


class SearcherSettings(BaseModel):
    """What proposes configurations."""

    model_config = STRICT
    name: Literal["gp", "tpe", "nsga2", "random", "grid"] = "gp"
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0


class StoppingSettings(BaseModel):
    """What ends trials early.

    forecast: whatever promises less per epoch than a new trial would. halving: at `grace_epochs`, then at
    `reduction_factor` times as many, and so on, whatever is behind the others. auto: forecast for the searcher gp where
    hours or total_epochs bound the search, as what is saved buys other trials; none where only trials are counted.
    """

    model_config = STRICT
    name: Literal["auto", "none", "halving", "forecast"] = "auto"
    grace_epochs: Count = 1
    reduction_factor: Annotated[int, Field(ge=2)] = 3


class Budget(BaseModel):
    """When to start no further trial: whichever comes first. `epochs` are those of one trial at full length.

    `least_gain`: the part of the front's hypervolume that the next trial must be expected to add. `repeats`: how often
    the points of the front are measured again, in turn, before it is published.
    """

    model_config = STRICT
    trials: Count | None = None
    epochs: Count = 1
    hours: Annotated[float, Field(gt=0)] | None = None
    total_epochs: Count | None = None
    least_gain: Annotated[float, Field(gt=0, lt=1)] | None = None
    repeats: Annotated[int, Field(ge=0, lt=LARGEST)] = 1


def budget_faults(
    evaluation: Evaluation,
    parameters: Mapping[str, Choice | Range],
    searcher: SearcherSettings,
    stopping: StoppingSettings,
    budget: Budget,
) -> Iterator[Fault]:
    """All that is wrong with them together."""
    if searcher.name == "grid" and evaluation == "decoupled":
        yield Fault(("evaluation",), "a grid trains every combination; decoupled leaves some out; set coupled")
    if searcher.name == "grid":
        for name, parameter in parameters.items():
            if isinstance(parameter, Range):
                yield Fault(
                    ("searcher", "name"), f"a grid needs values, and {name} is a range; give values, or use tpe"
                )
    elif budget.trials is None and budget.hours is None and budget.total_epochs is None:
        yield Fault(("budget",), "the search would never end; set trials, hours or total_epochs")
    if budget.least_gain is not None and searcher.name != "gp":
        yield Fault(("budget", "least_gain"), f"{searcher.name} expects nothing of its trials; leave it out, or use gp")
    if evaluation == "probe":
        yield from _probe_faults(stopping, budget)
    if budget.total_epochs is not None and budget.total_epochs < budget.epochs:
        yield Fault(("budget", "total_epochs"), f"found {budget.total_epochs}; one trial alone has {budget.epochs}")


def _probe_faults(stopping: StoppingSettings, budget: Budget) -> Iterator[Fault]:
    """A probe is over before its first epoch."""
    if stopping.name not in ("none", "auto"):
        yield Fault(("stopping", "name"), f'found "{stopping.name}"; probes have no epochs to be stopped at')
    for name in ("epochs", "total_epochs"):
        if (epochs := getattr(budget, name)) not in (None, 1):
            yield Fault(("budget", name), f"found {epochs}; probes have no epochs; leave it out")
