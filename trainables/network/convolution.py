"""3x3 convolutions of small maps by minimal filtering: fewer multiplications, as matrix products that suit a CPU.

The library reads the 4.7 MB of weights of a deep layer again for each image. Here a whole batch is one product per
combination of pixels, and there are fewer of them than nine per output (Winograd 1980; Lavin and Gray,
arXiv:1509.09308). Along an axis y = Q [(G w) * (P x)], where P and Q contain only 0, 1 and -1: exact algebra, and seven
products for four outputs. The usual scheme has six, but its large constants exceed the precision of 16 bits. In bf16
the rounding error is about three times the library's: 0.0055 instead of 0.0017 (relative). Multiplications relative to
the library's: 0.34 (tiles of 4x4 outputs) or 0.39 (4x2) for maps of 4x4 and 8x8, 0.25 for 2x2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Kernel = Literal["library", "gemm_4x2", "gemm_4x4"]
Matrix = NDArray[np.float64]


class _Tiling(NamedTuple):
    """Outputs per tile along each axis, and whether rows of tiles are processed one after the other."""

    rows: int
    columns: int
    in_strips: bool


# Fewer sums, better on processors with AMX; or fewer products, with the smaller working set.
TILINGS: dict[Kernel, _Tiling] = {"gemm_4x2": _Tiling(4, 2, in_strips=False), "gemm_4x4": _Tiling(4, 4, in_strips=True)}


class Convolution(nn.Conv2d):
    """3x3 convolution, padded by one pixel, of maps of `size` by `size`; `kernel` is not part of the state."""

    def __init__(self, channels_in: int, channels_out: int, *, size: int, bias: bool) -> None:
        super().__init__(channels_in, channels_out, 3, padding=1, bias=bias)
        self.size = size
        self.kernel: Kernel = "library"
        self._plans: dict[torch.device, _Plan] = {}  # copies of this layer on other devices share it

    def forward(self, images: Tensor) -> Tensor:
        """Convolve (batch, channels, height, width)."""
        if self.kernel == "library":
            return super().forward(images)
        result: Tensor = convolve(images, self.weight, self.kernel, self._plans)
        return result if self.bias is None else result + self.bias.to(result.dtype)[:, None, None]


@torch.compiler.disable  # type: ignore[untyped-decorator]  # a compiler would break up the small matrices
def convolve(
    images: Tensor, weight: Tensor, kernel: Kernel, plans: "dict[torch.device, _Plan] | None" = None
) -> Tensor:
    """Compute `conv2d(images, weight, padding=1)` for 3x3 weights, in the precision of autocast or of `images`.

    `plans` keeps the matrices of each device for the next call.
    """
    device = images.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        images = images.to(torch.get_autocast_dtype(device))
    plan = _plan_for(images, TILINGS[kernel])
    if plans is not None and type(images) is Tensor:
        plans[images.device] = plan
    result: Tensor = _MinimalFiltering.apply(images, weight, plan)
    return result


class _MinimalFiltering(torch.autograd.Function):
    """Convolution in the layout (pixels, batch x channels), in which combining pixels is a matrix product as well.

    The backward pass needs the sums of pixels, which take about 3.5 times the memory of the maps.
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, plan: "_Plan") -> Tensor:
        batch, channels, height, width = images.shape
        outputs = len(weight)
        # One pass both casts and reorders, unlike autocast's cast. No gradient flows through it.
        taps = weight.permute(0, 2, 3, 1).to(images.dtype, memory_format=torch.contiguous_format)
        factors = taps.new_empty(len(plan.taps), outputs, channels)
        torch.bmm(plan.taps.expand(outputs, -1, -1), taps.view(outputs, 9, channels), out=factors.transpose(0, 1))
        pixels = _by_pixel(images)
        result = pixels.new_empty(height * width, batch * outputs)
        sums = []
        for strip in plan.strips:
            sums.append((strip.spread @ pixels[strip.reads]).view(len(factors), -1, channels))
            products = torch.bmm(sums[-1], factors.transpose(1, 2))
            torch.mm(strip.collect, products.view(-1, batch * outputs), out=result[strip.writes])
        ctx.save_for_backward(images, weight, factors, *sums)
        ctx.plan = plan
        return _as_images(result, batch, height, width, like=images)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:
        images, weight, factors, *sums = ctx.saved_tensors
        batch, channels, height, width = images.shape
        plan = ctx.plan
        slopes = _by_pixel(gradient)
        of_images = slopes.new_zeros(height * width, batch * channels) if ctx.needs_input_grad[0] else None
        of_factors = factors.new_empty(len(plan.strips), *factors.shape)
        for strip, sums_of_strip, of_strip in zip(plan.strips, sums, of_factors, strict=True):
            of_products = (strip.collect_t @ slopes[strip.writes]).view(len(factors), -1, len(weight))
            torch.bmm(of_products.transpose(1, 2), sums_of_strip, out=of_strip)
            if of_images is not None:
                of_sums = torch.bmm(of_products, factors).view(-1, batch * channels)
                of_images[strip.reads].addmm_(strip.spread_t, of_sums)
        of_weight = torch.empty_like(weight)  # in its own layout, else autograd would copy it again
        of_factors = of_factors.view(-1, len(weight), channels).transpose(0, 1)
        of_taps = torch.bmm(plan.taps_t.expand(len(weight), -1, -1), of_factors)
        of_weight.permute(0, 2, 3, 1).copy_(of_taps.view(-1, 3, 3, channels))
        of_images_4d = None if of_images is None else _as_images(of_images, batch, height, width, like=images)
        return of_images_4d, of_weight, None


def _by_pixel(images: Tensor) -> Tensor:
    """Reorder (batch, channels, height, width) to (height x width, batch x channels)."""
    return images.permute(2, 3, 0, 1).reshape(images.shape[2] * images.shape[3], -1)


def _as_images(pixels: Tensor, batch: int, height: int, width: int, like: Tensor) -> Tensor:
    """Reverse `_by_pixel`, in the memory format of `like`."""
    last = like.is_contiguous(memory_format=torch.channels_last) and not like.is_contiguous()
    images = pixels.view(height, width, batch, -1).permute(2, 3, 0, 1)
    return images.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


@dataclass(frozen=True)
class _Strip:
    """One row of tiles, which fits in the cache, or all of them.

    Rows of `spread` are sums of pixels, ordered by factor, then by tile.
    """

    reads: slice  # pixels
    writes: slice
    spread: Tensor  # (factors x tiles, pixels read)
    spread_t: Tensor
    collect: Tensor  # (pixels written, factors x tiles)
    collect_t: Tensor


@dataclass(frozen=True)
class _Plan:
    """Matrices for maps of one size."""

    taps: Tensor  # (factors, 9)
    taps_t: Tensor  # (9, strips x factors): sums over the strips
    strips: tuple[_Strip, ...]


# Plans in use, by everything that they depend on: a network's layers share them, and they are freed with it.
_SHARED_PLANS: WeakValueDictionary[tuple[Any, ...], _Plan] = WeakValueDictionary()


def _plan_for(images: Tensor, tiling: _Tiling) -> _Plan:
    """Return the shared plan; fake tensors, which only count memory, get a plan of their own without values."""
    height, width = images.shape[2:]
    if type(images) is not Tensor:
        return _plan(height, width, tiling, lambda matrix: images.new_empty(matrix.shape))
    key = (height, width, tiling, images.dtype, images.device)
    plan = _SHARED_PLANS.get(key)
    if plan is None:
        plan = _plan(height, width, tiling, partial(torch.tensor, dtype=images.dtype, device=images.device))
        _SHARED_PLANS[key] = plan
    return plan


def _plan(height: int, width: int, tiling: _Tiling, tensor: Callable[[Matrix], Tensor]) -> _Plan:
    p_rows, g_rows, q_rows = _axis(height, tiling.rows)
    p_columns, g_columns, q_columns = _axis(width, tiling.columns)
    taps = np.einsum("ka,lb->klab", g_rows, g_columns).reshape(-1, 9)
    strips = []
    at_once = 1 if tiling.in_strips else p_rows.shape[1]
    for tiles in (slice(t, t + at_once) for t in range(0, p_rows.shape[1], at_once)):
        reads, writes = _extent(p_rows[:, tiles].any((0, 1))), _extent(q_rows[:, tiles].any((1, 2)))
        spread = np.einsum("ksi,ltj->klstij", p_rows[:, tiles, reads], p_columns)
        collect = np.einsum("isk,jtl->ijklst", q_rows[writes, tiles], q_columns)
        spread = spread.reshape(-1, (reads.stop - reads.start) * width)
        collect = collect.reshape((writes.stop - writes.start) * width, -1)
        matrices = (tensor(matrix) for matrix in (spread, spread.T.copy(), collect, collect.T.copy()))
        read, written = (slice(rows.start * width, rows.stop * width) for rows in (reads, writes))
        strips.append(_Strip(read, written, *matrices))
    return _Plan(tensor(taps), tensor(np.tile(taps.T, len(strips))), tuple(strips))


def _extent(used: Any) -> slice:
    """Slice from the first to the last true element."""
    rows = np.flatnonzero(used)
    return slice(int(rows[0]), int(rows[-1]) + 1)


def _axis(size: int, tile: int) -> tuple[Matrix, Matrix, Matrix]:
    """P (factors, tiles, pixels), G (factors, taps) and Q (pixels, tiles, factors) of three taps along one axis."""
    if size == 1:  # only the middle tap
        return np.ones((1, 1, 1)), np.array([[0.0, 1, 0]]), np.ones((1, 1, 1))
    if size == 2:  # three products instead of four: the other taps multiply padding
        pixels = np.array([[1.0, 0], [1, 1], [0, 1]])
        taps = np.array([[1.0, -1, 0], [0, 1, 0], [0, -1, 1]])
        outputs = np.array([[0.0, 1, 1], [1, 1, 0]])
        return pixels[:, None, :], taps, outputs[:, None, :]
    spread, taps, collect = _OUTPUTS_TOGETHER[tile]
    num_tiles = -(-size // tile)  # a tile reads one more pixel on both sides
    pixels = np.zeros((len(taps), num_tiles, tile * num_tiles + 2))
    outputs = np.zeros((tile * num_tiles, num_tiles, len(taps)))
    for t in range(num_tiles):
        pixels[:, t, tile * t : tile * t + tile + 2] = spread
        outputs[tile * t : tile * t + tile, t] = collect
    return pixels[:, :, 1 : size + 1], taps, outputs[:size]


# P, G and Q of one tile, by its number of outputs: transposed products of polynomials modulo t (t - 1) (t + 1) and at
# infinity; for four outputs also modulo t^2 + 1.
_OUTPUTS_TOGETHER = {
    2: (
        np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, -1, 0, 1]]),
        np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]]) / 2,
        np.array([[1, 1, 1, 0], [0, 1, -1, 1]]),
    ),
    4: (
        np.array(
            [
                [1, 0, 0, 0, -1, 0],
                [0, 1, 1, 1, 1, 0],
                [0, -1, 1, -1, 1, 0],
                [0, -1, -1, 1, 1, 0],
                [0, -1, 1, 1, -1, 0],
                [0, 1, 0, -1, 0, 0],
                [0, -1, 0, 0, 0, 1],
            ]
        ),
        np.array([[4, 0, 0], [1, 1, 1], [1, -1, 1], [2, 0, -2], [0, 2, 0], [2, 2, -2], [0, 0, 4]]) / 4,
        np.array([[1, 1, 1, 1, 0, 1, 0], [0, 1, -1, 0, 1, 1, 0], [0, 1, 1, -1, 0, -1, 0], [0, 1, -1, 0, -1, -1, 1]]),
    ),
}
