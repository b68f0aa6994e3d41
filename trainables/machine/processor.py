"""Properties of the processor and the GPUs: name and generation, and the precisions that they support."""

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

AMPERE = 8  # major version of NVIDIA's compute capability


def name_and_generation() -> str:
    """Name the processor and its generation: on virtual machines all processors of a maker have the same name."""
    cpuinfo = _cpuinfo()
    known = [cpuinfo[key] for key in ("model name", "cpu family", "model", "stepping") if key in cpuinfo]
    return " ".join(known) or os.uname().machine


@cache
def bf16() -> Bf16:
    """Support of bf16: own instructions, conversion to fp32 by wide instructions, or emulation of each number.

    Emulation is 10 (convolutions) to 100 times (matrix products) slower than fp32. An unknown processor is assumed to
    have its own instructions.
    """
    cpuinfo = _cpuinfo()
    flags = set((cpuinfo.get("flags") or cpuinfo.get("Features") or "").split())
    if not flags or not flags.isdisjoint(COMPUTE_BF16):
        return "computed"
    return "converted" if flags >= CONVERT_BF16 else "emulated"


@cache
def gpu_bf16() -> bool:
    """Return True if a GPU here has instructions for bf16 (NVIDIA: since Ampere), or if that is unknown."""
    try:
        import pynvml

        pynvml.nvmlInit()
        gpus = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return not gpus or any(pynvml.nvmlDeviceGetCudaComputeCapability(gpu)[0] >= AMPERE for gpu in gpus)
    except Exception:  # no library, driver or permission: each release fails in its own way
        return True


def precisions(device_type: str) -> tuple[str, ...]:
    """Return the precisions that a device of this type computes at a useful speed."""
    if device_type == "cpu":
        return ("fp32",) if bf16() == "emulated" else ("fp32", "bf16")
    return ("fp32", "bf16", "fp16") if gpu_bf16() else ("fp32", "fp16")


def precision_of(precision: Precision, device_type: str) -> Precision:
    """Resolve `auto` for a device: bf16 if it has instructions for it, else fp32."""
    if precision != "auto":
        return precision
    computed = bf16() == "computed" if device_type == "cpu" else gpu_bf16()
    return "bf16" if computed else "fp32"


def _cpuinfo() -> dict[str, str]:
    """Fields of the first core; empty if not readable."""
    with contextlib.suppress(OSError):
        lines = (line.partition(":") for line in CPUINFO.read_text().split("\n\n")[0].splitlines())
        return {name.strip(): value.strip() for name, _, value in lines}
    return {}
