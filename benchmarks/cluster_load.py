"""Load of the search's own process on a cluster: trials are simulated, each decision about them is made and timed.

    python benchmarks/cluster_load.py [--nodes 10 100 1000] [--trials 1000] [--searcher gp] [--epoch-seconds 60]

On N nodes as many trials run at a time, at most 100, each on as many nodes as that leaves. An epoch takes the given
seconds, times a factor that differs from trial to trial. Proposals, decisions and the journal are those of a run, with
Ray left out; the seconds that they take are put into the simulated time, in which the process can do nothing else. A
row for each number of nodes: the part of the nodes' time in which they train, and the longest step of the process. The
last line is one JSON object.
"""

from __future__ import annotations

import heapq
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from command_line import conditions, parser_of
from replayed import BATCH_SIZE, LEARNING_RATE, replay_space

from search.advisor.proposal import Decision, Proposal
from search.execution.trial_actor import Finished, Measured
from search.record.journal import FILE_NAME, Journal
from search.space.machine import describe_machine
from search.space.parsing import parse_space
from search.space.space import MOST_CONCURRENT_TRIALS, Space
from search.study.study import Study
from trainables.contract import Resources
from trainables.replay import curve

EPOCHS = 3
SPREAD = 0.5  # standard deviation of the logarithm of a trial's factor


@dataclass
class Simulation:
    """A study whose trials take simulated time. `now`: simulated seconds, with those of the study's own steps."""

    study: Study
    epoch_seconds: float
    now: float = 0.0
    trained_seconds: float = 0.0
    steps: list[float] = field(default_factory=list)  # seconds of each call of the study
    due: list[tuple[float, int, Proposal, int, float]] = field(default_factory=list)  # by the time of the next report

    def run(self, at_a_time: int) -> None:
        """Run the study to its end."""
        rng, number = np.random.default_rng(0), 0
        while True:
            while len(self.due) < at_a_time:
                if (proposal := self._timed(self.study.propose)) is None:
                    break
                number += 1
                seconds = self.epoch_seconds * float(np.exp(SPREAD * rng.standard_normal()))
                heapq.heappush(self.due, (self.now + seconds, number, proposal, 1, seconds))
            if not self.due:
                return
            when, place, proposal, epoch, seconds = heapq.heappop(self.due)
            self.now = max(self.now, when)
            self.trained_seconds += seconds
            measured = Measured(epoch, curve(proposal.config, epoch), seconds * epoch, 0.0)
            decision = self._timed(partial(self.study.observe, proposal.trial_id, measured))
            if decision is Decision.CONTINUE and epoch < EPOCHS:
                heapq.heappush(self.due, (self.now + seconds, place, proposal, epoch + 1, seconds))
            elif decision is Decision.CONTINUE:
                finished = Finished("complete", None, EPOCHS * seconds, 0.0)
                self._timed(partial(self.study.finish, proposal.trial_id, finished))

    def _timed(self, step: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        found = step()
        self.steps.append(time.perf_counter() - started)
        self.now += self.steps[-1]
        return found


def main() -> None:
    """Print a row for each number of nodes."""
    parser = parser_of(__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--searcher", default="gp", choices=("gp", "tpe", "random"))
    parser.add_argument("--epoch-seconds", type=float, default=60.0)
    options = parser.parse_args()
    about = f"{options.trials:,} trials of {EPOCHS} epochs of {options.epoch_seconds:g} s"
    print(f"{about}, {options.searcher}; {conditions()}")
    print("| nodes | trials at a time | hours | nodes train | step, median | longest |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    rows = []
    for nodes in options.nodes:
        at_a_time = min(nodes, MOST_CONCURRENT_TRIALS)
        with tempfile.TemporaryDirectory() as folder:
            found = _simulated(Path(folder), _space(options.searcher, options.trials), at_a_time, options.epoch_seconds)
        share = found.trained_seconds / (found.now * at_a_time)
        median, longest = statistics.median(found.steps), max(found.steps)
        rows.append({"nodes": nodes, "share": share, "hours": found.now / 3600, "median": median, "longest": longest})
        print(
            f"| {nodes:,} | {at_a_time} | {found.now / 3600:.2f} | {share:.1%} | {1e3 * median:.1f} ms | "
            f"{1e3 * longest:.0f} ms |",
            flush=True,
        )
    print(json.dumps({"cluster_load": rows}))


def _space(searcher: str, trials: int) -> Space:
    return parse_space(
        replay_space(
            parameters={
                "learning_rate": LEARNING_RATE,
                "batch_size": BATCH_SIZE,
                "weight_decay": {"min": 0.00001, "max": 0.01, "log": True},
            },
            searcher={"name": searcher},
            stopping={"name": "none"},
            budget={"trials": trials, "epochs": EPOCHS},
            data={"name": "generated"},
        )
    )


def _simulated(folder: Path, space: Space, at_a_time: int, epoch_seconds: float) -> Simulation:
    (folder / "trials").mkdir()
    opening = {
        "name": "simulated",
        "space": space.to_mapping(),
        "trainable": "replay",
        "objectives": [{"metric": o.metric, "goal": o.goal} for o in space.objectives],
        "budget": space.budget.model_dump(),
        "metrics": {},
        "data": {"name": "generated", "description": "simulated"},
        "machine": describe_machine().to_mapping(),
    }
    with Journal(folder / FILE_NAME) as journal:
        journal.append("run", **opening)
        simulation = Simulation(Study(space, space.data, folder, journal, Resources(cpus=1), "pool"), epoch_seconds)
        simulation.run(at_a_time)
    return simulation


if __name__ == "__main__":
    main()
