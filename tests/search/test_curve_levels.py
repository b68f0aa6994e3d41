import numpy as np
import pytest

from search.advisor.curve_levels import PRIOR_TRIALS, curve_levels


def measured(table):
    """Trials, progress and values of {trial: {progress: value}}."""
    rows = [(trial, progress, value) for trial, curve in table.items() for progress, value in curve.items()]
    trials, progress, values = zip(*rows, strict=True)
    return list(trials), np.array(progress), np.array(values)


def at_last_stage(table):
    trials, progress, values = measured(table)
    levels, spreads, _ = curve_levels(trials, progress, values)
    return dict(zip(zip(trials, progress.tolist(), strict=True), (values - levels) / spreads, strict=True))


def test_values_at_the_last_stage_stay_as_they_are():
    assert at_last_stage({"a": {1.0: 3.0}, "b": {1.0: -2.0}}) == {("a", 1.0): 3.0, ("b", 1.0): -2.0}


def test_one_whole_curve_tells_how_much_all_others_will_change():
    found = at_last_stage({"a": {0.2: 10.0, 0.5: 6.0, 1.0: 5.0}, "b": {0.2: 11.0}, "c": {0.2: 9.0, 0.5: 4.0}})
    assert found["b", 0.2] == pytest.approx(5.5)  # from 0.2 to 0.5 they fell by 4.5 in the mean, then by 1
    assert found["c", 0.5] == pytest.approx(3.0)


def test_that_only_the_better_ones_go_on_does_not_move_the_level():
    table = {f"{i}": {0.1: float(i), **({1.0: i - 7.0} if i < 3 else {})} for i in range(20)}
    assert at_last_stage(table)["19", 0.1] == pytest.approx(12.0)


def test_differences_that_shrink_with_the_epochs_are_drawn_together():
    few, many = (at_last_stage({f"{i}": {0.1: 10.0 * i, 1.0: float(i)} for i in range(n)}) for n in (4, 400))
    assert many["9", 0.1] - many["0", 0.1] == pytest.approx(9.0, rel=0.05)
    exponent = 3 / (3 + PRIOR_TRIALS)
    assert few["3", 0.1] - few["2", 0.1] == pytest.approx(10.0 / 10.0**exponent)


def test_a_stage_that_shares_no_trial_with_a_later_one_stays_as_it_is():
    found = at_last_stage({"a": {0.1: 7.0}, "b": {0.5: 4.0, 1.0: 1.0}})
    assert found["a", 0.1] == 7.0
    assert found["b", 0.5] == pytest.approx(1.0)


def test_equal_curves_have_no_spread_to_compare():
    found = at_last_stage({f"{i}": {0.1: 2.0, 1.0: 1.0} for i in range(5)})
    assert set(found.values()) == {1.0}


def errors_of(table):
    trials, progress, values = measured(table)
    return dict(
        zip(zip(trials, progress.tolist(), strict=True), curve_levels(trials, progress, values)[2], strict=True)
    )


def test_a_stage_at_which_the_order_is_another_one_says_little_about_the_end():
    start, end = np.random.default_rng(0).normal(size=(2, 400))
    found = errors_of({f"{i}": {0.1: start[i], 0.5: 10 * end[i], 1.0: end[i]} for i in range(400)})
    assert found["0", 0.1] == pytest.approx(2**0.5, rel=0.1)  # the deviation of a difference of two, each of 1
    assert found["0", 0.5] == pytest.approx(0.0, abs=0.05)
    assert found["0", 1.0] == 0.0


def test_the_errors_of_stages_add_up_until_the_end():
    first, second, end = np.random.default_rng(0).normal(size=(3, 400))
    found = errors_of({f"{i}": {0.1: first[i], 0.5: second[i], 1.0: end[i]} for i in range(400)})
    assert found["0", 0.1] == pytest.approx(2.0, rel=0.1)
    assert found["0", 0.5] == pytest.approx(2**0.5, rel=0.1)


def test_the_fewer_trials_there_are_the_less_is_known_of_an_error():
    assert errors_of({"a": {0.1: 1.0, 1.0: 5.0}}) == {("a", 0.1): 0.0, ("a", 1.0): 0.0}
    two = errors_of({"a": {0.1: 1.0, 1.0: 2.0}, "b": {0.1: 2.0, 1.0: 1.0}})
    assert two["a", 0.1] == pytest.approx((2 / (2 + PRIOR_TRIALS - 2)) ** 0.5)
