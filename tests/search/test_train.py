"""Training a pick in full: what it refuses, what it shows, what it leaves, and how it goes on after a kill."""

import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from rich.console import Console

from search.results import load
from search.train.__main__ import _job, main
from search.train.child_process import Epoch, Reports, end, read_curves
from search.train.progress import Progress, progress_line
from search.train.result import Training, as_markdown, comparison, curve, write_result
from tests.search.runs import Recorder, config, interval, story, write_run

ROOT = Path(__file__).parents[2]
REPLAYED = {"trainable": "replay", "data": {"name": "generated", "description": "replayed curves"}}


def replayed(folder, trainable="replay", **settings):
    """A run with one trial that can be trained in full in no time."""
    recorder = Recorder(**REPLAYED | {"trainable": trainable})
    recorder.complete("t0001", [0.5, 0.6], 100.0, {**config(64, 0.05), **settings})
    return write_run(folder, recorder.events)


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def command(folder, *options):
    words = [sys.executable, "-m", "search.train", str(folder), "--trial", "t0001", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_training_goes_on_when_nobody_reads_its_output(tmp_path):
    folder = replayed(tmp_path / "run")
    words = [sys.executable, "-m", "search.train", str(folder), "--trial", "t0001", "--epochs", "6"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with open("/dev/full", "w") as full:
        assert subprocess.run(words, env=environment, stdout=full, check=False).returncode == 0
    assert len(rows_of(folder / "trained" / "t0001" / "curves.csv")) == 6


def until(process, text):
    """Read the process's output up to the line that begins so."""
    for told in process.stdout:
        if told.startswith(text):
            return
    raise AssertionError(f"{text} never came: {process.stderr.read()}")


def processes_with(text):
    """Ids of processes whose command line has this text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [int(path.parent.name)] if text.encode() in path.read_bytes() else []
        except OSError:
            continue
    return found


def test_a_pick_is_trained_tested_and_kept_beside_what_the_search_measured(tmp_path, capsys):
    folder = replayed(tmp_path / "run")
    assert main([str(folder), "--trial", "t0001", "--epochs", "4"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert [told[:9] for told in out.splitlines() if told.startswith("epoch")] == [f"epoch {n}/4" for n in range(1, 5)]
    assert max(len(told) for told in out.splitlines() if str(tmp_path) not in told) <= 80
    trained = folder / "trained" / "t0001"
    assert [row["epoch"] for row in rows_of(trained / "curves.csv")] == ["1", "2", "3", "4"]
    (row,) = rows_of(trained / "result.csv")
    assert (row["trial_id"], row["epochs"], row["config.batch_size"]) == ("t0001", "4", "64")
    assert float(row["test_accuracy"]) == pytest.approx(0.99 * float(row["val_accuracy"]))
    assert "| val_accuracy (generated)  |  0.7021 |            0.6000 |" in (trained / "summary.md").read_text()

    before = {path: path.read_bytes() for path in trained.iterdir()}
    assert main([str(folder), "--trial", "t0001", "--epochs", "4"]) == 2
    assert "trained already (4 epochs, val_accuracy 0.7021, test_accuracy" in (told := capsys.readouterr().err)
    assert f"); --folder {trained}-4-epochs trains it from the start" in told
    assert main([str(folder), "--trial", "t0001", "--epochs", "9"]) == 2
    told = capsys.readouterr().err
    assert f"its schedule ended with epoch 4, so that it cannot go on to 9; --folder {trained}-9-epochs trains" in told
    assert told.count("\n") == 1
    assert {path: path.read_bytes() for path in trained.iterdir()} == before


def test_what_cannot_run_here_is_exit_code_2_and_leaves_nothing(tmp_path, capsys):
    folder = replayed(tmp_path / "run", "tests.faulty_replay", fail_at_epoch=1, fail_with="infeasible")
    assert main([str(folder), "--trial", "t0001", "--epochs", "4"]) == 2
    assert capsys.readouterr().err == "search.train: epoch 1 was to be infeasible\n"
    assert sorted(path.name for path in folder.iterdir()) == ["journal.jsonl"]


def test_a_training_that_another_process_began_at_the_same_moment_is_left_alone(tmp_path, monkeypatch):
    folder = replayed(tmp_path / "run")
    begun = folder / "trained" / "t0001"
    other = FileLock(begun / "training.lock")

    def refused(arguments, reports):
        (begun / "config.json").write_text("{}")
        other.acquire()
        return 2

    monkeypatch.setattr("search.train.__main__.train", refused)
    assert main([str(folder), "--trial", "t0001", "--epochs", "4"]) == 2
    assert (begun / "config.json").is_file()
    other.release()


TWICE = """
import signal, sys
from search.train import __main__ as command

def train(arguments, reports):
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.raise_signal(signal.SIGINT)

command.train = train
sys.exit(command.main(sys.argv[1:]))
"""


def test_a_second_signal_leaves_the_command_that_goes_on(tmp_path):
    words = [str(replayed(tmp_path / "run")), "--trial", "t0001", "--epochs", "4"]
    done = subprocess.run([sys.executable, "-c", TWICE, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert shlex.split(done.stderr.splitlines()[-1]) == ["python", "-m", "search.train", *words]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--trial", "t0099"], 'has no trial "t0099"; did you mean "t0009"?'),
        (["--trial", "t0001", "--epochs", "0"], "--epochs 0: at least one is needed"),
        (["--trial", "t0001", "--evaluate-every", "0"], "--evaluate-every 0: at least one is needed"),
        (["--trial", "t0001", "--train-samples", "-5"], "--train-samples -5: at least one is needed"),
        (["--trial", "t0001", "--val-samples", "-1"], "--val-samples -1: expected 0 or more"),
        (
            ["--trial", "t0001", "--folder", "/dev/null/x"],
            "--folder /dev/null/x: cannot be made: /dev/null: not a folder",
        ),
        (["--trial", "t0001", "--epochs", "many"], "argument --epochs: invalid int value: 'many'"),
        ([], "the following arguments are required: --trial"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_created(tmp_path, capsys, options, message):
    folder = write_run(tmp_path / "run", story())
    assert main([str(folder), *options]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == ["journal.jsonl"]


@pytest.mark.parametrize(
    ("name", "text"), [("curves.csv", "a,b\n1,2\n"), ("result.csv", "val_loss\nlow\n"), ("config.json", "[]")]
)
def test_a_folder_of_other_files_is_no_place_for_a_training(tmp_path, capsys, name, text):
    folder, other = replayed(tmp_path / "run"), tmp_path / "other"
    other.mkdir()
    (other / name).write_text(text)
    assert main([str(folder), "--trial", "t0001", "--folder", str(other), "--epochs", "1"]) == 2
    told = f"search.train: {other}: has files that are not of a training; --folder DIR names another one\n"
    assert capsys.readouterr().err == told
    assert (other / name).read_text() == text


def test_what_was_begun_for_other_epochs_is_not_gone_on_with(tmp_path, capsys):
    folder = replayed(tmp_path / "run")
    begun = folder / "trained" / "t0001"
    begun.mkdir(parents=True)
    (begun / "config.json").write_text(json.dumps({"epochs": 100}))
    assert main([str(folder), "--trial", "t0001", "--epochs", "200"]) == 2
    assert "started with 100 epochs, not 200; --epochs 100 continues it" in capsys.readouterr().err


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def shown():
    return io.StringIO()


@pytest.fixture
def progress(shown: io.StringIO) -> Any:
    clock = Clock()
    labels = {"val_accuracy": "val_accuracy", "images_per_second": "images_per_second"}
    units = {"val_accuracy": "fraction", "images_per_second": "images/s"}
    progress: Any = Progress(200, labels, units, Console(file=shown, width=80), clock)
    progress.clock = clock
    return progress


def ended(progress, number, after):
    progress.clock.now += after
    progress.update(Epoch(number, {"val_accuracy": 0.9312, **interval(3217.0, 185.0)}))


def test_the_time_left_is_that_of_the_epochs_so_far_without_the_start(progress, shown):
    for number, after in ((1, 100.0), (2, 60.0), (3, 60.0)):
        ended(progress, number, after)
    lines = shown.getvalue().splitlines()
    assert (
        lines[0] == "epoch   1/200  val_accuracy 0.9312  3,217 ± 185 images/s  about 5.5 h left"
    )  # all that is known yet
    assert lines[2] == "epoch   3/200  val_accuracy 0.9312  3,217 ± 185 images/s  about 3.3 h left"  # 197 minutes


def test_a_learned_metric_near_zero_has_its_interval_and_a_rate_has_a_question_mark(progress, shown):
    near_zero = {"val_accuracy": 0.1, "val_accuracy_low": -0.1, "val_accuracy_high": 0.3}
    progress.update(Epoch(1, {**near_zero, **interval(100.0, 110.0)}))
    assert shown.getvalue().startswith("epoch   1/200  val_accuracy 0.1000 ± 0.2  100 ± ? images/s")


def test_an_epoch_that_a_checkpoint_remembers_says_nothing_of_the_time_left(progress, shown):
    ended(progress, 120, 5.0)
    assert "left" not in shown.getvalue()
    ended(progress, 121, 60.0)
    assert shown.getvalue().endswith("about 79 min left\n")


def test_the_last_epoch_has_no_time_left(progress, shown):
    ended(progress, 199, 60.0)
    ended(progress, 200, 60.0)
    assert "left" not in shown.getvalue().splitlines()[-1]


def test_a_line_keeps_to_80_columns_and_to_its_time_left():
    cells = ["val_accuracy (generated) 0.9312", "train_loss 0.1234"]
    head = "epoch   3/200  val_accuracy (generated) 0.9312"
    left = "about 2.0 h left"
    assert len(f"{head}  {'1' * 13}  {left}") == 79
    assert progress_line(3, 200, [cells[0], "1" * 13], 7200.0) == f"{head}  {'1' * 13}  {left}"
    assert progress_line(3, 200, [cells[0], "1" * 13, "2"], 7200.0) == f"{head}  {'1' * 13}  {left}"
    assert progress_line(3, 200, [*cells, "1" * 20], 7200.0) == f"{head}  {left}"


def test_in_a_terminal_it_is_a_bar_that_fits(shown):
    clock = Clock()
    console = Console(file=shown, width=80, force_terminal=True, legacy_windows=False)
    with Progress(200, {"val_accuracy": "val_accuracy"}, {}, console, clock) as bar:
        progress: Any = bar
        progress.clock = clock
        for number in (1, 2):
            ended(progress, number, 60.0)
        console.print(progress._view())
    out = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.getvalue())  # without colours
    assert "━  epoch 2/200 · 2 min · about 3.3 h left" in out
    assert "val_accuracy 0.9312" in out


def test_each_line_is_a_report_or_is_passed_on():
    epochs: list[Epoch] = []
    data: list[str] = []
    others: list[str] = []
    reports = Reports(epochs.append, data.append, others.append)
    messages = [
        {"data": "drawn"},
        {"epoch": 1, "metrics": {"val_accuracy": 0.5}},
        {"test": {"test_accuracy": 0.4}},
        {"error": "it broke"},
    ]
    for text in (*map(json.dumps, messages), "UserWarning: slow", "", "1.0", '{"epoch": 2}'):
        reports.receive(text)
    assert epochs == [Epoch(1, {"val_accuracy": 0.5})]
    assert (data, reports.data) == (["drawn"], "drawn")
    assert (reports.test_metrics, reports.errors) == ({"test_accuracy": 0.4}, ["it broke"])
    assert others == ["UserWarning: slow", "1.0", '{"epoch": 2}']


def test_an_empty_cell_of_the_curves_is_no_number(tmp_path):
    (tmp_path / "curves.csv").write_text("epoch,config.batch_size,val_accuracy,energy\n1,64,0.5,\n2,64,0.6,nan\n")
    assert [epoch.number for epoch in read_curves(tmp_path)] == [1, 2]
    assert read_curves(tmp_path)[0].metrics == {"val_accuracy": 0.5}
    assert read_curves(tmp_path / "nowhere") == []


def test_the_time_of_a_training_is_that_of_all_its_epochs_whoever_ran_them(tmp_path):
    run = load(replayed(tmp_path / "run"))
    times = {"epoch_seconds": 50.0, "evaluation_seconds": 9.0, "checkpoint_seconds": 1.0}
    curve = [Epoch(n, {"val_accuracy": 0.9 - 0.1 * (n == 3), **times}) for n in (1, 2, 3)]
    training = Training(run, run.state.trials["t0001"], tmp_path, curve, {"test_accuracy": 0.79})
    text = as_markdown(training, {"Data": "drawn", "Commit": None}, "python -m search.train run")
    assert text.startswith("# t0001 trained for 3 epochs in 3 min\n")
    assert "Best val_accuracy: 0.9000, in epoch 1" in text
    assert "Commit" not in text
    assert "|     3 |       0.8000 |    60.0 |\n\nThe seconds of an epoch are those of training" in text
    write_result(training, {}, "")
    assert rows_of(tmp_path / "result.csv")[0]["seconds"] == "180.0"


def test_the_table_of_a_long_training_has_every_nth_epoch_and_the_last(tmp_path):
    run = load(replayed(tmp_path / "run"))
    epochs = [Epoch(n, {"train_loss": 1.0, **({"val_accuracy": 0.5} if n % 2 == 0 else {})}) for n in range(1, 104)]
    table = curve(Training(run, run.state.trials["t0001"], tmp_path, epochs, {}))
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines() if row.startswith("| ")]
    assert rows[0] == ["epoch", "train_loss", "val_accuracy", "seconds"]
    assert [row[0] for row in rows[2:]] == [*(f"{n}" for n in range(3, 103, 3)), "103"]
    assert [row[2] for row in rows[2:4]] == ["–", "0.5000"]
    assert "One epoch in 3 is shown" in table.replace("\n", " ")


def test_a_long_training_is_evaluated_fifty_times_unless_told_otherwise(tmp_path):
    folder = replayed(tmp_path / "run")
    for options, every in ([], "4"), (["--epochs", "50"], "1"), (["--evaluate-every", "7"], "7"):
        arguments = _job([str(folder), "--trial", "t0001", "--epochs", "200", *options]).arguments
        assert arguments[arguments.index("--evaluate-every") + 1] == every


def test_a_rate_that_was_measured_beside_other_work_is_marked(tmp_path):
    run = load(replayed(tmp_path / "run"))
    rates = {"val_accuracy": 0.6, **interval(50.0, 1.0)}
    told = {
        contended: comparison(
            Training(run, run.state.trials["t0001"], tmp_path, [Epoch(1, {**rates, "contended": contended})], {})
        )
        for contended in (0.0, 1.0)
    }
    assert "50.0 ± 1!" in told[1.0]
    assert "the true rate may be higher" in told[1.0]
    assert "!" not in told[0.0]


def test_a_question_mark_is_explained_and_a_learned_metric_near_zero_has_its_interval(tmp_path):
    run = load(replayed(tmp_path / "run"))
    metrics = {"val_accuracy": 0.1, "val_accuracy_low": -0.1, "val_accuracy_high": 0.3, **interval(50.0, 60.0)}
    text = comparison(Training(run, run.state.trials["t0001"], tmp_path, [Epoch(1, {**metrics, "contended": 1.0})], {}))
    assert "| 0.1000 ± 0.2 " in text
    assert "50.0 ± ?!" in text
    assert "A question mark: no interval is known" in text


def test_the_table_with_all_intervals_fits_80_columns(tmp_path):
    run = load(replayed(tmp_path / "run"))
    val, test = (
        {name: 0.6, f"{name}_low": 0.5941, f"{name}_high": 0.6059}
        for name in ("val_accuracy", "test_accuracy_six_views")
    )
    table = comparison(Training(run, run.state.trials["t0001"], tmp_path, [Epoch(1, val)], test))
    assert "| test_accuracy_six_views (generated) | 0.6000 ± 0.0059 |" in table
    assert max(map(len, table.splitlines())) <= 80


@pytest.mark.parametrize(("counted", "told"), [(52.0, True), (7000.0, False)])
def test_a_rate_of_few_windows_says_that_whole_epochs_took_longer(tmp_path, counted, told):
    run = load(replayed(tmp_path / "run"))
    metrics = {**interval(424.0, 1.0), "contended": 0.0, "throughput_windows": counted, "contended_windows": 6000.0}
    text = comparison(Training(run, run.state.trials["t0001"], tmp_path, [Epoch(1, metrics)], {}))
    assert ("Other work slowed 6,000 of 6,052 windows: images_per_second is" in text) == told
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"processes": 2}], ids=["one process", "two"])
def test_after_a_kill_the_same_command_goes_on_and_no_process_is_left(tmp_path, settings):
    folder = replayed(tmp_path / "run", seconds_per_epoch=0.5, **settings)
    process = command(folder, "--epochs", "8")
    until(process, "epoch 2/8")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 20
    while processes_with(str(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_with(str(folder)) == []
    trained = folder / "trained" / "t0001"
    checkpoint = json.loads((trained / "checkpoint.json").read_text())["epoch"]
    again = command(folder, "--epochs", "8")
    out, err = again.communicate(timeout=60)
    assert (again.returncode, err) == (0, "")
    assert f"{checkpoint} of 8 epochs are trained; continues from the last checkpoint" in out
    assert f"epoch {checkpoint - 1}/8" not in out
    assert [row["epoch"] for row in rows_of(trained / "curves.csv")] == [f"{n}" for n in range(1, 9)]
    assert (trained / "result.csv").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("settings", [{}, {"processes": 2}], ids=["one process", "two"])
def test_an_interruption_ends_in_order_with_the_command_that_goes_on(tmp_path, number, code, settings):
    folder = replayed(tmp_path / "run", seconds_per_epoch=0.5, **settings)
    process = command(folder, "--epochs", "50")
    until(process, "epoch  2/50")
    process.send_signal(number)
    err = process.communicate(timeout=40)[1]
    assert process.returncode == code
    assert err.startswith("interrupted after epoch ")
    last = err.splitlines()[-1].strip()
    assert shlex.split(last) == ["python", "-m", "search.train", str(folder), "--trial", "t0001", "--epochs", "50"]
    assert processes_with(str(folder)) == []


def test_what_a_killed_training_leaves_behind_is_killed():
    """Also a process that is stopped, which would wait for ever."""
    script = "sleep 98.7654 & kill -STOP $!; echo stopped; kill -KILL $$"
    process = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    until(process, "stopped")
    process.wait()
    end(process)
    time.sleep(0.2)
    assert processes_with("98.7654") == []


@pytest.mark.slow
def test_two_do_not_train_in_one_folder(tmp_path):
    folder = replayed(tmp_path / "run", seconds_per_epoch=0.5)
    first = command(folder, "--epochs", "50")
    try:
        until(first, "epoch  1/50")
        second = command(folder, "--epochs", "50")
        _, err = second.communicate(timeout=40)
        assert second.returncode == 2
        assert "another process is training there" in err
    finally:
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=40)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [{"strategy": "single"}, {"strategy": "ddp", "world_size": 2}], ids=["one", "ddp"])
def test_the_real_network_trains_in_full_in_one_process_and_in_two(tmp_path, strategy):
    space = {"parameters": {}, "fixed": {}, "data": {"train_images": 60, "val_images": 40}}
    data = {"name": "generated", "description": "generated pictures"}
    recorder = Recorder(space=space, data=data)
    recorder.add("start", 1.0, trial_id="t0001", kind="train", config={"batch_size": 24, "width": 0.01, **strategy})
    folder = write_run(tmp_path / "run", recorder.events)
    process = command(folder, "--epochs", "2", "--train-samples", "120", "--val-samples", "0")
    out, err = process.communicate(timeout=150)
    assert (process.returncode, err) == (0, "")
    assert "test_accuracy (generated)" in out
    assert "val_accuracy" not in out
    trained = folder / "trained" / "t0001"
    assert (trained / "checkpoint.pt").exists()
    assert "--train-samples 120" in " ".join((trained / "summary.md").read_text().split())
    assert float(rows_of(trained / "result.csv")[0]["seconds"]) > 0


@pytest.mark.parametrize(("said", "number"), [([], "40"), (["--val-samples", "0"], "0")])
def test_validation_samples_are_those_of_the_search_or_as_many_as_said(tmp_path, said, number):
    recorder = Recorder(**REPLAYED | {"space": {"parameters": {}, "fixed": {}, "data": {"val_images": 40}}})
    recorder.complete("t0001", [0.5], 100.0, config(64, 0.05))
    folder = write_run(tmp_path / "run", recorder.events)
    arguments = _job([str(folder), "--trial", "t0001", *said]).arguments
    assert arguments[arguments.index("--val-samples") + 1] == number


def test_the_validation_samples_of_a_users_file_are_not_trained_on(tmp_path, capsys):
    recorder = Recorder(**REPLAYED | {"trainable": "/home/me/rows.py", "source": "0123456789abcdef"})
    recorder.complete("t0001", [0.5], 100.0, config(64, 0.05))
    folder = write_run(tmp_path / "run", recorder.events)
    assert main([str(folder), "--trial", "t0001", "--val-samples", "0"]) == 2
    told = "search.train: --val-samples 0: rows.py says itself what is trained on; leave the option out\n"
    assert capsys.readouterr().err == told


def test_within_a_long_epoch_a_line_a_minute_says_how_far_it_is(progress, shown):
    for step in range(1, 130):
        progress.clock.now += 1.0
        progress.update_step(1, step, 352)
    assert shown.getvalue().splitlines() == ["epoch 1/200: step 60 of 352", "epoch 1/200: step 120 of 352"]
    ended(progress, 1, 1.0)
    progress.update_step(2, 1, 352)
    assert len(shown.getvalue().splitlines()) == 3


def test_the_bar_of_a_terminal_is_within_the_epoch():
    shown = Console(file=io.StringIO(), width=80, force_terminal=True)
    progress = Progress(8, {}, {}, shown, Clock())
    with progress:
        progress.update_step(3, 88, 352)
    with shown.capture() as capture:
        shown.print(progress._view())
    assert "epoch 3/8 · step 88/352" in capture.get()


def test_a_step_that_the_training_reports_is_passed_on():
    heard = []
    reports = Reports(print, print, print, on_step=lambda *step: heard.append(step))
    reports.receive('{"in_epoch": 2, "step": 10, "steps": 352}')
    assert heard == [(2, 10, 352)]
