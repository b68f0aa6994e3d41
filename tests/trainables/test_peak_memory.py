"""The memory that a trial took: what it had at its peak, and of how much."""

import mmap
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainables.machine import isolation, peak_memory
from trainables.machine.peak_memory import GIB, PeakMemory

CPU = torch.device("cpu")


def test_the_peak_counts_what_has_been_given_back_since() -> None:
    watched = PeakMemory([CPU])
    before = watched.peak_gib()
    np.ones(GIB // 4, dtype=np.uint8)
    after = watched.peak_gib()
    assert after - before == pytest.approx(0.25, abs=0.05)


def test_the_peak_of_an_earlier_trial_is_not_this_ones() -> None:
    earlier = PeakMemory([CPU])
    with mmap.mmap(-1, GIB // 4) as block:  # what malloc gives back, it may keep for this process
        block.write(b"1" * (GIB // 4))
        peak = earlier.peak_gib()
    later = PeakMemory([CPU]).peak_gib()
    assert later < peak - 0.2


def test_what_earlier_trials_have_left_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first trial it is, as that loads the libraries that all need."""
    monkeypatch.setattr(peak_memory, "LEFT_OVER", left_over := peak_memory._LeftOver())
    monkeypatch.setattr(isolation, "LEFT_OVER", left_over)
    kept = list[np.ndarray[Any, Any]]()

    def trial() -> float:
        kept.append(np.ones(GIB // 8, dtype=np.uint8))
        return PeakMemory([CPU]).peak_gib()

    first, *others = (isolation.isolated(trial, threads=1) for _ in range(4))
    assert others == pytest.approx([first + 1 / 8] * 3, abs=0.03)  # each has its own and that of the first


def test_where_the_peak_cannot_be_reset_it_is_the_most_of_the_samples(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peak_memory, "PROC", tmp_path)  # as on macOS
    np.ones(GIB // 4, dtype=np.uint8)
    watched = PeakMemory([CPU])
    before = watched.peak_gib()
    with mmap.mmap(-1, GIB // 8) as block:
        block.write(b"1" * (GIB // 8))
        watched.sample()
    assert watched.peak_gib() - before == pytest.approx(1 / 8, abs=0.03)


@pytest.mark.slow
def test_what_loader_processes_have_for_themselves_is_added() -> None:
    alone = PeakMemory([CPU]).peak_gib()
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    child = context.Process(target=hold_memory, args=(ready,), daemon=True)
    child.start()
    assert ready.wait(20)
    together = PeakMemory([CPU]).peak_gib()
    child.kill()
    child.join()
    assert together - alone > 0.25


def hold_memory(ready: "multiprocessing.synchronize.Event") -> None:
    kept = np.ones(GIB // 4, dtype=np.uint8)
    ready.set()
    time.sleep(60)
    del kept
