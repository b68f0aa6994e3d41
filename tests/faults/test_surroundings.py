"""Environment of a run: killed parents, ports, missing clusters, too few cores, a driver that is stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from search.execution import cluster
from search.execution.ray_watchdog import MAX_FAILED_CONNECTS, RayLossCheck
from search.record.journal import FILE_NAME
from search.record.run_state import RunState
from search.results import load
from search.run import main
from search.space.machine import describe_machine
from tests.faults.processes import SPACE, gone, printed, running, wait_for, with_pids
from tests.search.runs import typed

LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
LOADER = """
import os, psutil, signal
import numpy as np, torch
from trainables.samples.picture_source import Pictures
from trainables.plan import Plan
from trainables.samples.loaders import training_batches
from trainables.stages import Timeline
pictures = Pictures(np.zeros((4000, 32, 32, 3), dtype=np.uint8), np.zeros(4000, dtype=np.int64), 10)
plan, cpu = Plan(np.arange(4000), batch_size=4, seed=0), torch.device("cpu")
batches = training_batches("workers", pictures, plan, cpu, num_workers=2, pin_memory=False)
next(batches.epoch(1, Timeline(cpu)))
print(*(child.pid for child in psutil.Process().children()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_loader_processes_end_with_the_process_of_their_trial() -> None:
    """PyTorch's own watch would take five seconds, and more where many are killed."""
    with subprocess.Popen([sys.executable, "-c", LOADER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) >= 2
        process.wait(60)
        assert gone(with_pids(*pids), 2) == []


def test_nothing_of_ray_listens_beyond_this_machine(cluster: Any) -> None:
    """Otherwise everybody on the network could run code here."""
    open_to_all = []
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        for connection in process.net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.ip not in LOOPBACK:
                open_to_all.append((process.name(), connection.laddr))
    assert open_to_all == []


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nobody.invalid:6379", "ray://127.0.0.1:1", "x:y"])
def test_a_cluster_that_is_not_there_is_told_within_30_seconds(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    asked_at = time.monotonic()
    assert main([str(tmp_path / "space.yaml"), "--results", str(tmp_path / "results"), "--address", address]) == 2
    assert time.monotonic() - asked_at < 30
    err = capsys.readouterr().err
    why = "expected HOST:PORT or auto\n" if address == "x:y" else ""
    assert err.startswith(f"no Ray cluster at {address}: {why}")
    assert err.count("\n") == 1
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_an_address_at_which_something_else_listens_is_told_within_30_seconds(tmp_path: Path) -> None:
    """The listener accepts the connection and never sends a byte."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        asked_at = time.monotonic()
        with running("space.yaml", "--address", address, cwd=tmp_path) as process:
            assert process.wait(60) == 2, printed(tmp_path)
    assert time.monotonic() - asked_at < 40  # 30, and the start of Python and Ray
    assert printed(tmp_path)[-1].startswith(f"no Ray cluster at {address}: ")


@pytest.mark.parametrize(
    ("change", "said"),
    [("fixed.processes=1000", "needs 1000 cores"), ("concurrent_trials=99", "cannot share")],
)
def test_what_this_machine_cannot_do_is_told_before_anything_is_started(
    change: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    assert main([str(tmp_path / "space.yaml"), "--set", change, "--results", str(tmp_path / "results")]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_ray_is_gone_when_a_process_of_it_is_or_nobody_answers_any_more() -> None:
    child = subprocess.Popen(["sleep", "60"])
    lost = RayLossCheck({"raylet": psutil.Process(child.pid)}, None)
    assert lost() is None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    assert lost() == f"Ray is gone: its raylet (process {child.pid}) has ended"
    child.wait()
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        elsewhere = RayLossCheck({}, (host, port))
        assert elsewhere() is None
    answers = [elsewhere() for _ in range(MAX_FAILED_CONNECTS)]
    assert answers == [*[None] * (MAX_FAILED_CONNECTS - 1), f"Ray is gone: nobody answers at {host}:{port}"]


def test_a_clock_that_was_set_back_between_two_processes_makes_no_time_negative() -> None:
    run = {"event": "run", "time": 5000.0, "name": "x", "data": {"name": "generated"}}
    run["objectives"] = [{"metric": "a", "goal": "minimize"}]
    run_state = RunState(typed([run, {"event": "end", "time": 5100.0}, {"event": "resume", "time": 1000.0}]))
    assert run_state.clock.active_seconds() == 100.0
    assert run_state.clock.active_seconds(now=900.0) == 100.0
    back = typed([run, {"event": "end", "time": 4000.0}, {"event": "resume", "time": 6000.0}])
    assert RunState(back).clock.active_seconds() == 0.0


def test_a_ray_that_does_not_start_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ray raises a bare Exception on a machine that is too busy."""

    def init(**settings: Any) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr("ray.init", init)
    monkeypatch.setattr(cluster, "end_children", lambda timeout: None)  # this process has those of other tests
    (tmp_path / "space.yaml").write_text(SPACE)
    assert main([str(tmp_path / "space.yaml"), "--results", str(tmp_path / "results")]) == 2
    assert capsys.readouterr().err == "no Ray cluster on this machine: The current node timed out during startup.\n"
    assert not (tmp_path / "results").exists()


def test_a_ray_that_does_not_start_is_ended_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def init(**settings: Any) -> SimpleNamespace:
        done.append("start")
        if len(done) == 1:
            raise Exception("The current node timed out during startup.")
        return SimpleNamespace(dashboard_url="127.0.0.1:8265")

    monkeypatch.setattr("ray.init", init)
    monkeypatch.setattr(cluster, "end_children", lambda timeout: done.append("end"))
    assert cluster._start(describe_machine(), dashboard=True) == "127.0.0.1:8265"
    assert done == ["start", "end", "start"]


@pytest.mark.slow
def test_a_driver_that_is_stopped_and_continued_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    """A suspended terminal does this. The workers measure the rates, with a monotonic clock."""
    folder = tmp_path / "results" / "run"
    with running("space.yaml", "--name", "run", cwd=tmp_path) as process:
        wait_for(folder / FILE_NAME, r'"measurement",[^\n]*"t0003"', process)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(30)
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(300) == 0, printed(tmp_path)
    trials = load(folder).trials
    assert trials.state.tolist() == ["complete"] * 8
    assert trials.retries.tolist() == [0] * 8


@pytest.mark.slow
def test_two_runs_at_once_with_the_dashboards_port_taken_each_have_their_own(tmp_path: Path) -> None:
    """Both use one results folder and one space file: they share neither a port nor a folder."""
    (tmp_path / "space.yaml").write_text(SPACE.replace("trials: 8", "trials: 2"))
    script = "import sys; from search.run import main; sys.exit(main(['space.yaml']))"
    environment = {**os.environ, "RAY_DASHBOARD_NO_COLOR": "1"}
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8265))
            taken.listen()
        except OSError:
            pass  # somebody else has it, which serves as well
        both = [
            subprocess.Popen(
                [sys.executable, "-c", script], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        said = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert len(list((tmp_path / "results").iterdir())) == 2
    ports = [text.partition("Ray dashboard: http://127.0.0.1:")[2].split()[0] for text in said]
    assert len({*ports, "8265"}) == 3


@pytest.mark.slow
def test_a_reader_that_leaves_early_does_not_hurt_the_run(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    command = f"{sys.executable} -m search.run space.yaml --name run --no-dashboard 2> errors | head -3"
    subprocess.run(command, shell=True, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    assert load(tmp_path / "results" / "run").trials.state.tolist() == ["complete"] * 8
    assert (tmp_path / "results" / "run" / "summary.md").exists()
    assert (tmp_path / "errors").read_text() == ""
