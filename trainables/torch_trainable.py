"""Trainable around a workload of PyTorch: the same parameters, metrics and functions for each."""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from trainables.contract import (
    Config,
    Cost,
    Data,
    InfeasibleError,
    Layout,
    MemoryNeed,
    Metric,
    Parameter,
    Resources,
    Scalar,
    Strategy,
    Verdict,
    Worker,
)
from trainables.machine import processor
from trainables.metrics import common_metrics, interval_ends
from trainables.parallel.layouts import layout_of
from trainables.setting_check import checked
from trainables.settings import Settings, parameters_of
from trainables.strategy_table import STRATEGIES

T = TypeVar("T")

COMPILERS = {"C++": ("g++", "clang++", "c++"), "C": ("gcc", "clang", "cc")}  # the second for Triton, on a GPU
CUDA_ONLY = (
    ("precision", "fp16"),
    ("loader", "device"),
    ("pin_memory", True),
    ("cuda_graphs", True),
)


class TorchTrainable:
    """A `contract.Trainable`. Subclasses say where its data are."""

    def __init__(self, settings: type[Settings], unit: str, own_metrics: Mapping[str, Metric]) -> None:
        """`own_metrics`: what the workload measures, such as `val_accuracy`; the rate counts `unit`."""
        self.settings = settings
        self.STRATEGIES: Mapping[str, Strategy] = STRATEGIES
        self.PARAMETERS: Mapping[str, Parameter] | None = parameters_of(settings, STRATEGIES)
        ends = interval_ends({**_of(own_metrics, "val_"), **_of(own_metrics, "test_")})
        self.METRICS: Mapping[str, Metric] | None = {
            **_of(own_metrics, "val_"),
            **common_metrics(unit),
            **own_metrics,
            **ends,
        }

    def unavailable(self, parameter: str, value: Scalar, resources: Resources) -> str | None:
        """Return why these resources do not allow the value; None: they do."""
        row = STRATEGIES[str(value)] if parameter == "strategy" else None
        if resources.gpus == 0 and ((parameter, value) in CUDA_ONLY or (row and row.all_gpus)):
            return "needs a CUDA device"
        if resources.gpus == 0 and (parameter, value) == ("precision", "bf16") and processor.bf16() == "emulated":
            return "PyTorch only emulates it on this processor, 10 to 100 times slower than fp32"
        if resources.gpus and (parameter, value) == ("precision", "bf16") and not processor.gpu_bf16():
            return "these GPUs have no instructions for it"
        if (parameter, value) == ("compile", True) and (reason := _without_compiler(resources)):
            return reason
        if row and not row.one_process:
            return too_few_for("world_size", 2, resources)  # one process alone is slower than `single`
        return too_few_for(parameter, value, resources)

    def superseded(self, parameter: str, value: Scalar, values: Collection[Scalar], resources: Resources) -> str | None:
        """Return why a space need not search the value beside the other ones; None: it may be worth a trial."""
        if (parameter, value) != ("precision", "fp16") or "bf16" not in values or not resources.gpus:
            return None
        return "bf16 is native on these GPUs, and needs no scaling" if processor.gpu_bf16() else None

    def meanings_of_auto(self, resources: Resources) -> Mapping[str, Scalar]:
        """Return what `auto` stands for, by parameter; on a GPU, loader and graphs are known in a trial only."""
        on_gpu = resources.gpus > 0
        meanings: dict[str, Scalar] = {"precision": processor.precision_of("auto", "cuda" if on_gpu else "cpu")}
        if not on_gpu:
            meanings |= {"cuda_graphs": False, "loader": "memory"}
        choices = {name: row.choices or () for name, row in (self.PARAMETERS or {}).items()}
        return {name: value for name, value in meanings.items() if "auto" in choices.get(name, ())}

    def without_effect(self, config: Config) -> Collection[str]:
        """Return settings that change nothing beside the other ones: loader processes where the loader has none."""
        settings = replace(self._settings(config), num_workers=1)
        return () if settings.loader_processes else ("num_workers",)

    def layout(self, config: Config, resources: Resources) -> Layout:
        """Return one process with everything, or the strategy's processes with equal shares."""
        settings = self._settings(config)
        for name, value in vars(settings).items():
            if name == "strategy" and settings.world_size is not None:
                continue  # decides how many are needed
            if value is not None and (reason := self.unavailable(name, value, resources)):
                raise InfeasibleError(f"{name} {value}: {reason}")
        return layout_of(settings, resources)

    def estimate(self, config: Config, data: Data) -> Cost:
        """Time a few steps in this process alone, whatever the strategy."""
        from trainables.prediction import training_cost

        return training_cost.training_cost(self._settings(config), data)

    def train(self, config: Config, worker: Worker) -> None:
        """Train in the loop that all strategies share."""
        from trainables import loop

        self._isolated(config, worker, loop.fit)

    def probe(self, config: Config, worker: Worker) -> None:
        """Train for some seconds to measure the rate; the weights are thrown away."""
        from trainables import loop

        self._isolated(config, worker, loop.probe)

    def turns(self, configs: Sequence[Config], worker: Worker) -> None:
        """Measure rates of configurations with one layout in turns, until a report returns False."""
        from trainables import turns

        alternatives = [self._settings(config) for config in configs]
        one = {**configs[0], "allocator": "system"}  # each turn sets its own
        self._isolated(one, worker, lambda settings, worker: turns.take_turns(alternatives, worker))

    def test(self, config: Config, worker: Worker) -> Mapping[str, float]:
        """Return the declared metrics of the test samples."""
        from trainables import loop

        found = self._isolated(config, worker, loop.test)
        return {name: value for name, value in found.items() if name in (self.METRICS or {})}

    def explain(self, config: Config, metrics: Mapping[str, float], resources: Resources) -> Verdict | None:
        """Find the bottleneck from the stages of a step."""
        from trainables.measure import verdict

        return verdict.explain(self._settings(config), metrics, resources)

    def memory(self, config: Config, data: Data, resources: Resources) -> MemoryNeed | None:
        """Predict memory from a pass without numbers; this machine is calibrated once, by two tiny trainings."""
        from trainables.prediction import memory_need

        settings = self._settings(config)
        return memory_need.memory_need(settings, memory_need.job_of(settings, data, self.layout(config, resources)))

    def largest_batch(self, config: Config, data: Data, resources: Resources, available: int) -> int | None:
        """Search the largest batch by such passes."""
        from trainables.prediction import memory_need

        settings = self._settings(config)
        job = memory_need.job_of(settings, data, self.layout(config, resources))
        return memory_need.largest_batch(settings, job, available)

    def _isolated(self, config: Config, worker: Worker, work: Callable[[Settings, Worker], T]) -> T:
        """Call `work` on cores of its own and restore the process afterwards."""
        from trainables.machine.isolation import OutOfMemoryError
        from trainables.prediction import memory_need

        settings = self._settings(config)
        try:
            return isolated(settings, worker, lambda: work(settings, worker))
        except OutOfMemoryError as error:
            message = f"{error}"
        # raised out here, so that no traceback keeps the memory alive
        shape = Layout(worker.world_size, worker.resources.cpus, worker.resources.gpus)
        need = memory_need.memory_need(settings, memory_need.job_of(settings, worker.data, shape))
        raise InfeasibleError(*_shortage(message, need))

    def _settings(self, config: Config) -> Settings:
        return self.settings(**checked(config, self.PARAMETERS or {}))


def isolated(settings: Settings, worker: Worker, work: Callable[[], T]) -> T:
    """Return the result of `work` on cores of its own; the process is restored afterwards.

    Raises:
        OutOfMemoryError: it ran out of memory.
    """
    from trainables.machine import affinity, devices, isolation
    from trainables.parallel import peers

    cpus, gpus = worker.resources.cpus, worker.resources.gpus
    with affinity.claimed_cores(cpus), devices.claimed_gpus(gpus), peers.reported():
        return isolation.isolated(
            work,
            threads=settings.threads or worker.resources.cpus,
            allocator=settings.allocator,
            flush_denormals=settings.flush_denormals,
        )


def _without_compiler(resources: Resources) -> str | None:
    """Return what `torch.compile` needs and does not find; None: nothing."""
    for language in ("C++", "C") if resources.gpus else ("C++",):
        if not any(map(shutil.which, COMPILERS[language])):
            return f"needs a {language} compiler, one of {', '.join(COMPILERS[language])}"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return None if header.is_file() else f"needs {header}, which comes with the development package of Python"


def _of(metrics: Mapping[str, Metric], prefix: str) -> dict[str, Metric]:
    return {name: metric for name, metric in metrics.items() if name.startswith(prefix)}


def _shortage(message: str, need: MemoryNeed | None) -> tuple[str, dict[str, float]]:
    """Return the message with what was predicted, and the metrics of a trial without enough memory."""
    if need is None:
        return message, {}
    # above 1 whatever was predicted: it took more than there is
    fraction = max(1.05, need.total / need.available)
    predicted = f"predicted were {need.total / 2**30:.1f} of {need.available / 2**30:.1f} GiB"
    return f"{message}; {predicted}", {"peak_memory_fraction": fraction}


def too_few_for(parameter: str, value: Scalar, resources: Resources) -> str | None:
    """Return why there are too few cores, GPUs or nodes for a setting of the processes; None: there are enough."""
    if parameter == "threads":
        return _too_few(int(value), "core", resources.node.cpus)
    if parameter == "world_size":
        devices, device = (resources.gpus, "GPU") if resources.gpus else (resources.cpus, "core")
        return _too_few(int(value), device, devices)
    if (parameter, value) == ("placement", "spread") and resources.nodes == 1:
        return "needs several nodes, there is 1"
    return None


def _too_few(needed: int, what: str, there: int) -> str | None:
    """Return a message where there are too few; None: there are enough."""
    return f"needs {needed} {what}s, there {'is' if there == 1 else 'are'} {there}" if needed > there else None
