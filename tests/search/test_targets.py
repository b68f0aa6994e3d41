"""Objectives of the form "seconds until val_accuracy is 0.9"."""

import math
from typing import Any

import pytest

from search.front.targets import Target, target_of, with_targets
from search.space.parsing import parse_space
from search.space.validation import SpaceError

TIME = Target("seconds", "val_accuracy", 0.9)
ENERGY = Target("joules", "val_loss", 0.25)


def space(*objectives: Any, **more: Any) -> Any:
    return parse_space(
        {
            "trainable": "vgg19_cifar10",
            "objectives": [*objectives],
            "parameters": {"batch_size": {"values": [64, 128]}},
            "budget": {"trials": 4, "epochs": 3},
            **more,
        }
    )


RATE = {"metric": "images_per_second", "goal": "maximize"}


@pytest.mark.parametrize(
    "target",
    [
        TIME,
        ENERGY,
        Target("seconds", "val_loss", -1.5),
        Target("joules", "val_x", 1e-7),
        Target("seconds", "val_loss", 12345678.0),
    ],
)
def test_the_name_of_a_target_says_it_all(target: Target) -> None:
    assert target_of(target.name) == target


def test_other_metrics_are_no_targets() -> None:
    assert [target_of(name) for name in ("val_accuracy", "seconds_to_", "epoch_seconds", "seconds_to_go")] == [None] * 4


def test_a_space_file_names_targets_by_their_metric_and_value() -> None:
    found = space({"time_to": {"val_accuracy": 0.9}}, {"energy_to": {"val_loss": 0.25}}, RATE)
    assert [(o.metric, o.goal) for o in found.objectives[:2]] == [
        ("seconds_to_val_accuracy_0.9", "minimize"),
        ("joules_to_val_loss_0.25", "minimize"),
    ]
    assert [str(c) for c in found.stated_constraints] == ["best_val_accuracy >= 0.9", "best_val_loss <= 0.25"]
    assert found.known_metrics["seconds_to_val_accuracy_0.9"].unit == "s"
    assert not any(map(found.is_probed, found.objectives[:2]))
    assert parse_space(found.to_mapping()) == found


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ({"time_to": {"val_acuracy": 0.9}}, 'reports no "val_acuracy"; did you mean "val_accuracy"'),
        (
            {"time_to": {"images_per_second": 0.9}},
            "images_per_second does not say how well a training learned; use one of val_accuracy",
        ),
        (
            {"time_to": {"val_accuracy": "high"}},
            "objectives[0]: found a mapping; expected a finite number to reach, as in {time_to: {val_accuracy: 0.9}}",
        ),
        ({"time_to": 0.9}, "expected time_to: {METRIC: NUMBER}, as in {time_to: {val_accuracy: 0.9}}"),
        ({"energy_to": {}}, "expected energy_to: {METRIC: NUMBER}"),
        (
            {"time_to": {"val_accuracy": 0.9}, "goal": "maximize"},
            "expected {time_to: {val_accuracy: 0.9}} alone, which is always minimized; leave out goal",
        ),
        ({"time_too": {"val_accuracy": 0.9}}, 'unknown key "time_too"; did you mean "time_to"?'),
        ({"tim_to": {"val_accuracy": 0.9}}, "tim_to"),
    ],
)
def test_a_mistake_is_one_line(objective: Any, message: str) -> None:
    with pytest.raises(SpaceError) as raised:
        space(objective, RATE)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_probe_measures_no_target() -> None:
    with pytest.raises(SpaceError, match="a probe does not measure seconds_to_val_accuracy"):
        space({"time_to": {"val_accuracy": 0.9}}, RATE, evaluation="probe")


def test_seconds_add_up_until_the_value_is_reached() -> None:
    """Then they stay, also when the metric gets worse again; before, they are what was spent so far."""
    metrics: dict[str, float] = {}
    found = []
    for accuracy in (0.5, 0.91, 0.8):
        epoch = {"val_accuracy": accuracy, "epoch_seconds": 10.0}
        metrics = with_targets([(TIME, False)], metrics, epoch)
        found.append((metrics[TIME.name], metrics["best_val_accuracy"]))
    assert found == [(10.0, 0.5), (20.0, 0.91), (20.0, 0.91)]


def test_joules_come_from_the_rate_and_the_units_per_joule() -> None:
    epoch = {
        "val_loss": 0.2,
        "epoch_seconds": 10.0,
        "tokens_per_second": 50.0,
        "tokens_per_second_low": 40.0,
        "tokens_per_joule": 5.0,
    }
    metrics = with_targets([(ENERGY, True)], {}, epoch)
    assert metrics[ENERGY.name] == pytest.approx(100.0)
    del epoch["tokens_per_joule"]
    assert math.isnan(with_targets([(ENERGY, True)], {}, epoch)[ENERGY.name])


def test_no_trial_is_stopped_by_a_forecast_of_seconds() -> None:
    assert space({"time_to": {"val_accuracy": 0.9}}, RATE, budget={"hours": 1, "epochs": 3}).stopping_rule == "none"


def test_energy_that_was_not_measured_in_one_epoch_stays_unknown() -> None:
    epoch = {"val_loss": 0.9, "epoch_seconds": 10.0, "tokens_per_second": 50.0, "tokens_per_second_low": 40.0}
    first = with_targets([(ENERGY, True)], {}, epoch)
    finite = {name: value for name, value in first.items() if math.isfinite(value)}  # as the Advisor keeps them
    second = with_targets([(ENERGY, True)], finite, {**epoch, "tokens_per_joule": 5.0})
    assert math.isnan(second[ENERGY.name])
