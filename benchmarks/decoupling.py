"""What rates from probes save: the Advisor decoupled and coupled on the table of our own, by seconds.

    python benchmarks/search_quality.py --only decoupled [--figure FILE.png]

Both pay what the table says a probe or an epoch took at that setting. The coupled search trains 40 configurations; the
ratio is the time in which the decoupled one reaches its final hypervolume, over the time of the whole coupled search,
and `ratio_to_last_gain` over the time at which the coupled one had reached it.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from problems import METRICS, Point, Problem, space_mapping
from vgg19_table import ACCURACY, RATE, Vgg19Table

from search.advisor import Advisor
from search.proposal import Decision
from search.space import parse_space

TRIALS = 40  # of the coupled search
Course = list[tuple[float, float]]  # seconds so far, hypervolume; the last one where the search ended


class Timed(Problem, Protocol):
    """A recorded problem that can be probed, too."""

    def probe(self, config: Any) -> tuple[float, float]:
        """Images per second, and the seconds it took to learn that."""
        ...


def advisor_of(problem: Problem, evaluation: str, trials: int, seed: int) -> Advisor:
    """An Advisor that knows, where it is to be decoupled, which parameters each objective depends on."""
    mapping = space_mapping(problem, budget={"epochs": problem.max_epoch, "trials": trials}, evaluation=evaluation)
    for objective in mapping["objectives"]:
        objective["probed"] = objective["metric"] == METRICS[1]
    for name, parameter in mapping["parameters"].items():
        parameter["bears_on"] = "trained" if name not in RATE else "probed" if name not in ACCURACY else "all"
    return Advisor(parse_space(mapping), seed=seed)


def search(problem: Timed, advisor: Advisor, most_seconds: float = math.inf) -> Course:
    """Until the Advisor has had enough, or the time is up; what is on its way then does not count."""
    seconds, found = 0.0, list[Point]()
    course: Course = []
    while seconds < most_seconds and (proposal := advisor.propose()) is not None:
        if proposal.kind == "probe":
            rate, took = problem.probe(proposal.config)
            seconds += took
            advisor.observe(proposal.trial_id, 0, {METRICS[1]: rate})
            advisor.finish(proposal.trial_id, "complete")
            continue
        curve, started = problem.curve(proposal.config), seconds
        for epoch, accuracy, rate, since in curve:
            seconds = started + since
            observed = dict(zip(METRICS, (accuracy, rate), strict=True))
            if advisor.observe(proposal.trial_id, epoch, observed) is Decision.STOP:
                break
        finished = epoch == curve[-1][0]
        advisor.finish(proposal.trial_id, "complete" if finished else "stopped")
        if finished and seconds <= most_seconds:
            found.append((accuracy, rate))
            course.append((seconds, problem.hv(found)))
    return [*course, (seconds, course[-1][1] if course else 0.0)]


def main(seeds: Iterable[int], figure: Path | None) -> None:
    """Print the ratios; the last line is one JSON object."""
    problem = Vgg19Table()
    pairs = []
    for seed in seeds:
        coupled = search(problem, advisor_of(problem, "coupled", TRIALS, seed))
        ahead = advisor_of(problem, "decoupled", 100 * TRIALS, seed)  # the time ends it
        pairs.append((coupled, search(problem, ahead, most_seconds=coupled[-1][0])))
    figures = {**ratios(pairs), "seeds": len(pairs), "coupled_trials": TRIALS}
    for name, value in figures.items():
        print(f"{name:30s} {value}")
    if figure:
        _draw(figure, pairs)
    print(json.dumps({"decoupling": figures}))


def ratios(pairs: Sequence[tuple[Course, Course]]) -> dict[str, Any]:
    """Means and medians over seeds; a seed at which decoupled never gets there counts as 1 in the mean, and is said."""
    whole, to_last_gain, missed = [], [], 0
    for coupled, decoupled in pairs:
        end, final = coupled[-1]
        gained = next(seconds for seconds, value in coupled if value >= final)
        reached = next((seconds for seconds, value in decoupled if value >= final - 1e-12), None)
        missed += reached is None
        whole.append(1.0 if reached is None else reached / end)
        to_last_gain.append(1.0 if reached is None else reached / gained)
    return {
        "ratio": round(statistics.mean(whole), 3),
        "ratio_median": round(statistics.median(whole), 3),
        "ratio_worst": round(max(whole), 3),
        "ratio_to_last_gain": round(statistics.mean(to_last_gain), 3),
        "never_reached": missed,
        "coupled_seconds": round(statistics.mean(coupled[-1][0] for coupled, _ in pairs), 1),
        "coupled_hypervolume": round(statistics.mean(coupled[-1][1] for coupled, _ in pairs), 4),
        "decoupled_hypervolume": round(statistics.mean(decoupled[-1][1] for _, decoupled in pairs), 4),
    }


def _draw(path: Path, pairs: Sequence[tuple[Course, Course]]) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(5, 3.6), layout="constrained")
    seconds = np.linspace(0, max(coupled[-1][0] for coupled, _ in pairs), 400)
    for i, (label, colour) in enumerate((("coupled", "0.5"), ("decoupled", "black"))):
        values = np.array([_at(pair[i], seconds) for pair in pairs])
        mean, error = values.mean(0), values.std(0) / np.sqrt(len(values))
        axis.plot(seconds, mean, label=label, color=colour)
        axis.fill_between(seconds, mean - error, mean + error, alpha=0.15, lw=0, color=colour)
    axis.set(xlabel="machine time in seconds", ylabel="hypervolume / whole table", ylim=(0, 1))
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _at(course: Course, seconds: np.ndarray) -> np.ndarray:
    """The hypervolume after so many seconds."""
    reached = np.searchsorted([spent for spent, _ in course], seconds + 1e-9)
    return np.array([0.0, *(value for _, value in course)])[reached]
