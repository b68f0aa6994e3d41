"""Bytes read and written by a step: of single operators, and of a whole network as a line over the batch."""

from pathlib import Path

import pytest
import torch

from tests.trainables.shapes import VGG_SHAPE
from trainables.prediction import memory_traffic as module
from trainables.prediction.memory_need import plain
from trainables.prediction.memory_traffic import _counted, _Counter, memory_traffic
from trainables.setting_check import checked
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings

CPU = torch.device("cpu")


def settings(**config: object) -> Vgg19Settings:
    chosen = {"width": 0.05, "precision": "fp32", "conv_kernel": "library", **config}
    return Vgg19Settings(**checked(chosen, vgg19_cifar10.PARAMETERS or {}))


def test_an_operator_reads_what_it_is_given_and_writes_what_it_returns() -> None:
    a, b = torch.ones(10, 20), torch.ones(20, 30)
    with _Counter() as counter:
        c = torch.mm(a, b)
    assert counter.bytes == 4 * (10 * 20 + 20 * 30 + 10 * 30)
    with _Counter() as counter:
        c.add_(1)
    assert counter.bytes == 2 * c.nbytes
    with _Counter() as counter:
        c.t().reshape(30, 10).detach()
        torch.empty(1000)
    assert counter.bytes == 0


def test_an_optimizer_that_returns_nothing_writes_what_it_changes() -> None:
    weights = torch.ones(1000, requires_grad=True)
    sgd = torch.optim.SGD([weights], lr=0.1, momentum=0.9, fused=True)
    weights.grad = torch.ones(1000)
    sgd.step()
    with _Counter() as counter:
        sgd.step()
    assert counter.bytes >= 5 * weights.nbytes  # weights and momentum are read and written, the gradient is read


def test_the_traffic_of_a_step_is_a_line_over_the_batch_counted_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", str(tmp_path))
    module._of_plain.cache_clear()
    found = memory_traffic(settings(), VGG_SHAPE, CPU)
    assert found.of_step(64) == pytest.approx(_counted(plain(settings(), CPU), VGG_SHAPE, 64, CPU), rel=0.01)
    module._of_plain.cache_clear()
    monkeypatch.delattr(module, "_line")
    for other in ({"batch_size": 7}, {"learning_rate": 0.2, "momentum": 0.5}, {"strategy": "ddp", "world_size": 2}):
        assert memory_traffic(settings(**other), VGG_SHAPE, CPU) == found


def test_16_bits_move_half_of_what_pictures_need_and_few_products_move_more() -> None:
    fp32, bf16, few = (
        memory_traffic(settings(**chosen), VGG_SHAPE, CPU)
        for chosen in ({}, {"precision": "bf16"}, {"conv_kernel": "gemm"})
    )
    assert 0.45 < bf16.per_sample / fp32.per_sample < 0.6
    assert few.per_sample > 1.5 * fp32.per_sample
    assert few.per_step > 2 * fp32.per_step


def test_more_than_the_weights_their_gradients_and_momentum_is_moved_whatever_the_batch() -> None:
    weights = 0.05**2 * 20.04e6 * 4
    assert 5 * weights < memory_traffic(settings(), VGG_SHAPE, CPU).per_step < 15 * weights
