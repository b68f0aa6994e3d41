"""A trial that takes all the memory there is: ended by the kernel at a container's limit, or by Ray."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from search.execution.oom import kernel_oom_kills
from search.results import load
from tests.faults.processes import printed, running
from tests.search.runs import REPLAYED

HUNGRY = f"""\
{REPLAYED.replace("{min: 0.001, max: 0.5, log: true}", "{values: [0.1]}").replace("replay", "tests.faulty_replay", 1)}\
  fail_at_epoch: {{values: [2, 0]}}
fixed: {{seconds_per_epoch: 0.1, fail_with: hunger}}
searcher: {{name: grid}}
budget: {{epochs: 3}}
"""
LIMIT_BYTES = 3 * 2**30  # Ray and the driver need one of them
OTHERS_BYTES = 10 * 2**30  # that tests beside this one may take: Ray counts them, and would end another process


@pytest.fixture
def container() -> Iterator[Path]:
    """A control group whose processes have no more memory than LIMIT_BYTES."""
    first, second = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")  # of cgroup's versions 1 and 2
    root, limit = (first, "memory.limit_in_bytes") if first.is_dir() else (second, "memory.max")
    group = root / "training-search-test"
    try:
        group.mkdir()
        (group / limit).write_text(f"{LIMIT_BYTES}")
    except OSError:
        pytest.skip("this user may not limit the memory of processes")
    try:
        yield group
    finally:
        left = [psutil.Process(int(pid)) for pid in (group / "cgroup.procs").read_text().split()]
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=5)
        group.rmdir()


@pytest.mark.slow
def test_a_trial_that_comes_to_its_containers_limit_cannot_run_there(container: Path, tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(HUNGRY)
    kills = kernel_oom_kills()
    with running("space.yaml", "--name", "run", cwd=tmp_path) as process:
        (container / "cgroup.procs").write_text(f"{process.pid}")
        assert process.wait(300) == 0, printed(tmp_path)
    assert kernel_oom_kills() == kills, "the tests themselves are in another group"
    _the_hungry_one_is_infeasible_and_the_next_complete(tmp_path)


@pytest.mark.slow
def test_a_trial_that_ray_ends_for_want_of_memory_cannot_run_there(tmp_path: Path) -> None:
    """As on a cluster of others; a run's own has Ray's monitor off, which ends who came last, whoever has the most."""
    (tmp_path / "space.yaml").write_text(HUNGRY)
    memory = psutil.virtual_memory()
    threshold = min((memory.total - memory.available + LIMIT_BYTES + OTHERS_BYTES) / memory.total, 0.85)
    monitored: dict[str, Any] = {
        "RAY_memory_monitor_refresh_ms": "250",
        "RAY_memory_usage_threshold": f"{threshold:.2f}",
    }
    with running("space.yaml", "--name", "run", cwd=tmp_path, **monitored) as process:
        assert process.wait(300) == 0, printed(tmp_path)
    _the_hungry_one_is_infeasible_and_the_next_complete(tmp_path)


def _the_hungry_one_is_infeasible_and_the_next_complete(folder: Path) -> None:
    rows: Any = load(folder / "results" / "run").trials.itertuples()
    hungry, modest = rows
    assert (hungry.state, hungry.retries, hungry.epochs) == ("infeasible", 0, 1), hungry.reason
    assert hungry.reason.startswith("out of host memory: the worker of rank 0 died: ")
    assert (modest.state, modest.epochs) == ("complete", 3)


@pytest.mark.parametrize(
    ("group", "file"),
    [
        ("0::/a.slice/b.scope", "cgroups/a.slice/b.scope/memory.events.local"),
        ("0::/a.slice/b.scope", "cgroups/a.slice/b.scope/memory.events"),
        ("0::/a.slice/b.scope", "cgroups/a.slice/memory.events"),  # where the group of the scope has no controller
        ("0::/\n4:memory:/a", "cgroups/memory/a/memory.oom_control"),
        ("4:memory:/docker/a", "cgroups/memory/memory.oom_control"),  # a container that sees its own group as the root
        ("0::/", "vmstat"),
    ],
)
def test_the_kernels_count_is_that_of_this_control_group_or_else_of_the_node(
    tmp_path: Path, group: str, file: str
) -> None:
    count = partial(kernel_oom_kills, tmp_path, tmp_path / "cgroups")
    assert count() == 0
    for name, text in {
        "self/cgroup": f"{group}\n",
        "vmstat": "pgfault 17\noom_kill 9\n",
        file: "oom 4\noom_kill 3\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert count() == 3
