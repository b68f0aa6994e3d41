"""A run in Optuna's storages and as TensorBoard logs, finished and going on, and opened by their own servers."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from search.exit_codes import InputError
from search.export.__main__ import answer, main, parser
from search.export.to_optuna import export, storage_of
from search.export.to_tensorboard import export as export_logs
from search.record.run_lock import lock_run
from search.results import load
from tests.search.runs import Recorder, config, interval, story, write_run

SUFFIXES = pytest.mark.parametrize("suffix", [".log", pytest.param(".db", marks=pytest.mark.slow)])


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run", story())


def study_of(path):
    (summary,) = optuna.get_all_study_summaries(storage_of(path))
    return optuna.load_study(study_name=summary.study_name, storage=storage_of(path))


def by_name(study):
    return {trial.user_attrs["trial_id"]: trial for trial in study.trials}


def growing(folder, epochs, end=False):
    """A run of two trials of which the second is at that epoch."""
    recorder = Recorder()
    recorder.complete("t0001", [0.3, 0.5, 0.6], 300.0, config())
    recorder.start("t0002", **config(256))
    for epoch in range(1, epochs + 1):
        recorder.measure("t0002", epoch, val_accuracy=0.2 * epoch, **interval(400.0, 4.0))
    if end:
        recorder.finish("t0002")
        recorder.add("end", reason="the budget is spent")
    return write_run(folder, recorder.events)


@SUFFIXES
def test_the_study_has_every_trial_with_its_state_and_the_front_of_the_run(tmp_path, folder, suffix):
    assert export(load(folder), tmp_path / f"study{suffix}") == (12, 12)
    study = study_of(tmp_path / f"study{suffix}")
    trials = by_name(study)
    assert [d.name for d in study.directions] == ["MAXIMIZE", "MAXIMIZE"]
    assert study.metric_names == ["val_accuracy", "images_per_second"]
    states = {name: trial.state for name, trial in trials.items()}
    assert (states["t0001"], states["t0004"]) == (TrialState.COMPLETE, TrialState.PRUNED)
    assert (states["t0002"], states["t0008"], states["t0012"]) == (TrialState.FAIL, TrialState.FAIL, TrialState.RUNNING)
    assert {t.user_attrs["trial_id"] for t in study.best_trials} == {"t0003", "t0007", "t0011"}  # not t0010
    assert trials["t0007"].values == [0.7, 352.0]
    assert trials["t0007"].params == config(128, 0.06)
    assert trials["t0007"].intermediate_values == {1: 0.4, 2: 0.6, 3: 0.7}
    assert trials["t0007"].user_attrs["test_accuracy"] == 0.694
    assert trials["t0002"].user_attrs["reason"].startswith("out of memory")
    assert study.user_attrs["fixed"] == {"optimizer": "sgd", "momentum": "0.9", "pin_memory": "false"}
    assert trials["t0001"].duration.total_seconds() == pytest.approx(61.0)


def test_a_run_without_trials_is_a_study_without_trials(tmp_path):
    assert export(load(write_run(tmp_path / "run", Recorder().events)), tmp_path / "study.log") == (0, 0)


@SUFFIXES
def test_a_copy_of_a_run_in_progress_grows_with_it(tmp_path, suffix):
    path = tmp_path / f"study{suffix}"
    assert export(load(growing(tmp_path / "run", 1)), path) == (2, 2)
    before = study_of(path)._study_id
    assert by_name(study_of(path))["t0002"].state is TrialState.RUNNING
    assert export(load(growing(tmp_path / "run", 2)), path) == (2, 0)
    assert by_name(study_of(path))["t0002"].intermediate_values == {1: 0.2, 2: 0.4}
    assert export(load(growing(tmp_path / "run", 3, end=True)), path) == (2, 0)
    trial = by_name(study_of(path))["t0002"]
    assert (trial.state, trial.values) == (TrialState.COMPLETE, [pytest.approx(0.6), 400.0])
    assert len(study_of(path).trials) == 2
    assert study_of(path)._study_id == before
    assert {t.user_attrs["trial_id"] for t in study_of(path).best_trials} == {"t0001", "t0002"} - {"t0001"}


def test_what_optuna_does_not_let_change_is_written_anew(tmp_path):
    path = tmp_path / "study.log"
    folder = growing(tmp_path / "run", 3, end=True)
    export(load(folder), path)
    again = {"event": "repeat", "time": 2e9, "trial_id": "t0002", "metrics": interval(380.0, 4.0)}
    with (folder / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps(again) + "\n")
    assert export(load(folder), path) == (2, 2)
    assert by_name(study_of(path))["t0002"].values[1] == pytest.approx(390.0, rel=0.01)
    assert len(study_of(path).trials) == 2


def test_probes_that_prepare_others_are_not_in_the_study_and_what_measured_too_little_failed(tmp_path):
    recorder = Recorder()
    recorder.start("p0001", "probe", **config())
    recorder.measure("p0001", 0, images_per_second=100.0)
    recorder.finish("p0001")
    recorder.start("t0001", **config())
    recorder.measure("t0001", 1, val_accuracy=None, images_per_second=100.0)
    recorder.finish("t0001")
    export(load(write_run(tmp_path / "run", recorder.events)), tmp_path / "study.log")
    assert {name: t.state for name, t in by_name(study_of(tmp_path / "study.log")).items()} == {
        "t0001": TrialState.FAIL
    }


def test_another_run_of_the_same_name_replaces_no_study(tmp_path, folder):
    export(load(folder), tmp_path / "study.log")
    other = Recorder()
    other.events[0]["time"] += 60.0
    with pytest.raises(InputError, match=r"study\.log: has another run with the name throughput-2026-11-20-1"):
        export(load(write_run(tmp_path / "other", other.events)), tmp_path / "study.log")
    assert len(study_of(tmp_path / "study.log").trials) == 12


def test_the_run_is_only_read(tmp_path, folder, capsys):
    journal = folder / "journal.jsonl"
    before, stamp = journal.read_bytes(), journal.stat().st_mtime_ns
    journal.chmod(0o400)
    code = main([str(folder), "--optuna", str(tmp_path / "a.log"), "--tensorboard", str(tmp_path / "logs")])
    assert (code, capsys.readouterr().err) == (0, "")
    assert (journal.read_bytes(), journal.stat().st_mtime_ns) == (before, stamp)
    assert [path.name for path in folder.iterdir()] == ["journal.jsonl"]


def scalars(folder):
    """Tag -> values by step, as TensorBoard itself reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: {e.step: e.value for e in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def test_a_trial_has_its_scalars_by_epoch_and_those_of_the_test_set(tmp_path, folder):
    assert export_logs(load(folder), tmp_path / "logs") == 12
    found = scalars(tmp_path / "logs" / "t0007")
    assert found["objectives/val_accuracy"] == pytest.approx({1: 0.4, 2: 0.6, 3: 0.7})
    assert found["others/test_accuracy"] == pytest.approx({3: 0.694})
    assert scalars(tmp_path / "logs" / "t0005")["objectives/images_per_second"] == {
        1: 350.0
    }  # its accuracy was no number
    assert scalars(tmp_path / "logs" / "t0002") == {}


def test_logs_of_a_run_in_progress_grow_by_new_files_alone(tmp_path):
    logs, run = tmp_path / "logs", tmp_path / "run"
    files = []
    for epochs, end in ((1, False), (1, False), (2, False), (3, True)):
        export_logs(load(growing(run, epochs, end)), logs)
        assert len(list((logs / "t0001").iterdir())) == 1
        files.append({path.name: path.read_bytes() for path in (logs / "t0002").iterdir()})
    assert [len(found) for found in files] == [1, 1, 2, 3]
    assert files[0].items() < files[2].items() < files[3].items()
    assert scalars(logs / "t0002")["objectives/val_accuracy"] == pytest.approx({1: 0.2, 2: 0.4, 3: 0.6})


def test_where_an_epoch_was_measured_anew_the_log_is_written_anew(tmp_path):
    logs, run = tmp_path / "logs", tmp_path / "run"
    export_logs(load(growing(run, 2)), logs)
    recorder = Recorder()
    recorder.start("t0002", **config(256))
    recorder.measure("t0002", 1, val_accuracy=0.3, images_per_second=400.0)
    export_logs(load(write_run(run, recorder.events)), logs)
    assert scalars(logs / "t0002")["objectives/val_accuracy"] == pytest.approx({1: 0.3})
    assert socket.gethostname() not in " ".join(path.name for path in (logs / "t0002").iterdir())


def test_every_so_many_seconds_until_the_run_has_ended(tmp_path, capsys):
    run, slept, owner = growing(tmp_path / "run", 1), [], contextlib.ExitStack()
    owner.enter_context(lock_run(run))

    def sleep(seconds):
        slept.append(seconds)
        growing(run, 1 + len(slept), end=len(slept) == 2)
        if len(slept) == 2:
            owner.close()

    options = parser().parse_args([str(run), "--optuna", str(tmp_path / "a.log"), "--every", "5"])
    assert answer(options, sleep).startswith("2 trials, 0 new: optuna-dashboard ")
    assert slept == [5.0, 5.0]
    assert capsys.readouterr().out.count("optuna-dashboard") == 2
    assert by_name(study_of(tmp_path / "a.log"))["t0002"].state is TrialState.COMPLETE


def test_a_run_that_was_killed_is_copied_once(tmp_path):
    run = growing(tmp_path / "run", 1)
    options = parser().parse_args([str(run), "--optuna", str(tmp_path / "a.log"), "--every", "5"])
    assert answer(options, lambda seconds: pytest.fail("waits")).startswith("2 trials, 2 new: optuna-dashboard ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "nothing to write: --optuna FILE.log, --tensorboard DIR, or both"),
        (["--optuna", "a.txt"], "--optuna a.txt: expected a name that ends in .db, .sqlite, .sqlite3, .log"),
        (["--optuna", "nowhere/a.db"], "--optuna nowhere/a.db: there is no folder nowhere"),
        (["--tensorboard", "file"], "--tensorboard file: is a file"),
        (["--optuna", "a.log", "--every", "0"], "--every 0: expected at least 1"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_created(tmp_path, monkeypatch, capsys, folder, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main([str(folder), *options]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "run"]


def test_a_file_that_is_something_else_is_not_written_over(tmp_path, folder, capsys):
    (tmp_path / "notes.db").write_text("milk, bread\n" * 100)
    assert main([str(folder), "--optuna", str(tmp_path / "notes.db")]) == 2
    assert "notes.db: is no study of Optuna (" in capsys.readouterr().err
    assert (tmp_path / "notes.db").read_text().startswith("milk")


# --- their own servers, over HTTP -------------------------------------------------------------------------------------


class Server:
    """A server in a process of its own, on a free port."""

    def __init__(self, module, *words):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"http://127.0.0.1:{probe.getsockname()[1]}"
        port = self.address.rpartition(":")[2]
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        program = shutil.which(module, path=str(Path(sys.executable).parent))
        command = [program, *map(str, words), "--port", port, "--host", "127.0.0.1"]
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._process.terminate()
        self._process.communicate(timeout=20)

    def get(self, path, until=lambda answer: True, body=None, seconds=90):
        """The JSON of an answer that is as hoped for; asked again meanwhile."""
        deadline, last = time.monotonic() + seconds, None
        while time.monotonic() < deadline:
            try:
                request = urllib.request.Request(
                    self.address + path,
                    data=None if body is None else json.dumps(body).encode(),
                    headers={"Content-Type": "application/json"},
                )
                with urllib.request.urlopen(request, timeout=10) as response:
                    last = json.loads(response.read())
                if until(last):
                    return last
            except (urllib.error.URLError, ConnectionError, ValueError) as error:
                last = error
            time.sleep(0.3)
        raise AssertionError(f"{path}: {last}")


@pytest.mark.slow
@SUFFIXES
def test_optuna_dashboard_opens_a_run_in_progress_and_sees_it_finish(tmp_path, suffix):
    path = tmp_path / f"study{suffix}"
    export(load(growing(tmp_path / "run", 2)), path)
    with Server("optuna-dashboard", path if suffix == ".log" else f"sqlite:///{path}") as server:
        (study,) = server.get("/api/studies", lambda found: found.get("study_summaries"))["study_summaries"]
        assert study["study_name"] == "throughput-2026-11-20-1"
        detail = f"/api/studies/{study['study_id']}?after=0"
        states = [t["state"] for t in server.get(detail)["trials"]]
        assert sorted(states) == ["Complete", "Running"]
        export(load(growing(tmp_path / "run", 3, end=True)), path)
        found = server.get(detail, lambda found: all(t["state"] == "Complete" for t in found["trials"]))
        assert [t["values"][1] for t in found["trials"]] == [300.0, 400.0]
        assert found["objective_names"] == ["val_accuracy", "images_per_second"]
        assert [t["constraints"] for t in found["trials"]] == [[-1.0], [-1.0]]


@pytest.mark.slow
def test_tensorboard_opens_a_run_in_progress_and_sees_it_finish(tmp_path):
    logs = tmp_path / "logs"
    export_logs(load(growing(tmp_path / "run", 2)), logs)
    options = ["--logdir", logs, "--reload_interval", "1", "--load_fast", "false"]
    with Server("tensorboard", *options) as server:
        runs = server.get("/data/runs", lambda found: "t0002" in found)
        assert {"t0001", "t0002"} <= set(runs)
        curve = "/data/plugin/scalars/scalars?tag=objectives/val_accuracy&run=t0002"
        assert [step for _, step, _ in server.get(curve, lambda found: len(found) == 2)] == [1, 2]
        export_logs(load(growing(tmp_path / "run", 3, end=True)), logs)
        assert server.get(curve, lambda found: len(found) == 3)[2][2] == pytest.approx(0.6)
        experiment = server.get("/data/plugin/hparams/experiment", body={})
        assert {"batch_size", "learning_rate"} <= {column["name"] for column in experiment["hparamInfos"]}
        asked = {
            "startIndex": 0,
            "sliceSize": 10,
            "allowedStatuses": ["STATUS_SUCCESS", "STATUS_RUNNING"],
            "colParams": [],
        }
        groups = server.get(
            "/data/plugin/hparams/session_groups", lambda found: len(found.get("sessionGroups", [])) == 2, body=asked
        )["sessionGroups"]
        assert {group["hparams"]["batch_size"] for group in groups} == {128.0, 256.0}
