import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from search.advisor.acquisition import expected_excess, expected_improvement
from search.front.pareto import hypervolume

FRONT = np.array([[0.1, 0.8], [0.3, 0.5], [0.6, 0.2]])
CORNER = np.array([1.0, 1.0])
BOX = np.array([[0.1, 0.7, 0.6], [0.6, 0.2, 0.5], [0.4, 0.5, 0.2]])  # a front of three objectives

coordinates = st.floats(0.0, 1.2)
points = arrays(float, (2,), elements=coordinates)
fronts = arrays(float, st.tuples(st.integers(0, 6), st.just(2)), elements=coordinates)


def added(front, point, reference_point):
    """By definition."""
    return hypervolume(np.vstack([front, point]), reference_point) - hypervolume(front, reference_point)


def simulated(mean, deviation, front, reference_point, draws=4000):
    """Mean of what random points add, and the standard error of that."""
    drawn = np.random.default_rng(0).normal(mean, deviation, size=(draws, len(mean)))
    gains = [added(front, point, reference_point) for point in drawn]
    return np.mean(gains), np.std(gains) / draws**0.5


@pytest.mark.parametrize("front", [FRONT, FRONT[:1], FRONT[:0]], ids=["three", "one", "none"])
@pytest.mark.parametrize(
    ("mean", "deviation"),
    [([0.2, 0.4], [0.1, 0.1]), ([0.5, 0.5], [0.2, 0.05]), ([0.05, 1.1], [0.01, 0.3]), ([0.9, 0.9], [0.3, 0.3])],
)
def test_the_gain_of_two_objectives_is_what_random_points_add(front, mean, deviation):
    """Within five standard errors: by chance it fails once in a million seeds."""
    (exact,) = expected_improvement(np.array([mean]), np.array([deviation]), front, CORNER)
    estimate, error = simulated(mean, deviation, front, CORNER)
    assert exact == pytest.approx(estimate, abs=5 * error)


@given(points, fronts)
def test_a_point_that_is_certain_gains_the_hypervolume_that_it_adds(point, front):
    (gain,) = expected_improvement(point[None], np.full((1, 2), 1e-9), front, CORNER)
    assert gain == pytest.approx(added(front, point, CORNER), abs=1e-8)


@given(fronts, points, st.randoms(use_true_random=False))
def test_the_gain_depends_on_the_front_alone_and_not_on_how_it_is_told(front, extra, random):
    """Not on its order, on copies, on dominated points, nor on points beyond the reference point."""
    mean, deviation = np.array([[0.4, 0.4]]), np.array([[0.2, 0.3]])
    told = [*front, *front[:1], *(front[:1] + 0.1), [1.5, 0.0], [0.0, 1.5]]
    random.shuffle(told)
    gain, again = (
        expected_improvement(mean, deviation, np.array(f).reshape(-1, 2), CORNER) for f in (list(front), told)
    )
    assert again == pytest.approx(gain, abs=1e-12)
    assert expected_improvement(mean, deviation, np.vstack([front, extra]), CORNER) <= gain + 1e-12


@pytest.mark.parametrize(("front", "corner"), [(FRONT, CORNER), (BOX, np.ones(3))], ids=["two", "three"])
def test_nothing_is_gained_beyond_the_reference_point_or_behind_the_front(front, corner):
    width = len(corner)
    beyond = np.full(width, 0.1)
    beyond[0] = 1.1
    means = np.array([beyond, front[1] + 0.05, front[1] - 0.05])
    gains = expected_improvement(means, np.full((3, width), 1e-3), front, corner)
    assert gains[:2] == pytest.approx([0.0, 0.0], abs=1e-9)
    assert gains[2] > 1e-6


@pytest.mark.parametrize("width", [2, 3])
def test_with_no_front_yet_the_better_point_gains_more(width):
    means = np.linspace(0.9, 0.1, 5)[:, None] * np.ones(width)
    gains = expected_improvement(means, np.full(means.shape, 0.1), np.empty((0, width)), np.ones(width))
    assert (np.diff(gains) > 0).all()


def test_with_no_front_yet_two_objectives_gain_a_rectangle():
    means, deviations = np.array([[0.3, 0.8], [2.0, 0.5]]), np.array([[0.2, 0.1], [0.5, 0.5]])
    sides = expected_excess(CORNER, means, deviations)
    assert expected_improvement(means, deviations, FRONT[:0], CORNER) == pytest.approx(sides.prod(axis=1))


@pytest.mark.parametrize("front", [BOX, BOX[:1], BOX[:0]], ids=["three", "one", "none"])
@pytest.mark.parametrize(
    ("mean", "deviation"), [([0.2, 0.4, 0.4], [0.1, 0.2, 0.1]), ([0.9, 0.1, 0.8], [0.3, 0.02, 0.2])]
)
def test_the_gain_of_three_objectives_is_what_random_points_add(front, mean, deviation):
    (exact,) = expected_improvement(np.array([mean]), np.array([deviation]), front, np.ones(3))
    estimate, error = simulated(mean, deviation, front, np.ones(3))
    assert exact == pytest.approx(estimate, abs=5 * error)


def test_of_four_objectives_points_are_ordered_as_by_what_random_points_add():
    """Thirty points around a front; ranks agree to 0.95 (Spearman's correlation by chance: 0)."""
    rng = np.random.default_rng(3)
    front = np.hstack([BOX, [[0.3], [0.6], [0.5]]])
    means, deviations = rng.uniform(0.1, 1.0, (30, 4)), rng.uniform(0.02, 0.3, (30, 4))
    gains = expected_improvement(means, deviations, front, np.ones(4))
    wanted = [simulated(m, d, front, np.ones(4), draws=500)[0] for m, d in zip(means, deviations, strict=True)]
    first, second = (np.argsort(np.argsort(values)) for values in (gains, wanted))
    assert np.corrcoef(first, second)[0, 1] > 0.95


def test_the_gain_does_not_depend_on_which_objective_is_named_first():
    means, deviations = np.array([[0.2, 0.4], [0.5, 0.1]]), np.array([[0.1, 0.3], [0.2, 0.2]])
    gains = expected_improvement(means, deviations, FRONT, CORNER)
    assert expected_improvement(means[:, ::-1], deviations[:, ::-1], FRONT[:, ::-1], CORNER) == pytest.approx(gains)


numbers = st.floats(-10, 10)


@settings(deadline=None)
@given(numbers, numbers, st.floats(1e-3, 10))
def test_what_is_below_less_what_is_above_is_the_distance_to_the_mean(bound, mean, deviation):
    """E max(b - X, 0) - E max(X - b, 0) = b - E X, and the two are mirror images."""
    below = expected_excess(np.array(bound), np.array(mean), np.array(deviation))
    above = expected_excess(-np.array(bound), -np.array(mean), np.array(deviation))
    assert below - above == pytest.approx(bound - mean, abs=1e-9)
    assert min(below, above) >= -1e-12


def test_what_is_certain_is_below_by_its_distance_or_not_at_all():
    bounds, means = np.array([1.0, 1.0]), np.array([0.25, 3.0])
    assert expected_excess(bounds, means, np.full(2, 1e-9)) == pytest.approx([0.75, 0.0])


def test_the_estimate_for_many_objectives_has_the_unit_of_the_exact_gain():
    from search.advisor.acquisition import _by_slabs, _scalarized

    means, deviations = np.array([[0.3, 0.3, 0.3], [0.2, 0.4, 0.3]]), np.full((2, 3), 0.05)
    exact = _by_slabs(means, deviations, BOX, np.ones(3))
    assert _scalarized(means, deviations, BOX, np.ones(3)) == pytest.approx(exact, rel=0.2)


def test_the_gain_of_a_point_does_not_depend_on_the_others_that_are_asked_for():
    front, corner = np.array([[0.1, 0.7, 0.6, 0.5], [0.6, 0.2, 0.5, 0.5]]), np.ones(4)
    means = np.array([[0.3, 0.3, 0.3, 0.3], [-2.0, -2.0, -2.0, -2.0]])
    alone = expected_improvement(means[:1], np.full((1, 4), 0.1), front, corner)
    together = expected_improvement(means, np.full((2, 4), 0.1), front, corner)
    assert alone[0] == pytest.approx(together[0])
