"""Made-up runs of every kind that the page must show, as a real search would have journaled them."""

from __future__ import annotations

import math
import random
from typing import Any

from tests.search.runs import INFO, Recorder

EPOCHS = 12
METRICS = {
    **INFO["metrics"],
    "peak_memory_gib": "GiB",
    "cpu_utilization": "fraction",
    "machine_cpu_utilization": "fraction",
    "gpu_utilization": "fraction",
    "gpu_memory_gib": "GiB",
    "gpu_power_watts": "W",
}
GPU = {"name": "NVIDIA H200", "memory_gib": 139.8}
PARAMETERS = {
    "batch_size": {"values": [64, 128, 256, 512, 1024, 2048]},
    "learning_rate": {"min": 0.001, "max": 0.5, "log": True},
    "loader": {"values": ["workers", "memory", "device"]},
    "num_workers": {"values": [0, 1, 2, 4, 8], "when": {"loader": "workers"}},
    "strategy": {"values": ["single", "ddp"]},
    "precision": {"values": ["fp32", "bf16"]},
    "memory_format": {"values": ["contiguous", "channels_last"]},
}


def throughput(
    trials: int = 40, epochs: int = EPOCHS, seed: int = 3, finished: bool = True, **changed: Any
) -> Recorder:
    """The main job on a GPU: trials in every state; some probes of rates before them."""
    space = {**INFO["space"], "parameters": PARAMETERS, "evaluation": "decoupled"}
    machine = {**INFO["machine"], "cores": 16, "memory_gib": 128.0, "gpus": [GPU]}
    budget = {"trials": trials, "epochs": epochs, "hours": 1.0, "total_epochs": None}
    run = Recorder(**{"space": space, "machine": machine, "budget": budget, "metrics": METRICS, **changed})
    draw = random.Random(seed)
    for number in range(1, min(trials // 4, 12) + 1):
        _probe(run, f"p{number:04d}", _config(draw), draw)
    for number in range(1, trials + 1):
        running = not finished and number == trials
        chosen = {"batch_size": 256, "learning_rate": 0.1} if running else {}  # what is not stopped
        _trial(run, f"t{number:04d}", _config(draw) | chosen, epochs, draw, running)
    if finished:
        run.add("end", 1.0, reason="the budget of 1 hour is spent")
    return run


def scaling() -> Recorder:
    """Probes of one configuration on 1, 2, 4 and 8 processes, and of several batch sizes."""
    parameters = {"world_size": {"values": [1, 2, 4, 8]}, "batch_size": {"values": [256, 512, 1024, 2048]}}
    objectives = [
        {"metric": "images_per_second", "goal": "maximize"},
        {"metric": "peak_memory_gib", "goal": "minimize"},
    ]
    run = Recorder(
        name="scaling-2026-11-22-1",
        space={**INFO["space"], "parameters": parameters, "evaluation": "probe"},
        objectives=objectives,
        metrics=METRICS,
        machine={**INFO["machine"], "cores": 16, "gpus": [GPU] * 8},
    )
    draw = random.Random(0)
    chosen = {"strategy": "ddp", "loader": "device", "precision": "bf16"}
    sizes = [(world, batch) for batch in (256, 512, 1024, 2048) for world in (1, 2, 4, 8)]
    for number, (world, batch) in enumerate(sizes, start=1):
        config = {**chosen, "world_size": world, "batch_size": batch}
        step = 0.6 + 0.0105 * batch / world + (1.9 * math.log2(world) if world > 1 else 0.0)
        stages = [0.02, 0.0, (step - 0.6) * 0.3, (step - 0.6) * 0.5, 0.7 * math.log2(world), 0.55]
        _probe(run, f"t{number:04d}", config, draw, step_ms=sum(stages), stages=stages)
    run.add("end", 1.0, reason="every point of the grid was tried")
    return run


def empty(**changed: Any) -> Recorder:
    """A run of which no trial finished well."""
    run = Recorder(**changed)
    for number in (1, 2, 3):
        run.start(f"t{number:04d}", batch_size=512 * number, learning_rate=0.1, loader="memory", strategy="single")
        run.finish(f"t{number:04d}", "infeasible", f"out of memory: {20 + number}.3 GiB asked for, 18.9 GiB free", 0.5)
    run.add("end", 1.0, reason="nothing in this space can run here")
    return run


# --- one trial --------------------------------------------------------------------------------------------------------


def _config(draw: random.Random) -> dict[str, Any]:
    loader = draw.choice(["workers", "memory", "memory", "device", "device"])
    workers = {"num_workers": draw.choice([0, 1, 2, 4, 8])} if loader == "workers" else {}
    return {
        "batch_size": draw.choice([64, 128, 256, 512, 1024, 2048]),
        "learning_rate": 10 ** draw.uniform(-3, -0.31),
        "loader": loader,
        **workers,
        "strategy": draw.choice(["single", "single", "ddp"]),
        "precision": draw.choice(["fp32", "bf16", "bf16"]),
        "memory_format": draw.choice(["contiguous", "channels_last"]),
    }


def _stages(config: dict[str, Any]) -> list[float]:
    """Milliseconds per step: load, transfer, forward, backward, communicate, update."""
    batch, fast = config["batch_size"], 0.45 if config["precision"] == "bf16" else 1.0
    picture = 0.021 * fast * (0.85 if config.get("memory_format") == "channels_last" else 1.0)
    load = {"device": 0.01, "memory": 0.05 + 0.004 * batch}.get(config["loader"])
    if load is None:
        load = 0.12 * batch / max(config.get("num_workers", 0), 0.7)
    forward, backward = 0.3 * picture * batch + 0.4, 0.7 * picture * batch + 0.7
    communicate = 0.9 if config["strategy"] == "ddp" else 0.0
    return [
        max(0.02, load),
        0.0 if config["loader"] == "device" else 0.003 * batch,
        forward,
        backward,
        communicate,
        0.5,
    ]


def _measures(config: dict[str, Any], draw: random.Random, step_ms: float, stages: list[float]) -> dict[str, float]:
    names = ("load", "transfer", "forward", "backward", "communicate", "update")
    rate = 1000 * config["batch_size"] / step_ms * draw.gauss(1.0, 0.01)
    half = rate * draw.uniform(0.004, 0.03)
    busy = 1 - stages[0] / step_ms
    return {
        "images_per_second": rate,
        "images_per_second_low": rate - half,
        "images_per_second_high": rate + half,
        "peak_memory_gib": 1.2 + 0.0075 * config["batch_size"],
        "peak_memory_fraction": (1.2 + 0.0075 * config["batch_size"]) / 17,
        **{f"{name}_seconds": value / 1000 for name, value in zip(names, stages, strict=True)},
        "step_seconds": step_ms / 1000,
        "cpu_utilization": min(1.0, 0.2 + 0.1 * config.get("num_workers", 0) + draw.uniform(0, 0.1)),
        "machine_cpu_utilization": min(1.0, 0.25 + 0.1 * config.get("num_workers", 0)),
        "gpu_utilization": min(1.0, busy * draw.uniform(0.9, 1.0)),
        "gpu_memory_gib": 1.9 + 0.0078 * config["batch_size"],
        "gpu_power_watts": 180 + 420 * busy,
        "fraction_of_ceiling": 0.62 * busy,
    }


def _verdict(stages: list[float]) -> dict[str, Any]:
    whole = sum(stages)
    if stages[0] > whole / 3:
        advice = [
            {"parameter": "loader", "old": "workers", "new": "device", "gain": 1.8, "why": "no batch is waited for"}
        ]
        why = f"{stages[0] / whole:.0%} of each step waits for data"
        return {"bound_by": "input", "share": stages[0] / whole, "why": why, "advice": advice}
    share = sum(stages[2:4]) / whole
    return {
        "bound_by": "compute",
        "share": share,
        "why": f"{share:.0%} of each step is forward and backward",
        "advice": [],
    }


def _probe(
    run: Recorder,
    name: str,
    config: dict[str, Any],
    draw: random.Random,
    step_ms: float | None = None,
    stages: list[float] | None = None,
) -> None:
    stages = stages or _stages(config)
    run.start(name, kind="probe", **config)
    metrics = _measures(config, draw, step_ms or sum(stages), stages)
    run.add("measurement", 8.0, trial_id=name, epoch=0, metrics=metrics, decision="continue", seconds=8.0)
    _end(run, name, "complete", None, 8.2, _verdict(stages))


def _trial(run: Recorder, name: str, config: dict[str, Any], epochs: int, draw: random.Random, running: bool) -> None:
    run.start(name, **config)
    if config["batch_size"] == 2048 and config["precision"] == "fp32":
        return _end(run, name, "infeasible", f"out of memory: {draw.uniform(140, 160):.1f} GiB asked for", 0.6, None)
    stages = _stages(config)
    metrics = _measures(config, draw, sum(stages), stages)
    seconds = 45_000 / metrics["images_per_second"] + 1.5
    best = 0.93 - 0.055 * abs(math.log10(config["learning_rate"] / (0.0006 * config["batch_size"]) + 1e-9)) ** 1.6
    best = max(0.15, best - 0.02 * (config["batch_size"] > 512) + draw.gauss(0, 0.004))
    for epoch in range(1, epochs + 1):
        accuracy = best * (1 - 0.62 * math.exp(-3.4 * epoch / epochs)) + draw.gauss(0, 0.004)
        stop = epoch >= max(2, epochs // 3) and best < 0.86 and draw.random() < 0.5
        fields = {**metrics, "val_accuracy": accuracy, "train_loss": 2.3 * math.exp(-3 * epoch / epochs)}
        run.add(
            "measurement",
            seconds,
            trial_id=name,
            epoch=epoch,
            metrics=fields,
            decision="stop" if stop else "continue",
            seconds=seconds * epoch,
        )
        if running and epoch > epochs // 2:
            return None
        if stop:
            return _end(run, name, "stopped", "others were better at this epoch", seconds * epoch, _verdict(stages))
        if epoch == 2 and config["learning_rate"] > 0.42:
            return _end(
                run, name, "failed", f"the loss is not finite after {draw.randrange(800)} steps", seconds * 2, None
            )
    return _end(run, name, "complete", None, seconds * epochs, _verdict(stages))


def _end(run: Recorder, name: str, state: str, reason: str | None, seconds: float, verdict: Any) -> None:
    run.add(
        "finish", 0.5, trial_id=name, state=state, reason=reason, seconds=seconds, setup_seconds=0.02, verdict=verdict
    )
