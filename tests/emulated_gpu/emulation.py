"""Results of the emulated device's kernels, computed on the CPU in the same memory.

The CUDA operator runs first: its checks, allocations, streams and launches are real, its kernels do nothing. Then the
same operator runs on CPU views of the same memory. During the capture of a graph nothing is computed; each replay
computes what was captured, on the addresses that were captured. Convolutions have no cuDNN here: only the memory of
their results comes from the device.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

CPU = torch.device("cpu")
PLAIN = (Tensor, torch.nn.Parameter)
HALF = (torch.bfloat16, torch.float16)
PRODUCTS = ("convolution", "convolution_backward", "mm", "addmm", "bmm")  # accumulated in fp32, as on a GPU
NOT_COMPUTED = [
    "record_stream",
    "is_pinned",
    "_pin_memory",
    "empty",
    "resize_",
    "set_",
    "_local_scalar_dense",
    "lift_fresh",
    "detach",
    "alias",
]
HOST_CHOOSES_SHAPE = ("nonzero", "masked_select")  # the CUDA operator would read the size from its kernels
KERNELS_OF_A_CONVOLUTION = 3

_of_thread = threading.local()  # a dispatch mode belongs to the thread that entered it


@contextlib.contextmanager
def emulated(largest: int | None = None) -> Iterator[Emulation]:
    """Compute operators of CUDA tensors, apart from those with a tensor of more than `largest` numbers.

    Within itself it changes nothing.
    """
    if (active := getattr(_of_thread, "mode", None)) is not None:
        yield active
        return
    _of_thread.mode = mode = Emulation(largest)
    try:
        with _replays_computed(mode), _copies_computed(mode), mode:
            yield mode
    finally:
        _of_thread.mode = None


class Emulation(TorchDispatchMode):
    """Dispatch mode that computes CUDA operators on the CPU."""

    def __init__(self, largest: int | None = None) -> None:
        super().__init__()
        self.largest = largest
        self.unsupported: dict[str, str] = {}  # operators without a CPU twin, and why
        self.recording: list[Callable[[], None]] = []  # of the capture under way
        self.captured: dict[int, list[Callable[[], None]]] = {}  # by id of a graph

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = _tensors((args, kwargs))
        if any(isinstance(each, FakeTensor) or each.is_meta for each in leaves):
            return func(*args, **kwargs)
        if any(type(each) not in PLAIN for each in leaves):
            return NotImplemented  # a subclass takes itself apart first
        device = kwargs.get("device")
        on_cuda = any(each.is_cuda for each in leaves) or (device is not None and torch.device(device).type == "cuda")
        faking = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
        name = func._schema.name.split("::")[1]
        computed = func.namespace in ("aten", "fsdp") and not any(word in name for word in NOT_COMPUTED)
        if not on_cuda or faking or func.is_view or not computed:
            if func.namespace == "c10d" and torch.cuda.is_current_stream_capturing():
                # each replay communicates anew; views keep no memory of the graph's
                self.recording.append(functools.partial(func, *_aliased(args), **_aliased(kwargs)))
            return func(*args, **kwargs)
        if self.largest is not None and any(each.numel() > self.largest for each in leaves):
            return _shaped(func, name, args, kwargs) if name.startswith("convolution") else func(*args, **kwargs)
        return self._computed(func, name, args, kwargs)

    def _computed(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        capturing = torch.cuda.is_current_stream_capturing()
        written = [args[i] if i < len(args) else kwargs.get(key) for i, key in _written_arguments(func)]
        # the CUDA operator itself may copy or set; that must not count twice
        before = [] if capturing else [(each, _view(each).clone()) for each in _tensors(written) if each.is_cuda]
        cpu_args, cpu_kwargs = _on_cpu(args), _on_cpu(_kwargs_for_cpu(kwargs))

        def on_cpu() -> Any:
            with torch.no_grad(), _random_state_kept():
                return _product(func, cpu_args, cpu_kwargs) if name in PRODUCTS else func(*cpu_args, **cpu_kwargs)

        if name.startswith("convolution") or _has_unknown_shape(name, args):
            with _disable_current_modes():
                dtype = cpu_args[0].dtype if name.startswith("convolution") else None
                out = _memory_of(on_cpu(), dtype, next(each for each in _tensors(args) if each.is_cuda))
        else:
            out = func(*args, **kwargs)
        targets = [] if written else [_view(each) if each.is_cuda else each for each in _tensors(out)]
        compute = functools.partial(self._write, name, on_cpu, targets)
        if capturing:
            self.recording.append(compute)
            return out
        for each, value in before:
            _view(each).copy_(value)
        try:
            compute()
        except (RuntimeError, NotImplementedError) as error:
            self.unsupported[name] = str(error).splitlines()[0]
        return out

    def _write(self, name: str, on_cpu: Callable[[], Any], targets: list[Tensor]) -> None:
        for target, value in zip(targets, _tensors(on_cpu()), strict=False):
            if value.shape == target.shape:
                target.copy_(value)
            elif value.numel() and target.numel():
                self.unsupported[name] = f"{tuple(value.shape)} is not {tuple(target.shape)}"


@contextlib.contextmanager
def _replays_computed(mode: Emulation) -> Iterator[None]:
    graph = torch.cuda.CUDAGraph
    end, replay = graph.capture_end, graph.replay

    def capture_end(self: Any) -> None:
        mode.captured[id(self)], mode.recording = mode.recording, []
        end(self)

    def computed_replay(self: Any) -> None:
        replay(self)
        with _disable_current_modes():
            for compute in mode.captured[id(self)]:
                compute()

    graph.capture_end, graph.replay = capture_end, computed_replay  # type: ignore[method-assign]
    try:
        yield
    finally:
        graph.capture_end, graph.replay = end, replay  # type: ignore[method-assign]


@contextlib.contextmanager
def _copies_computed(mode: Emulation) -> Iterator[None]:
    """Compute in the threads of DataParallel's copies of a network, too."""
    parallel_apply = torch.nn.DataParallel.parallel_apply

    def computing(copy: Any, *inputs: Any, **settings: Any) -> Any:
        if getattr(_of_thread, "mode", None) is not None:  # one copy alone runs in the thread of its caller
            return copy(*inputs, **settings)
        with Emulation(mode.largest) as own:
            own.unsupported = mode.unsupported
            return copy(*inputs, **settings)

    def computed_apply(self: Any, replicas: Any, inputs: Any, kwargs: Any) -> Any:
        return parallel_apply(self, [functools.partial(computing, each) for each in replicas], inputs, kwargs)

    torch.nn.DataParallel.parallel_apply = computed_apply  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.DataParallel.parallel_apply = parallel_apply  # type: ignore[method-assign]


def _tensors(tree: Any) -> list[Tensor]:
    return [each for each in tree_leaves(tree) if isinstance(each, Tensor)]


def _view(tensor: Tensor, device: torch.device = CPU) -> Tensor:
    """Return a tensor of that device in the memory of a CUDA tensor."""
    mine = tensor.untyped_storage()
    storage = (
        torch._C._construct_storage_from_data_pointer(mine.data_ptr(), device, mine.nbytes())
        if mine.nbytes()
        else torch.UntypedStorage(0, device=device)
    )
    empty = torch.empty(0, dtype=tensor.dtype, device=device)
    return empty.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())


def _aliased(tree: Any) -> Any:
    with _disable_current_modes():
        return tree_map_only(Tensor, lambda each: _view(each, each.device) if each.is_cuda else each, tree)


def _on_cpu(tree: Any) -> Any:
    return tree_map_only(Tensor, lambda each: _view(each) if each.is_cuda else each, tree)


def _kwargs_for_cpu(kwargs: dict[str, Any]) -> dict[str, Any]:
    replaced = {"device": CPU, "pin_memory": False, "non_blocking": False}
    return {
        key: replaced[key] if key in replaced and (key != "device" or value is not None) else value
        for key, value in kwargs.items()
    }


def _product(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Call a product with sums in fp32; a result that the caller gave as `out` is rounded at the end."""
    given = kwargs.get("out")
    if given is None or given.dtype not in HALF:
        return func(*_widened(args), **kwargs)
    return given.copy_(func(*_widened(args), **{**kwargs, "out": given.float()}))


def _widened(tree: Any) -> Any:
    return tree_map_only(Tensor, lambda each: each.float() if each.dtype in HALF else each, tree)


@functools.cache
def _written_arguments(func: Any) -> list[tuple[int, str]]:
    arguments = enumerate(func._schema.arguments)
    return [(i, each.name) for i, each in arguments if each.alias_info is not None and each.alias_info.is_write]


def _has_unknown_shape(name: str, args: Any) -> bool:
    """Return whether the result's shape depends on values, which only the CPU knows."""
    by_mask = name == "index" and any(each.dtype == torch.bool for each in _tensors(args[1:2]))
    return by_mask or name in HOST_CHOOSES_SHAPE


def _memory_of(results: Any, dtype: torch.dtype | None, like: Tensor) -> Any:
    """Return new device tensors of the same shapes, and launch as many kernels as would have written them."""
    for _ in range(KERNELS_OF_A_CONVOLUTION):
        torch.cuda._sleep(1)

    def on_device(each: Tensor) -> Tensor:
        return torch.empty_strided(each.shape, each.stride(), dtype=dtype or each.dtype, device=like.device)

    return tree_map_only(Tensor, on_device, results)


def _shaped(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Return memory for the results of a convolution without values, in the pictures' format, as cuDNN does."""

    def on_meta(tree: Any) -> Any:
        return tree_map_only(
            Tensor, lambda each: torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device="meta"), tree
        )

    pictures = args[1 if name == "convolution_backward" else 0]
    last = pictures.is_contiguous(memory_format=torch.channels_last)

    def on_device(each: Tensor) -> Tensor:
        layout = torch.channels_last if last and each.ndim == 4 else torch.contiguous_format
        return torch.empty(each.shape, dtype=each.dtype, device=args[0].device, memory_format=layout)

    with _disable_current_modes():
        like = func(*on_meta(args), **on_meta(kwargs))
    return tree_map_only(Tensor, on_device, like)


@contextlib.contextmanager
def _random_state_kept() -> Iterator[None]:
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
