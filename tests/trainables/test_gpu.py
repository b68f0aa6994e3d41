"""One CUDA device: every precision, loader and memory format trains there, and leaves its memory free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from trainables import vgg19_cifar10
from trainables.contract import Data, Layout, Resources
from trainables.train import LocalWorker

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

GPU = Resources(cpus=2, gpus=1)
PICTURES = Data("generated", train_images=512, val_images=128)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"precision": "bf16", "memory_format": "channels_last", "loader": "device"},
        {"precision": "fp16", "memory_format": "channels_last", "loader": "memory", "pin_memory": True},
        {"loader": "workers", "num_workers": 2, "pin_memory": True},
        {"optimizer": "adamw", "head": "fully_connected"},
    ],
)
def test_a_configuration_trains_and_leaves_the_gpu_free(settings: dict[str, Any], tmp_path: Path) -> None:
    config = {"batch_size": 64, "learning_rate": 0.01, "width": 0.25, **settings}
    assert vgg19_cifar10.layout(config, GPU) == Layout(1, cpus_per_process=2, gpus_per_process=1)
    before = torch.cuda.memory_allocated()
    worker = LocalWorker(tmp_path, epochs=2, data=PICTURES, resources=GPU)
    vgg19_cifar10.train(config, worker)
    last = worker.reported[-1].metrics
    assert last["images_per_second"] > 0
    assert 0 < last["peak_memory_gib"] < 4
    assert 0 < last["peak_memory_fraction"] < 1
    assert torch.cuda.memory_allocated() == before
    assert 0 <= vgg19_cifar10.test(config, worker)["test_accuracy"] <= 1


def test_the_loss_on_a_gpu_is_that_on_the_cpu(tmp_path: Path) -> None:
    """fp32, ten steps: the same weights, pictures and order, so nearly the same losses."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    losses = []
    for name, resources in (("cpu", Resources(cpus=2)), ("gpu", GPU)):
        (tmp_path / name).mkdir()
        worker = LocalWorker(tmp_path / name, epochs=1, data=PICTURES, resources=resources)
        vgg19_cifar10.train({"batch_size": 50, "learning_rate": 0.001, "width": 0.125, "loader": "memory"}, worker)
        losses.append(worker.reported[-1].metrics["train_loss"])
    assert losses[0] == pytest.approx(losses[1], abs=2e-3)
