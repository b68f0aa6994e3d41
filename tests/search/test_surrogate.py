import math

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from search.advisor.surrogate import (
    JITTER,
    SIZES,
    GaussianProcess,
    Hyperparameters,
    Points,
    _negative_log_likelihood,
    _squared_distances,
)

USUAL = {"always": 1.0, "noise": 1e-2, "changing": 0.5, "epochs_scale": 2.0, "mean_curve": 0.5}


def known(scales=(1.0,), **sizes):
    values = [*scales, *(({**USUAL, **sizes})[name] for name in SIZES)]
    return Hyperparameters.from_logs(np.log(values), len(scales))


def points(features, progress, trends=None):
    trends = np.empty((len(progress), 0)) if trends is None else trends
    return Points(np.asarray(features, dtype=float), np.asarray(progress, dtype=float), trends)


def process(features, progress, values, hyperparameters=None, scale_of=None, trends=None):
    where = points(features, progress, trends)
    scale_of = np.arange(where.features.shape[1]) if scale_of is None else np.array(scale_of)
    return GaussianProcess(where, np.asarray(values, dtype=float), scale_of, hyperparameters)


def matern(distance):
    """Rasmussen & Williams, equation 4.17, of length scale 1."""
    return (1 + math.sqrt(5) * distance + 5 / 3 * distance**2) * math.exp(-math.sqrt(5) * distance)


def covariance(left, right, scales, always, changing, epochs_scale, mean_curve, **_):
    """Of two measurements, each (features, progress), by the formula in the module's docstring."""
    alike = matern(math.sqrt(sum(s * (a - b) ** 2 for s, a, b in zip(scales, left[0], right[0], strict=True))))
    epochs = matern(math.sqrt(epochs_scale) * abs(left[1] - right[1]))
    return alike * (always + changing * epochs) + mean_curve * epochs


def random_data(seed, count, width):
    rng = np.random.default_rng(seed)
    return rng.random((count, width)), rng.random(count), rng.normal(size=count)


def test_predictions_are_those_of_the_textbook():
    """Equations 2.25 and 2.26, with one covariance after the other."""
    scales, (features, progress, values) = (3.0, 0.5), random_data(0, 12, 2)
    data = list(zip(features, progress, strict=True))
    gram = np.array([[covariance(a, b, scales, **USUAL) for b in data] for a in data])
    gram += (USUAL["noise"] + JITTER) * np.eye(12)
    point = (np.array([0.3, 0.9]), 1.0)
    towards = np.array([covariance(point, b, scales, **USUAL) for b in data])
    scaled = (values - values.mean()) / values.std()
    mean = values.mean() + values.std() * towards @ np.linalg.solve(gram, scaled)
    variance = covariance(point, point, scales, **USUAL) - towards @ np.linalg.solve(gram, towards)
    predicted = process(features, progress, values, known(scales)).predict(points(point[0][None], np.ones(1)))
    assert predicted[0] == pytest.approx(mean)
    assert predicted[1] == pytest.approx(values.std() * math.sqrt(variance))


@pytest.mark.parametrize("at_full_length", [False, True])
def test_the_gradient_of_the_likelihood_is_its_slope(at_full_length):
    """By central differences; where all is at full length, what epochs do has no slope."""
    features, progress, values = random_data(1, 15, 3)
    scale_of = np.array([0, 1, 1])
    progress = np.ones(15) if at_full_length else progress
    differences = np.stack([_squared_distances(features[:, scale_of == s], features[:, scale_of == s]) for s in (0, 1)])
    steps = (progress[:, None] - progress[None, :]) ** 2

    def likelihood(logs):
        return _negative_log_likelihood(Hyperparameters.from_logs(logs, 2), differences, steps, values, given, trends)

    given = np.random.default_rng(3).random(len(values))
    trends = np.random.default_rng(4).normal(size=(len(values), 2))
    logs = np.random.default_rng(2).normal(size=9)
    slopes = [(likelihood(logs + h)[0] - likelihood(logs - h)[0]) / 2e-5 for h in 1e-5 * np.eye(9)]
    assert likelihood(logs)[1] == pytest.approx(slopes, rel=1e-5, abs=1e-5)


def test_the_likelihood_is_that_of_a_normal_distribution():
    """Up to the constant n / 2 log(2 pi); equation 2.30."""
    features, progress, values = random_data(4, 6, 1)
    given = np.array([0.0, 0.1, 0.2, 0.5, 1.0, 3.0])
    trends, steps = np.linspace(-1, 1, 6)[:, None], (progress[:, None] - progress) ** 2
    hyperparameters = known()._replace(slopes=np.array([0.7]))
    found, _ = _negative_log_likelihood(
        hyperparameters, _squared_distances(features, features)[None], steps, values, given, trends
    )
    data = list(zip(features, progress, strict=True))
    gram = np.array([[covariance(a, b, (1.0,), **USUAL) for b in data] for a in data])
    gram += USUAL["noise"] * np.eye(6) + np.diag(given) + 0.7 * trends @ trends.T
    assert found == pytest.approx(0.5 * values @ np.linalg.solve(gram, values) + 0.5 * np.linalg.slogdet(gram)[1])


def test_the_most_likely_hyperparameters_are_more_likely_than_their_neighbours():
    """Of those that were looked at: the priors count too, so only far neighbours are asked."""
    x = np.linspace(0, 1, 20)[:, None]
    values = np.sin(6 * x[:, 0])
    scaled = (values - values.mean()) / values.std()
    found = np.log(np.concatenate(process(x, np.ones(20), values).hyperparameters))

    def likelihood(logs):
        differences, steps = _squared_distances(x, x)[None], np.zeros((20, 20))
        given, no_trends = np.full(20, JITTER), np.empty((20, 0))
        return _negative_log_likelihood(
            Hyperparameters.from_logs(logs, 1), differences, steps, scaled, given, no_trends
        )[0]

    for scale in (-4.0, 4.0):
        other = found.copy()
        other[0] += scale
        assert likelihood(found) < likelihood(other)


def test_a_measurement_weighs_by_its_own_standard_error():
    """Two values at one place: their mean if both errors are equal, else nearly that of the smaller error."""
    x, values = np.zeros((2, 1)), np.array([0.0, 1.0])

    def between(errors):
        process = GaussianProcess(
            points(x, np.ones(2)), values, np.zeros(1, int), known(noise=1e-4), 0.0, np.array(errors)
        )
        return float(process.predict(points(x[:1], np.ones(1)))[0][0])

    assert between([0.0, 0.0]) == pytest.approx(0.5)
    assert between([0.3, 0.3]) == pytest.approx(0.5)
    assert between([0.05, 0.5]) == pytest.approx(0.01, abs=0.005)  # 0.05**2 / (0.05**2 + 0.5**2)


def test_deviations_free_of_noise_are_those_of_exact_measurements():
    """But for what the measurements miss of what is asked for, which no repeat would tell."""
    features, progress, values = random_data(8, 10, 2)
    misses = np.where(np.arange(10) < 5, 0.0, 0.3)
    everywhere = points(
        np.vstack([features, np.random.default_rng(9).random((20, 2))]), np.append(progress, np.ones(20))
    )

    def fitted(noise, errors):
        return GaussianProcess(
            points(features, progress), values, np.arange(2), known((2.0, 1.0), noise=noise), 0.0, errors, misses
        )

    noisy = fitted(0.05, np.linspace(0.1, 0.5, 10))
    means, deviations = noisy.predict(everywhere, noise_free=True)
    assert means == pytest.approx(noisy.predict(everywhere)[0])
    assert deviations == pytest.approx(fitted(1e-9, np.zeros(10)).predict(everywhere)[1], rel=1e-3, abs=1e-5)
    assert (deviations < noisy.predict(everywhere)[1]).all()
    assert deviations[:5].max() < 0.01 < 0.05 < deviations[5:10].min()
    there = points(np.array([[0.9, 0.9]]), np.ones(1))
    assert noisy.expecting(there).predict(there, noise_free=True)[1] < 0.01


def test_expected_measurements_leave_the_means_and_make_the_deviations_those_of_real_ones():
    features, progress, values = random_data(4, 12, 2)
    places = np.random.default_rng(5).random((3, 2))
    fitted = process(features, progress, values, known((2.0, 1.0)))
    means, before = fitted.predict(points(places, np.ones(3)))
    everywhere = np.random.default_rng(6).random((50, 2)), np.ones(50)
    told = process(
        np.vstack([features, places]), [*progress, 1, 1, 1], [*values, *means], known((2.0, 1.0)), scale_of=[0, 1]
    )
    expecting = fitted.expecting(points(places, np.ones(3)))
    assert expecting.predict(points(*everywhere))[0] == pytest.approx(fitted.predict(points(*everywhere))[0])
    share = expecting.predict(points(*everywhere))[1] / told.predict(points(*everywhere))[1]
    assert share == pytest.approx(np.full(50, share[0]))  # but for the values' spread
    assert (expecting.predict(points(places, np.ones(3)))[1] < 0.5 * before).all()


def test_a_trend_that_fits_predicts_what_few_measurements_cannot_and_noise_does_little_harm():
    def truth(x):
        return np.sin(7 * x[:, 0]) + x[:, 1]

    def error(seed, trend):
        rng = np.random.default_rng(seed)
        x, noise = rng.random((208, 3)), rng.normal(size=208)
        trends = {"none": np.empty((208, 0)), "fits": truth(x)[:, None], "noise": noise[:, None]}[trend]
        values = 5 - 3 * truth(x)
        fitted = process(x[:8], np.ones(8), values[:8], trends=trends[:8])
        return np.log(np.mean((fitted.predict(points(x[8:], np.ones(200), trends[8:]))[0] - values[8:]) ** 2)) / 2

    errors = {trend: np.exp(np.mean([error(seed, trend) for seed in range(8)])) for trend in ("none", "fits", "noise")}
    assert errors["fits"] < 0.1 * errors["none"]
    assert errors["noise"] < 1.4 * errors["none"]


def test_what_does_not_matter_gets_a_longer_scale_than_what_does():
    features = np.random.default_rng(0).random((40, 2))
    scales = process(features, np.ones(40), np.sin(5 * features[:, 0])).hyperparameters.scales
    assert scales[0] > 10 * scales[1]


def test_data_without_noise_are_interpolated():
    x = np.linspace(0, 1, 9)[:, None]
    values = np.cos(4 * x[:, 0])
    fitted = process(x, np.ones(9), values, known(noise=1e-9))
    means, deviations = fitted.predict(points(x, np.ones(9)))
    assert means == pytest.approx(values, abs=1e-4)
    assert (deviations < 2e-3).all()
    between, _ = fitted.predict(points(x[:-1] + 1 / 16, np.ones(8)))
    assert between == pytest.approx(np.cos(4 * (x[:-1, 0] + 1 / 16)), abs=0.02)


def test_far_from_the_data_nothing_is_known_but_the_mean_and_the_spread_of_all():
    values = np.array([1.0, 2.0, 6.0])
    fitted = process([[0.0], [0.5], [1.0]], np.ones(3), values, known(mean_curve=1e-9))
    means, deviations = fitted.predict(points(np.array([[1e4]]), np.ones(1)))
    assert means == pytest.approx(values.mean())
    assert deviations == pytest.approx(values.std() * math.sqrt(USUAL["always"] + USUAL["changing"]))


def test_far_from_the_data_the_mean_curve_is_still_known():
    """Curves of other configurations say where one ends that was never run."""
    progress = np.tile([0.0, 0.5, 1.0], 8)
    values = progress * 10 + np.repeat(np.random.default_rng(0).normal(size=8), 3)
    fitted = process(np.repeat(np.linspace(0, 1, 8), 3)[:, None], progress, values, known(mean_curve=4.0))
    means, _ = fitted.predict(points(np.full((2, 1), 1e4), np.array([0.0, 1.0])))
    assert means[0] < 2
    assert means[1] > 8


def test_a_curve_is_extrapolated_with_more_certainty_the_longer_it_is_seen():
    """Beside five whole curves; to 0, 1, 2 ... of 5 looks."""
    looks = np.linspace(0, 1, 6)
    x = np.repeat(np.linspace(0, 1, 5), 6)
    deviations, errors = [], []
    for seen in range(6):
        features = np.append(x, np.full(seen, 3.0))[:, None]
        progress = np.append(np.tile(looks, 5), looks[:seen])
        rise = np.append(np.repeat(np.linspace(0.5, 1.0, 5), 6), np.full(seen, 1.5))
        mean, deviation = process(features, progress, rise * progress, known()).predict(
            points(np.array([[3.0]]), np.ones(1))
        )
        deviations.append(deviation[0])
        errors.append(abs(mean[0] - 1.5))
    assert (np.diff(deviations) < 0).all()
    assert deviations[-1] < deviations[0] / 2
    assert errors[-1] < errors[0] / 2


@pytest.mark.parametrize("repeats", [2, 4, 16])
def test_repeats_shrink_the_deviation_as_the_mean_of_so_many_measurements(repeats):
    """Closed form: n measurements with noise s are one with noise s / n."""
    sizes = {**USUAL, "noise": 0.5}
    prior = sizes["always"] + sizes["changing"] + sizes["mean_curve"]
    values = np.tile([-1.0, 1.0], repeats // 2)  # of spread 1
    _, deviation = process(np.zeros((repeats, 1)), np.ones(repeats), values, known(noise=0.5)).predict(
        points(np.zeros((1, 1)), np.ones(1))
    )
    noise = (0.5 + JITTER) / repeats
    assert deviation**2 == pytest.approx(prior * noise / (prior + noise))


def test_the_noise_of_repeats_is_found():
    rng = np.random.default_rng(0)
    x = np.repeat(rng.random(15), 3)
    values = 100 + 10 * np.sin(5 * x) + rng.normal(scale=2.0, size=45)
    _, noise, *_ = process(x[:, None], np.ones(45), values).hyperparameters.sizes
    assert 1.4 < values.std() * noise**0.5 < 2.8


def test_units_do_not_matter():
    features, progress, values = random_data(5, 20, 2)
    point = np.array([[0.2, 0.7]]), np.ones(1)
    mean, deviation = process(features, progress, values).predict(points(*point))
    other_mean, other_deviation = process(features, progress, 1000 * values + 7).predict(points(*point))
    assert other_mean == pytest.approx(1000 * mean + 7, rel=1e-4)
    assert other_deviation == pytest.approx(1000 * deviation, rel=1e-4)


def test_features_that_share_a_length_scale_are_measured_alike():
    """Two names, each a column, that are told apart by one number."""
    fitted = process(np.eye(2), np.ones(2), [0.0, 1.0], scale_of=[0, 0])
    assert len(fitted.hyperparameters.scales) == 1
    turned = process(np.eye(2)[::-1], np.ones(2), [1.0, 0.0], scale_of=[0, 0])
    assert turned.predict(points(np.eye(2), np.ones(2)))[0] == pytest.approx(
        fitted.predict(points(np.eye(2), np.ones(2)))[0]
    )


def test_equal_values_leave_nothing_to_explain():
    means, deviations = process(np.linspace(0, 1, 5)[:, None], np.ones(5), np.full(5, 3.0)).predict(
        points(np.array([[0.5], [9.0]]), np.ones(2))
    )
    assert means == pytest.approx([3.0, 3.0])
    assert np.isfinite(deviations).all()


def test_one_measurement_is_enough_to_ask():
    mean, deviation = process([[0.5]], [1.0], [3.0]).predict(points(np.array([[0.5], [5.0]]), np.ones(2)))
    assert mean == pytest.approx([3.0, 3.0])
    assert deviation[0] < deviation[1]


def test_it_is_the_same_to_the_last_bit_however_many_threads_the_library_may_use():
    rng = np.random.default_rng(0)
    features, values, elsewhere = rng.random((256, 6)), rng.random(256), rng.random((300, 6))

    def predicted():
        return process(features, np.ones(256), values, known(scales=(1.0,) * 6)).predict(
            points(elsewhere, np.ones(300))
        )

    library = ThreadpoolController()
    found = []
    for threads in (1, 2):
        with library.limit(limits=threads):
            found.append(np.concatenate(predicted()))
    assert (found[0] == found[1]).all()
