"""The plan as a person reads it."""

from dataclasses import replace

from search.space.machine import Machine
from search.space.parsing import parse_space
from search.study.plan import describe_plan
from search.study.run_estimate import RunEstimate, Timed
from tests.trainables.own_files import LINEAR
from trainables.contract import Cost, Resources

MACHINE = Machine("a laptop", 2, 8.0, 4.0, ())
MAPPING = {
    "trainable": "replay",
    "objectives": [
        {"metric": "val_accuracy", "goal": "maximize"},
        {"metric": "images_per_second", "goal": "maximize"},
    ],
    "parameters": {"batch_size": {"values": [64, 256]}, "precision": {"values": ["fp32", "bf16"]}},
    "budget": {"trials": 8, "epochs": 2, "least_gain": 0.003},
}


def timed(batch_size, precision, rate):
    config = {"width": 0.5, "batch_size": batch_size, "precision": precision}
    return Timed(config, Cost(rate, 5000, 1000) if rate else None, None if rate else "too large")


def plan(guess, left_out=(), **changed):
    return describe_plan(parse_space({**MAPPING, **changed}), "pictures", MACHINE, Resources(2), left_out, guess)


GUESS = RunEstimate((timed(256, "bf16", 1240.0), timed(64, "fp32", 302.4)), None, (9, 16), (1, 12), (50.0, 200.0), 0.02)


def test_time_is_a_range_with_its_meaning_and_what_it_is_from():
    assert plan(GUESS).splitlines()[-9:] == [
        "epochs       9 to 16 in all, as trials may be stopped early",
        "probes       1 to 12, of up to 10 s each, for settings that affect only rates",
        "time         about 50 s to 3 min: from the fastest and the slowest of 2",
        "             configurations that ran here for a moment, in one process without",
        "             loading. Start, validation and all probes are in it, turns that",
        "             decide the front (at most 10% more) and the test set are not.",
        "                 1,240 samples/s  batch=256 bf16",
        "                   302 samples/s  batch=64 fp32",
        "disk         about 0.02 GiB, for the checkpoints of a front of 10",
    ]


def test_the_disk_is_left_out_where_the_size_of_a_checkpoint_is_not_known():
    assert "disk" not in plan(replace(GUESS, disk_gib=None))


def test_what_ends_the_search_early_is_said():
    words = " ".join(plan(GUESS).split())
    assert "budget 2 epochs a trial; 8 trials; ends when the next trial promises a gain below 0.3%" in words


def test_a_baseline_that_a_constraint_refers_to_is_said():
    baseline = {"batch_size": 64, "precision": "fp32"}
    text = plan(GUESS, constraints=["val_accuracy >= 0.95 * baseline"], baseline=baseline)
    assert "constraint   val_accuracy >= 0.95 * baseline\nbaseline     batch_size=64, precision=fp32; the" in text
    assert "baseline" not in plan(GUESS)


def test_the_stopping_rule_that_auto_stands_for_is_said():
    assert "searcher     gp, seed 0; stopping: none (auto)" in plan(GUESS)
    assert "stopping: forecast (auto)" in plan(GUESS, budget={"hours": 1.0, "epochs": 2})
    assert "stopping: forecast\n" in plan(GUESS, stopping={"name": "forecast"})


def test_gpu_hours_are_said_with_the_time_that_they_last_if_all_gpus_are_busy():
    space = parse_space({**MAPPING, "budget": {"gpu_hours": 4.0}})
    nothing_timed = RunEstimate((), None, None, None, None, None)
    for gpus, duration in ((8, "about 30 min if all 8 GPUs are busy"), (1, "about 4.0 h if the GPU is busy")):
        text = describe_plan(space, "pictures", MACHINE, Resources(16, gpus), [], nothing_timed)
        words = " ".join(text.split())
        assert "budget 1 epoch a trial; 4 GPU hours" in words
        assert words.endswith(f"until budget.gpu_hours is spent, {duration}")


def test_hours_that_end_it_and_how_many_trials_they_hold_are_said():
    guess = RunEstimate(GUESS.timed, (3.0, 11.0), None, None, (360.0, 360.0), 0.02)
    text = plan(guess, budget={"hours": 0.1})
    assert "trials       3 to 11 of full length in 0.1 h, from the fastest and the slowest" in text
    assert "time         about 6 min, with budget.hours spent and the front probed again." in text


def test_what_the_user_calls_likely_is_said():
    parameters = {"learning_rate": {"min": 0.01, "max": 1.0, "likely": "0.05 to 0.2"}}
    parameters["batch_size"] = {"values": [64, 128, 256], "likely": [128, 256]}
    text = plan(GUESS, parameters=parameters)
    assert "learning_rate   0.01 to 1; likely 0.05 to 0.2" in text
    assert "batch_size      64, 128, 256; likely 128 and 256" in text


def test_one_configuration_alone_is_called_one_and_what_cannot_run_is_listed():
    guess = RunEstimate((timed(256, "bf16", 1240.0), timed(64, "fp32", None)), None, (16, 16), None, (50.0, 50.0), 0.02)
    text = plan(guess)
    assert "time         about 50 s: from 1 configuration that ran here for a moment, in" in text
    assert "    cannot run  batch=64 fp32: too large" in text


def test_where_nothing_can_run_the_reason_is_given():
    guess = RunEstimate((timed(64, "fp32", None),), None, (16, 16), None, None, None)
    assert plan(guess).splitlines()[-1] == (
        "time         not estimated: too large (width=0.5, batch_size=64, precision=fp32)"
    )


def test_what_is_left_out_is_listed_with_the_reason():
    text = plan(GUESS, ["loader device: needs a CUDA device"])
    assert "changed or left out here\n  loader device: needs a CUDA device\n" in text


def test_what_auto_means_here_is_said_where_a_trial_may_have_it(monkeypatch):
    monkeypatch.setattr("trainables.machine.processor.bf16", lambda: "computed")
    batch_sizes = {"batch_size": {"values": [64]}}

    def text(values=None, **fixed):
        more = {"precision": {"values": values}} if values else {}
        return plan(GUESS, trainable="vgg19_cifar10", parameters={**batch_sizes, **more}, fixed=fixed)

    others = "  cuda_graphs     false\n  loader          memory\n"
    assert f"auto here\n  precision       bf16\n{others}" in text()
    assert f"auto here\n  precision       bf16\n{others}" in text(["fp32", "auto"])
    assert f"auto here\n{others}" in text(["fp32", "bf16"])
    assert f"auto here\n{others}" in text(precision="fp32")
    assert "auto here" not in text(precision="fp32", cuda_graphs=False, loader="workers")
    monkeypatch.setattr("trainables.machine.processor.bf16", lambda: "emulated")
    assert "auto here\n  precision       fp32\n" in text()


def test_no_line_is_wider_than_80_columns():
    names = [f"a_long_name_{i}" for i in range(20)]
    many = tuple(Timed(dict.fromkeys(names, k), Cost(1e5, 50000, 1)) for k in (1, 2))
    guess = RunEstimate(many, (1.0, 1e6), (1.0, 1e6), (1.0, float("inf")), (50.0, 1e6), 1e4)
    parameters = {name: {"values": [1, 2]} for name in names}
    text = plan(guess, ["a reason " * 30], parameters=parameters, budget={"hours": 1000.0, "total_epochs": 10**9})
    assert "a_long_name_0=1 a_long_name_1=1" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "probes       1 or more" in text


def test_rates_have_the_unit_of_the_training(tmp_path):
    (tmp_path / "texts.py").write_text(LINEAR.replace('"rows"', '"tokens"'))
    objectives = [{"metric": "val_loss", "goal": "minimize"}, {"metric": "tokens_per_second", "goal": "maximize"}]
    cost = Cost(30.0, samples_per_epoch=5000, checkpoint_bytes=1000, units_per_sample=128)
    guess = replace(GUESS, timed=(Timed({"batch_size": 64, "precision": "fp32"}, cost),))
    text = plan(guess, trainable=str(tmp_path / "texts.py"), objectives=objectives)
    assert "3,840 tokens/s" in text
    assert "images" not in text


def test_long_lists_of_values_are_wrapped():
    many = {"batch_size": {"values": list(range(100_000, 100_030))}, "precision": {"values": ["fp32", "bf16"]}}
    lines = plan(GUESS, parameters=many).splitlines()
    assert max(map(len, lines)) <= 80
    first = next(i for i, line in enumerate(lines) if line.startswith("  batch_size      100000, "))
    assert lines[first + 1].startswith(" " * 18 + "1000")


def test_a_timing_beside_other_processes_is_said_to_be_one():
    busy = " ".join(plan(replace(GUESS, cores_of_others=1.34)).split())
    assert "warning other processes used 1.3 cores during this timing" in busy
    assert "warning" not in plan(replace(GUESS, cores_of_others=0.1))
