"""DataLoader processes: no wait for a killed one, none outlives its trial, and the shared memory that they need.

PyTorch has no public interface for this; attributes with an underscore are `_MultiProcessingDataLoaderIter`'s.
"""

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

LOCK_SECONDS = 1.0
PR_SET_PDEATHSIG = 1  # of prctl(2)
SHARED_MEMORY = Path("/dev/shm")  # through which the processes pass batches; if it is too small, a bus error kills them


def start_method() -> str | None:
    """Return how loader processes start; None: as Python does by default.

    On Linux they share the libraries and the dataset of this process, which Python does by default before 3.14 only.
    Elsewhere they start anew, with 0.3 GiB of libraries of their own each.
    """
    return "fork" if sys.platform == "linux" else None


def end_with_parent(number: int) -> None:
    """Let the kernel kill this loader process with its parent; it would notice by itself only after five seconds."""
    with contextlib.suppress(OSError, AttributeError):  # not on Linux
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def fits_in_shared_memory(size: int) -> bool:
    """Return whether `size` bytes of shared memory are free."""
    if not sys.platform.startswith("linux"):
        return True  # other systems keep shared memory in no folder
    try:
        found = os.statvfs(SHARED_MEMORY)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= size


def limit_lock_wait(iterator: Any) -> None:
    """Keep the iterator of a DataLoader from waiting for a lock that a killed process still holds."""
    done = getattr(iterator, "_workers_done_event", None)  # None: there are no processes
    if done is not None and not isinstance(done, _Done):
        iterator._workers_done_event = _Done(done)


def ended(iterator: Any) -> list[int]:
    """Return the process ids of the loader processes that have ended."""
    return [worker.pid for worker in iterator._workers if not worker.is_alive()]


def shut_down(iterator: Any) -> None:
    """End all loader processes: in order, or by force if one has ended already."""
    if ended(iterator):
        if iterator._worker_pids_set:
            torch._C._remove_worker_pids(id(iterator))  # else PyTorch would raise their end as an error
            iterator._worker_pids_set = False
        for worker in iterator._workers:
            worker.kill()
    iterator._shutdown_workers()


class _Done:
    """PyTorch's event for its loader processes to end, set without waiting indefinitely for its lock.

    This process reads the state from its own copy.
    """

    def __init__(self, shared: Any) -> None:
        self._shared, self._is_set = shared, False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        if self._shared._cond.acquire(timeout=LOCK_SECONDS):
            self._shared._cond.release()
            self._shared.set()
