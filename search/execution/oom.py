"""Kernel's count of processes killed for lack of memory, which tells such a death from any other kill."""

from __future__ import annotations

from pathlib import Path


def kernel_oom_kills(proc: Path = Path("/proc")) -> int:
    """Return `oom_kill` of proc(5)'s vmstat: kills so far, also at the limit of a container; 0: not available."""
    try:
        lines = (proc / "vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
