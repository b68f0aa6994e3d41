"""Two runs beside each other: what is told of their fronts, their rates and their differences, and what is refused."""

import math

import pytest

from search.compare.__main__ import main
from search.compare.comparison import (
    Reading,
    Shared,
    differences,
    hypervolumes,
    mean_ratio,
    not_comparable,
    shared,
    sides,
    together,
)
from search.compare.tables import comparison
from search.results import load
from tests.search.runs import INFO, Recorder, config, interval, story, write_run
from tests.search.test_selection import measured, recorded

CLOUD = {**INFO["machine"], "cpu_name": "Xeon E5-2678", "cores": 12, "gpus": [{"name": "RTX", "memory_gib": 11.0}]}


def cloud(**changed):
    """Another machine: of the story's configurations some, trained elsewhere with other learning rates."""
    recorder = Recorder(**{"name": "cloud", "machine": CLOUD, "commit": "fff0000", **changed})
    for n, (accuracy, rate, settings) in enumerate(
        (
            (0.70, 270.0, config(64, 0.02, precision="fp32")),  # that of t0003
            (0.69, 528.0, config(128, 0.03)),  # that of t0007, with another learning rate
            (0.55, 401.0, config(512, 0.2)),  # that of t0011, likewise
        ),
        start=1,
    ):
        recorder.complete(f"t{n:04d}", [0.3, 0.4, accuracy], rate, settings)
    return recorder.events


@pytest.fixture
def folders(tmp_path):
    return [write_run(tmp_path / "local", story(name="local")), write_run(tmp_path / "cloud", cloud())]


def named(*folders):
    return sides([load(folder) for folder in folders])


def told(capsys, *words):
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


def flat(text):
    return " ".join(text.split())


def test_a_rate_is_the_one_that_the_run_itself_has(tmp_path):
    """Settled by turns, with a question mark where no interval is known."""
    recorder = Recorder(name="one", constraints=[])
    for trial_id, size, rate in (("t0001", 64, 100.0), ("t0002", 128, 110.0), ("t0003", 256, 90.0)):
        recorder.start(trial_id, **config(size))
        recorder.measure(trial_id, 3, val_accuracy=0.5, images_per_second=rate)
        recorder.finish(trial_id)
    for _ in range(12):
        recorder.add("turn", trial_id="t0001", other="t0002", rates=[100.0, 200.0])
    folders = [
        write_run(tmp_path / name, [{**recorder.events[0], "name": name}, *recorder.events[1:]]) for name in "ab"
    ]
    run = load(folders[0])
    rows = {row.config["batch_size"]: row for row in shared(named(*folders), "images_per_second")}
    for size, trial in zip((64, 128, 256), run.state.trials.values(), strict=True):
        assert rows[size].readings["A"].value == trial.rate
    text = comparison(named(*folders))
    assert text.count("90.0 ± ?") == 2
    assert "1.00 ± ?" in text


def test_the_interval_of_what_may_be_below_zero_is_told_where_it_reaches_zero(tmp_path):
    recorder = Recorder(objectives=[{"metric": "val_r2", "goal": "maximize"}, INFO["objectives"][1]], constraints=[])
    recorder.start("t0001", **config())
    recorder.measure("t0001", 3, val_r2=0.1, val_r2_low=-0.1, val_r2_high=0.3, **interval(100.0, 2.0))
    recorder.finish("t0001")
    text = comparison(named(*(write_run(tmp_path / name, recorder.events) for name in "ab")))
    assert text.count("0.1000 ± 0.2") == 4  # of the front and of shared configurations
    assert "?" not in text


def test_a_legend_explains_only_marks_that_are_shown(tmp_path):
    """Of 17 configurations the last one, which has no room, has equal rates."""
    folders = []
    for name, factor in (("one", 1.0), ("two", 2.0)):
        recorder = Recorder(name=name, constraints=[])
        for number in range(1, 18):
            rate = (1000.0 - number) * (factor if number < 17 else 1.0)
            recorder.complete(f"t{number:04d}", [0.1, 0.2, 0.3], rate, config(number))
        folders.append(write_run(tmp_path / name, recorder.events))
    text = comparison(named(*folders))
    assert "and 1 more." in text
    assert "~" not in text


def test_rates_are_compared_where_only_what_bears_on_accuracy_differs(folders):
    rows = {row.config["batch_size"]: row for row in shared(named(*folders), "images_per_second")}
    assert sorted(rows) == [64, 128, 512]
    assert "learning_rate" not in rows[64].config
    assert rows[64].ratio("B", "A")[0] == pytest.approx(1.5)


def test_trials_that_are_one_configuration_for_the_rate_make_it_sharper_once(tmp_path):
    """Though each of them has the rate that they share."""
    runs = []
    for name in ("a", "b"):
        recorder = Recorder(name=name)
        recorder.complete("t0001", [0.5], 352.0, config(learning_rate=0.1))
        recorder.complete("t0002", [0.5], 353.0, config(learning_rate=0.2))
        runs.append(write_run(tmp_path / name, recorder.events))
    (row,) = shared(named(*runs), "images_per_second")
    reading = row.readings["A"]
    assert (reading.value, reading.trials) == (pytest.approx(352.5, rel=1e-5), 2)
    assert reading.half == pytest.approx(3.525 / 2**0.5, rel=0.01)


def test_the_interval_of_a_ratio_is_that_of_both_rates(folders):
    ratio, half = shared(named(*folders), "images_per_second")[-1].ratio("B", "A")
    assert (ratio, half) == (pytest.approx(1.5), pytest.approx(1.5 * (0.01**2 + 0.01**2) ** 0.5))


def test_accuracies_are_compared_where_everything_is_the_same_and_complete(folders):
    (row,) = shared(named(*folders), "val_accuracy")
    assert (row.config["batch_size"], row.config["learning_rate"]) == (64, 0.02)
    assert (row.readings["A"].value, row.readings["B"].value) == (0.71, 0.70)
    assert row.readings["A"].half == pytest.approx(1.96 * (0.71 * 0.29 / 5000) ** 0.5)


def test_runs_of_a_training_file_compare_wherever_they_and_it_lie(folders, tmp_path):
    runs = []
    for name, trainable in (("a", "../../train.py"), ("b", "../../../v2/train.py")):
        recorder = Recorder(name=name, trainable=trainable)
        runs.append(write_run(tmp_path / name, recorder.events))
    assert [side.letter for side in named(*runs)] == ["A", "B"]


def test_there_is_no_ratio_to_zero():
    row = Shared({}, {"A": Reading(0.0, 0.1, 1, False), "B": Reading(2.0, 0.1, 1, False)})
    assert math.isnan(row.ratio("B", "A")[0])
    assert row.ratio("A", "B") == (0.0, None)
    assert mean_ratio([row], "B", "A") is None


def test_a_contended_rate_counts_only_where_there_is_no_other(tmp_path):
    runs = []
    for name, contended in (("a", (1.0, 0.0)), ("b", (1.0, 1.0))):
        recorder = Recorder(name=name)
        for n, flag in enumerate(contended):
            recorder.start(f"t{n}", **config(64, 0.01 * (n + 1)))
            recorder.measure(f"t{n}", 1, val_accuracy=0.5, contended=flag, **interval(100.0 if flag else 200.0, 1.0))
            recorder.finish(f"t{n}")
        runs.append(write_run(tmp_path / name, recorder.events))
    (row,) = shared(named(*runs), "images_per_second")
    assert (row.readings["A"].value, row.readings["A"].contended) == (pytest.approx(200.0), False)
    assert (row.readings["B"].value, row.readings["B"].contended) == (pytest.approx(100.0), True)


def test_hypervolumes_have_one_reference_point_and_none_is_more_than_all_together(folders):
    (a, b, whole), point = hypervolumes(named(*folders))
    assert 0 < min(a, b) <= max(a, b) <= whole
    assert point == [pytest.approx(0.58 - 0.013), pytest.approx(180 - 34.8)]  # of both, a tenth of the range beyond
    alone = hypervolumes(named(folders[0], folders[0]))
    assert alone[0][0] == alone[0][1] == alone[0][2]


def test_trainings_with_other_seeds_do_not_lower_the_hypervolume_of_their_run(tmp_path):
    """Two equal runs; the second trained its best trials again, which were lucky."""
    a, b = recorded(), recorded(0.69, 0.71, 0.70, 0.705)
    for name in ("t0010", "t0012"):
        b.add("again", trial_id=name, seed=1, metrics=measured(0.70))
    folders = [write_run(tmp_path / name, recorder.events) for name, recorder in (("a", a), ("b", b))]
    (of_a, of_b, _), _ = hypervolumes(named(*folders))
    assert of_b == pytest.approx(of_a)


def test_where_all_runs_know_the_spread_between_seeds_luck_does_not_count(tmp_path):
    recorders = recorded(0.69, 0.71, 0.70, 0.705), recorded(0.69, 0.71, 0.70, 0.705)
    folders = [write_run(tmp_path / name, each.events) for name, each in zip("ab", recorders, strict=True)]
    _, (worst, _) = hypervolumes(named(*folders))
    assert worst < 0.71 < load(folders[0]).state.front()[0].metrics["val_accuracy"]


def test_together_has_the_points_that_no_other_run_beats(folders):
    assert [(side.letter, trial.trial_id) for side, trial in together(named(*folders))] == [
        ("A", "t0003"),
        ("A", "t0007"),
        ("B", "t0002"),
    ]


def test_the_mean_ratio_is_geometric(folders):
    rows = shared(named(*folders), "images_per_second")
    mean, low, high, size = mean_ratio(rows, "B", "A")
    assert (low, high, size) == (1.0, pytest.approx(1.5), 3)
    assert mean == pytest.approx((1.5 * 528 / 352) ** (1 / 3), rel=1e-4)


def test_what_differs_is_named_and_what_does_not_is_told_in_a_line(folders):
    different, same = differences(named(*folders))
    assert different["processor"] == ["Intel(R) Xeon(R) Processor", "Xeon E5-2678"]
    assert set(different) == {"processor", "cores", "GPUs", "commit"}
    assert {"versions", "data", "epochs", "searched parameters"} <= set(same)


def test_a_version_that_differs_is_told_apart_from_the_others(tmp_path, folders):
    newer = write_run(tmp_path / "newer", cloud(versions={**INFO["versions"], "torch": "3.0"}))
    different, same = differences(named(folders[0], newer))
    assert different["torch's version"] == ["2.15.0", "3.0"]
    assert "other versions" in same


def test_the_comparison_tells_it_all_in_80_columns(capsys, folders):
    code, out, err = told(capsys, *folders)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    text = flat(out)
    for fact in (
        "| A | local | 6 | 3 points |",
        "rates are from different machines",
        "Accuracies compare: data and epochs are equal.",
        "images_per_second (↑) †",
        "Common front: 3 points, 2 of A and 1 of B:",
        "| batch=64 fp32 | 180 ± 1.8 | 270 ± 2.7 | 1.50 ± 0.02 |",
        "1.00 ± 0.01 ~",
        "B reaches 1.31 times the images_per_second of A** (over 3 shared configurations; single ones: 1.00 to 1.50)",
        "A: Intel(R) Xeon(R) Processor - B: Xeon E5-2678",
        "GPUs - A: none - B: RTX (11 GiB)",
    ):
        assert fact in text


def test_accuracies_of_other_data_or_epochs_are_said_not_to_compare(tmp_path, capsys, folders):
    data = {"name": "folder", "description": "folder of pictures: 1,000 train"}
    other = write_run(tmp_path / "other", cloud(data=data))
    assert not_comparable(named(folders[0], other))[0].startswith("the data differ (A: cifar10:")
    text = flat(told(capsys, folders[0], other)[1])
    assert "**Accuracies do not compare**: the data differ" in text
    assert "val_accuracy of shared configurations" not in text
    recorder = Recorder(name="short")
    recorder.complete("t0001", [0.5], 100.0, config())
    short = write_run(tmp_path / "short", recorder.events)
    assert not_comparable(named(folders[0], short)) == ["the epochs differ (A: 3 epochs, B: 1 epoch)"]


def test_a_comparison_of_three_runs_has_each_beside_the_first(capsys, tmp_path, folders):
    third = write_run(tmp_path / "third", cloud(name="third"))
    out = told(capsys, *folders, third)[1]
    assert "B / A" in out
    assert "C / A" in out
    assert max(map(len, out.splitlines())) <= 80


def test_settings_that_do_not_fit_beside_the_rates_have_a_table_of_their_own(capsys, tmp_path):
    runs = []
    for name in ("a", "b"):
        recorder = Recorder(name=name)
        for n in (1, 2):
            settings = {f"parameter_number_{letter}": n for letter in "abcdef"}
            recorder.complete(f"t{n:04d}", [0.5], 100.0 * n, config(**settings))
        runs.append(write_run(tmp_path / name, recorder.events))
    out = told(capsys, *runs)[1]
    assert max(map(len, out.splitlines())) <= 80
    assert "| no. | parameter_number_a |" in out


def test_a_run_without_a_front_can_be_compared(capsys, tmp_path, folders):
    empty = write_run(tmp_path / "empty", Recorder(name="empty").events)
    code, out, _ = told(capsys, folders[0], empty)
    assert code == 0
    assert "No configuration was measured in two runs." in out
    assert told(capsys, empty, empty)[0] == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"objectives": [INFO["objectives"][0], {"metric": "peak_memory_gib", "goal": "minimize"}]},
            "B (cloud) is to maximize val_accuracy and minimize peak_memory_gib, and A to maximize val_accuracy and "
            "maximize images_per_second; only runs with the same objectives can be compared",
        ),
        ({"trainable": "replay"}, "B (cloud) trains replay, and A vgg19_cifar10; only runs of one trainable"),
    ],
)
def test_runs_of_other_questions_are_refused(capsys, tmp_path, folders, changed, message):
    code, out, err = told(capsys, folders[0], write_run(tmp_path / "b", cloud(**changed)))
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_one_run_and_a_figure_of_no_known_kind_are_refused(capsys, tmp_path, folders):
    assert "found 1 run; expected 2 to 8" in told(capsys, folders[0])[2]
    code, _, err = told(capsys, *folders, "--figure", tmp_path / "fronts.doc")
    assert (code, "expected a name that ends in .png, .svg, .pdf" in err) == (2, True)
    code, _, err = told(capsys, *folders, "--figure", tmp_path / "nowhere" / "a.png")
    assert (code, "a.png: there is no folder " in err) == (2, True)
    assert told(capsys, folders[0], tmp_path)[0] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cloud", "local"]


def test_what_was_compared_is_told_where_nothing_can_be_drawn(capsys, tmp_path, folders):
    empty = [write_run(tmp_path / name, [{**story()[0], "name": name}]) for name in ("one", "two")]
    (tmp_path / "folder.png").mkdir()
    for runs, path, reason in (
        (empty, "a.png", "Not drawn: "),
        (folders, "folder.png", "Is a directory"),
    ):
        code, out, err = told(capsys, *runs, "--figure", tmp_path / path)
        assert (code, err) == (0, "")
        assert "## What differs" in out
        assert reason in flat(out)


def test_a_run_with_one_objective_is_refused(capsys, tmp_path, folders):
    recorder = Recorder(objectives=[{"metric": "val_accuracy", "goal": "maximize"}])
    recorder.complete("t0001", [0.5], 100.0, config())
    single = write_run(tmp_path / "single", recorder.events)
    code, _, err = told(capsys, single, single)
    assert (code, "has one objective; a comparison needs two" in err) == (2, True)


def test_what_is_known_of_earlier_runs_differs(capsys, tmp_path):
    runs = []
    for name in ("one", "two"):
        recorder = Recorder(name=name)
        known = {"config": config(), "metrics": {"val_accuracy": 0.5}, "run": "zero"}
        recorder.add("known", measurements=[known] * (name == "two"))
        recorder.complete("t0001", [0.5], 100.0, config())
        runs.append(write_run(tmp_path / name, recorder.events))
    assert "known of earlier runs - A: nothing - B: 1 measurement" in flat(told(capsys, *runs)[1])


def test_runs_on_other_data_have_no_hypervolume_in_common(capsys, tmp_path):
    runs = []
    for name in ("one", "two"):
        recorder = Recorder(name=name, data={"name": "folder", "description": f"pictures of {name}"})
        recorder.complete("t0001", [0.5], 100.0, config())
        runs.append(write_run(tmp_path / name, recorder.events))
    out = told(capsys, *runs)[1]
    assert "Accuracies do not compare" in out
    assert "100%" not in out


def test_a_ratio_that_is_not_known_is_no_difference(capsys, tmp_path):
    runs = []
    for name, rate in (("one", 100.0), ("two", 60.0)):
        recorder = Recorder(name=name)
        recorder.start("t0001", **config())
        recorder.measure("t0001", 1, val_accuracy=0.5, images_per_second=rate)
        recorder.finish("t0001")
        runs.append(write_run(tmp_path / name, recorder.events))
    out = told(capsys, *runs)[1]
    assert "0.60 ± ? ~" in out
    assert "~: no significant difference." in flat(out)


def test_the_figure_is_written(capsys, tmp_path, folders):
    path = tmp_path / "fronts.svg"
    assert told(capsys, *folders, "--figure", path)[0] == 0
    text = path.read_text()
    assert text.startswith("<?xml")
    assert "B: cloud" in text or "<path" in text


def test_a_failed_trial_does_not_stand_for_a_configuration(tmp_path):
    first, second = Recorder(), Recorder(name="B")
    first.complete("t0001", [0.3], 300.0, config(64, 0.01))
    second.start("t0001", **config(64, 0.4))
    second.measure("t0001", 1, val_accuracy=0.1, **interval(100.0, 1.0))
    second.finish("t0001", "failed")
    second.complete("t0002", [0.3], 300.0, config(64, 0.01))
    folders = [write_run(tmp_path / name, recorder.events) for name, recorder in (("a", first), ("b", second))]
    (found,) = shared(named(*folders), "images_per_second")
    assert {letter: reading.value for letter, reading in found.readings.items()} == {"A": 300.0, "B": 300.0}


def test_the_interval_of_one_of_two_counts():
    one, other = Reading(11.0, None, 1, False), Reading(10.0, 5.0, 1, False)
    assert Shared({}, {"A": other, "B": one}).ratio("B", "A") == pytest.approx((1.1, 0.55))


def test_runs_whose_defaults_differ_share_the_configurations_that_state_them_alone(tmp_path):
    folders = []
    for name, width, accuracy in (("a", 1.0, 0.7), ("b", 0.5, 0.6)):
        recorder = Recorder(name=name, defaults={"width": width, "depth": 19})
        recorder.complete("t0001", [accuracy], 100.0 / width, config())
        recorder.complete("t0002", [0.5], 100.0, config(width=0.25))
        folders.append(write_run(tmp_path / name, recorder.events))
    for metric in ("images_per_second", "val_accuracy"):
        (found,) = shared(named(*folders), metric)
        assert found.config["width"] == 0.25
    different, same = differences(named(*folders))
    assert different == {"default width": ["1", "0.5"]}
    assert "default depth" not in same


def test_a_target_that_was_not_reached_is_no_time_to_reach_it(tmp_path):
    metric = "seconds_to_val_accuracy_0.9"
    objectives = [{"metric": metric, "goal": "minimize"}, {"metric": "peak_memory_gib", "goal": "minimize"}]
    recorder = Recorder(objectives=objectives, constraints=["best_val_accuracy >= 0.9"])
    for number, (seconds, best) in enumerate([(100.0, 0.91), (50.0, 0.7)], start=1):
        recorder.start(f"t000{number}", **config(64 * number))
        metrics = {metric: seconds, "best_val_accuracy": best, "peak_memory_gib": 1.0, **interval(100.0, 1.0)}
        recorder.measure(f"t000{number}", 3, **metrics)
        recorder.finish(f"t000{number}")
    folders = [write_run(tmp_path / name, recorder.events) for name in "ab"]
    (found,) = shared(named(*folders), metric)
    assert found.config["batch_size"] == 64


def test_a_metric_that_was_not_a_number_is_none_of_a_twin_either(tmp_path):
    """The two differ in what cannot affect accuracy alone."""
    recorder = Recorder(name="a")
    recorder.complete("t0001", [0.5], 100.0, config())
    recorder.start("t0002", **config(loader="workers", num_workers=1))
    recorder.measure("t0002", 1, val_accuracy=None, **interval(300.0, 1.0))
    recorder.finish("t0002")
    folders = [write_run(tmp_path / name, recorder.events) for name in "ab"]
    state = load(folders[0]).state
    assert [trial.trial_id for trial in state.front()] == ["t0001"]
    assert math.isnan(state.trials["t0002"].metrics["val_accuracy"])
    assert state.trials["t0002"].rate == 300.0
    assert hypervolumes(named(*folders)) is not None
