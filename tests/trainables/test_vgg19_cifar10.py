"""The trainable as a space file sees it: parameters, what a machine cannot do, layouts, an estimate."""

import os
import sys
from typing import Any

import pytest

from trainables.contract import Data, InfeasibleError, Layout, Resources, load_trainable
from trainables.machine import processor
from trainables.setting_check import checked
from trainables.setting_text import parsed
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings

LAPTOP, TWO_CORES = Resources(cpus=1), Resources(cpus=2)
ONE_GPU, NODE = Resources(cpus=8, gpus=1), Resources(cpus=32, gpus=4)


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, trainables.vgg19_cifar10; sys.exit(bool({'torch', 'numpy', 'PIL', 'ray'} & set(sys.modules)))"
    assert os.spawnl(os.P_WAIT, sys.executable, sys.executable, "-c", code) == 0


def test_a_configuration_of_nothing_is_the_defaults_of_the_rows() -> None:
    assert Vgg19Settings(**checked({}, vgg19_cifar10.PARAMETERS or {})) == Vgg19Settings()


def test_the_defaults_are_allowed_by_themselves() -> None:
    assert vgg19_cifar10.PARAMETERS is not None
    defaults = checked({}, vgg19_cifar10.PARAMETERS)
    assert checked(defaults, vgg19_cifar10.PARAMETERS) == defaults


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"bach_size": 1}, 'no parameter "bach_size"; did you mean "batch_size"'),
        ({"batch_size": 0}, "batch_size: found 0; expected at least 1"),
        ({"batch_size": 1.5}, "batch_size: found 1.5; expected a whole number"),
        ({"batch_size": True}, "batch_size: found true; expected a whole number"),
        ({"learning_rate": "fast"}, 'learning_rate: found "fast"; expected a number'),
        ({"learning_rate": 0.0}, "learning_rate: found 0.0; expected at least 1e-08"),
        ({"learning_rate": float("nan")}, "learning_rate: found nan; expected a finite number"),
        ({"momentum": 1}, "momentum: found 1; expected at most 0.9999"),
        ({"precision": "fp8"}, 'precision: found "fp8"; there are auto, fp32, bf16, fp16'),
        ({"seed": None}, "seed: found nothing; expected a whole number"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused_in_one_line(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked(config, vgg19_cifar10.PARAMETERS or {})


@pytest.mark.parametrize(
    ("text", "value"),
    [("128", 128), ("0.1", 0.1), ("1e-3", 1e-3), ("true", True), ("False", False), ("null", None), ("ddp", "ddp")],
)
def test_values_on_a_command_line_have_the_types_that_they_look_like(text: str, value: Any) -> None:
    assert parsed(text) == value
    assert type(parsed(text)) is type(value)


@pytest.mark.parametrize(
    ("parameter", "value", "resources", "reason"),
    [
        ("precision", "fp16", TWO_CORES, "needs a CUDA device"),
        ("precision", "fp16", ONE_GPU, None),
        ("precision", "bf16", LAPTOP, None),
        ("loader", "device", TWO_CORES, "needs a CUDA device"),
        ("loader", "device", ONE_GPU, None),
        ("pin_memory", True, TWO_CORES, "needs a CUDA device"),
        ("pin_memory", False, TWO_CORES, None),
        ("strategy", "ddp", LAPTOP, "needs 2 cores, there is 1"),
        ("strategy", "ddp", TWO_CORES, None),
        ("strategy", "ddp", ONE_GPU, "needs 2 GPUs, there is 1"),
        ("strategy", "ddp", NODE, None),
        ("strategy", "single", LAPTOP, None),
        ("world_size", 3, TWO_CORES, "needs 3 cores, there are 2"),
        ("world_size", 8, NODE, "needs 8 GPUs, there are 4"),
        ("threads", 4, TWO_CORES, "needs 4 cores, there are 2"),
        ("batch_size", 4096, LAPTOP, None),
    ],
)
def test_what_a_machine_cannot_do_is_said(
    parameter: str, value: Any, resources: Resources, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "bf16", lambda: "converted")
    assert vgg19_cifar10.unavailable(parameter, value, resources) == reason


def test_what_a_processor_would_only_emulate_cannot_be_done_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "bf16", lambda: "emulated")
    assert "only emulates it on this processor" in str(vgg19_cifar10.unavailable("precision", "bf16", LAPTOP))
    assert vgg19_cifar10.unavailable("precision", "bf16", ONE_GPU) is None
    assert vgg19_cifar10.layout({}, LAPTOP) == Layout(1, 1, 0)
    with pytest.raises(InfeasibleError, match="precision bf16: PyTorch only emulates it"):
        vgg19_cifar10.layout({"precision": "bf16"}, LAPTOP)


@pytest.mark.parametrize(
    ("config", "resources", "layout"),
    [
        ({}, TWO_CORES, Layout(1, 2, 0)),
        ({"threads": 1, "batch_size": 64}, TWO_CORES, Layout(1, 2, 0)),
        ({}, ONE_GPU, Layout(1, 8, 1)),
        ({"strategy": "ddp"}, TWO_CORES, Layout(2, 1, 0)),
        ({"strategy": "ddp"}, Resources(cpus=16), Layout(2, 8, 0)),
        ({"strategy": "ddp", "world_size": 4}, Resources(cpus=16), Layout(4, 4, 0)),
        ({"strategy": "ddp"}, NODE, Layout(4, 8, 1)),
        ({"strategy": "ddp", "world_size": 2}, NODE, Layout(2, 16, 1)),
        ({"strategy": "ddp", "world_size": 1}, ONE_GPU, Layout(1, 8, 1)),
        ({}, Resources(cpus=64, gpus=8, nodes=2), Layout(1, 32, 1)),
        ({"strategy": "ddp"}, Resources(cpus=64, gpus=8, nodes=2), Layout(8, 8, 1)),
        ({"strategy": "ddp"}, Resources(cpus=16, nodes=2), Layout(2, 4, 0)),
        ({"strategy": "ddp", "placement": "spread"}, Resources(cpus=16, nodes=2), Layout(2, 8, 0, "spread")),
        (
            {"strategy": "ddp", "placement": "spread", "world_size": 3},
            Resources(cpus=16, nodes=2),
            Layout(3, 4, 0, "spread"),
        ),
        ({"placement": "spread"}, Resources(cpus=16, nodes=2), Layout(1, 8, 0)),
    ],
)
def test_a_layout_depends_on_the_strategy_and_shares_the_machine_evenly(
    config: dict[str, Any], resources: Resources, layout: Layout
) -> None:
    assert vgg19_cifar10.layout(config, resources) == layout


@pytest.mark.parametrize(
    ("config", "resources", "message"),
    [
        ({"strategy": "ddp"}, LAPTOP, "strategy ddp: needs 2 cores, there is 1"),
        ({"strategy": "ddp", "threads": 2}, TWO_CORES, "threads 2: each of 2 processes has 1"),
        ({"world_size": 2}, TWO_CORES, "strategy single is one process"),
        ({"loader": "device"}, TWO_CORES, "loader device: needs a CUDA device"),
        ({"strategy": "ddp", "placement": "spread"}, TWO_CORES, "placement spread: needs several nodes, there is 1"),
    ],
)
def test_a_configuration_without_a_layout_is_infeasible(
    config: dict[str, Any], resources: Resources, message: str
) -> None:
    with pytest.raises(InfeasibleError, match=message):
        vgg19_cifar10.layout(config, resources)


def test_auto_stands_for_what_is_known_before_a_trial() -> None:
    precision = processor.precision_of("auto", "cpu")
    known = {"precision": precision, "cuda_graphs": False, "loader": "memory"}
    assert vgg19_cifar10.meanings_of_auto(Resources(2)) == known
    assert set(vgg19_cifar10.meanings_of_auto(Resources(2, gpus=1))) == {"precision"}


def test_an_estimate_counts_pictures_and_times_steps(few: Data) -> None:
    cost = load_trainable("vgg19_cifar10").estimate({"width": 0.01, "batch_size": 60, "strategy": "ddp"}, few)
    assert cost.samples_per_epoch == 120
    assert cost.samples_per_second > 10
    assert cost.checkpoint_bytes == pytest.approx(2 * 4 * parameters(0.01), rel=0.1)  # weights and momentum


def parameters(width: float) -> int:
    from trainables.network.vgg import vgg

    return sum(p.numel() for p in vgg(width=width).parameters())


def test_an_estimate_of_a_batch_larger_than_the_data_is_infeasible(few: Data) -> None:
    with pytest.raises(InfeasibleError, match="batch_size 1024: there are 120"):
        vgg19_cifar10.estimate({"batch_size": 1024}, few)
