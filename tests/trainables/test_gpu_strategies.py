"""Strategies on CUDA: one GPU, NCCL with one rank where there are several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.ranked import on_ranks
from trainables.contract import Data, Resources
from trainables.local_worker import LocalWorker
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("exact_arithmetic"),
]

GPU = Resources(cpus=2, gpus=1)
PICTURES = Data("generated", train_images=512, val_images=128)
FEW_PICTURES = Data("generated", train_images=160, val_images=32)  # differences of rounding grow with each step
TOLERANCE = 2e-3  # of a loss near 2.3


def losses(folder: Path, strategy: str, **config: Any) -> list[float]:
    """Of two epochs by the loop itself."""
    (folder / strategy).mkdir()
    worker = LocalWorker(folder / strategy, epochs=2, data=FEW_PICTURES, resources=GPU)
    small = {"batch_size": 32, "learning_rate": 0.001, "width": 0.125, "precision": "fp32", "loader": "device"}
    vgg19_cifar10.train({**small, "strategy": strategy, **config}, worker)
    return [each.metrics["train_loss"] for each in worker.reported]


# --- one process, or one rank with NCCL -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "config"),
    [
        ("data_parallel", {}),
        ("data_parallel", {"precision": "bf16"}),
        ("data_parallel", {"precision": "fp16"}),
        ("ddp", {"world_size": 1}),
        ("ddp", {"world_size": 1, "precision": "fp16"}),
        ("ring_allreduce", {"world_size": 1}),
        ("ring_allreduce", {"world_size": 1, "precision": "fp16"}),
        ("fsdp", {"world_size": 1}),
        ("ddp", {"world_size": 1, "batch_norm": "synchronised"}),
    ],
)
def test_on_one_gpu_every_strategy_gives_the_loss_of_single(
    strategy: str, config: dict[str, Any], tmp_path: Path
) -> None:
    precision = config.get("precision", "fp32")
    expected = losses(tmp_path, "single", precision=precision)
    tolerance = TOLERANCE if precision == "fp32" else 2e-2
    assert losses(tmp_path, strategy, **config) == pytest.approx(expected, abs=tolerance)


def two_stages(rank: int, world_size: int, folder: Path, config: dict[str, Any]) -> list[float]:
    """Both on the one GPU: NCCL refuses that, so their messages go by Gloo, through the host."""
    worker = LocalWorker(folder, 2, PICTURES, GPU, rank, world_size)
    vgg19_cifar10.train(config, worker)
    return [each.metrics["train_loss"] for each in worker.reported]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_pipeline_of_two_stages_on_one_gpu_learns(schedule: str, tmp_path: Path) -> None:
    """The losses of `single` it has without batch normalisation only, which sees micro-batches."""
    small = {"batch_size": 32, "learning_rate": 0.01, "width": 0.125, "precision": "bf16"}
    config = {**small, "strategy": "pipeline", "world_size": 2, "schedule": schedule}
    found = on_ranks(two_stages, 2, tmp_path, config)
    assert found[0] == found[1]
    assert found[0][1] < found[0][0]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_what_is_uneven_among_several_gpus_is_measured(tmp_path: Path) -> None:
    """The first one keeps optimizer and gradients, the others only copies."""
    several = Resources(cpus=2, gpus=torch.cuda.device_count())
    config = {"strategy": "data_parallel", "batch_size": 256, "loader": "device"}
    assert vgg19_cifar10.layout(config, several).gpus_per_process == several.gpus
    worker = LocalWorker(tmp_path, data=PICTURES, resources=several)
    vgg19_cifar10.probe(config, worker)
    assert worker.reported[-1].metrics["memory_imbalance"] > 1
