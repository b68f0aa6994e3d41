"""Trials on one emulated GPU: the CPU's losses, nothing left behind, nothing beside a capture; sensors.

`test_one_device.py` runs them in a process with the emulated runtime.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.emulated_gpu.counters import counters, on_emulated_gpu
from trainables.contract import Data, InfeasibleError, Resources
from trainables.local_worker import LocalWorker
from trainables.machine.nvml import Gpu
from trainables.prediction import memory_need
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10

pytestmark = on_emulated_gpu

FEW = Data("generated", train_images=192, val_images=32)
SMALL = {"batch_size": 16, "learning_rate": 0.01, "width": 0.03125, "precision": "fp32"}
CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _own_world(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.delenv("TRAINING_SEARCH_DATA", raising=False)
    monkeypatch.setattr(memory_need, "machine_calibration", lambda device: memory_need.TYPICAL[device.type])


def losses(folder: Path, gpus: int, epochs: int = 1, **config: Any) -> list[float]:
    folder.mkdir(exist_ok=True)
    worker = LocalWorker(folder, epochs=epochs, data=FEW, resources=Resources(cpus=1, gpus=gpus))
    vgg19_cifar10.train({**SMALL, **config}, worker)
    vgg19_cifar10.test({**SMALL, **config}, worker)
    return [each.metrics["train_loss"] for each in worker.reported]


@pytest.fixture(scope="module")
def losses_on_the_cpu(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[float]]:
    return functools.cache(lambda **config: losses(tmp_path_factory.mktemp("cpu"), gpus=0, **config))


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"loader": "device", "fused_optimizer": False}, marks=pytest.mark.slow),
        {"loader": "memory", "pin_memory": True},
        {"loader": "device", "cuda_graphs": True},
        pytest.param({"optimizer": "adamw", "cuda_graphs": True}, marks=pytest.mark.slow),
        pytest.param({"precision": "fp16"}, marks=pytest.mark.slow),
        # at 0.01 the rounding of gemm grows to 0.004 within these steps
        pytest.param({"conv_kernel": "gemm", "learning_rate": 0.003}, marks=pytest.mark.slow),
        pytest.param({"loader": "workers", "num_workers": 1, "pin_memory": True}, marks=pytest.mark.slow),
    ],
    ids=lambda config: " ".join(f"{name}={value}" for name, value in config.items()),
)
def test_a_trial_learns_what_the_cpu_learns_and_leaves_no_memory(
    config: dict[str, Any], tmp_path: Path, losses_on_the_cpu: Callable[..., list[float]]
) -> None:
    before = counters()
    config = {"cuda_graphs": False, **config}
    found = losses(tmp_path, gpus=1, **config)
    after = counters()
    tolerance = 1e-3 if config.get("precision", "fp32") == "fp32" else 5e-2
    learned = {name: config[name] for name in ("optimizer", "learning_rate") if name in config}
    assert found == pytest.approx(losses_on_the_cpu(**learned), abs=tolerance)
    assert torch.cuda.memory_allocated() == 0
    assert after["launches"] > before["launches"]
    assert (after["replays"] > before["replays"]) == {**SMALL, **config}["cuda_graphs"]
    assert after["stray"] == before["stray"]
    assert after["forbidden"] == before["forbidden"]


def test_the_memory_of_a_configuration_is_counted_without_taking_any(tmp_path: Path) -> None:
    torch.cuda.reset_peak_memory_stats()
    for optimizer in ("sgd", "adamw"):
        config = {"batch_size": 48, "width": 0.5, "optimizer": optimizer}
        need = vgg19_cifar10.memory(config, FEW, Resources(cpus=1, gpus=1))
        assert need is not None
        assert need.total > 2**26
    assert torch.cuda.max_memory_allocated() == 0


def test_a_batch_that_does_not_fit_is_infeasible_and_leaves_no_memory(tmp_path: Path) -> None:
    """The memory check is off, so that the allocator itself says no."""
    torch.cuda.set_per_process_memory_fraction(0.001)  # 80 MiB
    try:
        with pytest.raises(InfeasibleError, match=r"out of memory.*; predicted were"):
            losses(tmp_path, gpus=1, width=1.0, batch_size=64)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.cuda.memory_allocated() == 0


def test_sensors_are_read_by_the_uuid_of_the_device() -> None:
    gpu = Gpu(CUDA)
    assert gpu.sample() == {
        "gpu_utilization": 0.9,
        "gpu_memory_gib": 1.0,
        "gpu_power_watts": 500.0,
        "gpu_clock_mhz": 1980.0,
        "gpu_throttled_fraction": 0.0,
    }
    assert 0 < gpu.joules() < gpu.joules()
    assert gpu.hot_seconds() == 0


def test_a_device_without_sensors_gives_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NULLCUDA_SENSORS", "0")
    gpu = Gpu(CUDA)
    known = {name: value for name, value in gpu.sample().items() if value is not None}
    assert known == {"gpu_memory_gib": 1.0}
    assert gpu.joules() is None
    assert gpu.hot_seconds() is None
