"""One Ray for the whole test session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trainables.contract import Resources


@pytest.fixture(scope="session")
def cluster() -> Iterator[object]:
    from search.cluster import connect

    with connect(None, Resources(cpus=2), dashboard=False) as cluster:
        yield cluster
