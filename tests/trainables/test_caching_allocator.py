"""The simulated CUDA allocator: its segments and what it reuses."""

import pytest

from trainables.prediction.caching_allocator import MIB, CachingAllocator, reserved_for


@pytest.mark.parametrize(
    ("sizes", "segments_mib"),
    [
        ([1], 2),
        ([MIB], 2),
        ([MIB] * 5, 6),
        ([MIB + 1], 20),
        ([2 * MIB] * 12, 40),
        ([9 * MIB] * 3, 40),
        ([10 * MIB - 1], 10),  # rounded to 512 bytes first
        ([10 * MIB + 1], 12),
        ([200 * MIB], 200),
        ([], 0),
    ],
)
def test_segments_are_as_large_as_those_of_pytorch(sizes: list[int], segments_mib: int) -> None:
    """The same blocks on the real allocator: PyTorch 2.15 on an emulated GPU."""
    assert reserved_for(sizes) == segments_mib * MIB


def test_a_freed_block_is_used_again_in_its_own_pool_alone() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(30 * MIB))
    small = allocator.allocate(10 * MIB)
    assert allocator.reserved == 30 * MIB
    allocator.allocate(20 * MIB, "other")
    assert (allocator.by_pool["default"], allocator.by_pool["other"]) == (30 * MIB, 20 * MIB)
    allocator.free(small)
    allocator.allocate(30 * MIB)  # the parts of the first block are one again
    assert allocator.by_pool["default"] == 30 * MIB


def test_the_smallest_free_block_that_is_large_enough_is_taken() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(size * MIB) for size in (60, 20, 40)]
    for block in blocks:
        allocator.free(block)
    for size in (20, 40, 60):
        allocator.allocate(size * MIB)
    assert allocator.peak == 120 * MIB


def test_segments_with_a_block_in_use_are_not_released() -> None:
    allocator = CachingAllocator()
    whole, first, second = allocator.allocate(50 * MIB), allocator.allocate(4 * MIB), allocator.allocate(4 * MIB)
    for block in (whole, first):
        allocator.free(block)
    allocator.release_cached()
    assert (allocator.reserved, allocator.peak) == (20 * MIB, 70 * MIB)
    allocator.free(second)
    allocator.release_cached()
    assert allocator.reserved == 0
