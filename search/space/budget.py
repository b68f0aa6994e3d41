"""Searcher, stopping rule and budget of a space file, and the checks of their combination."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from search.limits import MAX_COUNT
from search.space.parameters import STRICT, Choice, Range
from search.space.validation import Problem
from trainables.contract import EPOCHS

USUAL_LENGTHS = 20  # full trainings that are assumed to fit where hours bound the search
MAX_HOURS = 1_000_000  # a century
Count = Annotated[int, Field(ge=1, lt=MAX_COUNT)]
Hours = Annotated[float, Field(gt=0, le=MAX_HOURS)]
Evaluation = Literal["coupled", "decoupled", "probe"]


class SearcherSettings(BaseModel):
    """Algorithm that proposes configurations, and its seed."""

    model_config = STRICT
    name: Literal["gp", "tpe", "nsga2", "random", "grid"] = "gp"
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0


class StoppingSettings(BaseModel):
    """Rule that stops trials early.

    forecast: stop a trial that promises less per epoch than a new trial would. auto: forecast where hours, gpu_hours or
    total_epochs limit the search, because saved epochs pay for other trials; else none, as `Space.stopping_rule` says.
    """

    model_config = STRICT
    name: Literal["auto", "none", "forecast"] = "auto"


class Budget(BaseModel):
    """Limits of the search; the first one that is reached ends it. `epochs` is the full length of one trial.

    `gpu_hours`: hours of trials, each times the number of GPUs that it holds. `least_gain`: fraction of the front's
    hypervolume that the next trial must be expected to add. `repeats`: how often the points of the front are
    probed again, in turn, before the front is published, if probes measure what is asked for. `deciding`: time, as a
    fraction of what the search took, in which the trials on which the front depends most measure their rates in turns,
    then the picks and their neighbours do, and the doubtful points are trained with other seeds.
    """

    model_config = STRICT
    trials: Count | None = None
    epochs: Count = 1
    hours: Hours | None = None
    gpu_hours: Hours | None = None
    total_epochs: Count | None = None
    least_gain: Annotated[float, Field(gt=0, lt=1)] | None = None
    repeats: Annotated[int, Field(ge=0, lt=MAX_COUNT)] = 1
    deciding: Annotated[float, Field(ge=0, lt=1)] = 0.1

    @property
    def limited_anywhere(self) -> bool:
        """True if a limit ends the search on a machine without GPUs, too."""
        return any(limit is not None for limit in (self.trials, self.hours, self.total_epochs))

    @property
    def limits_more_than_trials(self) -> bool:
        """True if what one trial saves is left for others."""
        return any(limit is not None for limit in (self.hours, self.gpu_hours, self.total_epochs))

    @property
    def full_lengths(self) -> float:
        """Trainings of the full length that it allows for, as far as that is known; see USUAL_LENGTHS."""
        by_epochs = self.total_epochs and self.total_epochs / self.epochs
        by_time = USUAL_LENGTHS if self.hours or self.gpu_hours else None
        return min(filter(None, (self.trials, by_epochs, by_time)), default=USUAL_LENGTHS)  # a grid may have no limit


def find_budget_problems(
    evaluation: Evaluation,
    parameters: Mapping[str, Choice | Range],
    searcher: SearcherSettings,
    stopping: StoppingSettings,
    budget: Budget,
    fixed_length: Any = None,
) -> Iterator[Problem]:
    """Find settings that exclude each other, and searches without an end."""
    if searcher.name == "grid":
        if evaluation == "decoupled":
            yield Problem(("evaluation",), "a grid trains every combination; decoupled leaves some out; set coupled")
        for name, parameter in parameters.items():
            if isinstance(parameter, Range):
                message = f"a grid needs values, and {name} is a range; give values, or use tpe"
                yield Problem(("searcher", "name"), message)
    elif not budget.limited_anywhere and budget.gpu_hours is None:
        yield Problem(("budget",), "the search would never end; set trials, hours, gpu_hours or total_epochs")
    if budget.least_gain is not None and searcher.name != "gp":
        yield Problem(("budget", "least_gain"), f"{searcher.name} predicts no gain; leave it out, or use gp")
    if evaluation == "probe":
        if stopping.name not in ("none", "auto"):
            yield Problem(("stopping", "name"), f'found "{stopping.name}"; probes have no epochs; leave it out')
        for name in ("epochs", "total_epochs"):
            if (epochs := getattr(budget, name)) not in (None, 1):
                yield Problem(("budget", name), f"found {epochs}; probes have no epochs; leave it out")
        is_ended = budget.trials or budget.hours or budget.gpu_hours or searcher.name == "grid"
        if budget.total_epochs is not None and not is_ended:
            message = "probes have no epochs: the search would never end; set trials, hours or gpu_hours"
            yield Problem(("budget", "total_epochs"), message)
    if EPOCHS in parameters:
        yield from _find_length_problems(evaluation, parameters[EPOCHS], budget)
    length = fixed_length if isinstance(fixed_length, int) else budget.epochs
    if budget.total_epochs is not None and budget.total_epochs < length:
        yield Problem(("budget", "total_epochs"), f"found {budget.total_epochs}; one trial alone has {length}")


def _find_length_problems(evaluation: Evaluation, lengths: Choice | Range, budget: Budget) -> Iterator[Problem]:
    """Find what contradicts a search for the number of epochs of a training."""
    path = ("parameters", EPOCHS)
    if evaluation == "probe":
        yield Problem(path, "probes have no epochs; leave it out")
    ends = [lengths.min, lengths.max] if isinstance(lengths, Range) else lengths.values
    whole = [end for end in ends if type(end) is int and end >= 1]
    if len(whole) < len(ends) or (isinstance(lengths, Range) and lengths.type != "int"):
        yield Problem(path, "expected whole numbers from 1 on; a range of them has type: int")
    elif whole and max(whole) > budget.epochs:
        yield Problem(path, f"found {max(whole)}; budget.epochs, the most of one trial, is {budget.epochs}")
