"""One Ray for the whole test session, and warm workers on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from trainables.contract import Resources


@pytest.fixture(scope="session")
def cluster() -> Iterator[object]:
    from search.execution.cluster import connect

    with connect(None, Resources(cpus=2), dashboard=False) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def pool(cluster: Any) -> Iterator[object]:
    """Workers that stay warm from one study to the next; a study that is about workers has its own."""
    from search.execution.workers import worker_pool

    with worker_pool(cluster.resources, reserve_cpus=False) as pool:
        yield pool
