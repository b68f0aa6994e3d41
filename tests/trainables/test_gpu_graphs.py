"""Captured steps on CUDA: what cannot be captured runs without a graph, and ranks communicate within theirs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainables.exact import exact_arithmetic
from tests.trainables.ranked import on_ranks
from trainables.build import build
from trainables.contract import Data, Resources
from trainables.graphs import CapturedStep
from trainables.local_worker import LocalWorker
from trainables.stages import Timeline
from trainables.strategy_table import STRATEGIES
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings
from trainables.workloads import vgg19

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("exact_arithmetic"),
]

GPU = Resources(cpus=1, gpus=1)
PICTURES = Data("generated", train_images=224, val_images=64)  # differences of rounding grow with each step
SMALL = {"batch_size": 32, "learning_rate": 0.001, "width": 0.0625, "precision": "fp32", "loader": "device"}
LOSSES = ("train_loss", "val_loss")


def losses(folder: Path, config: dict[str, Any], rank: int = 0, world_size: int = 1) -> list[float]:
    """Training and validation losses of two epochs."""
    folder.mkdir(exist_ok=True)
    worker = LocalWorker(folder, 2, PICTURES, GPU, rank, world_size)
    vgg19_cifar10.train({**SMALL, **config}, worker)
    return [each.metrics[name] for each in worker.reported for name in LOSSES]


def held() -> tuple[int, int]:
    """Bytes allocated and reserved, without the workspaces that an operation outside of a trial has left."""
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()


@pytest.fixture
def _loss_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the loss wait for the device, which a capture must not."""
    of_vgg = vgg19.loss

    def waiting(outputs: Tensor, targets: Tensor, settings: Any) -> Tensor:
        assert outputs.sum().item() is not None
        return of_vgg(outputs, targets, settings)

    monkeypatch.setattr(vgg19, "loss", waiting)


@pytest.mark.usefixtures("_loss_waits")
@pytest.mark.parametrize("config", [{"head": "fully_connected"}, {"strategy": "ddp", "world_size": 1}])
def test_a_step_that_cannot_be_captured_goes_on_without_a_graph_and_says_so_once(
    config: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = held()
    with caplog.at_level(logging.WARNING):
        found = losses(tmp_path / "auto", config)
    assert [each.getMessage().partition(":")[0] for each in caplog.records] == ["cuda_graphs auto"]
    assert found == pytest.approx(losses(tmp_path / "off", {**config, "cuda_graphs": False}), abs=2e-3)
    assert held() == before


@pytest.mark.usefixtures("_loss_waits")
def test_a_graph_that_was_asked_for_is_not_left_out_silently_and_leaves_no_memory(tmp_path: Path) -> None:
    before = held()
    with pytest.raises(RuntimeError, match="captur"):
        losses(tmp_path, {"cuda_graphs": True})
    losses(tmp_path / "eager", {"cuda_graphs": False})
    assert held() == before


def test_profiled_steps_count_among_those_before_the_capture() -> None:
    device = torch.device("cuda")
    settings = Vgg19Settings(width=0.0625, batch_size=8, precision="fp32", loader="device", cuda_graphs=True)
    shape, timeline = vgg19.shape_for(10), Timeline(device)
    step = build(settings, shape, device)
    assert isinstance(step, CapturedStep)
    timeline.start()
    for _ in range(STRATEGIES["single"].eager_steps):
        step(*shape.example(8, device), timeline)
    timeline.stop()
    assert step._graph is None
    step(*shape.example(8, device), timeline)
    assert step._graph is not None


def test_a_captured_step_of_ddp_leaves_no_memory_behind(tmp_path: Path) -> None:
    before = held()
    losses(tmp_path, {"strategy": "ddp", "world_size": 1, "cuda_graphs": True})
    assert held() == before


def of_a_rank(rank: int, world_size: int, folder: Path, config: dict[str, Any]) -> list[float]:
    with exact_arithmetic():
        return losses(folder, {"strategy": "ddp", **config}, rank, world_size)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_captured_steps_of_two_ranks_give_the_losses_of_those_kernel_by_kernel(tmp_path: Path) -> None:
    found = [
        on_ranks(of_a_rank, 2, tmp_path / name, {"cuda_graphs": graphs}, backend="nccl")
        for name, graphs in (("captured", True), ("eager", False))
    ]
    for captured, eager in zip(*found, strict=True):
        assert captured == pytest.approx(eager, abs=2e-3)
