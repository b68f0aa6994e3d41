"""What processor and GPUs say of themselves: name and generation, and which precisions they are fit for."""

from __future__ import annotations

import contextlib
import os
from functools import cache
from pathlib import Path
from typing import Literal

from trainables.settings import Precision

Bf16 = Literal["computed", "converted", "emulated"]

CPUINFO = Path("/proc/cpuinfo")
COMPUTE_BF16 = ("avx512_bf16", "amx_bf16", "bf16")  # the last on ARM
CONVERT_BF16 = {"avx512bw", "avx512vl", "avx512dq"}  # PyTorch's own condition for oneDNN's fast kernels

AMPERE = 8  # the first digit of NVIDIA's compute capability


def name_and_generation() -> str:
    """Virtual machines give all of a maker's processors the same name."""
    said = _said()
    known = [said[key] for key in ("model name", "cpu family", "model", "stepping") if key in said]
    return " ".join(known) or os.uname().machine


@cache
def bf16() -> Bf16:
    """By instructions for it, as fp32 with wide instructions around it, or, for want of these, number by number.

    The last is 10 (convolutions) to 100 times (matrix products) slower than fp32. Where nothing is told of the
    processor, it is taken to have what it takes.
    """
    said = _said()
    flags = set((said.get("flags") or said.get("Features") or "").split())
    if not flags or not flags.isdisjoint(COMPUTE_BF16):
        return "computed"
    return "converted" if flags >= CONVERT_BF16 else "emulated"


@cache
def gpu_bf16() -> bool:
    """Whether one of the GPUs here has instructions for it, as NVIDIA's since Ampere; yes where nothing is told."""
    try:
        import pynvml

        pynvml.nvmlInit()
        gpus = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return not gpus or any(pynvml.nvmlDeviceGetCudaComputeCapability(gpu)[0] >= AMPERE for gpu in gpus)
    except Exception:  # no library, no driver, no right: each release fails in its own way
        return True


def precisions(device_type: str) -> tuple[str, ...]:
    """That such a device is fit for."""
    if device_type == "cpu":
        return ("fp32",) if bf16() == "emulated" else ("fp32", "bf16")
    return ("fp32", "bf16", "fp16") if gpu_bf16() else ("fp32", "fp16")


def precision_of(precision: Precision, device_type: str) -> Precision:
    """What `auto` means on a device: bf16 where it is computed in, else fp32. Others mean themselves."""
    if precision != "auto":
        return precision
    computed = bf16() == "computed" if device_type == "cpu" else gpu_bf16()
    return "bf16" if computed else "fp32"


def _said() -> dict[str, str]:
    """Of the first core; empty where nothing is."""
    with contextlib.suppress(OSError):
        lines = (line.partition(":") for line in CPUINFO.read_text().split("\n\n")[0].splitlines())
        return {name.strip(): value.strip() for name, _, value in lines}
    return {}
