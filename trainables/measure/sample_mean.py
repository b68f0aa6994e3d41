"""Mean of a metric over all values of all samples, and its 95% interval from the scatter between the samples."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

HALF_95 = 1.96  # standard errors in half of a 95% interval


class SampleSums(NamedTuple):
    """Sums over samples; v is the sum of a sample's values, n their number. Those of several batches add up."""

    samples: float
    v: float
    n: float
    vv: float
    vn: float
    nn: float


def sample_sums(values: Tensor, samples: int) -> Tensor:
    """Return the `SampleSums` of a batch as a vector on the values' device.

    The values are those of one sample after the other. Where their number is no multiple of `samples`, nothing tells
    which belong together, and the batch counts as one sample.
    """
    of_each = values.double().reshape(samples if values.numel() and values.numel() % samples == 0 else 1, -1)
    count, n = of_each.shape
    v = of_each.sum(1)
    total = v.sum()
    # `new_full` and not `new_tensor`, which would make the host wait for a GPU
    counts = [total.new_full((), number) for number in (count, count * n, count * n * n)]
    return torch.stack([counts[0], total, counts[1], v.square().sum(), n * total, counts[2]])


def mean_with_interval(name: str, sums: SampleSums) -> dict[str, float]:
    """Return the mean and, with two samples or more, the ends `_low` and `_high` of its interval; NaN without values.

    The values of one sample are alike (pixels of a picture), so the samples are what varies: a ratio estimator
    (Cochran, Sampling Techniques, section 6.4). The interval covers the choice of samples, not that of the seed.
    """
    if not sums.n:
        return {name: math.nan}
    mean = sums.v / sums.n
    found = {name: mean}
    if sums.samples > 1:
        squares = sums.vv - 2 * mean * sums.vn + mean * mean * sums.nn
        half = HALF_95 * math.sqrt(max(0.0, squares) * sums.samples / (sums.samples - 1)) / sums.n
        found |= {f"{name}_low": mean - half, f"{name}_high": mean + half}
    return found
