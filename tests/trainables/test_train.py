"""The command that trains one configuration: what it prints, writes and refuses."""

import csv
import itertools
import json
import math
import multiprocessing
import re
from pathlib import Path

import pytest
from filelock import FileLock

from trainables import replay, train
from trainables.contract import TIMEOUT_VARIABLE, Measurement, Parameter, Resources
from trainables.measure import probe_end
from trainables.output import line
from trainables.setting_text import parsed
from trainables.train import main

TINY = [
    "--data",
    "generated",
    "--train-images",
    "120",
    "--val-images",
    "40",
    "width=0.01",
    "batch_size=24",
    "threads=1",
]


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "machine", lambda: Resources(cpus=2))


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "curves.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(autouse=True)
def no_lines_within_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no epoch take so long, as one does on a busy machine."""
    monkeypatch.setattr(train, "STEP_SECONDS", math.inf)


def test_one_line_an_epoch_a_table_and_a_test(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--folder", str(folder), "--epochs", "2", "--test"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "not photographs" in lines[0]
    assert [line[:9] for line in lines[1:3]] == ["epoch 1/2", "epoch 2/2"]
    tested = r"test_accuracy(_flip|_six_views)? 0\.\d{4}, 95% interval -?0\.\d{4} to 0\.\d{4}"
    assert [bool(re.fullmatch(tested, line)) for line in lines[3:]] == 3 * [True]
    assert max(map(len, lines[1:])) <= 80
    rows = rows_of(folder)
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert rows[0]["config.batch_size"] == "24"


def test_for_programs_each_line_is_one_json_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--trainable", "replay", "--folder", str(folder), "--epochs", "2", "--test", "--json"]
    assert main(command) == 0
    data, first, second, test = map(json.loads, capsys.readouterr().out.splitlines())
    assert list(data) == ["data"]
    assert (first["epoch"], second["epoch"]) == (1, 2)
    assert first["metrics"]["val_accuracy"] == pytest.approx(float(rows_of(folder)[0]["val_accuracy"]))
    assert test["test"]["test_accuracy"] == pytest.approx(0.99 * second["metrics"]["val_accuracy"])
    assert main([*command, "batch_size=3"]) == 2
    out, err = capsys.readouterr()
    refusal = f"--folder {folder}: another configuration or other data were trained there: batch_size not stated, now 3"
    assert json.loads(out.splitlines()[-1]) == {"error": refusal}
    assert err == ""


def test_the_same_command_again_goes_on_and_the_table_has_each_epoch_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--trainable", "tests.faulty_replay", "--folder", str(folder), "--epochs", "3"]
    settings = ["fail_at_epoch=3", "fail_with=infeasible", "fail_once=true"]
    assert main([*command, *settings]) == 2
    assert main([*command, *settings]) == 0
    assert capsys.readouterr().err == "train: epoch 3 was to be infeasible\n"
    assert [row["epoch"] for row in rows_of(folder)] == ["1", "2", "3"]


def test_a_setting_may_be_the_length_of_the_training(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--trainable", "replay", "--folder", str(folder), "epochs=2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("epoch 2/2")
    assert main(["--trainable", "replay", "--folder", f"{folder}-2", "--epochs", "3", "epochs=2"]) == 2
    assert "--epochs 3: the setting epochs=2 says otherwise; leave one out" in capsys.readouterr().err


@pytest.mark.slow
def test_a_probe_tells_what_it_measured_and_why(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_end, "PROBE_SECONDS", 0.5)
    assert main([*TINY, "--folder", str(folder), "--probe"]) == 0
    out = capsys.readouterr().out
    assert "images_per_second_low" in out
    assert "bound by " in out
    assert max(map(len, out.splitlines())) <= 80
    assert not (folder / "curves.csv").exists()  # they are those of a training


@pytest.mark.parametrize(("epoch", "counted", "told"), [(2, 52.0, True), (1, 52.0, False), (2, 7000.0, False)])
def test_the_last_line_says_whether_the_rate_is_that_of_few_windows(epoch: int, counted: float, told: bool) -> None:
    windows = {"throughput_windows": counted, "contended_windows": 6000.0}
    text = line(Measurement(epoch, {"images_per_second": 424.0, **windows}), 2)
    assert text.endswith("\nOther work slowed 6,000 of 6,052 windows, which the rates leave out.") == told
    assert max(map(len, text.splitlines())) <= 80


def test_its_table_can_be_replayed(folder: Path, tmp_path: Path) -> None:
    main(["--trainable", "replay", "--folder", str(folder), "--epochs", "2", "batch_size=256"])
    table = str(folder / "curves.csv")
    assert replay.curve({"batch_size": 256, "table": table}, 2) == replay.curve({"batch_size": 256}, 2)


@pytest.mark.slow
def test_ddp_trains_in_two_processes(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = [*TINY, "--folder", str(folder), "--epochs", "2", "--test", "strategy=ddp"]
    assert main([*command, "world_size=2"]) == 0
    out, err = capfd.readouterr()
    assert "epoch 2/2" in out
    assert "test_accuracy" in out
    assert err == ""
    assert (folder / "checkpoint.pt").exists()


def test_a_process_that_dies_ends_the_others(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["--trainable", "tests.faulty_replay", "--folder", str(folder), "--epochs", "2", "processes=2"]
    assert main([*command, "fail_at_epoch=2", "fail_with=kill"]) == 1
    out, err = capfd.readouterr()
    assert "epoch 1/2" in out
    assert err == "train: rank 0 was ended by SIGKILL\n"
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_a_process_that_hangs_ends_all(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMEOUT_VARIABLE, "1")
    command = ["--trainable", "tests.faulty_replay", "--folder", str(folder), "processes=2"]
    assert main([*command, "fail_at_epoch=1", "fail_with=hang"]) == 1
    assert capfd.readouterr().err == "train: rank 0 did not answer the others for 1 s\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trainable", "vgg19"], 'no trainable "vgg19"; did you mean "vgg19_cifar10"?'),
        (["--trainable", "tests.vgg19"], 'no trainable "tests.vgg19"; there are vgg19_cifar10, image_folder, replay'),
        (["--data", "cifar"], 'no data "cifar"; did you mean "cifar10"?'),
        (["learning_rat=0.1"], 'no parameter "learning_rat"; did you mean "learning_rate"?'),
        (["learning_rate"], '"learning_rate": expected NAME=VALUE'),
        (["batch_size=many"], 'batch_size: found "many"; expected a whole number'),
        (["precision=fp16"], "precision fp16: needs a CUDA device"),
        (["--epochs", "0"], "--epochs 0: at least one is needed"),
        (["--evaluate-every", "0"], "--evaluate-every 0: at least one is needed"),
        (["--train-samples", "0"], "--train-samples 0: at least one is needed"),
        (["--val-samples", "-5"], "--val-samples -5: expected 0 or more"),
        (["--epochs", "x"], "argument --epochs: invalid int value: 'x'"),
        (["--epoch", "1"], "unrecognized arguments: --epoch"),
        (["--data", "folder", "--root", "nowhere"], "data folder: no such folder: "),
        (["--data", "generated", "--train-images", "50", "batch_size=64"], "batch_size 64: there are 50"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["--folder", str(tmp_path / "new"), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"train: {message}")
    assert error.count("\n") == 1


def test_a_folder_of_another_configuration_is_not_gone_on_from(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--trainable", "replay", "--folder", str(folder), "--epochs", "1"]
    assert main([*command, "batch_size=64"]) == 0
    assert main([*command, "batch_size=128"]) == 2
    error = capsys.readouterr().err
    assert error.endswith("another configuration or other data were trained there: batch_size 64, now 128\n")


def test_a_training_of_an_earlier_version_which_had_fewer_settings_goes_on(folder: Path) -> None:
    command = ["--folder", str(folder), "--data", "generated", "--train-images", "64", "--val-images", "16"]
    command += ["--epochs", "1", "batch_size=32", "width=0.02", "threads=1"]
    assert main(command) == 0
    known = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({k: v for k, v in known.items() if k != "accumulation_steps"}))
    assert main(command) == 0


def test_what_the_test_set_says_is_kept(folder: Path) -> None:
    assert main(["--trainable", "replay", "--folder", str(folder), "--epochs", "3", "--test", "batch_size=64"]) == 0
    tested = json.loads((folder / "test.json").read_text())
    assert tested == {"test_accuracy": pytest.approx(0.99 * float(rows_of(folder)[-1]["val_accuracy"]))}


def test_a_folder_of_other_pictures_is_not_gone_on_from(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--trainable", "replay", "--folder", str(folder), "--epochs", "1"]
    assert main([*command, "--train-images", "100"]) == 0
    assert main([*command, "--train-images", "200"]) == 2
    assert "other data were trained there: train_images 100, now 200\n" in capsys.readouterr().err


def test_a_folder_in_which_another_process_trains_is_left_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FileLock(folder / "training.lock"):
        assert main(["--trainable", "replay", "--folder", str(folder), "--epochs", "1"]) == 2
    assert "another process is training there" in capsys.readouterr().err
    assert not (folder / "curves.csv").exists()
    assert main(["--trainable", "replay", "--folder", str(folder), "--epochs", "1"]) == 0


def test_within_a_long_epoch_a_line_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = itertools.count(0.0, 4.0)
    monkeypatch.setattr("trainables.train.time.monotonic", lambda: next(now))
    monkeypatch.setattr(train, "STEP_SECONDS", 10.0)
    for as_json, first in ((False, "epoch 2: step 3 of 6"), (True, '{"in_epoch": 2, "step": 3, "steps": 6}')):
        on_step = train.StepPrinter(as_json)
        for step in range(1, 7):
            on_step(2, step, 6)
        assert capsys.readouterr().out.splitlines() == [first]  # the last step is that of the epoch's line


def test_a_probe_leaves_the_curves_of_the_training(folder: Path) -> None:
    command = ["--trainable", "replay", "--folder", str(folder), "--epochs", "2", "batch_size=64"]
    assert main(command) == 0
    before = rows_of(folder)
    assert main([*command, "--probe"]) == 0
    assert rows_of(folder) == before


def test_a_parameter_of_words_takes_none_as_a_word() -> None:
    norm, precision = Parameter("str", "batch", "", choices=("batch", "none")), Parameter("float", None, "")
    assert parsed("none", norm) == "none"
    assert parsed("none", precision) is None
