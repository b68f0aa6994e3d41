"""Settings that are `auto`: what they stand for on a CPU and on a GPU, and where there is too little memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.trainables.shapes import VGG_SHAPE
from trainables.contract import Resources
from trainables.prediction import memory_need
from trainables.prediction.memory_need import Job
from trainables.setting_check import checked
from trainables.strategy_table import STRATEGIES, captures
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings, loader_of

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")


def settings(**config: Any) -> Vgg19Settings:
    given = {"width": 0.125, "precision": "fp32", **config}
    return Vgg19Settings(**checked(given, vgg19_cifar10.PARAMETERS or {}))


class OwnSettings(Vgg19Settings):
    """Settings of a user's training file."""

    workload = "/somewhere/flowers.py"


@pytest.mark.parametrize("value", ["auto", True, False])
def test_the_old_values_of_cuda_graphs_are_still_accepted(value: Any) -> None:
    assert settings(cuda_graphs=value).cuda_graphs == value


@pytest.mark.parametrize("value", [1, 0, "true", None])
def test_other_values_of_cuda_graphs_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"cuda_graphs: found .*; expected auto, true, false"):
        settings(cuda_graphs=value)


def test_auto_captures_on_a_gpu_where_the_strategy_can() -> None:
    capturing = [name for name in STRATEGIES if captures(settings(strategy=name), "cuda")]
    assert capturing == ["single", "ddp"]
    assert not any(captures(settings(strategy=name), "cpu") for name in STRATEGIES)


@pytest.mark.parametrize("other", [settings(fused_optimizer=False), settings(cuda_graphs=False), OwnSettings()])
def test_auto_does_not_capture_what_would_not_be_the_same_training(other: Vgg19Settings) -> None:
    assert not captures(other, "cuda")


def test_on_a_cpu_pictures_come_from_memory_and_nothing_is_captured() -> None:
    found = memory_need.resolved(settings(), Job(VGG_SHAPE, 1000, 1, CPU))
    assert (found, loader_of("auto", "cpu")) == (settings(loader="memory", cuda_graphs=False), "memory")
    assert memory_need.resolved(settings(loader="workers"), Job(VGG_SHAPE, 1000, 1, CPU)).loader_processes == 0


def test_auto_is_possible_on_any_machine() -> None:
    for resources in (Resources(cpus=2), Resources(cpus=2, gpus=1)):
        assert vgg19_cifar10.layout({"loader": "auto", "cuda_graphs": "auto"}, resources).processes == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_auto_is_the_fastest_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(batch_size=256)
    job = Job(VGG_SHAPE, train_samples=10**6, processes=1, device=GPU)
    choices = [("device", "auto"), ("device", False), ("memory", False)]
    needed = [memory_need.memory_need(settings(batch_size=256, loader=a, cuda_graphs=b), job) for a, b in choices]
    totals = [need.total for need in needed if need]
    assert len(totals) == 3
    assert totals[0] > totals[1] > totals[2]
    for number, choice in enumerate(choices):
        monkeypatch.setattr(memory_need, "available", lambda device, most=totals[number]: most)
        found = memory_need.resolved(given, job)
        assert isinstance(found, Vgg19Settings)
        assert (found.loader, found.cuda_graphs) == choice
        assert memory_need.memory_need(given, job) == memory_need.memory_need(found, job)
    assert memory_need.largest_batch(given, job) == pytest.approx(256, rel=0.05)
