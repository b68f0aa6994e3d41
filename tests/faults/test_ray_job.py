"""A search as a job of a Ray cluster that is lost, head and all, again and again: docs/cluster.md."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from search.record.events import End
from search.record.journal import FILE_NAME, read_journal
from search.results import load
from search.space.parsing import load_space
from tests.faults.processes import SPACE, measured
from tests.faults.simulation import simulate

KILLS = 10
RAY = Path(sys.executable).parent / "ray"
SLOW = SPACE.replace("seconds_per_epoch: 0.1", "seconds_per_epoch: 0.3").replace("trials: 8", "trials: 30")


class Head:
    """A Ray cluster of one node, as `ray start --head` begins it."""

    def __init__(self, number: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # a socket's path is short
        self.environment = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_TMPDIR": str(self.folder),
            "PATH": f"{RAY.parent}:{os.environ['PATH']}",  # jobs run in the environment of `ray start`
        }
        self.port, self.dashboard = 21_000 + 10 * number, 21_005 + 10 * number
        agent = self.dashboard + 1  # takes jobs; by default all of a machine's Rays want the same port for theirs
        self.run(
            *("start", "--head", f"--port={self.port}", f"--dashboard-port={self.dashboard}"),
            f"--dashboard-agent-listen-port={agent}",
            *("--num-cpus=2", f"--temp-dir={self.folder}", "--disable-usage-stats"),
        )

    def run(self, *words: str, cwd: Path | None = None) -> str:
        """Return what a command of Ray printed."""
        done = subprocess.run(
            [str(RAY), *words], env=self.environment, cwd=cwd, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, cwd: Path, number: int) -> None:
        """Submit the search as docs/cluster.md says."""
        self.run(
            *("job", "submit", "--address", f"http://127.0.0.1:{self.dashboard}", "--no-wait"),
            *("--submission-id", f"lr42-{number}", "--working-dir", ".", "--"),
            *("python", "-m", "search.run", "space.yaml", "--address", "auto", "--results", f"{cwd.parent}/results"),
            *("--name", "lr42", "--go-on"),
            cwd=cwd,
        )

    def kill(self) -> None:
        """Kill the driver and all processes of Ray, as where the power fails."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if any(str(self.folder) in word for word in process.cmdline()):
                    found += [process, *process.children(recursive=True)]
        for each in found:
            with contextlib.suppress(psutil.Error):
                each.kill()
        psutil.wait_procs(found, timeout=20)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def head(number: int) -> Iterator[Head]:
    started = Head(number)
    try:
        yield started
    finally:
        started.kill()


def wait_until_measured(folder: Path, more_than: int, seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while not (folder / FILE_NAME).exists() or len(measured(folder)) <= more_than:
        assert time.monotonic() < deadline, "no measurement"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_job_whose_cluster_is_lost_ten_times_is_the_search_that_was_never_lost(tmp_path: Path) -> None:
    """Nothing is lost, nothing is done twice, the choices are those of the same search simulated."""
    project, folder = tmp_path / "project", tmp_path / "results" / "lr42"
    project.mkdir()
    (project / "space.yaml").write_text(SLOW)
    draw, before = random.Random(0), {}
    for number in range(KILLS):
        with head(number) as cluster:
            cluster.submit(project, number)
            with contextlib.suppress(FileNotFoundError):
                before = measured(folder)
            wait_until_measured(folder, len(before))  # so that each gets somewhere
            time.sleep(draw.uniform(0.0, 1.5))
        now = measured(folder)
        assert before.items() <= now.items()
        assert not any(isinstance(event, End) for event in read_journal(folder / FILE_NAME)), "ended too early"
        before = now
    with head(KILLS) as cluster:
        cluster.submit(project, KILLS)
        deadline = time.monotonic() + 150
        while not isinstance(read_journal(folder / FILE_NAME)[-1], End):
            assert time.monotonic() < deadline
            time.sleep(0.2)
    assert before.items() <= measured(folder).items()
    simulate(tmp_path / "simulated", load_space(project / "space.yaml", ["data.name=generated"]))
    trials, expected = load(folder).trials, load(tmp_path / "simulated").trials
    assert trials.state.tolist() == expected.state.tolist()
    assert trials["config.learning_rate"].tolist() == expected["config.learning_rate"].tolist()
    assert trials.val_accuracy.tolist() == expected.val_accuracy.tolist()
