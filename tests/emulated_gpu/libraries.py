"""Build of the emulated CUDA libraries with gcc and the headers of PyTorch's CUDA wheels, once for each version."""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch

SOURCES = Path(__file__).parent / "sources"
PACKAGES = Path(torch.__file__).parents[1]
TORCH = Path(torch.__file__).parent / "lib"
CALLERS = ("torch_cuda", "c10_cuda", "torch_python", "torch_cuda_linalg", "torch_nvshmem", "torch_cpu")
RUNTIME, DRIVER, NVML = "libemulatedcuda.so", "libcuda.so.1", "libnvidia-ml.so.1"


def why_unavailable() -> str | None:
    """Return why the libraries cannot be built here; None: they can."""
    if sys.platform != "linux":
        return "the emulated GPU needs Linux"
    if torch.version.cuda is None:
        return "the emulated GPU needs PyTorch with CUDA, which `pip install torch` brings on Linux"
    if missing := [tool for tool in ("gcc", "nm") if shutil.which(tool) is None]:
        return f"the emulated GPU is built with {' and '.join(missing)}, not found"
    if _headers() is None:
        return f"the emulated GPU needs the headers of nvidia-cuda-runtime, not found below {PACKAGES / 'nvidia'}"
    return None


@cache
def libraries() -> Path:
    """Return the folder of the libraries; build them (2 s) unless a folder of the same sources and PyTorch exists."""
    digest = hashlib.sha256(f"{torch.__version__} {PACKAGES}".encode())
    for source in (Path(__file__), *sorted(path for path in SOURCES.rglob("*") if path.is_file())):
        digest.update(source.read_bytes())
    place = Path(tempfile.gettempdir()) / f"emulated-gpu-{getpass.getuser()}-{digest.hexdigest()[:16]}"
    if not place.is_dir():
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            built = Path(folder) / "libraries"
            built.mkdir()
            _build(built)
            try:
                os.rename(built, place)
            except OSError:  # another process was faster
                assert place.is_dir()
    return place


def _headers() -> Path | None:
    return next((path.parent for path in sorted(PACKAGES.glob("nvidia/*/include/driver_types.h"))), None)


def _build(folder: Path) -> None:
    written = re.findall(r"^API [\w *]*?(\w+)\(", (SOURCES / "runtime.c").read_text(), re.MULTILINE)
    others = sorted(_wanted_calls() - set(written))
    (folder / "other_calls.h").write_text("".join(f"API int {name}() {{ return 0; }}\n" for name in others))
    includes = [f"-I{path}" for path in (SOURCES, folder, _headers())]
    for source, library, optimise in (
        ("runtime.c", RUNTIME, "-O2"),
        ("driver.c", DRIVER, "-O1"),
        ("nvml.c", NVML, "-O1"),
    ):
        command = [
            "gcc",
            "-shared",
            "-fPIC",
            "-w",
            optimise,
            *includes,
            str(SOURCES / source),
            "-o",
            str(folder / library),
        ]
        subprocess.run([*command, "-lpthread", "-lrt"], check=True)


def _wanted_calls() -> set[str]:
    """Return the functions of the CUDA runtime, cuBLAS and NCCL that PyTorch's libraries expect elsewhere."""
    found = set[str]()
    for path in (TORCH / f"lib{name}.so" for name in CALLERS):
        if path.exists():
            table = subprocess.run(
                ["nm", "-D", "--undefined-only", str(path)], capture_output=True, text=True, check=True
            )
            found |= {line.split()[-1].partition("@")[0] for line in table.stdout.splitlines()}
    return {name for name in found if re.match(r"_*cuda|cublas|nccl", name)}
