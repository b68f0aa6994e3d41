"""Means over validation samples and their intervals."""

import math

import numpy as np
import pytest
import torch

from trainables.kept_samples import MOST_KEPT, as_text, from_text
from trainables.measure.sample_mean import mean_with_interval, of_each_sample, value_of_each
from trainables.student_t import student_t


def interval(values: torch.Tensor, samples: int) -> dict[str, float]:
    return mean_with_interval("x", of_each_sample(values, samples).numpy())


def test_the_interval_of_an_accuracy_is_the_binomial_one() -> None:
    found = interval(torch.tensor([True] * 300 + [False] * 100), 400)
    half = student_t(399) * math.sqrt(0.75 * 0.25 / 399)
    assert found == pytest.approx({"x": 0.75, "x_low": 0.75 - half, "x_high": 0.75 + half})


@pytest.mark.parametrize(("samples", "share"), [(100, 0.97), (500, 0.99), (1000, 0.995), (100, 0.5)])
def test_the_interval_of_an_accuracy_covers_near_its_ends_too(samples: int, share: float) -> None:
    generator, covered = torch.Generator().manual_seed(0), []
    for _ in range(1000):
        found = interval(torch.rand(samples, generator=generator) < share, samples)
        covered.append(found["x_low"] <= share <= found["x_high"])
    assert 0.93 <= sum(covered) / 1000 <= 0.995


def test_a_perfect_score_of_few_samples_is_not_exact() -> None:
    assert interval(torch.ones(50, dtype=torch.bool), 50)["x_low"] < 0.98


def test_the_interval_of_a_loss_is_that_of_its_standard_error() -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    half = student_t(999) * values.std().item() / math.sqrt(1000)
    assert interval(values, 1000)["x_high"] == pytest.approx(values.mean().item() + half, rel=1e-4)


def test_values_of_one_sample_are_not_independent() -> None:
    """A picture with 100 equal pixels says as much as one pixel."""
    of_samples = torch.rand(50, generator=torch.Generator().manual_seed(0))
    pixels = of_samples.repeat_interleave(100)
    assert interval(pixels.reshape(50, 10, 10), 50) == pytest.approx(interval(of_samples, 50))
    assert interval(pixels, 50) == pytest.approx(interval(of_samples, 50))  # as one long row, too


def test_sums_of_batches_of_different_lengths_add_up() -> None:
    """Texts of 3 and of 5 tokens: the mean is over tokens, the scatter is that of the texts (ratio estimator)."""
    short, long = torch.tensor([[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]]), torch.tensor([[0.0, 1.0, 0.0, 1.0, 0.0]])
    together = torch.cat([of_each_sample(short, 2), of_each_sample(long, 1)]).numpy()
    found = mean_with_interval("x", together)
    mean = 14 / 11
    residuals = [6 - 3 * mean, 6 - 3 * mean, 2 - 5 * mean]
    half = student_t(2) * math.sqrt(sum(r * r for r in residuals) * 3 / 2) / 11
    assert found == pytest.approx({"x": mean, "x_low": mean - half, "x_high": mean + half})


def test_one_value_for_the_whole_batch_counts_as_one_sample() -> None:
    assert interval(torch.tensor(0.5), 32) == {"x": 0.5}


def test_without_values_there_is_no_mean() -> None:
    assert math.isnan(interval(torch.empty(0), 4)["x"])


def test_values_of_single_samples_have_the_same_mean_and_interval() -> None:
    """Texts of 3 and of 5 tokens."""
    rows = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.rand(20, 5)
    each = torch.cat([of_each_sample(part, len(part)) for part in rows]).numpy()
    found, values = mean_with_interval("x", each), value_of_each(each)
    assert values.mean() == pytest.approx(found["x"])
    assert student_t(59) * values.std(ddof=1) / math.sqrt(60) == pytest.approx(found["x_high"] - found["x"])


def test_what_is_right_or_wrong_is_kept_as_a_bit_each() -> None:
    bits = np.random.default_rng(0).integers(0, 2, 5001).astype(float)
    text = as_text(bits)
    assert len(text) < 5001 / 8 * 4 / 3 + 20
    assert from_text(text).tolist() == bits.tolist()


def test_other_values_are_kept_rounded() -> None:
    values = np.random.default_rng(0).normal(3.0, 100.0, 1000)
    assert from_text(as_text(values)) == pytest.approx(values, abs=0.2)


@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_values_of_any_size_are_kept(size: float) -> None:
    values = size * np.random.default_rng(0).normal(3.0, 1.0, 100)
    assert from_text(as_text(values)) == pytest.approx(values, rel=1e-2)


def test_of_many_samples_some_are_kept_evenly() -> None:
    assert from_text(as_text(np.arange(float(3 * MOST_KEPT)))) == pytest.approx(
        np.arange(0.0, 3 * MOST_KEPT, 3), rel=1e-3
    )


@pytest.mark.parametrize("text", ["", "bits", "bits 9 !!", "bits x AAAA", "halves 1.0 AAAA", "words 3 AAAA"])
def test_a_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        from_text(text)
