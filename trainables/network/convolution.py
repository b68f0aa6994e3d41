"""3x3 convolutions of small maps as few matrix products: less to multiply, and in the shape that a CPU likes best.

The library reads the 4.7 MB of weights of a deep layer again for each picture. Here a whole batch is one product per
combination of pixels, and there are fewer of them than nine per output (minimal filtering: Winograd 1980; Lavin and
Gray, arXiv:1509.09308). Along an axis y = Q [(G w) * (P x)], P and Q of 0, 1 and -1 alone: exact algebra, and seven
products for four outputs instead of the six of the usual scheme, whose large constants 16 bits cannot bear. In bf16 the
rounding is about three times the library's: relative error 0.0055 against 0.0017. Multiplications against the
library's: a third for maps of 4x4 and 8x8, a quarter for 2x2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Kernel = Literal["library", "gemm"]
Matrix = NDArray[np.float64]

TILE = 4  # outputs along an axis that are made together


class Convolution(nn.Conv2d):
    """3x3, padded by one pixel, of maps of `size` by `size`; `kernel` says how, and is no part of the weights."""

    def __init__(self, channels_in: int, channels_out: int, *, size: int, bias: bool) -> None:
        super().__init__(channels_in, channels_out, 3, padding=1, bias=bias)
        self.size = size
        self.kernel: Kernel = "library"

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width) to the same with other channels."""
        if self.kernel == "library":
            return super().forward(images)
        result: Tensor = convolve(images, self.weight)
        return result if self.bias is None else result + self.bias.to(result.dtype)[:, None, None]


@torch.compiler.disable  # type: ignore[untyped-decorator]  # a compiler would take the small matrices apart
def convolve(images: Tensor, weight: Tensor) -> Tensor:
    """`conv2d(images, weight, padding=1)` for 3x3 weights, in the precision of autocast or else of `images`."""
    device = images.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        images = images.to(torch.get_autocast_dtype(device))
    result: Tensor = _FewProducts.apply(images, weight)
    return result


class _FewProducts(torch.autograd.Function):
    """Pixels come first in here: (pixels, batch x channels), so that combining pixels is a matrix product too.

    Sums of pixels are made again in the backward pass: keeping them would take three times the memory of the maps.
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor) -> Tensor:
        batch, channels, height, width = images.shape
        outputs = len(weight)
        plan = _plan_for(images)
        # One pass casts and reorders: autocast's own cast would be another. No gradient goes through it.
        by_tap = weight.permute(2, 3, 0, 1).to(images.dtype, memory_format=torch.contiguous_format)
        factors = (plan.taps @ by_tap.reshape(9, -1)).view(-1, outputs, channels)
        pixels = _by_pixel(images)
        result = pixels.new_empty(height * width, batch * outputs)
        for strip in plan.strips:
            sums = (strip.spread @ pixels[strip.reads]).view(len(factors), -1, channels)
            products = torch.bmm(sums, factors.transpose(1, 2))
            torch.mm(strip.collect, products.view(-1, batch * outputs), out=result[strip.writes])
        ctx.save_for_backward(images, weight, factors)
        return _as_images(result, batch, height, width, like=images)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor]:
        images, weight, factors = ctx.saved_tensors
        batch, channels, height, width = images.shape
        plan = _plan_for(images)
        pixels, slopes = _by_pixel(images), _by_pixel(gradient)
        of_images = torch.zeros_like(pixels) if ctx.needs_input_grad[0] else None
        of_factors = factors.new_empty(len(plan.strips), *factors.shape)
        for strip, of_strip in zip(plan.strips, of_factors, strict=True):
            of_products = (strip.collect_t @ slopes[strip.writes]).view(len(factors), -1, len(weight))
            sums = (strip.spread @ pixels[strip.reads]).view(len(factors), -1, channels)
            torch.bmm(of_products.transpose(1, 2), sums, out=of_strip)
            if of_images is not None:
                of_sums = torch.bmm(of_products, factors).view(-1, batch * channels)
                of_images[strip.reads].addmm_(strip.spread_t, of_sums)
        of_weight = torch.empty_like(weight)  # in its own layout, or autograd would copy once more
        of_taps = plan.taps_t @ of_factors.view(-1, len(weight) * channels)
        of_weight.permute(2, 3, 0, 1).copy_(of_taps.view(3, 3, len(weight), channels))
        return None if of_images is None else _as_images(of_images, batch, height, width, like=images), of_weight


def _by_pixel(images: Tensor) -> Tensor:
    """(batch, channels, height, width) as (height x width, batch x channels)."""
    return images.permute(2, 3, 0, 1).reshape(images.shape[2] * images.shape[3], -1)


def _as_images(pixels: Tensor, batch: int, height: int, width: int, like: Tensor) -> Tensor:
    """The way back, in the memory format of `like`."""
    last = like.is_contiguous(memory_format=torch.channels_last) and not like.is_contiguous()
    images = pixels.view(height, width, batch, -1).permute(2, 3, 0, 1)
    return images.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


# --- the small matrices -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Strip:
    """A row of tiles, treated at once so that it stays in the cache.

    Rows of `spread`: sums of pixels, ordered by factor, then by tile.
    """

    reads: slice  # pixels
    writes: slice
    spread: Tensor  # (factors x tiles, pixels read)
    spread_t: Tensor
    collect: Tensor  # (pixels written, factors x tiles)
    collect_t: Tensor


@dataclass(frozen=True)
class _Plan:
    """How maps of one size are convolved."""

    taps: Tensor  # (factors, 9)
    taps_t: Tensor  # (9, strips x factors): adds up over the strips
    strips: tuple[_Strip, ...]


def _plan_for(images: Tensor) -> _Plan:
    """Kept, unless `images` are of a kind that only counts memory: what is made among those is no number."""
    make = _plan if type(images) is Tensor else _plan.__wrapped__
    return make(images.shape[2], images.shape[3], images.dtype, images.device)


@cache
def _plan(height: int, width: int, dtype: torch.dtype, device: torch.device) -> _Plan:
    tensor = partial(torch.tensor, dtype=dtype, device=device)
    (p_rows, g_rows, q_rows), (p_columns, g_columns, q_columns) = _axis(height), _axis(width)
    taps = np.einsum("ka,lb->klab", g_rows, g_columns).reshape(-1, 9)
    strips = []
    for tiles in (slice(t, t + 1) for t in range(p_rows.shape[1])):
        reads, writes = _extent(p_rows[:, tiles].any((0, 1))), _extent(q_rows[:, tiles].any((1, 2)))
        spread = np.einsum("ksi,ltj->klstij", p_rows[:, tiles, reads], p_columns)
        collect = np.einsum("isk,jtl->ijklst", q_rows[writes, tiles], q_columns)
        spread = spread.reshape(-1, (reads.stop - reads.start) * width)
        collect = collect.reshape((writes.stop - writes.start) * width, -1)
        matrices = map(tensor, (spread, spread.T.copy(), collect, collect.T.copy()))
        strips.append(_Strip(_pixels(reads, width), _pixels(writes, width), *matrices))
    return _Plan(tensor(taps), tensor(np.tile(taps.T, len(strips))), tuple(strips))


def _extent(used: Any) -> slice:
    """From the first to the last place where it is true."""
    rows = np.flatnonzero(used)
    return slice(int(rows[0]), int(rows[-1]) + 1)


def _pixels(rows: slice, width: int) -> slice:
    return slice(rows.start * width, rows.stop * width)


def _axis(size: int) -> tuple[Matrix, Matrix, Matrix]:
    """P (factors, tiles, pixels), G (factors, taps) and Q (pixels, tiles, factors) of three taps along one axis."""
    if size == 1:  # the middle tap alone
        return np.ones((1, 1, 1)), np.array([[0.0, 1, 0]]), np.ones((1, 1, 1))
    if size == 2:  # three products instead of four: all others of the six meet the padding
        pixels = np.array([[1.0, 0], [1, 1], [0, 1]])
        taps = np.array([[1.0, -1, 0], [0, 1, 0], [0, -1, 1]])
        outputs = np.array([[0.0, 1, 1], [1, 1, 0]])
        return pixels[:, None, :], taps, outputs[:, None, :]
    # Products of polynomials modulo t (t - 1) (t + 1) (t^2 + 1) and at infinity, transposed.
    spread = [[1, 0, 0, 0, -1, 0], [0, 1, 1, 1, 1, 0], [0, -1, 1, -1, 1, 0], [0, -1, -1, 1, 1, 0]]
    spread += [[0, -1, 1, 1, -1, 0], [0, 1, 0, -1, 0, 0], [0, -1, 0, 0, 0, 1]]
    taps = np.array([[4, 0, 0], [1, 1, 1], [1, -1, 1], [2, 0, -2], [0, 2, 0], [2, 2, -2], [0, 0, 4]]) / 4
    collect = [[1, 1, 1, 1, 0, 1, 0], [0, 1, -1, 0, 1, 1, 0], [0, 1, 1, -1, 0, -1, 0], [0, 1, -1, 0, -1, -1, 1]]
    num_tiles = -(-size // TILE)  # a tile reads a pixel more on both sides
    pixels, outputs = np.zeros((7, num_tiles, TILE * num_tiles + 2)), np.zeros((TILE * num_tiles, num_tiles, 7))
    for t in range(num_tiles):
        pixels[:, t, TILE * t : TILE * t + 6] = spread
        outputs[TILE * t : TILE * t + TILE, t] = collect
    return pixels[:, :, 1 : size + 1], taps, outputs[:size]
