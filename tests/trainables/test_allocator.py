"""The allocator: kept blocks are not asked from the system again, and the next trial finds it as usual."""

import resource
import sys
from collections.abc import Callable
from functools import partial

import pytest
import torch

from trainables.allocator import Allocator, allocating

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of glibc")

BYTES = 48 * 2**20  # more than glibc ever keeps by itself
PAGES = BYTES // resource.getpagesize()
LARGER = 2 * BYTES  # than any block that was kept, so that it is not had from among these


def faults(work: Callable[[], object]) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def filled(size: int) -> None:
    torch.empty(size, dtype=torch.uint8).fill_(1)


def faults_once_settled(allocator: Allocator, size: int = BYTES) -> int:
    """Of the best of a few rounds: small blocks that come to lie behind the large one keep it from being reused."""
    with allocating(allocator):
        return min(faults(partial(filled, size)) for _ in range(6))


def test_a_block_that_was_freed_is_had_again_without_page_faults() -> None:
    assert faults_once_settled("retain") < PAGES // 10


def test_the_system_s_way_is_as_it_was_before_and_after() -> None:
    usual = faults_once_settled("system", LARGER)
    faults_once_settled("retain")
    assert faults_once_settled("system", LARGER) >= usual // 2
    with pytest.raises(ValueError, match="in a trial"), allocating("retain"):
        raise ValueError("in a trial")
    assert faults_once_settled("system", LARGER) >= usual // 2
