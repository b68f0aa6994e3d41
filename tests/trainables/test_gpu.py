"""One CUDA device: every precision, loader and memory format trains there, and leaves its memory free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.trainables.shapes import VGG_SHAPE
from trainables.build import build, device_of, network
from trainables.contract import Data, Layout, Resources
from trainables.local_worker import LocalWorker
from trainables.machine.ceilings import ceilings
from trainables.network.normalization import synchronised
from trainables.parallel import ranks
from trainables.setting_check import checked
from trainables.stages import Timeline
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

GPU = Resources(cpus=2, gpus=1)
COMPILED = pytest.param({"compile": True}, marks=pytest.mark.filterwarnings("ignore"))  # the compiler's own warnings
PICTURES = Data("generated", train_images=512, val_images=128)
FEW_PICTURES = Data("generated", train_images=160, val_images=32)  # differences of rounding grow with each step


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"precision": "bf16", "memory_format": "channels_last", "loader": "device"},
        {"precision": "fp16", "memory_format": "channels_last", "loader": "memory", "pin_memory": True},
        {"loader": "workers", "num_workers": 2, "pin_memory": True},
        {"optimizer": "adamw", "head": "fully_connected"},
        {"fused_optimizer": False},
        {"conv_kernel": "gemm"},
        COMPILED,
        {"cuda_graphs": True, "loader": "device"},
        {"cuda_graphs": True, "loader": "workers", "num_workers": 2, "pin_memory": True},
        {
            **{"cuda_graphs": True, "precision": "fp16", "optimizer": "adamw", "head": "fully_connected"},
            "learning_rate": 0.001,  # at 0.01 AdamW's outputs soon exceed fp16
        },
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


@pytest.mark.usefixtures("exact_arithmetic")
def test_the_loss_on_a_gpu_is_that_on_the_cpu(tmp_path: Path) -> None:
    """fp32, ten steps: the same weights, pictures and order, so nearly the same losses."""
    losses = []
    for name, resources in (("cpu", Resources(cpus=2)), ("gpu", GPU)):
        (tmp_path / name).mkdir()
        worker = LocalWorker(tmp_path / name, epochs=1, data=PICTURES, resources=resources)
        vgg19_cifar10.train({"batch_size": 50, "learning_rate": 0.001, "width": 0.125, "precision": "fp32"}, worker)
        losses.append(worker.reported[-1].metrics["train_loss"])
    assert losses[0] == pytest.approx(losses[1], abs=2e-3)


@pytest.mark.usefixtures("exact_arithmetic")
@pytest.mark.parametrize("settings", [{"cuda_graphs": True}, COMPILED, {"fused_optimizer": False}])
def test_what_is_meant_to_be_faster_does_not_change_what_is_learned(settings: dict[str, Any], tmp_path: Path) -> None:
    losses = []
    for name, more in (("plain", {"cuda_graphs": False}), ("changed", settings)):
        (tmp_path / name).mkdir()
        worker = LocalWorker(tmp_path / name, epochs=2, data=FEW_PICTURES, resources=GPU)
        config = {"batch_size": 32, "learning_rate": 0.001, "width": 0.125, "precision": "fp32", "loader": "device"}
        vgg19_cifar10.train({**config, **more}, worker)
        losses.append([each.metrics["train_loss"] for each in worker.reported])
    assert losses[0] == pytest.approx(losses[1], abs=2e-3)


def test_a_captured_step_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    config = {"batch_size": 64, "learning_rate": 0.01, "width": 0.125, "cuda_graphs": True, "loader": "device"}
    for epochs in (1, 2):
        worker = LocalWorker(tmp_path, epochs=epochs, data=PICTURES, resources=GPU)
        vgg19_cifar10.train(config, worker)
    assert [each.epoch for each in worker.reported] == [1, 2]


def test_the_ceilings_of_a_gpu_are_measured_once_for_all_numbers_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", str(tmp_path / "cache"))
    ceilings.cache_clear()
    for threads in (1, 2):
        worker = LocalWorker(tmp_path, data=PICTURES, resources=GPU)
        vgg19_cifar10.probe({"batch_size": 64, "width": 0.0625, "threads": threads, "loader": "device"}, worker)
    assert len(list((tmp_path / "cache").glob("ceilings-*.json"))) == 1


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # PyTorch calls it a prototype
def test_synchronised_batch_normalisation_does_not_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    with ranks.group(1, torch.device("cuda", 0)):
        layer = synchronised(torch.nn.Sequential(torch.nn.BatchNorm2d(4))).cuda()
        inputs = torch.rand(8, 4, 5, 5, device="cuda", requires_grad=True)
        layer(inputs).sum().backward()
        torch.cuda.set_sync_debug_mode("error")
        try:
            layer(inputs).sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_kernels_are_timed_for_our_own_batches_which_have_one_shape_and_not_for_those_of_a_users_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    device = device_of(LocalWorker(tmp_path, resources=GPU))
    assert not torch.backends.cudnn.benchmark
    network(Vgg19Settings(width=0.0625, conv_kernel="library"), VGG_SHAPE, device)
    assert torch.backends.cudnn.benchmark


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # PyTorch calls it a prototype
def test_a_step_does_not_wait_for_the_device() -> None:
    """Under `set_sync_debug_mode("error")` any waiting raises; the first steps make buffers and may wait."""
    config = {"batch_size": 64, "width": 0.125, "precision": "fp16"}
    given = Vgg19Settings(**checked(config, vgg19_cifar10.PARAMETERS or {}))
    device = torch.device("cuda", 0)
    step, off = build(given, VGG_SHAPE, device), Timeline(device)
    images, labels = torch.rand(64, 3, 32, 32, device=device), torch.zeros(64, dtype=torch.long, device=device)
    step(images, labels, off)
    torch.cuda.set_sync_debug_mode("error")
    try:
        step.set_learning_rate(0.01)
        step(images, labels, off)
    finally:
        torch.cuda.set_sync_debug_mode("default")
