"""One training step: what is meant to be faster learns the same."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainables.shapes import VGG_SHAPE
from trainables.build import build
from trainables.contract import InfeasibleError, Resources
from trainables.setting_check import checked
from trainables.stages import Timeline
from trainables.step import in_floats
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings

CPU = torch.device("cpu")
OFF = Timeline(CPU)


def settings(**config: Any) -> Vgg19Settings:
    given = {"batch_size": 8, "width": 0.02, "precision": "fp32", **config}
    return Vgg19Settings(**checked(given, vgg19_cifar10.PARAMETERS or {}))


def losses(steps: int = 4, **config: Any) -> list[float]:
    step = build(settings(**config), VGG_SHAPE, CPU)
    step.set_learning_rate(0.001)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(8, 3, 32, 32, generator=generator)
    labels = torch.arange(8)
    return [step(images, labels, OFF).item() for _ in range(steps)]


@pytest.mark.parametrize(
    "change",
    [
        {"conv_kernel": "gemm"},
        {"memory_format": "contiguous"},
        {"memory_format": "contiguous", "conv_kernel": "gemm"},
        {"fused_optimizer": False},
        {"flush_denormals": True},
        {"allocator": "system"},
    ],
)
def test_a_setting_for_speed_does_not_change_the_losses(change: dict[str, Any]) -> None:
    assert losses(conv_kernel="library") == pytest.approx(losses(**{"conv_kernel": "library", **change}), abs=1e-4)


def test_the_fused_adamw_learns_the_same() -> None:
    kinds = (losses(optimizer="adamw", conv_kernel="library", fused_optimizer=fused) for fused in (True, False))
    assert next(kinds) == pytest.approx(next(kinds), abs=1e-4)


@pytest.fixture
def _nan_in_new_memory() -> Iterator[None]:
    """Fill uninitialised tensors with NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_nan_in_new_memory")
@pytest.mark.parametrize("resumed", [False, True])
def test_a_first_step_that_overflows_leaves_the_momentum_at_zero(resumed: bool) -> None:
    config = settings(precision="fp16", conv_kernel="library")
    step = build(config, VGG_SHAPE, CPU)
    step._scaler = torch.amp.GradScaler("cpu", init_scale=1e38)
    images, labels = torch.rand(8, 3, 32, 32), torch.arange(8)
    step(images, labels, OFF)
    assert step._scaler.get_scale() < 1e38
    if resumed:
        state = step.state_dict()
        step = build(config, VGG_SHAPE, CPU)
        step.load_state_dict(state)
    momentum = [known["momentum_buffer"] for known in step.state_dict()["optimizer"].values()]
    assert momentum
    assert all(not each.any() for each in momentum)
    step._scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    assert all(np.isfinite(step(images, labels, OFF).item()) for _ in range(3))


def test_the_losses_in_16_bits_are_near_those_in_32() -> None:
    exact, library, gemm = (
        losses(width=0.1, precision=precision, conv_kernel=kernel, initialization="he")
        for precision, kernel in (("fp32", "library"), ("bf16", "library"), ("bf16", "gemm"))
    )
    assert library == pytest.approx(exact, abs=0.05)
    assert gemm == pytest.approx(exact, abs=0.05)


def test_only_outputs_of_16_bits_are_converted_for_evaluation() -> None:
    given = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64]
    found = in_floats([torch.zeros(1, dtype=dtype) for dtype in given])
    assert [each.dtype for each in found] == [torch.float32] * 3 + [torch.float64, torch.int64]


def test_what_a_machine_cannot_do_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Resources(cpus=2)
    assert vgg19_cifar10.unavailable("cuda_graphs", True, here) == "needs a CUDA device"
    assert vgg19_cifar10.unavailable("cuda_graphs", False, here) is None
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        assert "C++ compiler" in str(vgg19_cifar10.unavailable("compile", True, here))
        assert vgg19_cifar10.unavailable("compile", False, here) is None


def test_compiling_needs_pythons_header_and_on_a_gpu_a_c_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cpu, gpu = Resources(cpus=2), Resources(cpus=2, gpus=1)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    (tmp_path / "g++").write_text("")
    (tmp_path / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Python.h" in str(vgg19_cifar10.unavailable("compile", True, cpu))
    (tmp_path / "Python.h").write_text("")
    assert vgg19_cifar10.unavailable("compile", True, cpu) is None
    assert "needs a C compiler" in str(vgg19_cifar10.unavailable("compile", True, gpu))


def test_a_captured_step_is_refused_where_it_cannot_be() -> None:
    graphs = settings(cuda_graphs=True, fused_optimizer=False, conv_kernel="library")
    with pytest.raises(InfeasibleError, match="fused_optimizer"):
        build(graphs, VGG_SHAPE, CPU)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_compiled_network_learns_the_same() -> None:
    """Slow: the compiler takes a minute."""
    plain, compiled = (losses(steps=2, compile=compile, conv_kernel="gemm") for compile in (False, True))
    assert plain == pytest.approx(compiled, abs=1e-4)
