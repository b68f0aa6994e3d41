import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from search.front.pareto import MOST_EXTENT, hypervolume, is_pareto_optimal, knee, pareto_rank, reference_point

SIDE = 6  # points lie on the integer grid 0..5
points = hnp.arrays(
    float, st.tuples(st.integers(1, 12), st.integers(1, 4)), elements=st.integers(0, SIDE - 1).map(float)
)
NAN = np.array([[np.nan, 1.0], [0.0, 0.0]])
NOTHING = np.empty((0, 2))


def dominates(p, q):
    return all(a <= b for a, b in zip(p, q, strict=True)) and any(a < b for a, b in zip(p, q, strict=True))


@given(points)
def test_front_is_what_no_point_dominates(losses):
    assert is_pareto_optimal(losses).tolist() == [not any(dominates(p, q) for p in losses) for q in losses]


@given(points, st.randoms())
def test_front_does_not_depend_on_order(losses, random):
    order = random.sample(range(len(losses)), len(losses))
    assert is_pareto_optimal(losses[order]).tolist() == is_pareto_optimal(losses)[order].tolist()


@given(points)
def test_rank_counts_the_fronts_peeled_off_before(losses):
    expected, left, rank = np.full(len(losses), -1), np.arange(len(losses)), 0
    while len(left):
        front = is_pareto_optimal(losses[left])
        expected[left[front]] = rank
        left, rank = left[~front], rank + 1
    assert pareto_rank(losses).tolist() == expected.tolist()


@given(points)
def test_hypervolume_counts_the_grid_cells_that_some_point_dominates(losses):
    cells = np.array(list(itertools.product(range(SIDE), repeat=losses.shape[1])))
    dominated = (losses[:, None] <= cells[None]).all(axis=-1).any(axis=0)
    assert hypervolume(losses, np.full(losses.shape[1], float(SIDE))) == pytest.approx(dominated.sum())


@pytest.mark.parametrize("steps", range(1, 30))
def test_hypervolume_of_a_staircase(steps):
    stairs = np.stack([np.arange(steps), np.arange(steps)[::-1]], axis=1).astype(float)
    assert hypervolume(stairs, np.full(2, float(steps))) == pytest.approx(steps * (steps + 1) / 2)


def test_points_not_better_than_the_reference_add_nothing():
    assert hypervolume(np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 3.0]]), np.array([2.0, 2.0])) == 1.0


def test_a_point_is_its_own_knee():
    assert knee(np.array([[3.0, 4.0]])) == 0


def test_of_two_ends_the_first_is_the_knee():
    assert knee(np.array([[0.0, 1.0], [1.0, 0.0]])) == 0


def test_of_two_ends_the_knee_lacks_less_of_what_points_usually_lack():
    """The second lacks 2 of the usual 42 in the first objective, the other 8 of the usual 100 in the second."""
    losses = np.array([[-53.0, 108.0], [-51.0, 100.0], [-11.0, 200.0], [-10.0, 250.0], [-11.0, 190.0]])
    assert knee(losses) == 1


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_bend_of_a_front_is_its_knee_in_any_unit(scale):
    bent = np.array([[0.0, 1.0], [0.1, 0.7], [0.2, 0.2], [0.7, 0.1], [1.0, 0.0]])
    assert knee(bent * [1.0, scale]) == 2


@given(points)
def test_the_knee_is_on_the_front(losses):
    assert is_pareto_optimal(losses)[knee(losses)]


@given(points)
def test_every_point_is_better_than_the_reference_point_unless_it_is_far_off(losses):
    best = losses.min(axis=0)
    near = losses - best <= MOST_EXTENT * (np.median(losses, axis=0) - best)
    assert ((losses < reference_point(losses)) | ~near).all()
    assert (losses < reference_point(losses)).any(axis=0).all()


def with_diverged(front, loss=3.4e4):
    """One more point, which is 1% faster than any other."""
    return np.vstack([front, [loss, 1.01 * front[:, 1].min()]])


def test_a_training_that_diverged_decides_neither_the_knee_nor_the_reference_point():
    losses = [0.30, 0.31, 0.32, 0.34, 0.37, 0.42, 0.50, 0.65, 1.0, 1.9]
    rates = [100, 130, 150, 165, 175, 182, 188, 192, 196, 198]
    front = np.column_stack([losses, np.negative(rates)])
    assert knee(with_diverged(front)) == knee(front) == 6
    assert reference_point(with_diverged(front))[0] < 5


def test_reference_point_is_a_tenth_of_the_range_beyond_the_worst():
    assert reference_point(np.array([[0.0, -5.0], [10.0, -5.0]])) == pytest.approx([11.0, -4.5])


@pytest.mark.parametrize("function", [is_pareto_optimal, pareto_rank, knee, reference_point])
def test_nan_has_no_place_on_a_front(function):
    with pytest.raises(ValueError, match="NaN"):
        function(NAN)
    with pytest.raises(ValueError, match="NaN"):
        hypervolume(NAN, np.ones(2))


def test_nothing_has_an_empty_front_and_no_volume():
    assert is_pareto_optimal(NOTHING).shape == pareto_rank(NOTHING).shape == (0,)
    assert hypervolume(NOTHING, np.ones(2)) == 0.0


@pytest.mark.parametrize("function", [knee, reference_point])
def test_nothing_has_no_knee_and_no_reference(function):
    with pytest.raises(ValueError, match="no points"):
        function(NOTHING)
