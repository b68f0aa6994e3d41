"""Signals: the run ends within 15 seconds, its last line is the command that goes on, and that command works."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from search.execution.cluster import Cluster
from search.execution.ray_watchdog import POLL_SECONDS
from search.execution.tune import AdvisorSearcher, Check
from search.record.fields import NO_MACHINE
from search.record.journal import FILE_NAME
from search.record.mirror import WRITER, Mirror, Mirroring
from search.record.run_state import RunState
from search.results import load
from search.study import job
from search.study.interrupt import SIGNALS, Interrupted, Interrupts
from tests.faults.processes import SPACE, descendants, gone, measured, named, printed, running, wait_for, with_pids
from tests.search.runs import REPLAYED
from trainables.contract import Resources

ONE_SHORT_ONE_LONG = f"""\
{REPLAYED.replace("{min: 0.001, max: 0.5, log: true}", "{values: [0.1]}")}\
  seconds_per_epoch: {{values: [0.1, 100]}}
searcher: {{name: grid}}
budget: {{epochs: 3}}
"""


def test_a_signal_before_anything_began_ends_at_once() -> None:
    with pytest.raises(Interrupted) as caught, Interrupts():
        signal.raise_signal(signal.SIGHUP)
    assert caught.value.exit_code == 129


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_was_ignored_at_the_start_stays_ignored(number: int) -> None:
    """As SIGHUP is under nohup, and SIGINT in the background of a script. Ray puts handlers of its own in place."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(number)
            signal.signal(number, signal.SIG_DFL)
            interrupts.install()
            signal.raise_signal(number)
            assert interrupts.exit_code is None
    finally:
        signal.signal(number, before)


TWO_SIGNALS = """
import os, signal, subprocess, time
from search.study.interrupt import Interrupts
interrupts = Interrupts()
interrupts.install()
interrupts.deferred, interrupts.exit_message = True, "to go on: x\\n"
print(subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid, flush=True)
for _ in range(2):
    os.kill(os.getpid(), signal.SIGINT)
time.sleep(60)
"""


def test_a_second_signal_does_not_wait_has_its_last_words_and_leaves_no_process() -> None:
    """Two of Ray's would look for the process that is gone for more than 20 s."""
    done = subprocess.run([sys.executable, "-c", TWO_SIGNALS], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (130, "to go on: x\n")
    assert gone(with_pids(int(done.stdout)), 2) == []


STUCK = """
import contextlib, gc, subprocess, sys, time
from search import run
from search.execution.cluster import Cluster
from search.space.machine import Machine
from search.study import job, shutdown
from search.study.interrupt import Interrupted
from trainables.contract import Resources

class Asks:
    def __init__(self):
        self.itself = self  # for the garbage collector
    def __del__(self):
        time.sleep(60)

written = shutdown.write_results
def write_results(folder):
    gc.collect()
    return written(folder)

@contextlib.contextmanager
def connected(*arguments):
    ray = subprocess.Popen(["sleep", "60"])
    print(ray.pid, file=sys.stderr)
    yield Cluster(Resources(2), Machine("a processor", 2, 4.0), True, None)
    time.sleep(60)

def interrupted(*arguments):
    asks = Asks()
    raise Interrupted(1)

run._connected, job.run_study, job.LEAVE_SECONDS = connected, interrupted, 0.5
shutdown.write_results = write_results
sys.exit(run.main(["space.yaml"]))
"""


@pytest.mark.slow
def test_a_ray_that_does_not_let_go_is_left_within_seconds(tmp_path: Path) -> None:
    """As where a closed terminal has ended a part of its processes; objects of Ray ask it when they are collected."""
    (tmp_path / "space.yaml").write_text(SPACE)
    done = subprocess.run(
        [sys.executable, "-c", STUCK], cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 129, done.stderr
    assert done.stdout.splitlines()[-2] == "interrupted; to go on:"
    assert gone(with_pids(int(done.stderr.split()[0])), 5) == []


@pytest.mark.parametrize("why", ["Ray is gone", "Ray does not answer"])
def test_where_ray_is_gone_or_stuck_by_the_signal_as_well_the_exit_code_is_the_signals(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is gone it may be seen to be gone before the signal has come to this process too."""
    told: list[Any] = []

    def abandon(*what: Any) -> None:
        if why == "Ray is gone":
            signal.pthread_kill(threading.get_ident(), signal.SIGHUP)
        told.append((*what[:-1], what[-1]()))

    monkeypatch.setattr(job, "abandon", abandon)
    stuck: Any = SimpleNamespace(folder=tmp_path, resume_command="to go on", on_end=None)
    view: Any = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(job, "OBEY_SECONDS", 0.5)
    cluster = Cluster(Resources(2), NO_MACHINE, True, None, why_lost=lambda: why if why == "Ray is gone" else None)
    with Interrupts() as interrupts:
        interrupts.deferred = True
        if why != "Ray is gone":
            signal.raise_signal(signal.SIGHUP)
        with job._watched(stuck, cluster, view, None, interrupts):
            time.sleep(2.5 * POLL_SECONDS)
    assert told == [(tmp_path, "to go on", why, 129)]


@pytest.mark.parametrize("store", ["answers", "hangs"])
def test_where_ray_is_gone_the_rest_is_copied_and_the_command_at_the_end_runs(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that hangs keeps neither the command nor the process waiting."""
    run, bucket = tmp_path / "run", tmp_path / "bucket"
    run.mkdir()
    (run / FILE_NAME).write_text("{}\n")
    mirror = Mirror(bucket.as_uri(), "run")
    mirror.claim()
    over = threading.Event()
    if store == "hangs":
        monkeypatch.setattr(mirror, "copy", lambda *_: over.wait(20))
        monkeypatch.setattr(job, "LAST_COPY_SECONDS", 0.2)
    command = f'ls {bucket / "run"} > {tmp_path / "told"}; echo "$SEARCH_EXIT_CODE" >> {tmp_path / "told"}'
    lost: Any = SimpleNamespace(folder=run, on_end=command)
    with Mirroring(mirror, run, RunState([])) as mirroring:
        assert job._last_acts(lost, mirroring, lambda: 1) == 1
        over.set()
    assert (tmp_path / "told").read_text() == (f"{FILE_NAME}\n1\n" if store == "answers" else f"{WRITER}\n1\n")


def test_a_signal_is_known_while_the_main_thread_waits_in_compiled_code() -> None:
    told: list[int | None] = []

    def signalled() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGHUP)
        told.append(interrupts.exit_code)

    with Interrupts() as interrupts:
        interrupts.deferred = True
        assert interrupts.exit_code is None
        thread = threading.Timer(0.1, signalled)
        thread.start()
        ctypes.CDLL(None).usleep(500_000)
        thread.join()
        assert told == [interrupts.exit_code] == [129]


STARTING = """
import ctypes, os, signal, threading
from search.study.interrupt import Interrupts
with Interrupts() as interrupts:
    interrupts.deferred = True
    with interrupts.ending_at_once(lambda: print("the last act", flush=True)):
        threading.Timer(0.1, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)).start()
        ctypes.CDLL(None).sleep(20)
"""


def test_a_signal_while_ray_starts_does_not_wait_for_compiled_code() -> None:
    done = subprocess.run([sys.executable, "-c", STARTING], stdout=subprocess.PIPE, timeout=15, check=False)
    assert (done.returncode, done.stdout) == (143, b"the last act\n")


def test_what_fails_after_a_signal_has_failed_by_it() -> None:
    with Interrupts() as interrupts:
        interrupts.deferred = True
        with pytest.raises(OSError, match="before"), interrupts.attributed_to_signal():
            raise OSError("before")
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Interrupted) as caught, interrupts.attributed_to_signal():
            raise OSError("after")
    assert caught.value.exit_code == 143


def test_an_actor_that_ends_by_the_signal_is_no_failed_trial_and_no_fault() -> None:
    def check() -> None:
        raise Interrupted(signal.SIGHUP)

    decider: Any = SimpleNamespace(crash=lambda *what: pytest.fail(f"{what}"))
    with pytest.raises(Interrupted):
        AdvisorSearcher(decider, check, []).on_trial_complete("of Tune", error=True)
    with pytest.raises(Interrupted):
        Check(decider, check, [OSError("Ray is half gone")]).stop_all()


ORPHAN = """
import subprocess
from search.execution.ray_watchdog import end_children, in_own_process_group
command = ["sh", "-c", "sleep 60 >&2 & echo $!"]
started = in_own_process_group(subprocess.Popen)(command, stdout=subprocess.PIPE, text=True)
print(started.communicate()[0])
end_children()
"""


def test_what_was_started_by_one_that_is_gone_is_ended_too() -> None:
    done = subprocess.run([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True, check=True)
    assert gone(with_pids(int(done.stdout)), 1) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_all_while_ray_starts_leaves_nothing(number: int, tmp_path: Path) -> None:
    """As from a terminal: where Ray's own processes ended by it, Ray would wait for them half a minute."""
    with running("space.yaml", "--name", "run", "--mirror", f"{tmp_path / 'store'}", cwd=tmp_path) as process:
        deadline = time.monotonic() + 60
        while not (gcs := named(family := descendants(process), "gcs_server")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert os.getpgid(gcs[0].pid) != process.pid
        os.killpg(process.pid, number)
        assert process.wait(15) == 128 + number, "\n".join(printed(tmp_path)[-20:])
        assert gone(family, 5) == []
    assert printed(tmp_path)[-1] == "interrupted before the search began"
    assert not (tmp_path / "results").exists()
    assert not (tmp_path / "store").exists()


@pytest.mark.slow
def test_sigterm_where_a_part_of_ray_had_it_first_leaves_nothing(tmp_path: Path) -> None:
    """As from a service manager, which signals each process. Ray's agents look for a raylet that is gone a while."""
    with running("space.yaml", "--name", "run", cwd=tmp_path) as process:
        wait_for(tmp_path / "results" / "run" / FILE_NAME, '"start"', process)
        family = descendants(process)
        for each in [*named(family, "raylet"), *named(family, "gcs_server")]:
            each.kill()
        process.terminate()
        assert process.wait(15) == 143, "\n".join(printed(tmp_path)[-20:])
        assert gone(family, 5) == []
    assert printed(tmp_path)[-1] == "  python -m search.run --resume results/run --no-dashboard"


def test_a_process_that_has_left_ray_in_time_goes_on() -> None:
    with Interrupts() as interrupts:
        interrupts.exit_within(0.1, 1)
    time.sleep(0.3)


@pytest.mark.slow
def test_a_terminal_that_is_closed_ends_the_run_and_the_printed_command_goes_on(tmp_path: Path) -> None:
    """All processes of the terminal get SIGHUP. The folder's path has spaces and letters beyond ASCII."""
    cwd = tmp_path / "ein Ordner – ü"
    cwd.mkdir()
    folder = cwd / "Läufe 1" / "run"
    with running("space.yaml", "--results", "Läufe 1", "--name", "run", cwd=cwd) as process:
        wait_for(folder / FILE_NAME, r'"measurement",[^\n]*"t0002"', process)
        family = descendants(process)
        signalled_at = time.monotonic()
        os.killpg(process.pid, signal.SIGHUP)
        assert process.wait(60) == 129, "\n".join(printed(cwd)[-20:])
        assert time.monotonic() - signalled_at < 15
        assert gone(family, 10) == []
    before = measured(folder)
    words = shlex.split(printed(cwd)[-1])
    assert words[:3] == ["python", "-m", "search.run"]
    with running(*words[3:], cwd=cwd) as process:
        assert process.wait(300) == 0, printed(cwd)
    assert before.items() <= measured(folder).items()
    trials = load(folder).trials
    assert trials.state.tolist() == ["complete"] * 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "times", "code"), [(signal.SIGINT, 1, 130), (signal.SIGINT, 2, 130), (signal.SIGTERM, 1, 143)]
)
def test_a_signal_waits_for_no_epoch_however_long(tmp_path: Path, number: int, times: int, code: int) -> None:
    """Finished trials are kept; a second signal changes nothing, or ends the process at once."""
    (tmp_path / "space.yaml").write_text(ONE_SHORT_ONE_LONG)
    folder = tmp_path / "results" / "run"
    with running("space.yaml", "--name", "run", cwd=tmp_path) as process:
        wait_for(folder / FILE_NAME, r'"start",[^\n]*"t0002"', process)
        time.sleep(1)
        family = descendants(process)
        signalled_at = time.monotonic()
        for _ in range(times):
            process.send_signal(number)
            time.sleep(0.05)
        assert process.wait(60) == code, printed(tmp_path)
        assert time.monotonic() - signalled_at < 15
        assert gone(family, 10) == []
    assert printed(tmp_path)[-1].strip() == f"python -m search.run --resume {Path('results') / 'run'} --no-dashboard"
    assert load(folder).trials.state.tolist()[0] == "complete"
