"""Runs in processes of their own, as a person starts them, to be killed, stopped and starved."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil

from search.record.events import Measurement
from search.record.journal import FILE_NAME, read_journal
from tests.search.runs import REPLAYED

SPACE = f"""\
{REPLAYED}fixed: {{seconds_per_epoch: 0.1}}
searcher: {{name: tpe}}
stopping: {{name: none}}
budget: {{trials: 8, epochs: 3}}
"""


def start(*arguments: str | Path, cwd: Path, dashboard: bool = False, **environment: str) -> subprocess.Popen[bytes]:
    """The command in a session of its own; what it prints goes to `cwd/printed`."""
    if not (cwd / "space.yaml").exists():
        (cwd / "space.yaml").write_text(SPACE)
    command = [sys.executable, "-m", "search.run", *map(str, arguments), *["--no-dashboard"] * (not dashboard)]
    with (cwd / "printed").open("w") as printed:
        return subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **environment},
        )


@contextlib.contextmanager
def running(
    *arguments: str | Path, cwd: Path, dashboard: bool = False, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The same; whatever becomes of the test, nothing of it is left."""
    process = start(*arguments, cwd=cwd, dashboard=dashboard, **environment)
    family: list[psutil.Process] = []
    try:
        yield process
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(process.pid).children(recursive=True)
        for pid in [*(each.pid for each in family), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def printed(cwd: Path) -> list[str]:
    """Return the lines that the command printed."""
    return (cwd / "printed").read_text().splitlines()


def wait_for(path: Path, pattern: str, process: subprocess.Popen[bytes], seconds: float = 150) -> None:
    """Wait until the file contains the pattern."""
    deadline = time.monotonic() + seconds
    while not (path.exists() and re.search(pattern, path.read_text(errors="replace"))):
        assert process.poll() is None, f"ended with {process.returncode}"
        assert time.monotonic() < deadline, f"no {pattern} in {path} within {seconds} s"
        time.sleep(0.02)


def descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return all descendants of a process."""
    return psutil.Process(process.pid).children(recursive=True)


def named(processes: Iterable[psutil.Process], name: str) -> list[psutil.Process]:
    """Return the processes whose name begins with `name`."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [process] * process.name().startswith(name)
    return found


def with_pids(*pids: int) -> list[psutil.Process]:
    """Return the living processes with these ids."""
    return [process for process in psutil.process_iter() if process.pid in pids]


def gone(processes: list[psutil.Process], seconds: float) -> list[str]:
    """Return the processes that are alive after `seconds`; empty: all are gone."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return [f"{p.pid} {' '.join(p.cmdline())[:80]}" for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def measured(folder: Path) -> dict[tuple[str, int], Any]:
    """Return the journal's metrics by trial and epoch; each pair must be unique."""
    events = [e for e in read_journal(folder / FILE_NAME) if isinstance(e, Measurement)]
    twice = [key for key, n in Counter((e.trial_id, e.epoch) for e in events).items() if n > 1]
    assert not twice
    return {(e.trial_id, e.epoch): e.metrics for e in events}
