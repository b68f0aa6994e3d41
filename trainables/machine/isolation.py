"""Isolation of trials that share a process: settings, random state, memory and compiler are reset, OOM is a result."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import traceback
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, TypeVar

import torch

from trainables.contract import DeviceLostError, InfeasibleError
from trainables.machine.allocator import Allocator, allocating, return_free_memory
from trainables.machine.exception_chain import exception_chain
from trainables.machine.peak_memory import LEFT_OVER

# Messages of allocators: PyTorch's on the CPU, then those of CUDA, cuBLAS and cuDNN.
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "_STATUS_ALLOC_FAILED")
OMP_PAUSE_HARD = 2  # of omp.h; the next parallel operation starts new threads

# Settings of PyTorch for the whole process, which a training of one's own may change: each setter with its getter.
SETTINGS: dict[Callable[[Any], object], Callable[[], Any]] = {
    torch.set_num_threads: torch.get_num_threads,
    torch.set_grad_enabled: torch.is_grad_enabled,
    torch.set_anomaly_enabled: torch.is_anomaly_enabled,
    torch.set_default_dtype: torch.get_default_dtype,
    torch.set_deterministic_debug_mode: torch.get_deterministic_debug_mode,
    torch.set_float32_matmul_precision: torch.get_float32_matmul_precision,  # also sets some of those below
    torch.set_rng_state: torch.get_rng_state,
}
OF_BACKENDS = [  # likewise, attributes in `torch.backends`; those that set others come first
    "cudnn.allow_tf32",
    "fp32_precision",
    "cudnn.fp32_precision",
    "mkldnn.fp32_precision",
    "cudnn.enabled",
    "cudnn.benchmark",
    "cudnn.deterministic",
    *(f"{owner}.fp32_precision" for owner in ("cuda.matmul", "cudnn.conv", "cudnn.rnn")),
    *(f"mkldnn.{operation}.fp32_precision" for operation in ("matmul", "conv", "rnn")),
]

T = TypeVar("T")


class OutOfMemoryError(InfeasibleError):
    """A trial requested more memory than there is; the message has the allocator's own figure."""


def isolated(
    work: Callable[[], T], *, threads: int, allocator: Allocator = "system", flush_denormals: bool = False
) -> T:
    """Return the result of `work`, run with `threads` threads; afterwards the process is as it was before.

    Raises:
        OutOfMemoryError: it ran out of memory.
    """
    reason = None
    gc.freeze()  # excludes libraries from the collection afterwards (0.2 s each time)
    LEFT_OVER.begin()
    try:
        with _settings_restored(), process_settings(threads, allocator, flush_denormals):
            result = work()
    except (MemoryError, RuntimeError) as error:
        chain = list(exception_chain(error))
        for each in chain:
            traceback.clear_frames(each.__traceback__)  # the locals in them hold the memory
        # an error raised while OOM is handled, as at the end of a graph's capture, is part of it
        reason = next(filter(None, map(_out_of_memory, chain)), None)
        if reason is None:
            check_device(error)
            raise
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        _forget_compiled()
        _return_memory()
    if reason is not None:
        raise OutOfMemoryError(reason)
    LEFT_OVER.end()
    return result


@contextlib.contextmanager
def process_settings(threads: int, allocator: Allocator, flush_denormals: bool) -> Iterator[None]:
    """Give the process the settings of a trial that hold for all of it; only the allocator's are reset afterwards."""
    torch.set_num_threads(threads)
    _set_flush_denormals(flush_denormals)
    with allocating(allocator):
        yield


def _set_flush_denormals(flush: bool) -> None:
    """Set the flag of this thread, and end its OpenMP threads: each has a flag of its own, that of its starter."""
    if flush == _flushes_denormals():
        return  # the threads stay
    torch.set_flush_denormal(flush)
    with contextlib.suppress(AttributeError, OSError):  # an OpenMP that cannot end its threads
        ctypes.CDLL(torch._C.__file__).omp_pause_resource_all(OMP_PAUSE_HARD)


def _flushes_denormals() -> bool:
    """Return the flag of this thread, which PyTorch does not tell."""
    return not (torch.full((1,), 1e-30, dtype=torch.float32, device="cpu") * 1e-10).item()


def check_device(error: BaseException) -> None:
    """Check that the GPU still answers.

    Raises:
        DeviceLostError: it does not, and will not answer this process again.
    """
    if not _cuda_in_use():
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        raise DeviceLostError(f"{error}".splitlines()[0]) from error


def _out_of_memory(error: BaseException) -> str | None:
    """Return one line about the requested memory; None: the error has another cause."""
    text = str(error)
    if not isinstance(error, MemoryError | torch.OutOfMemoryError) and not any(w in text for w in OUT_OF_MEMORY):
        return None
    lines = [line for line in text.splitlines() if any(word in line for word in OUT_OF_MEMORY)]
    return f"out of memory: {(lines or text.splitlines() or ['no figure'])[0].strip()}"


@contextlib.contextmanager
def _settings_restored() -> Iterator[None]:
    before = dict[Callable[[Any], object], Any]()
    of_backends = dict[str, Any]()
    for setter, getter in SETTINGS.items():
        with contextlib.suppress(RuntimeError):  # of an older setting of fp32, where a file uses the newer ones
            before[setter] = getter()
    for name in OF_BACKENDS:
        with contextlib.suppress(RuntimeError):
            of_backends[name] = attrgetter(name)(torch.backends)
    device = torch.get_default_device()
    cuda_states = torch.cuda.get_rng_state_all() if _cuda_in_use() else []
    try:
        yield
    finally:
        if torch.get_default_device() != device:
            torch.set_default_device(None)
        _set_flush_denormals(False)
        for setter, value in before.items():
            setter(value)
        for name, value in of_backends.items():
            owner, _, attribute = name.rpartition(".")
            setattr(attrgetter(owner)(torch.backends) if owner else torch.backends, attribute, value)
        if cuda_states:
            torch.cuda.set_rng_state_all(cuda_states)


def _cuda_in_use() -> bool:
    in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # does not initialize CUDA itself
    return in_use


def _forget_compiled() -> None:
    """Forget what `torch.compile` made: after eight networks in a process it would silently compile no other."""
    if "torch._dynamo" in sys.modules:  # its import takes a second
        torch.compiler.reset()


def _return_memory() -> None:
    """Free unused memory to the device and the system: what allocators keep would count for the next trial."""
    gc.collect()
    gc.unfreeze()
    if _cuda_in_use():
        with contextlib.suppress(RuntimeError):  # the device is lost, and the trial has failed for that
            torch._C._cuda_clearCublasWorkspaces()  # PyTorch 2.11 keeps one for each stream, up to 32 MiB
            torch.cuda.empty_cache()
    return_free_memory()
