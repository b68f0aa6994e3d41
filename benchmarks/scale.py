"""What the Advisor takes once a search is long: a recorded one of 10,000 trials is replayed, then it proposes more."""

from __future__ import annotations

import json
import resource
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from search.advisor import Advisor
from search.space import parse_space

TRIALS, PROPOSALS = 10_000, 50
SPACE: dict[str, Any] = {
    "objectives": [{"metric": "accuracy", "goal": "maximize"}, {"metric": "throughput", "goal": "maximize"}],
    "parameters": {
        "batch_size": {"values": [32, 64, 128, 256, 512, 1024, 2048]},
        "learning_rate": {"min": 0.001, "max": 0.5, "log": True},
        "weight_decay": {"min": 1e-5, "max": 1e-2, "log": True},
        "momentum": {"min": 0.5, "max": 0.99},
        "num_workers": {"min": 0, "max": 8, "type": "int"},
        "precision": {"values": ["fp32", "bf16"]},
        "strategy": {"values": ["single", "ddp", "pipeline"]},
    },
    "budget": {"trials": TRIALS + PROPOSALS, "epochs": 1},
}


def main(trials: int = TRIALS, proposals: int = PROPOSALS) -> None:
    """Print seconds and GiB; the last line is one JSON object."""
    advisor = Advisor(parse_space({**SPACE, "budget": {"trials": trials + proposals, "epochs": 1}}), seed=0)
    generator = np.random.default_rng(0)
    started = time.perf_counter()
    advisor.replay(recorded(generator, trials))
    figures: dict[str, Any] = {"trials": trials, "replay_seconds": round(time.perf_counter() - started, 2)}
    seconds = []
    for _ in range(proposals):
        started = time.perf_counter()
        proposal = advisor.propose()
        seconds.append(time.perf_counter() - started)
        if proposal is None:
            raise SystemExit("the Advisor proposed nothing further")
        advisor.observe(proposal.trial_id, 1, outcome(proposal.config, generator))
        advisor.finish(proposal.trial_id, "complete")
    figures |= {"proposals": len(seconds), "proposal_seconds_median": round(statistics.median(seconds), 4)}
    figures["proposal_seconds_worst"] = round(max(seconds), 4)
    started = time.perf_counter()
    figures["front_points"] = len(advisor.pareto_set())
    figures["front_seconds"] = round(time.perf_counter() - started, 4)
    figures["peak_memory_gib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)  # was in KiB
    for name, value in figures.items():
        print(f"{name:25s} {value}")
    print(json.dumps({"scale": figures}))


def recorded(generator: np.random.Generator, trials: int) -> Iterator[Any]:
    """The journal of a search of so many random trials; one in twenty could not run."""
    for number in range(1, trials + 1):
        trial_id, config = f"t{number:04d}", _config(generator)
        yield {"event": "start", "trial_id": trial_id, "config": config}
        if number % 20 == 0:
            yield {"event": "finish", "trial_id": trial_id, "state": "infeasible"}
            continue
        yield {"event": "measurement", "trial_id": trial_id, "epoch": 1, "metrics": outcome(config, generator)}
        yield {"event": "finish", "trial_id": trial_id, "state": "complete"}


def outcome(config: dict[str, Any], generator: np.random.Generator) -> dict[str, float]:
    """A smooth trade-off by batch size, with noise."""
    loss = abs(np.log10(config["learning_rate"] / 0.1)) + 0.1 * np.log2(config["batch_size"])
    rate = 1000.0 * config["batch_size"] ** 0.5 * {"fp32": 1.0, "bf16": 1.8}[config["precision"]]
    noise = generator.normal(size=2)
    return {"accuracy": 0.95 - 0.1 * float(loss) + 0.005 * noise[0], "throughput": rate * (1 + 0.01 * noise[1])}


def _config(generator: np.random.Generator) -> dict[str, Any]:
    return {name: _value(generator, **parameter) for name, parameter in SPACE["parameters"].items()}


def _value(generator: np.random.Generator, **parameter: Any) -> Any:
    if "values" in parameter:
        return parameter["values"][int(generator.integers(len(parameter["values"])))]
    low, high = parameter["min"], parameter["max"]
    if parameter.get("type") == "int":
        return int(generator.integers(low, high + 1))
    share = float(generator.random())
    return float(low * (high / low) ** share) if parameter.get("log") else low + share * (high - low)
