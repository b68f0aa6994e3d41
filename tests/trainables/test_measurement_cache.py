"""Stored measurements of the machine."""

import gc
from pathlib import Path

import psutil
import pytest
import torch

from trainables.machine.allocator import allocating, return_free_memory
from trainables.machine.measurement_cache import cached_measurement

MIB = 2**20


@pytest.mark.parametrize("allocator", ["system", "retain"])
def test_what_a_measurement_took_is_no_memory_of_the_trial(
    allocator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first trial measures the machine: 400 MiB of matrices must not stay resident in it."""
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", str(tmp_path))
    resident = psutil.Process().memory_info

    def measure(old: object) -> dict[str, int]:
        matrices = [torch.ones(MIB // 4) for _ in range(400)]  # some where earlier tests had theirs
        return {"taken": resident().rss, "count": len(matrices)}

    with allocating("retain" if allocator == "retain" else "system"):
        gc.collect()
        return_free_memory()  # of earlier tests in this process, which would be used again
        before = resident().rss
        found = cached_measurement("test", {"allocator": allocator}, measure)
        assert found["taken"] - before > 250 * MIB
        assert resident().rss - before < 100 * MIB
