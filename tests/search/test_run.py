"""The command line as a person uses it: exit codes, messages, plans, and a whole search."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from search.execution.cluster import Cluster
from search.record.journal import FILE_NAME
from search.record.mirror import Mirroring
from search.results import load
from search.run import main
from search.run_options import space_path
from search.space.machine import Machine
from search.space.parameter_list import INDENT
from search.study import job
from search.study.interrupt import Interrupts
from tests.faults.processes import gone, printed, running, wait_for, with_pids
from tests.search.bad_spaces import BAD_SPACES, Bad
from tests.search.runs import REPLAYED
from tests.trainables.own_files import written
from trainables.contract import Resources

SPACE = f"\n{REPLAYED}fixed: {{seconds_per_epoch: 0.5}}\nbudget: {{trials: 5, epochs: 2}}\n"


@pytest.fixture
def space(tmp_path: Path) -> Path:
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    return path


@pytest.mark.parametrize("bad", BAD_SPACES, ids=lambda bad: bad.name)
def test_a_bad_space_file_is_one_line_exit_2_and_nothing_created(
    bad: Bad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.yaml").write_text(bad.text)
    monkeypatch.chdir(tmp_path)
    assert main(["bad.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"bad.yaml:{bad.line}: ")
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no space file"),
        (["missing.yaml"], "missing.yaml"),
        (["space.yaml", "--set", "budget.trails=3"], "did you mean"),
        (["space.yaml", "--name", "../elsewhere"], "a name, not a path"),
        (["space.yaml", "--name", "n" * 300], "300 bytes; a folder's name has at most 255"),
        (["space.yaml", "--name", "a\udcffb"], "not UTF-8"),
        (["space.yaml", "--results", ".", "--name", "old"], "exists already"),
        (["space.yaml", "--resume", "old"], "give none of them"),
        (["space.yaml", "--warm-start", "old"], "not the folder of a run"),
        (["--resume", "old"], "not the folder of a run"),
        (["--resume", "nowhere"], "not the folder of a run"),
        (["space.yaml", "--set", "concurrent_trials=99"], "cannot share"),
        (["vgg.yaml", "--set", "data.name=folder"], "data.root"),
        (["vgg.yaml", "--on", "H100"], "expected e.g. 8xH100"),
        (["vgg.yaml", "--on", "0xH100"], "expected e.g. 8xH100"),
    ],
)
def test_bad_input_is_one_line_exit_2_and_nothing_created(
    arguments: list[str],
    message: str,
    space: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(space.parent)
    monkeypatch.setenv("TRAINING_SEARCH_DATA", str(space.parent / "no-data"))
    (space.parent / "old").mkdir()
    (space.parent / "vgg.yaml").write_text(
        SPACE.replace("replay", "vgg19_cifar10").replace("seconds_per_epoch", "width")
    )
    before = sorted(space.parent.rglob("*"))
    assert main([*arguments, "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert err.count("\n") == 1
    assert out == ""
    assert sorted(space.parent.rglob("*")) == before


def test_the_plan_is_printed_and_nothing_is_started_or_written(
    space: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(space.parent)
    assert main(["space.yaml", "--dry-run"]) == 0
    out = capsys.readouterr().out
    for part in ("learning_rate", "0.001 to 0.5, log", "5 trials", "time ", "disk "):
        assert part in out
    assert [path.name for path in space.parent.iterdir()] == ["space.yaml"]


def test_the_plan_for_another_machine_is_of_its_nodes_and_gpus_and_times_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither are the pictures looked for, which may be there alone."""
    monkeypatch.chdir(tmp_path)
    text = SPACE.replace("replay", "vgg19_cifar10").replace("seconds_per_epoch: 0.5", "width: 0.0625")
    text += "without_gpu: {fixed: {width: 0.01}}\ndata: {name: folder, root: /nowhere}\n"
    text = text.replace("parameters:\n", "parameters:\n  strategy: {values: [single, ddp, data_parallel]}\n")
    (tmp_path / "space.yaml").write_text(text)
    assert main(["space.yaml", "--dry-run", "--on", "2x8xH100"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "machine 2 nodes with 8 GPUs H100; 64 cores each assumed" in out
    assert "per trial 128 cores, 16 GPUs, on 2 nodes" in out
    assert "strategy single, ddp, data_parallel" in out
    assert "width 0.0625" in out
    assert "left out" not in out
    assert "not estimated: nothing was timed on such a machine" in out
    assert main(["space.yaml", "--on", "8xH100"]) == 2
    assert "--on: belongs to --dry-run" in capsys.readouterr().err
    assert main(["--resume", "run", "--on", "8xH100"]) == 2
    assert "--on: belongs to --dry-run" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["space.yaml"]


def test_the_plan_is_for_the_pictures_that_this_machine_would_train_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The overlay for machines without a GPU also says how many pictures; the plan fits 80 columns."""
    overlay = "without_gpu: {data: {train_images: 640, val_images: 100}}\ndata: {name: generated}\n"
    width = SPACE.replace("replay", "vgg19_cifar10").replace("seconds_per_epoch: 0.5", "width: 0.0625")
    (tmp_path / "space.yaml").write_text(width + overlay)
    monkeypatch.setattr("search.run.describe_machine", lambda: Machine("a laptop", 2, 8.0, 4.0, ()))
    assert main([str(tmp_path / "space.yaml"), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "640 train, 100 validation" in out
    assert "no GPU here: without_gpu sets data.train_images, data.val_images" in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_plan_of_a_grid_of_probes_says_how_many_and_how_long(
    space: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SPACE.replace("val_accuracy, goal: maximize", "peak_memory_fraction, goal: minimize")
    text = text.replace("{min: 0.001, max: 0.5, log: true}", "{values: [0.1, 0.2, 0.3]}")
    text = text.replace("budget: {trials: 5, epochs: 2}", "searcher: {name: grid}\nevaluation: probe")
    space.write_text(text)
    assert main([str(space), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "budget       1 probe a trial; all 3 grid points" in out
    assert "time         at most about 50 s: a probe takes up to 10 s" in out
    assert "disk" not in out


def test_the_parameters_of_a_training_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--parameters", written(tmp_path, "rows.py")]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    flat = " ".join(out.split())
    assert "hidden int; default 8; affects all metrics" in flat
    assert "num_workers int from 0; default 0; affects the rate alone: loader processes" in flat
    assert "optimizer one of sgd, adamw; default sgd; affects all metrics" in flat
    assert "world_size int from 1; default null; " in flat
    assert {len(line) - len(re.sub(r"^\S* +", "", line)) for line in out.splitlines()} == {INDENT}
    assert main(["--parameters", "vgg19"]) == 2
    assert capsys.readouterr().err.startswith('--parameters: no trainable "vgg19"; there are vgg19_cifar10')


def test_reading_a_bad_space_file_starts_neither_torch_nor_ray(space: Path) -> None:
    script = "import sys, search.run; search.run.main(['x.yaml']); print({'torch', 'ray', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=space.parent, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.slow
def test_the_quickstart_finds_a_front_on_the_pictures_that_are_here(tmp_path: Path) -> None:
    """Real pictures where TRAINING_SEARCH_DATA says so, as in CI; otherwise generated ones, and then it says that."""
    quickstart = Path(__file__).parents[2] / "spaces" / "quickstart.yaml"
    small = ["budget.trials=2", "budget.epochs=1", "data.name=auto", "data.train_images=2000"]
    small = [word for setting in small for word in ("--set", setting)]
    with running(quickstart, *small, "--name", "run", cwd=tmp_path, dashboard=True) as process:
        assert process.wait(timeout=300) == 0, printed(tmp_path)
    run = load(tmp_path / "results" / "run")
    assert run.trials.state.tolist() == ["complete", "complete"]
    assert run.front.test_accuracy.between(0, 1).all()
    expected = "folder" if "TRAINING_SEARCH_DATA" in os.environ else run.info.data.name
    assert run.info.data.name == expected
    summary = (tmp_path / "results" / "run" / "summary.md").read_text()
    assert ("generated" in summary) == (run.info.data.name == "generated")
    assert str(tmp_path) not in summary + (tmp_path / "results" / "run" / FILE_NAME).read_text()


@pytest.mark.slow
def test_a_run_elsewhere_records_the_command_as_it_was_given_and_goes_on_by_the_printed_one(tmp_path: Path) -> None:
    own, data = tmp_path / "my spaces", tmp_path / "my data"
    own.mkdir()
    data.mkdir()
    (own / "x.yaml").write_text(SPACE.replace("0.5}", "5.0}") + "data: {root: my data}\n")
    given = ["my spaces/x.yaml", "--results", "else where", "--name", "run"]
    with running(*given, cwd=tmp_path) as process:
        wait_for(tmp_path / "else where/run" / FILE_NAME, '"start"', process)
        process.terminate()
        assert process.wait(timeout=60) == 143
    command = shlex.split(printed(tmp_path)[-1])
    assert command == ["python", "-m", "search.run", "--resume", "else where/run", "--no-dashboard"]
    info = load(tmp_path / "else where/run").info
    assert info.command == ["python", "-m", "search.run", *given, "--no-dashboard"]
    assert info.data_settings.get("root") == "my data"
    with running(*command[3:], "--set", "budget.hours=0.0001", cwd=tmp_path) as process:
        assert process.wait(timeout=60) in (0, 1), printed(tmp_path)
    assert any("continues" in line for line in printed(tmp_path))


def test_a_ray_job_runs_on_the_cluster_that_ray_names(monkeypatch, tmp_path, capsys):
    """The address that Ray gives to its jobs; nothing answers here, and a given address goes before it."""
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    command = ["spaces/quickstart.yaml", "--results", str(tmp_path)]
    assert main(command) == 2
    assert "no Ray cluster at 127.0.0.1:9" in capsys.readouterr().err
    assert main([*command, "--address", "127.0.0.1:1"]) == 2
    assert "no Ray cluster at 127.0.0.1:1:" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_space_file_that_comes_with_the_package_has_a_name(monkeypatch, tmp_path):
    """A file of that name goes before it."""
    monkeypatch.chdir(tmp_path)
    Path("quickstart").mkdir()
    assert space_path("quickstart").read_text().startswith("# Quickstart")
    assert space_path("none") == Path("none")
    Path("quickstart").rmdir()
    Path("quickstart").write_text("objectives: []")
    assert space_path("quickstart") == Path("quickstart")


def test_a_command_at_the_end_that_fails_is_told_and_changes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(job, "ON_END_SECONDS", 0.3)
    job._run_on_end('test "$SEARCH_EXIT_CODE" = 130 && touch "$SEARCH_RUN/told"', tmp_path, 130)
    assert (tmp_path / "told").exists()
    assert capsys.readouterr().err == ""
    job._run_on_end("exit 3", tmp_path, 0)
    assert "--on-end: " in capsys.readouterr().err
    job._run_on_end("sleep 5", tmp_path, 0)
    assert "timed out" in capsys.readouterr().err


def test_a_command_at_the_end_that_takes_too_long_leaves_no_process(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(job, "ON_END_SECONDS", 0.3)
    job._run_on_end('sleep 60 & echo $! > "$SEARCH_RUN/pid"; wait', tmp_path, 0)
    assert "timed out" in capsys.readouterr().err
    assert gone(with_pids(int((tmp_path / "pid").read_text())), 1) == []


def test_a_signal_to_the_search_ends_its_command_at_the_end(tmp_path, capsys):
    with Interrupts():
        timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGTERM])
        timer.start()
        job._run_on_end('sleep 20 & echo $! > "$SEARCH_RUN/pid"; wait', tmp_path, 0)
    assert "--on-end: interrupted by SIGTERM" in capsys.readouterr().err
    assert gone(with_pids(int((tmp_path / "pid").read_text())), 1) == []


@pytest.mark.parametrize("during", ["copy", "command"])
def test_a_signal_after_the_results_are_written_ends_the_copy_or_the_command(during, tmp_path, capfd, monkeypatch):
    """The command runs all the same if the last copy is not complete, and the exit code tells it."""
    (tmp_path / "space.yaml").write_text(SPACE)
    monkeypatch.setattr(job, "run_study", lambda *arguments: None)
    monkeypatch.setattr(job, "keep_garbage", lambda: None)
    cluster = Cluster(Resources(2), Machine("a processor", 2, 4.0), True, None)
    monkeypatch.setattr("search.run._connected", lambda *arguments: contextlib.nullcontext(cluster))
    command = 'echo "code $SEARCH_EXIT_CODE"'
    if during == "copy":
        monkeypatch.setattr(Mirroring, "finish", lambda self: signal.raise_signal(signal.SIGTERM))
    else:
        command += f"; sleep 1; kill {os.getpid()}; sleep 20"
    words = ["--results", f"{tmp_path}", "--name", "run"]
    words += ["--mirror", (tmp_path / "copy").as_uri()] if during == "copy" else []
    began = time.monotonic()
    code = main([f"{tmp_path / 'space.yaml'}", *words, "--on-end", command])
    assert time.monotonic() - began < 15
    assert (code, "code 143" in capfd.readouterr().out) == ((143, True) if during == "copy" else (1, False))


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_command_at_the_end_can_be_interrupted(name, tmp_path, capsys):
    with Interrupts() as interrupts:
        interrupts.ignore()
        job._run_on_end(f'kill -{name} $$; touch "$SEARCH_RUN/survived"', tmp_path, 0)
    assert not (tmp_path / "survived").exists()
    assert f"SIG{name}" in capsys.readouterr().err
