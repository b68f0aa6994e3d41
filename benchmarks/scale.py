"""Time and memory of the Advisor in a long search: it replays 10,000 trials, then proposes more."""

from __future__ import annotations

import json
import resource
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from problems import METRICS, sample, space_mapping

from search.advisor.advisor import Advisor
from search.record.events import parse
from search.record.run_state import RunState
from search.space.parsing import parse_space

TRIALS, PROPOSALS = 10_000, 50


class Space:
    """Search space of seven parameters."""

    name = "scale"
    space: Mapping[str, tuple[Any, ...]] = {
        "batch_size": ("cat", [32, 64, 128, 256, 512, 1024, 2048]),
        "learning_rate": ("float", 0.001, 0.5, True),
        "weight_decay": ("float", 1e-5, 1e-2, True),
        "momentum": ("float", 0.5, 0.99, False),
        "num_workers": ("int", 0, 8, False),
        "precision": ("cat", ["fp32", "bf16"]),
        "strategy": ("cat", ["single", "ddp", "pipeline"]),
    }


def main(trials: int = TRIALS, proposals: int = PROPOSALS) -> None:
    """Print seconds and GiB; the last line is one JSON object."""
    advisor = Advisor(parse_space(space_mapping(Space(), budget={"trials": trials + proposals})), seed=0)
    generator = np.random.default_rng(0)
    events = [parse(json.dumps({"time": 0.0, **event}).encode()) for event in recorded(generator, trials)]
    started = time.perf_counter()
    advisor.replay(events)
    figures: dict[str, Any] = {"trials": trials, "replay_seconds": round(time.perf_counter() - started, 2)}
    seconds = []
    for _ in range(proposals):
        started = time.perf_counter()
        proposal = advisor.propose()
        seconds.append(time.perf_counter() - started)
        if proposal is None:
            raise SystemExit("the Advisor proposed no further trial")
        advisor.observe(proposal.trial_id, 1, outcome(proposal.config, generator))
        advisor.finish(proposal.trial_id, "complete")
    figures |= {"proposals": len(seconds), "proposal_seconds_median": round(statistics.median(seconds), 4)}
    figures["proposal_seconds_worst"] = round(max(seconds), 4)
    started = time.perf_counter()
    figures["front_points"] = len(RunState(events).front())
    figures["front_seconds"] = round(time.perf_counter() - started, 4)
    figures["peak_memory_gib"] = round(
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3
    )  # ru_maxrss is in KiB
    for name, value in figures.items():
        print(f"{name:25s} {value}")
    print(json.dumps({"scale": figures}))


def recorded(generator: np.random.Generator, trials: int) -> Iterator[Any]:
    """Yield the journal of a search of random trials; one in twenty is infeasible."""
    objectives = [{"metric": metric, "goal": "maximize"} for metric in METRICS]
    yield {"event": "run", "name": "scale", "objectives": objectives, "data": {"name": "none"}}
    for number in range(1, trials + 1):
        trial_id, config = f"t{number:04d}", sample(Space(), generator)
        yield {"event": "start", "trial_id": trial_id, "config": config}
        if number % 20 == 0:
            yield {"event": "finish", "trial_id": trial_id, "state": "infeasible"}
            continue
        yield {"event": "measurement", "trial_id": trial_id, "epoch": 1, "metrics": outcome(config, generator)}
        yield {"event": "finish", "trial_id": trial_id, "state": "complete"}


def outcome(config: dict[str, Any], generator: np.random.Generator) -> dict[str, float]:
    """Return a smooth trade-off between the metrics, with noise."""
    loss = abs(np.log10(config["learning_rate"] / 0.1)) + 0.1 * np.log2(config["batch_size"])
    rate = 1000.0 * config["batch_size"] ** 0.5 * {"fp32": 1.0, "bf16": 1.8}[config["precision"]]
    noise = generator.normal(size=2)
    return {"accuracy": 0.95 - 0.1 * float(loss) + 0.005 * noise[0], "throughput": rate * (1 + 0.01 * noise[1])}
