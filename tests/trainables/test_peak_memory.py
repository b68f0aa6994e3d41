"""The memory that a trial took: what it had at its peak, and of how much."""

import mmap
import multiprocessing
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from trainables.machine import peak_memory
from trainables.machine.peak_memory import GIB, PeakMemory

CPU = torch.device("cpu")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")


def test_the_peak_counts_what_has_been_given_back_since() -> None:
    watched = PeakMemory([CPU])
    before = watched.peak_gib()
    np.ones(GIB // 4, dtype=np.uint8)
    after = watched.peak_gib()
    assert before is not None
    assert after is not None
    assert after - before == pytest.approx(0.25, abs=0.05)


def test_the_peak_of_an_earlier_trial_is_not_this_ones() -> None:
    earlier = PeakMemory([CPU])
    with mmap.mmap(-1, GIB // 4) as block:  # what malloc gives back, it may keep for this process
        block.write(b"1" * (GIB // 4))
        peak = earlier.peak_gib()
    later = PeakMemory([CPU]).peak_gib()
    assert peak is not None
    assert later is not None
    assert later < peak - 0.2


def test_where_the_peak_cannot_be_reset_an_old_one_is_unknown_and_a_new_one_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    np.ones(GIB // 4, dtype=np.uint8)
    monkeypatch.setattr(peak_memory, "_reset_peak", lambda: False)
    watched = PeakMemory([CPU])
    assert watched.peak_gib() is None
    np.ones(GIB // 2, dtype=np.uint8)
    assert watched.peak_gib() is not None


@pytest.mark.slow
def test_what_loader_processes_have_for_themselves_is_added() -> None:
    alone = PeakMemory([CPU]).peak_gib() or 0
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    child = context.Process(target=hold_memory, args=(ready,), daemon=True)
    child.start()
    assert ready.wait(20)
    together = PeakMemory([CPU]).peak_gib() or 0
    child.kill()
    child.join()
    assert together - alone > 0.25


def hold_memory(ready: "multiprocessing.synchronize.Event") -> None:
    kept = np.ones(GIB // 4, dtype=np.uint8)
    ready.set()
    time.sleep(60)
    del kept


@pytest.mark.parametrize(("limit", "gib"), [("max", 4.0), (f"{GIB}", 1.0), (f"{8 * GIB}", 4.0)])
def test_the_machine_has_what_the_system_says_or_what_the_control_group_may_use(
    limit: str, gib: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its own, as of a Slurm job or a systemd service; in a container that is the root."""
    monkeypatch.setattr(peak_memory, "PROC", tmp_path)
    monkeypatch.setattr(peak_memory, "CGROUPS", tmp_path)
    (tmp_path / "meminfo").write_text(f"MemTotal: {4 * GIB // 1024} kB\nMemFree: 1 kB\n")
    for folder in ("self", "job"):
        (tmp_path / folder).mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/job\n")
    (tmp_path / "job" / "memory.max").write_text(limit)
    assert PeakMemory([CPU]).available_gib() == gib


def test_nothing_is_known_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peak_memory, "PROC", tmp_path)
    watched = PeakMemory([CPU])
    assert watched.peak_gib() is None
    assert watched.available_gib() is None
