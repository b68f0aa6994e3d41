from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import search.advisor.metric_model
from search.advisor.encoding import Encoding
from search.advisor.metric_model import (
    MAX_FITTED,
    MAX_POINTS,
    OUTLIER,
    REFIT_GROWTH,
    MetricModel,
    last_of_each,
    log_rates,
    warp_losses,
)
from search.advisor.surrogate import GaussianProcess
from search.advisor.trial_model import RATES_DIFFER_BY
from search.space.parsing import parse_space

SPACE = parse_space(
    {
        "objectives": [{"metric": "accuracy", "goal": "maximize"}, {"metric": "rate", "goal": "maximize"}],
        "parameters": {"x": {"min": 0.0, "max": 1.0}, "y": {"min": 0.0, "max": 1.0}},
        "budget": {"trials": 8},
    }
)
ENCODING = Encoding(SPACE)
BOTH = ENCODING.columns(["x", "y"])
GRID = np.array([[x, y] for x in (0.1, 0.5, 0.9) for y in (0.1, 0.9)])


def measurements(count, seed=0):
    """Of a slope along x, with some noise."""
    rng = np.random.default_rng(seed)
    rows = rng.random((count, 2))
    return list(zip(rows, rng.choice([0.3, 1.0], count), rows[:, 0] + 0.01 * rng.normal(size=count), strict=True))


def taught(data, model=None):
    model = MetricModel(ENCODING, BOTH) if model is None else model
    for row, progress, value in data:
        model.learn(row, progress, value)
    return model


class Recorder(GaussianProcess):
    """Gaussian process that records its number of points and whether its hyperparameters were fitted."""

    sizes: ClassVar[list[int]] = []
    searched: ClassVar[list[bool]] = []
    last_values: ClassVar[Any] = None
    fitted_values: ClassVar[Any] = None

    def __init__(self, points, values, scale_of, hyperparameters=None, *more):
        super().__init__(points, values, scale_of, hyperparameters, *more)
        type(self).sizes.append(len(values))
        type(self).searched.append(hyperparameters is None)
        type(self).last_values = values
        if hyperparameters is None:
            type(self).fitted_values = values


def test_a_slope_goes_on_beyond_what_was_tried():
    """Of a range of which the lower half is known, the upper end is predicted, not taken for the mean."""
    rng = np.random.default_rng(0)
    rows = rng.random((20, 2)) / 2
    model = taught([(row, 1.0, row[0] + 0.001 * rng.normal()) for row in rows])
    means, deviations = model.predict(np.array([[1.0, 0.25], [0.25, 0.25]]))
    assert means[0] == pytest.approx(1.0, abs=0.2)
    assert deviations[0] > 3 * deviations[1]


def test_a_stage_that_orders_trials_otherwise_does_not_disturb_what_is_known_of_the_end():
    rng = np.random.default_rng(0)
    learned, rate = (MetricModel(ENCODING, BOTH, is_learned=is_learned) for is_learned in (True, False))
    for row in rng.random((24, 2)):
        whole = [(row, 0.4, rng.normal()), (row, 1.0, row[1])]
        taught(whole, learned)
        taught(whole, rate)
    for row in rng.random((48, 2)):
        begun = [(row, 0.4, rng.normal())]
        taught(begun, learned)
        taught(begun, rate)
    rows = rng.random((200, 2))
    undisturbed, disturbed = (np.abs(model.predict(rows)[0] - rows[:, 1]).mean() for model in (learned, rate))
    assert undisturbed < 0.5 * disturbed


def test_small_differences_at_the_end_are_seen_beside_large_ones_at_the_start():
    """As of batch sizes, whose accuracies are far apart after a tenth of a training and alike at its end."""
    rng = np.random.default_rng(0)
    by_stage, by_epoch = (MetricModel(ENCODING, BOTH, warp_losses, equal_lengths=equal) for equal in (True, False))
    for i, row in enumerate(rng.random((24, 2))):
        for progress in (0.4, 0.55, 0.7, 0.85, 1.0) if i < 8 else (0.4,):
            value = 0.005 * row[1] + (1 - progress) * (0.3 + row[0])
            taught([(row, progress, value)], by_stage)
            taught([(row, progress, value)], by_epoch)
    rows = rng.random((200, 2))
    alike, less = (np.corrcoef(model.predict(rows)[0], rows[:, 1])[0, 1] for model in (by_stage, by_epoch))
    assert alike > 0.9
    assert less < 0.5


@pytest.fixture
def recorder(monkeypatch):
    Recorder.sizes, Recorder.searched = [], []
    monkeypatch.setattr(search.advisor.metric_model, "GaussianProcess", Recorder)
    return Recorder


@settings(deadline=None, max_examples=15)
@given(st.sets(st.integers(1, 30)))
def test_a_model_does_not_depend_on_when_it_was_queried(asked_after):
    """A resumed search has asked less often."""
    data, often = measurements(30), MetricModel(ENCODING, BOTH)
    for number, measurement in enumerate(data, start=1):
        taught([measurement], often)
        if number in asked_after:
            often.predict(GRID)
    assert (np.array(often.predict(GRID)) == np.array(taught(data).predict(GRID))).all()


def test_predictions_match_the_measurements():
    means, deviations = taught([(row, 1.0, row[0]) for row, _, _ in measurements(30)]).predict(GRID)
    assert means == pytest.approx(GRID[:, 0], abs=0.05)
    assert (deviations < 0.1).all()


def test_only_the_parameters_that_bear_on_it_count():
    model = taught(measurements(30), MetricModel(ENCODING, ENCODING.columns(["x"])))
    means, _ = model.predict(GRID)
    assert means[0::2] == pytest.approx(means[1::2])  # y alone differs
    assert model.columns.tolist() == [0]


def test_all_measurements_are_kept_as_they_came():
    data = measurements(20)
    model = taught(data)
    assert len(model) == 20
    assert model.max_value == max(value for _, _, value in data)


def test_one_measurement_is_enough_to_ask():
    means, deviations = taught(measurements(1)).predict(GRID)
    assert means == pytest.approx(np.full(6, measurements(1)[0][2]))
    assert np.isfinite(deviations).all()


def test_equal_measurements_are_predicted():
    means, _ = taught([(row, progress, 3.0) for row, progress, _ in measurements(20)]).predict(GRID)
    assert means == pytest.approx(np.full(6, 3.0))


def test_ten_thousand_measurements_cost_no_more_than_a_few_hundred(recorder):
    """Half of what is looked at is the newest there is, and the rest is from all times."""
    data = [(row, progress, float(i)) for i, (row, progress, _) in enumerate(measurements(10_000))]
    taught(data).predict(GRID)
    assert max(recorder.sizes) <= MAX_POINTS
    fitted = [size for size, searched in zip(recorder.sizes, recorder.searched, strict=True) if searched]
    assert max(fitted) == MAX_FITTED  # a fit takes as long as dozens of predictions
    newest = set(range(10_000 - MAX_POINTS // 2, 10_000))
    assert newest <= {int(value) for value in recorder.last_values}
    older = sorted(set(recorder.last_values) - newest)
    assert older[0] == 0
    assert older[-1] == 10_000 - MAX_POINTS // 2 - 1
    assert max(np.diff(older)) <= 10_000 / len(older) + 1  # of the others, evenly
    assert len(set(recorder.last_values)) == MAX_POINTS


def test_of_too_many_measurements_the_end_of_every_trial_is_used(recorder):
    """The first trials are not forgotten for the curves of the newer ones."""
    ends = np.arange(90.0)
    progress = [0.4, 0.5, 0.6, 0.8, 0.9, 1.0]
    model = MetricModel(ENCODING, BOTH, equal_lengths=False)
    for (row, _, _), end in zip(measurements(90), ends, strict=True):
        taught([(row, part, end if part == 1 else end + 1000 * part) for part in progress], model)
    model.predict(GRID)
    assert len(recorder.last_values) == MAX_POINTS < 90 * len(progress)
    assert len(recorder.fitted_values) == MAX_FITTED
    assert set(ends) <= set(recorder.last_values)
    assert len(set(ends) & set(recorder.fitted_values)) > 90 / REFIT_GROWTH


@pytest.mark.parametrize(
    ("trials", "compared", "used"),
    [
        pytest.param("abab", [0, 1, 2, 3], [0, 1, 2, 3], id="all"),
        pytest.param("abcabcd", [0, 1, 2, 3, 4, 5, 6], [3, 4, 5, 6], id="the-last-of-each"),
        pytest.param("aaabbbb", [0, 1, 2, 3, 4, 5, 6], [2, 4, 5, 6], id="then-the-newest"),
        pytest.param("aabcdefagh", [0, 1, 2, 7, 8, 9], [2, 7, 8, 9], id="of-too-many-trials-the-newer-half"),
    ],
)
def test_selected_measurements(trials, compared, used):
    found = last_of_each([ord(trial) for trial in trials], 4)
    positions = found[0].tolist(), found[0][found[1]].tolist()
    assert positions == (compared, used)


def test_hyperparameters_are_looked_for_again_in_steps_that_grow(recorder):
    """Asked after each of 60 measurements: once at each of 4, 5, 6 ... 8, 9, 10, 11, 12, 13, 14, 16, 18, ..."""
    model = MetricModel(ENCODING, BOTH)
    for measurement in measurements(60):
        taught([measurement], model).predict(GRID)
    at = [size for size, searched in zip(recorder.sizes, recorder.searched, strict=True) if searched]
    assert at == sorted(set(at))
    assert len(at) <= 26
    assert max(np.array(at[8:]) / np.array(at[7:-1])) < 1.25


def test_rates_that_are_alike_by_chance_are_no_sign_that_all_are():
    """Three that differ by 1 %: at another corner a rate may still be a tenth off, or more."""
    model = MetricModel(ENCODING, BOTH, log_rates, RATES_DIFFER_BY)
    taught([(np.array([0.1, y]), 1.0, -rate) for y, rate in ((0.1, 1000), (0.2, 1010), (0.3, 1005))], model)
    _, deviations = model.predict(np.array([[0.1, 0.2], [0.9, 0.9]]))
    assert deviations[0] < 0.1 < deviations[1]


def test_the_standard_error_of_a_rate_is_taken_to_the_scale_of_logarithms():
    """A tenth of the rate is an error of 0.1, whatever the rate."""
    model, row = MetricModel(ENCODING, BOTH, log_rates, RATES_DIFFER_BY), np.array([0.5, 0.5])
    for rate, error in ((100.0, 1.0), (200.0, 60.0)):
        model.learn(row, 1.0, -rate, error)
    mean, _ = model.predict(row[None])
    assert -np.log(103) < mean[0] < -np.log(100)


losses = st.lists(st.floats(-1e3, 1e3).map(lambda x: round(x, 3)), min_size=2, max_size=30).map(np.array)


@given(losses)
def test_warping_keeps_the_order(values):
    order = np.argsort(values, kind="stable")
    assert (np.diff(warp_losses(values)[0][order]) >= 0).all()
    assert len(set(warp_losses(values)[0])) == len(set(values))


@given(losses, st.floats(0.01, 100), st.floats(-5, 5))
def test_warped_losses_have_no_unit(values, factor, offset):
    """Zero and unit do not matter, for what is no rate: here some are above zero, wherever that is."""
    values = np.append(values, values.max() + 1e3)
    assume(np.median(values) - values.min() > 0.01)
    assert warp_losses(factor * values + offset + 1e5)[0] == pytest.approx(warp_losses(values)[0], rel=1e-4, abs=1e-4)


def test_an_outlier_is_drawn_in_and_all_else_keeps_its_distances():
    """So that one loss of 1e6 does not make all others look equal; the unit is from the median to the best."""
    values = np.array([-2.0, -1.0, 0.0, 20.0, 2e6])
    assert warp_losses(values)[0] == pytest.approx([-1.0, -0.5, 0.0, 10.0, 10.0 + np.log1p(1e6 - 10)])


def test_rates_far_apart_are_compared_by_their_ratios():
    rates = np.array([100.0, 200.0, 400.0, 800.0, 1600.0])
    assert warp_losses(-rates)[0][::-1] == pytest.approx([-1.0, -0.5, 0.0, 0.5, 1.0])
    assert warp_losses(-1e3 * rates)[0] == pytest.approx(warp_losses(-rates)[0])


def test_a_relative_difference_of_rates_is_their_ratio():
    rates = np.array([100.0, 101.0, 200.0])
    assert np.diff(log_rates(-rates)[0]) == pytest.approx([-np.log(1.01), -np.log(200 / 101)])


def test_a_relative_difference_of_times_is_their_ratio():
    assert np.diff(log_rates(np.array([100.0, 101.0]))[0]) == pytest.approx([np.log(1.01)])


@pytest.mark.parametrize("values", [[0.0, -1.0], [-1.0, 1.0]])
def test_what_is_no_rate_stays_as_it_is(values):
    assert log_rates(np.array(values))[0].tolist() == values


@given(losses)
@example(np.array([-2.0, -25.0, -29.0]))
def test_slopes_are_those_of_the_transformation(values):
    assume(len(set(values)) == len(values))
    order = np.argsort(values)
    scaled, slopes = (found[order] for found in warp_losses(values))
    risen = np.diff(scaled) / np.diff(values[order])
    drawn_in = np.exp(-np.maximum(scaled - OUTLIER, 0.0))  # slope of the second step; that of the first is the rest
    first, second = (np.stack([each[:-1], each[1:]]) for each in (slopes / drawn_in, drawn_in))  # each is monotonic
    assert (risen <= first.max(axis=0) * second.max(axis=0) * (1 + 1e-6)).all()
    assert (risen >= first.min(axis=0) * second.min(axis=0) * (1 - 1e-6)).all()


def test_slopes_of_outliers_among_rates_are_those_of_the_transformation():
    values, step = np.array([-2.0, -25.0, -29.0, -31.0, -33.0]), 1e-6
    (scaled, slopes), (moved, _) = warp_losses(values), warp_losses(values + np.array([step, 0, 0, 0, 0]))
    assert scaled[0] > OUTLIER
    assert (moved[0] - scaled[0]) / step == pytest.approx(slopes[0], rel=1e-4)
