"""Output of a program with OpenBLAS's kernels for this processor and for an older one, whose sums round otherwise."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

OLDER = "Nehalem"
NAMED = "\nfrom threadpoolctl import threadpool_info\nprint({library['architecture'] for library in threadpool_info()})"
only_on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="names kernels of x86 processors")


def printed_with_both_kernels(code: str, *folders: Path) -> tuple[str, str]:
    """Return what the program prints with each; it can import from this project and from `folders`."""
    path = os.pathsep.join(map(str, [Path(__file__).parent.parent, *folders]))
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code + NAMED],
            env={**os.environ, "PYTHONPATH": path, **kernels},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for kernels in ({}, {"OPENBLAS_CORETYPE": OLDER})
    ]
    assert outputs[1][-1] == str({OLDER})
    printed, same = ("\n".join(lines[:-1]) for lines in outputs)
    return printed, same
