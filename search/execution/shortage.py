"""How often a process of this machine was ended for want of memory: what tells such an end from any other kill."""

from __future__ import annotations

from pathlib import Path


def kernel_kills(proc: Path = Path("/proc")) -> int:
    """How many the kernel has ended so far, with those that came to the limit of their container; 0: it does not say.

    `oom_kill` in proc(5)'s vmstat.
    """
    try:
        lines = (proc / "vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
