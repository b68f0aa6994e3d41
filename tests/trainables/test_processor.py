"""What the processor is fit for, by what it says of itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainables.contract import Resources
from trainables.machine import processor
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10

NAME = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R)\ncpu family\t: 6\nmodel\t\t: 143\nstepping\t: 8\n"
INTEL = f"{NAME}flags\t\t: fpu {{}}\n"
WIDE = "avx512f avx512dq avx512bw avx512vl"


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    processor.bf16.cache_clear()
    yield tmp_path / "cpuinfo"
    processor.bf16.cache_clear()


@pytest.mark.parametrize(
    ("text", "bf16", "auto"),
    [
        (INTEL.format(f"{WIDE} avx512_bf16"), "computed", "bf16"),
        (INTEL.format(f"{WIDE} amx_bf16"), "computed", "bf16"),
        (INTEL.format(WIDE), "converted", "fp32"),
        (INTEL.format("avx2 fma"), "emulated", "fp32"),
        (INTEL.format("avx2 avx512f"), "emulated", "fp32"),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", "computed", "bf16"),
        ("processor\t: 0\nFeatures\t: fp asimd\n", "emulated", "fp32"),
        ("", "computed", "bf16"),
    ],
)
def test_bf16_is_the_default_where_there_are_instructions_for_it(said: Path, text: str, bf16: str, auto: str) -> None:
    said.write_text(text + "\nprocessor\t: 1\n" * bool(text))
    assert processor.bf16() == bf16
    assert processor.precision_of("auto", "cpu") == auto
    assert processor.precision_of("fp16", "cpu") == "fp16"
    assert ("bf16" in processor.precisions("cpu")) == (bf16 != "emulated")


@pytest.mark.parametrize(
    ("generations", "precisions", "auto"),
    [
        ([9], ("fp32", "bf16", "fp16"), "bf16"),
        ([6, 8], ("fp32", "bf16", "fp16"), "bf16"),  # the first one may be for the screen
        ([7, 7], ("fp32", "fp16"), "fp32"),
        ([], ("fp32", "bf16", "fp16"), "bf16"),  # they are on other nodes
        (None, ("fp32", "bf16", "fp16"), "bf16"),
    ],
)
def test_bf16_is_the_default_on_gpus_that_have_it(
    monkeypatch: pytest.MonkeyPatch, generations: list[int] | None, precisions: tuple[str, ...], auto: str
) -> None:
    """By their compute capability; None: the driver tells nothing."""
    monkeypatch.setitem(sys.modules, "pynvml", None if generations is None else nvml_of(generations))
    processor.gpu_bf16.cache_clear()
    try:
        assert processor.precisions("cuda") == precisions
        assert processor.precision_of("auto", "cuda") == auto
        assert processor.precision_of("bf16", "cuda") == "bf16"
        told = vgg19_cifar10.unavailable("precision", "bf16", Resources(cpus=2, gpus=1))
        assert (told is None) == ("bf16" in precisions)
    finally:
        processor.gpu_bf16.cache_clear()


def nvml_of(generations: list[int]) -> Any:
    """As much of NVML as is asked for."""
    return SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: len(generations),
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetCudaComputeCapability=lambda i: (generations[i], 0),
    )


def test_where_nothing_is_told_it_has_what_it_takes(said: Path) -> None:
    assert processor.bf16() == "computed"
    assert processor.name_and_generation()


def test_its_name_tells_generations_apart(said: Path) -> None:
    said.write_text(INTEL.format("fma"))
    assert processor.name_and_generation() == "Intel(R) Xeon(R) 6 143 8"


@pytest.mark.skipif(not processor.CPUINFO.exists(), reason="it does not say")
def test_what_this_one_says_is_what_pytorch_finds() -> None:
    assert (processor.bf16() != "emulated") == torch.ops.mkldnn._is_mkldnn_bf16_supported()
