"""Are the intervals and probabilities of a finished search true? Searches of recorded problems, whose truth is known.

    python benchmarks/claims.py --problems ../shared/bench [--seeds 10] [--runs 30] [--families nmt vgg19]

Each training has an error of its own, as a seed has it, and all have one in common, as the validation samples have it.
After the search points of the front are trained with other seeds, as many as --again says, in the order of the product.
Then it is counted how often the 95% interval of the most accurate point and that of the knee hold their true
accuracies, around the measured values and around those to expect; and how probable points of the front claim to be on
the true one, beside how many are. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

os.environ.setdefault("OMP_NUM_THREADS", "1")  # arrays of a few hundred rows: threads only interfere

import numpy as np
from our_methods import OurAdvisor
from problems import CANNOT_RUN, METRICS, Problem, family, space_mapping
from recorded import load, names

from search.front.intervals import HALF_95
from search.front.pareto import is_pareto_optimal
from search.record.events import parse
from search.record.run_state import RunState
from search.study.deciding import next_to_train_again

OF_SEEDS, OF_SAMPLES = 0.01, 0.005  # standard deviations of an accuracy
Claims = dict[str, tuple[float, float]]  # claimed and found, by what is claimed


class Search:
    """Search of a recorded problem with errors, and its journal."""

    def __init__(self, problem: Problem, runs: int, seed: int) -> None:
        self._problem, self._rng = problem, np.random.default_rng(seed)
        self._of_samples = OF_SAMPLES * self._rng.standard_normal()
        objectives = space_mapping(problem)["objectives"]
        space = {"parameters": space_mapping(problem)["parameters"]}
        opening = {"name": problem.name, "objectives": objectives, "data": {"name": "", "description": ""}}
        self.state = RunState()
        self._add("run", **opening, space=space, trainable="replay", metrics=dict.fromkeys(METRICS, "fraction"))
        self._search(runs, seed)

    def train_again(self) -> None:
        """Train the next point of the front with another seed, if there is one to train."""
        if trial := next_to_train_again(self.state, np.inf):
            accuracy, _ = self._truth(trial.config)
            seed = trial.next_seed(0)
            self._add("again", trial_id=trial.trial_id, seed=seed, metrics=self._measured(accuracy))

    def _search(self, runs: int, seed: int) -> None:
        method = OurAdvisor(self._problem, runs, seed, "four")  # each trial to its end
        while (proposal := method.propose()) is not None:
            name, curve = proposal.trial_id, self._problem.curve(proposal.config)
            self._add("start", trial_id=name, config=proposal.config)
            if curve == CANNOT_RUN:
                method.finish(name, "infeasible", (0.0, 0.0))
                self._add("finish", trial_id=name, state="infeasible", reason="cannot run")
                continue
            epoch, accuracy, throughput, _ = curve[-1]
            metrics = {**self._measured(accuracy), "throughput": throughput}
            method.observe(name, epoch, (metrics["accuracy"], throughput))
            method.finish(name, "complete", (metrics["accuracy"], throughput))
            self._add("measurement", trial_id=name, epoch=epoch, metrics=metrics, decision="continue", seconds=1.0)
            self._add("finish", trial_id=name, state="complete", seconds=1.0)

    def _measured(self, accuracy: float) -> dict[str, float]:
        value = accuracy + self._of_samples + OF_SEEDS * self._rng.standard_normal()
        half = HALF_95 * OF_SAMPLES
        return {"accuracy": value, "accuracy_low": value - half, "accuracy_high": value + half}

    def _truth(self, config: dict[str, object]) -> tuple[float, float]:
        _, accuracy, throughput, _ = self._problem.curve(config)[-1]
        return accuracy, throughput

    def _add(self, event: str, **fields: object) -> None:
        self.state.apply(parse(json.dumps({"event": event, "time": 0.0, **fields}).encode()))

    def claims(self) -> Iterator[tuple[str, float, float]]:
        """Yield what is claimed: its name, the probability that it claims, and 1 if it holds, else 0."""
        state, points = self.state, self.state.candidates()
        truth = np.array([self._truth(trial.config) for trial in points])
        on_front = dict(zip((t.trial_id for t in points), is_pareto_optimal(-truth), strict=True))
        picked = {trial.trial_id: trial for trial in state.picked()[:2]}
        for trial in picked.values():
            accuracy, _ = self._truth(trial.config)
            half = state.half_interval(trial, "accuracy") or 0.0
            missed = abs(trial.metrics["accuracy"] - accuracy), abs(self._expected_of(trial.trial_id) - accuracy)
            yield "interval around the measured value", 0.95, float(missed[0] <= half)
            yield "interval around the value to expect", 0.95, float(missed[1] <= half)
        for trial in state.front():
            yield "on the front", state.front_probabilities()[trial.trial_id], float(on_front[trial.trial_id])

    def _expected_of(self, trial_id: str) -> float:
        trial = self.state.trials[trial_id]
        return trial.metrics["accuracy"] - self.state.luck(trial, "accuracy")


def main() -> None:
    """Print a row for each family and kind of claim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=Path, required=True, help="folder with a mobench.py")
    parser.add_argument("--families", nargs="+", help="default: all")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=30, help="trials of a search")
    parser.add_argument("--again", type=int, nargs="+", default=[0, 1, 3, 6], help="trainings with other seeds")
    options = parser.parse_args()
    found: dict[tuple[str, int, str], list[tuple[float, float]]] = defaultdict(list)
    for name in names(options.problems):
        if options.families and family(name) not in options.families:
            continue
        for seed in range(options.seeds):
            search, trained = Search(load(options.problems, name), options.runs, seed), 0
            for again in sorted(options.again):
                for _ in range(again - trained):
                    search.train_again()
                trained = again
                for claim, claimed, holds in search.claims():
                    found[family(name), again, claim].append((claimed, holds))
    print("| family | other seeds | claim | claimed | holds | n |\n| --- | ---: | --- | ---: | ---: | ---: |")
    rows = []
    for (group, again, claim), each in found.items():
        claimed, holds = (fmean(values) for values in zip(*each, strict=True))
        print(f"| {group} | {again} | {claim} | {claimed:.2f} | {holds:.2f} | {len(each)} |")
        rows.append([group, again, claim, round(claimed, 3), round(holds, 3), len(each)])
    print(json.dumps({"claims": rows}))


if __name__ == "__main__":
    main()
