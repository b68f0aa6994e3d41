"""Processes of a worker group: which there are, and the environment variables that they have."""

from __future__ import annotations

from typing import Any

import psutil
import pytest
import ray

from search.execution.worker_environment import WORKER_ENVIRONMENT, runtime_environment
from search.execution.workers import worker_pool
from trainables.contract import Layout


def actors() -> set[int]:
    """Return the processes of the actors of this process's Ray."""
    children = psutil.Process().children(recursive=True)
    return {child.pid for child in children if child.name().startswith("ray::") and child.name() != "ray::IDLE"}


def test_a_group_has_no_process_beside_its_workers_and_those_have_the_variables(cluster: Any) -> None:
    before = actors()
    with worker_pool(cluster.resources, reserve_cpus=False) as pool:
        ray.get(pool.actor.lease.remote(Layout(2), "trial"))
        workers = {place.pid for place in ray.get(pool.actor.places.remote("trial")).values()}
        assert len(workers) == 2
        for worker in workers:
            assert psutil.Process(worker).environ().items() >= WORKER_ENVIRONMENT.items()
        (its_own,) = actors() - before - workers
        assert "WorkerPool" in " ".join(psutil.Process(its_own).cmdline())


def test_a_worker_is_given_only_what_it_does_not_inherit(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WORKER_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert runtime_environment(on_this_machine=True) == {}
    assert runtime_environment(on_this_machine=False) == {"env_vars": WORKER_ENVIRONMENT}
    monkeypatch.setenv("MALLOC_ARENA_MAX", "4")
    assert runtime_environment(on_this_machine=True) == {"env_vars": {"MALLOC_ARENA_MAX": "1"}}
