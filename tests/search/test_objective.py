import math

import pytest

from search.front.objective import Constraint, Objective, losses, measured

ACCURACY = Objective("val_accuracy", "maximize")
SECONDS = Objective("seconds", "minimize")


def test_a_better_value_has_a_lower_loss():
    assert ACCURACY.loss(0.9) < ACCURACY.loss(0.8)
    assert SECONDS.loss(3.0) < SECONDS.loss(4.0)


def test_losses_has_a_row_for_each_trial_and_a_column_for_each_objective():
    rows = [{"val_accuracy": 0.5, "seconds": 2.0, "epoch": 7.0}, {"seconds": 1.0, "val_accuracy": 0.25}]
    assert losses(rows, [ACCURACY, SECONDS]).tolist() == [[-0.5, 2.0], [-0.25, 1.0]]


def test_no_rows_make_a_table_of_no_rows():
    assert losses([], [ACCURACY, SECONDS]).shape == (0, 2)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_only_finite_values_are_measured(value):
    assert measured({"val_accuracy": 0.5, "seconds": 1.0}, [ACCURACY, SECONDS])
    assert not measured({"val_accuracy": 0.5, "seconds": value}, [ACCURACY, SECONDS])
    assert not measured({"val_accuracy": 0.5}, [ACCURACY, SECONDS])


@pytest.mark.parametrize(
    ("text", "value", "violation"),
    [
        (Constraint("memory", "<=", 0.9), 1.0, 0.1),
        (Constraint("memory", "<=", 0.9), 0.9, 0.0),
        (Constraint("rate", ">=", 100.0), 80.0, 20.0),
        (Constraint("rate", ">=", 100.0), 130.0, -30.0),
    ],
)
def test_violation_is_positive_beyond_the_bound_only(text, value, violation):
    assert text.violation(value) == pytest.approx(violation)


@pytest.mark.parametrize(
    ("bound", "value", "excess"),
    [
        (Constraint("memory", "<=", 0.5), 1.0, math.log(2)),
        (Constraint("memory", "<=", 0.5), 0.5, 0.0),
        (Constraint("rate", ">=", 100.0), 200.0, -math.log(2)),
        (Constraint("rate", ">=", 100.0), 1e-9, 4.0),
        (Constraint("gain", ">=", -1.0), -2.0, 0.5),
        (Constraint("gain", "<=", 0.0), 3.0, 0.75),
        (Constraint("memory", "<=", 0.5), 0.0, -0.5),
    ],
)
def test_excess_is_without_unit_and_has_the_sign_of_the_violation(bound, value, excess):
    assert bound.excess(value) == pytest.approx(excess)
    assert math.copysign(1, bound.excess(value)) == math.copysign(1, bound.violation(value))


def test_a_bound_in_parts_of_the_baseline_is_known_with_it():
    half = Constraint("rate", ">=", 0.5, of_baseline=True)
    assert half.given({"rate": 80.0}) == Constraint("rate", ">=", 40.0)
    assert half.given({"rate": math.nan}) is half.given({}) is None
    assert str(half) == "rate >= 0.5 * baseline"


def test_a_constraint_reads_as_it_is_written_in_a_space_file():
    assert str(Constraint("peak_memory_fraction", "<=", 0.9)) == "peak_memory_fraction <= 0.9"
