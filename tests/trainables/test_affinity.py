"""Cores that belong to one trial at a time, on this machine."""

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from trainables.machine import affinity
from trainables.machine.affinity import claimed_cores

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cores can be claimed on Linux only")

ALL = frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset()

HOLD = """
import sys
from trainables.machine.affinity import claimed_cores
with claimed_cores(int(sys.argv[1])) as cores:
    print(*cores, flush=True)
    sys.stdin.read()
"""

LEAVE_A_CHILD = """
import os, time
from contextlib import ExitStack
from trainables.machine.affinity import _claim, claimed_cores
cores = sorted(os.sched_getaffinity(0))
with claimed_cores(len(cores)):
    child = os.fork()
    if child == 0:
        time.sleep(60)
with ExitStack() as claims:
    print(_claim(cores, len(cores), claims) == set(cores))
os.kill(child, 9)
"""


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of real trials."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def another_trial(count: int) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", HOLD, str(count)], text=True, **pipes)  # type: ignore[call-overload,no-any-return]


def cores_of(trial: subprocess.Popen[str]) -> set[int]:
    assert trial.stdout is not None
    return {int(core) for core in trial.stdout.readline().split()}


def end(trial: subprocess.Popen[str]) -> None:
    trial.kill()  # no chance to clean up
    trial.communicate()


def test_the_process_runs_on_the_claimed_cores_and_afterwards_where_it_did() -> None:
    with claimed_cores(1) as cores:
        assert len(cores) == 1
        assert os.sched_getaffinity(0) == cores
    assert os.sched_getaffinity(0) == ALL


def test_threads_from_before_and_later_children_are_bound_too() -> None:
    ready, done = threading.Event(), threading.Event()
    found: list[set[int]] = []

    def work() -> None:
        ready.wait()
        found.append(os.sched_getaffinity(0))
        done.wait()
        found.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=work)
    thread.start()
    with claimed_cores(1) as cores:
        ready.set()
        show = "import os; print(*os.sched_getaffinity(0))"
        child = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
        while not found:
            pass
    done.set()
    thread.join()
    assert found == [cores, ALL]
    assert {int(core) for core in child.stdout.split()} == cores


def test_threads_that_are_born_meanwhile_are_freed_too() -> None:
    done = threading.Event()
    found: list[set[int]] = []
    thread = threading.Thread(target=lambda: found.append(os.sched_getaffinity(0)) if done.wait() else None)
    with claimed_cores(1):
        thread.start()
    done.set()
    thread.join()
    assert found == [ALL]


@pytest.mark.skipif(len(ALL) < 2, reason="one core is no choice")
def test_two_trials_have_different_cores() -> None:
    other = another_trial(1)
    theirs = cores_of(other)
    with claimed_cores(1) as cores:
        assert not cores & theirs
    end(other)


def test_where_too_few_cores_are_free_nothing_is_bound_or_held() -> None:
    other = another_trial(1)
    theirs = cores_of(other)
    with claimed_cores(len(ALL)) as cores:
        assert cores == ALL
        assert os.sched_getaffinity(0) == ALL
        if len(ALL) > 1:
            third = another_trial(len(ALL) - 1)
            assert cores_of(third) == ALL - theirs
            end(third)
    end(other)


def test_the_death_of_a_trial_frees_its_cores() -> None:
    other = another_trial(len(ALL))
    assert cores_of(other) == ALL
    end(other)
    with claimed_cores(1) as cores:
        assert os.sched_getaffinity(0) == cores


def test_cores_are_free_again_though_a_child_of_the_trial_lives_on() -> None:
    result = subprocess.run([sys.executable, "-c", LEAVE_A_CHILD], capture_output=True, text=True, check=True)
    assert result.stdout == "True\n"


def test_more_cores_than_there_are_is_no_claim() -> None:
    with claimed_cores(len(ALL) + 1) as cores:
        assert cores == ALL


def test_no_folder_for_the_locks_is_no_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with claimed_cores(1) as cores:
        assert cores == ALL
        assert os.sched_getaffinity(0) == ALL


def test_hardware_threads_of_one_core_go_to_one_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "TOPOLOGY", tmp_path)
    for core, siblings in {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}.items():
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    assert affinity._siblings_adjacent(frozenset(range(4))) == [0, 2, 1, 3]
