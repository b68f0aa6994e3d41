"""Simulation of PyTorch's caching allocator of CUDA memory: the memory that it reserves for a sequence of blocks.

The rules and sizes are those of c10/cuda/CUDACachingAllocator.cpp with its default settings. Memory is requested from
the device in segments and kept when it is freed. A block is cut from the smallest free block that is large enough, of
the same pool: memory of one stream or of one graph is not used by another.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

MIB = 2**20
SMALLEST = 512  # sizes are multiples of it
SMALL = MIB  # up to this size blocks share segments of 2 MiB
SMALL_SEGMENT = 2 * MIB
MIDDLE = 10 * MIB  # below this size they share segments of 20 MiB, others have their own
MIDDLE_SEGMENT = 20 * MIB
LARGE_STEP = 2 * MIB  # sizes of their segments are multiples of it


@dataclass(order=True)
class Block:
    """Part of a segment. Free blocks are ordered by size, then by age."""

    size: int
    number: int
    pool: tuple[str, bool] = field(compare=False)  # name; for small blocks
    used: bool = field(default=True, compare=False)
    before: Block | None = field(default=None, compare=False, repr=False)
    after: Block | None = field(default=None, compare=False, repr=False)


class CachingAllocator:
    """Blocks in use and free ones; `reserved` counts all of them, at any time and by pool."""

    def __init__(self) -> None:
        self._free: dict[tuple[str, bool], list[Block]] = defaultdict(list)
        self._numbers = 0
        self.by_pool: dict[str, int] = defaultdict(int)
        self.reserved = self.peak = 0

    def allocate(self, size: int, pool: str = "default") -> Block:
        """Return a block of at least `size` bytes of this pool."""
        size = max(SMALLEST, _multiple(size, SMALLEST))
        small = size <= SMALL
        free = self._free[pool, small]
        place = next((i for i, block in enumerate(free) if block.size >= size), None)
        block = self._segment(segment_bytes(size), (pool, small)) if place is None else free.pop(place)
        block.used = True
        left = block.size - size
        if left >= SMALLEST if small else left > SMALL:
            self._cut(block, size)
        return block

    def free(self, block: Block) -> None:
        """Free a block and join it with free neighbours."""
        block.used = False
        free = self._free[block.pool]
        for other in (block.before, block.after):
            if other is not None and not other.used:
                free.remove(other)
                block = _joined(*((other, block) if other is block.before else (block, other)))
        insort(free, block)

    def release_cached(self) -> None:
        """Return the segments without a used block to the device."""
        for free in self._free.values():
            for block in [each for each in free if each.before is None and each.after is None]:
                free.remove(block)
                self._reserve(-block.size, block.pool)

    def _segment(self, size: int, pool: tuple[str, bool]) -> Block:
        self._reserve(size, pool)
        return self._block(size, pool)

    def _reserve(self, size: int, pool: tuple[str, bool]) -> None:
        self.by_pool[pool[0]] += size
        self.reserved += size
        self.peak = max(self.peak, self.reserved)

    def _cut(self, block: Block, size: int) -> None:
        """Give back what `block` has beyond `size`."""
        rest = self._block(block.size - size, block.pool)
        block.size, rest.used = size, False
        rest.before, rest.after, block.after = block, block.after, rest
        if rest.after is not None:
            rest.after.before = rest
        insort(self._free[block.pool], rest)

    def _block(self, size: int, pool: tuple[str, bool]) -> Block:
        self._numbers += 1
        return Block(size, self._numbers, pool)


def segment_bytes(size: int) -> int:
    """Return the memory that is requested from the device for a block that finds no room."""
    if size <= SMALL:
        return SMALL_SEGMENT
    return MIDDLE_SEGMENT if size < MIDDLE else _multiple(size, LARGE_STEP)


def reserved_for(sizes: Iterable[int]) -> int:
    """Return the memory reserved for blocks of these sizes on a stream of their own."""
    allocator = CachingAllocator()
    for size in filter(None, sizes):
        allocator.allocate(size)
    return allocator.reserved


def _joined(first: Block, second: Block) -> Block:
    first.size += second.size
    first.after = second.after
    if first.after is not None:
        first.after.before = first
    return first


def _multiple(size: int, of: int) -> int:
    return -(-size // of) * of
