"""The processes of a DataLoader, any of which may be killed: nobody waits for one that is gone, none outlives its job.

PyTorch offers no such thing; what begins with an underscore is that of `_MultiProcessingDataLoaderIter`.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
from typing import Any

import torch

LOCK_SECONDS = 1.0
PR_SET_PDEATHSIG = 1  # of prctl(2)


def end_with_parent(number: int) -> None:
    """For such a process to begin with: where its trial was killed it would by itself wait five seconds for it."""
    with contextlib.suppress(OSError, AttributeError):  # not on Linux
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wait_for_no_lock(iterator: Any) -> None:
    """Keep the iterator of a DataLoader from one that a killed process holds for ever."""
    done = getattr(iterator, "_workers_done_event", None)  # None: there are no processes
    if done is not None and not isinstance(done, _Done):
        iterator._workers_done_event = _Done(done)


def gone(iterator: Any) -> list[int]:
    """Which have ended."""
    return [worker.pid for worker in iterator._workers if not worker.is_alive()]


def end(iterator: Any) -> None:
    """All of them: in peace, or where one was killed by force."""
    if gone(iterator):
        if iterator._worker_pids_set:
            torch._C._remove_worker_pids(id(iterator))  # or their end would be raised as an error
            iterator._worker_pids_set = False
        for worker in iterator._workers:
            worker.kill()
    iterator._shutdown_workers()


class _Done:
    """PyTorch's word to its processes that all is done, said without waiting for ever for the lock on it.

    What this process itself wants to know, it knows without.
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
