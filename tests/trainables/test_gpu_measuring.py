"""What is measured on a CUDA device: stages on its own clock, copies that overlap, its sensors."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from trainables.contract import STAGES, Data, Resources
from trainables.local_worker import LocalWorker
from trainables.plan import Plan
from trainables.samples.generated import generate
from trainables.samples.loaders import evaluation_batches, training_batches
from trainables.samples.picture_source import Pictures
from trainables.stages import Timeline
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

EMULATED = "NULLCUDA_DEVICES" in os.environ
PICTURES = Data(name="generated", train_images=20000, val_images=500)


@pytest.mark.parametrize("loader", ["memory", "device", "workers"])
def test_a_probe_measures_stages_that_add_up_to_the_step_and_what_the_gpu_does(folder: Path, loader: str) -> None:
    worker = LocalWorker(folder, data=PICTURES, resources=Resources(cpus=4, gpus=1))
    size = {"batch_size": 64, "width": 0.0625} if EMULATED else {"batch_size": 2048}  # more than the host's time
    config = {**size, "loader": loader, "num_workers": 2 if loader == "workers" else 0, "cuda_graphs": False}
    vgg19_cifar10.probe({**config, "precision": "bf16", "memory_format": "channels_last"}, worker)
    metrics = worker.reported[0].metrics
    step_seconds = size["batch_size"] / metrics["images_per_second"]
    assert sum(metrics[f"{stage}_seconds"] for stage in STAGES) == pytest.approx(metrics["step_seconds"])
    if not EMULATED:  # an emulated GPU has no clock
        if loader != "workers":  # whose batches come in bursts
            assert metrics["step_seconds"] == pytest.approx(step_seconds, rel=0.1)
        assert 0 < metrics["fraction_of_ceiling"] < 1
    assert 0 < metrics["peak_memory_fraction"] < 1
    assert metrics["gpu_memory_gib"] > 0


@pytest.mark.parametrize("pin_memory", [False, True])
def test_copied_batches_are_those_of_the_cpu(pin_memory: bool) -> None:
    pictures = Pictures(*generate(300, seed=0))
    plan = Plan(np.arange(300), 20, 0)
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    here, there = (
        training_batches("memory", pictures, plan, device, num_workers=0, pin_memory=pinned)
        for device, pinned in ((cpu, False), (cuda, pin_memory))
    )
    epochs = zip(here.epoch(1, Timeline(cpu)), there.epoch(1, Timeline(cuda)), strict=True)
    for (images, labels), (copied_images, copied_labels) in epochs:
        torch.testing.assert_close(copied_images.cpu(), images)
        assert torch.equal(copied_labels.cpu(), labels)


@pytest.mark.parametrize(("loader", "pin_memory"), [("device", False), ("memory", False), ("memory", True)])
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # PyTorch calls it a prototype
def test_a_loader_does_not_wait_for_the_device(loader: str, pin_memory: bool) -> None:
    """Under `set_sync_debug_mode("error")` any waiting raises; the first batch of an epoch may wait."""
    pictures, device = Pictures(*generate(300, seed=0)), torch.device("cuda", 0)
    batches = training_batches(
        loader, pictures, Plan(np.arange(300), 20, 0), device, num_workers=0, pin_memory=pin_memory
    )
    epoch = batches.epoch(1, Timeline(device))
    next(epoch)
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert len(list(epoch)) == 14
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # PyTorch calls it a prototype
def test_evaluation_from_the_copy_on_the_device_does_not_wait_for_it() -> None:
    """The first batch of an evaluation may wait; the copy is that of the training batches."""
    pictures, device = Pictures(*generate(1200, seed=0)), torch.device("cuda", 0)
    plan = Plan(np.arange(100), 20, 0)
    batches = training_batches("device", pictures, plan, device, num_workers=0, pin_memory=False)
    before = torch.cuda.memory_allocated()
    evaluated = evaluation_batches(pictures, np.arange(1200), device, loader="device")
    found = [next(evaluated)]
    assert torch.cuda.memory_allocated() - before < 500 * 3 * 32 * 32 * 6, "a batch, but no second copy of all pictures"
    torch.cuda.set_sync_debug_mode("error")
    try:
        found += evaluated
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = evaluation_batches(pictures, np.arange(1200), torch.device("cpu"))
    for (images, labels), (wanted, classes) in zip(found, expected, strict=True):
        torch.testing.assert_close(images.cpu(), wanted)
        assert torch.equal(labels.cpu(), classes)
    del batches
