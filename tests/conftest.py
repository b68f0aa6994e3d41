"""Ray cluster and warm workers for the whole test session."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Workers and commands that tests start find `tests.faulty_replay`.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))

# Ignored under nohup or in the background of a script; the processes that tests start would ignore them as well.
for number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *received: None)


@pytest.fixture(scope="session")
def cluster() -> Iterator[object]:
    from search.execution.cluster import connect
    from search.space.machine import Machine

    with connect(None, Machine("test", cores=2, memory_gib=8), dashboard=False) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def pool(cluster: Any) -> Iterator[object]:
    """Warm workers for several studies; a test of the workers themselves creates its own."""
    from search.execution.workers import worker_pool

    with worker_pool(cluster.resources, reserve_cpus=False) as pool:
        yield pool
