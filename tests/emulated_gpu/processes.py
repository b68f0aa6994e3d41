"""Programs on a machine with emulated GPUs: their environment, and a pytest of the tests marked `gpu`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.emulated_gpu.libraries import RUNTIME, libraries, why_unavailable

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 300

needs_emulation = pytest.mark.skipif(why_unavailable() is not None, reason=f"{why_unavailable()}")


def environment(devices: int = 1, memory_gib: float = 80, sensors: bool = True) -> dict[str, str]:
    """Return the environment of a program that sees so many GPUs with so much memory each."""
    folder = libraries()
    paths = [str(ROOT), str(Path(__file__).parent / "site"), os.environ.get("PYTHONPATH", "")]
    mine = {
        "LD_PRELOAD": str(folder / RUNTIME),
        "LD_LIBRARY_PATH": str(folder),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "NULLCUDA_DEVICES": str(devices),
        "NULLCUDA_GIB": str(memory_gib),
        "NULLCUDA_SENSORS": str(int(sensors)),
    }
    return {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"} | mine


def run(
    command: Sequence[str], environment: dict[str, str], timeout_seconds: float = TIMEOUT_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run a command in the root of the project; return its exit code and what it printed."""
    return subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=timeout_seconds, check=False
    )


def assert_gpu_tests_pass(
    *selection: str, devices: int = 1, memory_gib: float = 80, timeout_seconds: float = 300
) -> None:
    """Run pytest on the selected tests with emulated GPUs; the child's report is the message of a failure."""
    plugins = ["-p", "tests.emulated_gpu.plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *plugins, "-m", "gpu", "-rfEs", "--tb=short", *selection]
    done = run(command, environment(devices, memory_gib), timeout_seconds)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
