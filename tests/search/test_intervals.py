"""One rule for the 95% interval of a measured metric."""

import math

import pytest

from search.front.intervals import half_interval, merge_independent


def test_wide_intervals_of_rates_are_narrower_together():
    one = {"x_per_second": 100.0, "x_per_second_low": 100.0 / math.exp(2), "x_per_second_high": 100.0 * math.exp(2)}
    merged = merge_independent("x_per_second", [one, one])
    assert merged["x_per_second_high"] == pytest.approx(100.0 * math.exp(2 / math.sqrt(2)), rel=0.01)


def test_half_of_an_interval_comes_from_its_ends_from_the_pictures_or_in_early_runs_from_a_deviation():
    assert half_interval({"rate": 100.0, "rate_low": 98.0, "rate_high": 104.0}, "rate") == 3.0
    assert half_interval({"rate": 100.0, "rate_std": 2.5}, "rate") == 2.5
    assert half_interval({"val_accuracy": 0.7}, "val_accuracy", 5000) == pytest.approx(1.96 * math.sqrt(0.21 / 5000))


@pytest.mark.parametrize(
    "metrics",
    [
        {},
        {"rate": 100.0},
        {"rate": 100.0, "rate_low": math.nan, "rate_high": 104.0},
        {"rate": 100.0, "rate_low": -math.inf, "rate_high": math.inf},
        {"rate": 100.0, "rate_std": math.nan},
        {"rate": 100.0, "rate_low": 100.0, "rate_high": 100.0},
    ],
)
def test_what_is_not_known_or_exact_has_no_interval(metrics):
    assert half_interval(metrics, "rate") is None


def test_an_accuracy_without_a_number_of_pictures_is_exact():
    assert half_interval({"val_accuracy": 0.7}, "val_accuracy") is None
    assert half_interval({"val_accuracy": 1.0}, "val_accuracy", 5000) is None
    assert half_interval({}, "val_accuracy", 5000) is None
    assert half_interval({"test_accuracy": 0.7}, "test_accuracy", 5000) is None


def test_measurements_without_intervals_have_that_of_their_scatter():
    """The t distribution with two degrees of freedom: 4.303 standard errors of the mean."""
    merged = merge_independent("rate", [{"rate": 90.0}, {"rate": 100.0}, {"rate": 110.0}])
    assert merged["rate"] == pytest.approx(100.0)
    assert merged["rate_high"] - 100.0 == pytest.approx(4.303 * 10.0 / math.sqrt(3), rel=1e-3)
    assert merge_independent("rate", [{"rate": 90.0}] * 3) == {}  # exact


def test_a_measurement_with_a_wide_interval_does_not_stand_for_several_without_one():
    wide = {"rate": 60.0, "rate_low": 20.0, "rate_high": 100.0}
    merged = merge_independent("rate", [wide, {"rate": 99.0}, {"rate": 100.0}, {"rate": 101.0}])
    assert merged["rate"] == pytest.approx(100.0, abs=1.0)
    assert merge_independent("rate", [wide, {"rate": 99.0}, {"rate": 100.0}])["rate"] == pytest.approx(60.0)


def test_two_measurements_that_differ_are_no_exact_mean():
    """1.96 standard errors of the mean of two, each of which is half of their difference."""
    merged = merge_independent("gib", [{"gib": 1.16}, {"gib": 1.44}])
    assert merged["gib"] == pytest.approx(1.30)
    assert (merged["gib_low"], merged["gib_high"]) == pytest.approx((1.30 - 1.96 * 0.14, 1.30 + 1.96 * 0.14))
    assert merge_independent("gib", [{"gib": 1.16}, {"gib": 1.16}]) == {}


def test_rates_without_an_interval_count_as_known_to_15_percent_beside_one_with_a_wide_interval():
    rate = "x_per_second"
    wide = {rate: 264.15, f"{rate}_low": 7.0, f"{rate}_high": 9881.0}
    merged = merge_independent(rate, [{rate: 837.6}, wide, {rate: 1388.9}])
    assert merged[rate] == pytest.approx(math.sqrt(837.6 * 1388.9), rel=0.02)
    assert merged[f"{rate}_low"] < 1000.0 < merged[f"{rate}_high"]


def test_a_rate_without_an_interval_neither_moves_nor_widens_a_precise_one():
    precise = {"x_per_second": 200.0, "x_per_second_low": 198.0, "x_per_second_high": 202.0}
    merged = merge_independent("x_per_second", [precise, {"x_per_second": 50.0}])
    assert merged["x_per_second"] == pytest.approx(200.0, rel=0.01)
    assert merged["x_per_second_high"] - merged["x_per_second"] == pytest.approx(2.0, rel=0.05)


def test_rates_without_intervals_count_as_known_to_15_percent_from_three_on():
    merged = merge_independent("x_per_second", [{"x_per_second": 100.0}] * 3)
    expected = math.exp(1.96 * 0.15 / math.sqrt(3))
    assert merged["x_per_second_high"] / merged["x_per_second"] == pytest.approx(expected, rel=0.01)
    assert merge_independent("x_per_second", [{"x_per_second": 100.0}] * 2) == {}
    assert merge_independent("x_per_second", [{"x_per_second": 0.0}] * 3) == {}
