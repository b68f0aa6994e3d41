import csv

import pytest
import record_table
from problems import space_mapping
from record_table import FILES, Task, tasks
from vgg19_table import ACCURACY, RATE, SPACE, Vgg19Table, active_parameters, configs, key

from search.space.parsing import parse_space

CONFIG = {"batch_size": 64, "learning_rate": 0.1, "precision": "bf16", "loader": "memory", "strategy": "single"}


@pytest.fixture
def folder(tmp_path):
    """A table in which the rate is batch size x threads, and the accuracy 0.1 x learning rate x epoch."""
    with (tmp_path / "vgg19-rates.csv").open("w") as file:
        writer = csv.writer(file)
        writer.writerow((*RATE, "images_per_second", "probe_seconds"))
        for row in {key(config, RATE) for config in configs()}:
            writer.writerow((*row, int(row[0]) * int(row[-1] or 2), 5.0))
    with (tmp_path / "vgg19-curves.csv").open("w") as file:
        writer = csv.writer(file)
        writer.writerow((*ACCURACY, "epoch", "val_accuracy", "evaluation_seconds", "setup_seconds"))
        for row in {key(config, ACCURACY) for config in configs()}:
            for epoch in (1, 2):
                writer.writerow((*row, epoch, 0.1 * float(row[1]) * epoch, 0.5, 3.0))
    return tmp_path


def test_the_table_has_at_least_300_configurations_that_differ():
    assert len(configs()) == 5 * 5 * 2 * (1 + 3) * (2 + 1) == 600
    assert len({tuple(config.items()) for config in configs()}) == 600


def test_a_parameter_that_is_not_in_play_makes_no_difference():
    assert active_parameters({**CONFIG, "num_workers": 2, "threads": 1}) == active_parameters({**CONFIG, "threads": 1})


def test_a_curve_takes_setup_training_at_the_rate_of_its_setting_and_evaluation(folder):
    table = Vgg19Table(folder, train_images=1280)
    for threads, rate in ((1, 64.0), (2, 128.0)):
        seconds = 1280 / rate + 0.5
        curve = table.curve({**CONFIG, "threads": threads})
        assert curve == [(1, pytest.approx(0.01), rate, 3 + seconds), (2, pytest.approx(0.02), rate, 3 + 2 * seconds)]
    assert table.probe({**CONFIG, "threads": 2}) == (128.0, 5.0)


def test_the_whole_table_has_hypervolume_one_and_a_part_of_it_less(folder):
    table = Vgg19Table(folder)
    points = [table.final(config) for config in configs()]
    assert table.hv(points) == pytest.approx(1.0)
    assert 0 <= table.hv(points[:50]) < 1


def test_each_doubling_of_the_rate_adds_the_same_hypervolume(folder):
    table = Vgg19Table(folder)
    once, twice, four_times = (table.hv([(1.0, 2000.0 * factor)]) for factor in (1, 2, 4))
    assert twice - once == pytest.approx(four_times - twice)
    assert twice > once > 0


def test_each_setting_that_matters_is_recorded_once():
    every = tasks()
    counts = {kind: [key(task.config, FILES[kind][0]) for task in every if task.kind == kind] for kind in FILES}
    assert {kind: len(keys) for kind, keys in counts.items()} == {"curves": 50, "rates": 120, "checks": 20}
    assert all(len(set(keys)) == len(keys) for keys in counts.values())
    assert {key(config, RATE) for config in configs()} == set(counts["rates"])


def test_the_searcher_knows_which_settings_affect_the_accuracy_and_which_the_rate():
    space = parse_space(space_mapping(Vgg19Table(), budget={"trials": 1}))
    assert space.affecting("trained") == set(ACCURACY)
    assert space.affecting("probed") == set(RATE)
    assert [space.is_probed(objective) for objective in space.objectives] == [False, True]


def test_what_is_recorded_is_not_recorded_again(tmp_path):
    task = next(task for task in tasks() if task.kind == "rates")
    row = dict.fromkeys(FILES["rates"][1], 1.0)
    assert not record_table._done(tmp_path, task)
    record_table._append(tmp_path, task, [row])
    assert record_table._done(tmp_path, task)
    other = next(size for size in SPACE["batch_size"] if size != task.config["batch_size"])
    assert not record_table._done(tmp_path, Task("rates", {**task.config, "batch_size": other}))
