"""A trial leaves its process as it found it, whatever happens in it; running out of memory is a result."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from trainables.contract import InfeasibleError
from trainables.machine.allocator import Allocator, allocating
from trainables.machine.causes import causes

# What allocators say: PyTorch's on the CPU, then CUDA's, cuBLAS's and cuDNN's.
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "_STATUS_ALLOC_FAILED")

T = TypeVar("T")


class OutOfMemoryError(InfeasibleError):
    """The work asked for more memory than there was; the message has the allocator's own figure."""


def isolated(
    work: Callable[[], T], *, threads: int, allocator: Allocator = "system", flush_denormals: bool = False
) -> T:
    """What `work` returns, run with so many threads; afterwards settings, random state and memory are as before.

    Raises:
        OutOfMemoryError: it ran out of memory.
    """
    shortage = None
    gc.freeze()  # libraries: not to be looked through for what the work leaves (0.2 s each time)
    try:
        with _settings_kept(), allocating(allocator):
            torch.set_num_threads(threads)
            torch.set_flush_denormal(flush_denormals)
            return work()
    except (MemoryError, RuntimeError) as error:
        chain = list(causes(error))
        for each in chain:
            traceback.clear_frames(each.__traceback__)  # the locals in them are what fills the memory
        # what was raised while a shortage was dealt with, as at the end of a graph's capture, is part of it
        shortage = next(filter(None, map(_shortage, chain)), None)
        if shortage is None:
            raise
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        _return_memory()
    raise OutOfMemoryError(shortage)


def _shortage(error: BaseException) -> str | None:
    """One line about the memory that was asked for; None: the error is about something else."""
    text = str(error)
    if not isinstance(error, MemoryError | torch.OutOfMemoryError) and not any(w in text for w in OUT_OF_MEMORY):
        return None
    lines = [line for line in text.splitlines() if any(word in line for word in OUT_OF_MEMORY)]
    return f"out of memory: {(lines or text.splitlines() or ['no figure'])[0].strip()}"


@contextlib.contextmanager
def _settings_kept() -> Iterator[None]:
    threads, grad, autotune = torch.get_num_threads(), torch.is_grad_enabled(), torch.backends.cudnn.benchmark
    state = torch.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if _cuda_in_use() else []
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(False)
        torch.set_grad_enabled(grad)
        torch.backends.cudnn.benchmark = autotune
        torch.set_rng_state(state)
        if cuda_states:
            torch.cuda.set_rng_state_all(cuda_states)


def _cuda_in_use() -> bool:
    """Without starting CUDA by asking."""
    in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return in_use


def _return_memory() -> None:
    """To the device and to the system: what the allocators keep would count for the next trial."""
    gc.collect()
    gc.unfreeze()
    if _cuda_in_use():
        torch.cuda.empty_cache()
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):  # not glibc
            ctypes.CDLL(None).malloc_trim(0)
