"""Time that a decoupled search saves, on our recorded table or in two real runs.

    python benchmarks/search_quality.py --only decoupled [--figure FILE.png]
    python benchmarks/decoupling.py COUPLED_RUN DECOUPLED_RUN [--figure FILE.png]

On the table, both searches pay the recorded seconds of each probe and epoch: once with 4,000 images per epoch as
recorded, where a training takes little longer than two probes, and once as if an epoch had 45,000 images (with the same
accuracies). The coupled search trains 40 configurations. The ratio is the time in which the decoupled search reaches
the final hypervolume of the coupled one, divided by the whole time of the coupled one; `ratio_to_last_gain` divides by
the time at which the coupled one reached it. In real runs, time is wall-clock time from the first line of the journal,
and the hypervolume of the complete trials is relative to the front of both runs.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from curves import band
from problems import METRICS, Point, Problem, space_mapping
from race import over
from vgg19_table import Vgg19Table

from search.advisor.advisor import Advisor
from search.advisor.proposal import Decision
from search.front.pareto import hypervolume, reference_point
from search.record.journal import FILE_NAME, read_journal
from search.record.run_state import RunState
from search.record.trial import Trial
from search.space.parsing import parse_space

TRIALS = 40  # of the coupled search
IMAGES_PER_EPOCH = (4000, 45000)  # as recorded; all of CIFAR-10
Course = list[tuple[float, float]]  # seconds so far and hypervolume; the last entry is the end of the search


class Timed(Problem, Protocol):
    """Recorded problem that can also be probed."""

    def probe(self, config: Any) -> tuple[float, float]:
        """Return the images per second, and the seconds that the probe took."""
        ...


def advisor_of(problem: Problem, evaluation: str, trials: int, seed: int) -> Advisor:
    """Return an Advisor that knows which parameters each objective depends on."""
    mapping = space_mapping(problem, budget={"epochs": problem.max_epoch, "trials": trials}, evaluation=evaluation)
    return Advisor(parse_space(mapping), seed=seed)


def search(problem: Timed, advisor: Advisor, most_seconds: float = math.inf) -> Course:
    """Search until the Advisor stops or the time is over; a trial that is running then does not count."""
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
    seeds, figures, drawn = list(seeds), dict[str, Any](), dict[str, Sequence[tuple[Course, Course]]]()
    for images in IMAGES_PER_EPOCH:
        problem, pairs = Vgg19Table(train_images=images), []
        for seed in seeds:
            coupled = search(problem, advisor_of(problem, "coupled", TRIALS, seed))
            ahead = advisor_of(problem, "decoupled", 100 * TRIALS, seed)  # ended by the time
            pairs.append((coupled, search(problem, ahead, most_seconds=coupled[-1][0])))
        named = f"{images:,} images per epoch"
        drawn[named], figures[f"decoupling_{images}"] = pairs, ratios(pairs)
        print(named, *(f"  {name:30s} {value}" for name, value in ratios(pairs).items()), sep="\n")
    if figure:
        draw(figure, drawn, "hypervolume / whole table")
    print(json.dumps({**figures, "seeds": len(seeds), "coupled_trials": TRIALS}))


def ratios(pairs: Sequence[tuple[Course, Course]]) -> dict[str, Any]:
    """Return means and medians over pairs; a pair whose decoupled search never gets there has the ratio 1."""
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


def real(folders: Sequence[Path]) -> tuple[Course, Course]:
    """Return the courses of two runs of one space, the coupled one first."""
    run_states = [RunState(read_journal(folder / FILE_NAME)) for folder in folders]
    points = np.vstack([_losses(run_state, run_state.candidates()) for run_state in run_states])
    reference = reference_point(points)
    most = hypervolume(points, reference)
    courses = []
    for run_state in run_states:
        found = sorted(run_state.candidates(), key=lambda trial: trial.finished_at)
        began = run_state.info.time
        course = [
            (trial.finished_at - began, hypervolume(_losses(run_state, found[: i + 1]), reference) / most)
            for i, trial in enumerate(found)
        ]
        courses.append([*course, (run_state.clock.active_seconds(), course[-1][1])])
    return courses[0], courses[1]


def _losses(run_state: RunState, trials: Sequence[Trial]) -> np.ndarray:
    """Return the losses with the logarithm of the rates, as in the table."""
    table = run_state.losses(list(trials))
    rates = [objective.metric == "images_per_second" for objective in run_state.objectives]
    table[:, rates] = -np.log10(-table[:, rates])
    return table


def draw(path: Path, panels: Mapping[str, Sequence[tuple[Course, Course]]], ordinate: str) -> None:
    """Write a figure with one panel each: mean over pairs and one standard error."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), figsize=(5 * len(panels), 3.6), squeeze=False, layout="constrained")
    for axis, (title, pairs) in zip(axes[0], panels.items(), strict=True):
        seconds = np.linspace(0, max(coupled[-1][0] for coupled, _ in pairs), 400)
        for i, (label, colour) in enumerate((("coupled", "0.5"), ("decoupled", "black"))):
            band(axis, seconds, np.array([over(pair[i], seconds) for pair in pairs]), label=label, color=colour)
        axis.set(title=title, xlabel="machine time in seconds", ylabel=ordinate, ylim=(0, 1.02))
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs=2, type=Path, metavar="RUN_DIR", help="the coupled run, then the decoupled run")
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    pair = real(options.runs)
    if options.figure:
        draw(options.figure, {"two real runs": [pair]}, "hypervolume / front of both")
    print(json.dumps({"decoupling": ratios([pair])}))
