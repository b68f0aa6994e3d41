"""Mean of a metric over all values of all samples, and its 95% interval from the scatter between the samples."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.student_t import student_t

Values = NDArray[np.float64]
OfSamples = NDArray[np.float64]  # sum and number of the values of each sample, shape (samples, 2)


def of_each_sample(values: Tensor, samples: int) -> Tensor:
    """Return the sum and the number of the values of each sample, shape (samples, 2), on the values' device.

    The values are those of one sample after the other. Where their number is no multiple of `samples`, nothing tells
    which belong together, and the batch counts as one sample.
    """
    rows = values.double().reshape(samples if values.numel() and values.numel() % samples == 0 else 1, -1)
    sums = rows.sum(1)
    # `full_like` and not a tensor from the host, for which a GPU would be waited for
    return torch.stack([sums, torch.full_like(sums, rows.shape[1])], dim=1)


def mean_with_interval(name: str, samples: OfSamples) -> dict[str, float]:
    """Return the mean and, with two samples or more, the ends `_low` and `_high` of its interval; NaN without values.

    The values of one sample are alike (pixels of a picture), so the samples are what varies: a ratio estimator
    (Cochran, Sampling Techniques, section 6.4); of values that are 0 or 1 at least as wide as that of Agresti and Coull
    1998. The interval covers the choice of samples, not that of the seed.
    """
    sums, numbers = samples.T
    if not numbers.sum():
        return {name: math.nan}
    mean = float(sums.sum() / numbers.sum())
    found = {name: mean}
    if (count := len(samples)) > 1:
        squares = float(np.square(sums - mean * numbers).sum())
        half = math.sqrt(squares * count / (count - 1)) / float(numbers.sum())
        if (numbers == 1).all() and np.isin(sums, (0, 1)).all():  # near 0 and 1 the scatter of few says too little
            share = (sums.sum() + 2) / (count + 4)
            half = max(half, math.sqrt(share * (1 - share) / (count + 4)))
        half *= student_t(count - 1)
        found |= {f"{name}_low": mean - half, f"{name}_high": mean + half}
    return found


def value_of_each(samples: OfSamples) -> Values:
    """Return a value for each sample so that their mean is that of all values, shape (samples,).

    A sample with more values than others counts more: its value is as much farther from the mean.
    """
    sums, numbers = samples[:, 0], samples[:, 1]
    if (numbers == 1).all():
        return sums
    mean = sums.sum() / numbers.sum()
    values: Values = mean + (sums - mean * numbers) / numbers.mean()
    return values
