"""The allocator: kept blocks are not asked from the system again, and what is told to glibc is taken back."""

import resource
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from trainables import allocator
from trainables.allocator import RETAIN, SYSTEM, allocating

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of glibc")

BYTES = 48 * 2**20  # more than glibc ever keeps by itself
PAGES = BYTES // resource.getpagesize()


def faults(work: Callable[[], object]) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def filled() -> None:
    torch.empty(BYTES, dtype=torch.uint8).fill_(1)


def fewest_faults() -> None:
    """Print those with `retain`: of a few rounds, as small blocks may come to lie behind the large one."""
    with allocating("retain"):
        print(min(faults(filled) for _ in range(6)))


def test_a_block_that_was_freed_is_had_again_without_page_faults() -> None:
    """In a new process: a heap that has seen a session of tests may have no room to grow."""
    code = "from tests.trainables.test_allocator import fewest_faults; fewest_faults()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < PAGES // 10


def test_what_glibc_is_told_is_taken_back_also_when_a_trial_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[int, int]] = []
    monkeypatch.setattr(allocator, "_tuned", lambda options: told.append(options) or True)
    with pytest.raises(ValueError, match="in a trial"), allocating("retain"):
        raise ValueError("in a trial")
    assert told == [RETAIN, SYSTEM]
    with allocating("system"):
        assert told == [RETAIN, SYSTEM]
