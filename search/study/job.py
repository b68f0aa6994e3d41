"""One run of a search, from the first line that it prints to its exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from search.execution.cluster import Cluster
from search.execution.dashboard import Metrics, announce
from search.execution.ray_watchdog import watchdog
from search.exit_codes import FAILED
from search.page.document import FILE_NAME as PAGE
from search.page.live import LivePage
from search.record.events import Event
from search.record.journal import FILE_NAME, Journal, Listener, steady_clock
from search.record.mirror import Mirror, Mirroring
from search.record.run_state import RunState
from search.space.machine import shm_warnings
from search.space.space import Space
from search.study.interrupt import Interrupted, Interrupts
from search.study.shutdown import abandon, finish_run, keep_garbage, report_failure
from search.study.study import run_study
from search.terminal.progress import Progress
from search.text.numbers import plural
from trainables.contract import Data, source_of

LEAVE_SECONDS = 5.0  # for the shutdown of Ray, which takes two to three if no part of it is lost
ON_END_SECONDS = 60.0  # for the command of --on-end
LAST_COPY_SECONDS = 30.0  # after a signal, or where Ray is lost, which may end this process a minute later
OBEY_SECONDS = 8.0  # for a signal to end the study, which waits for no epoch


@dataclass(frozen=True)
class Job:
    """Run that is about to begin or to go on: everything checked, nothing started."""

    space: Space  # as this machine can do it
    data: Data
    folder: Path
    events: list[Event]  # of the run so far; none: it is new
    opening: dict[str, Any]  # what the journal's next line says
    known: list[dict[str, Any]]  # what earlier runs measured that is of use
    resume_command: str
    mirror: Mirror | None
    on_end: str | None  # command of the user


def run_job(job: Job, cluster: Cluster, interrupts: Interrupts) -> int:
    """Run a study that has its folder and its cluster, whatever happens to it; return the exit code."""
    interrupted, broken = None, None
    interrupts.exit_message = f"\ninterrupted twice; to go on:\n  {job.resume_command}\n"
    clock = steady_clock()
    run_state = RunState(job.events)
    mirroring = Mirroring(job.mirror, job.folder, run_state) if job.mirror else None
    views = Progress(run_state, clock=clock), LivePage(job.folder, run_state, clock=clock)
    copying = mirroring or contextlib.nullcontext()
    with views[0] as progress, views[1], copying, _watched(job, cluster, progress, mirroring, interrupts):
        for line in _first_lines(job, cluster):
            progress.announce(line)
        listeners: list[Listener] = [progress, Metrics(run_state), *([mirroring] if mirroring else [])]
        with Journal(job.folder / FILE_NAME, listeners, clock, run_state) as journal:
            try:
                events = [*job.events, journal.append("resume" if job.events else "run", **job.opening)]
                if job.known:
                    events.append(journal.append("known", measurements=job.known))
                    progress.announce(f"known from earlier runs: {plural(len(job.known), 'measurement')}")
                with interrupts.attributed_to_signal():
                    check, say = interrupts.check, progress.announce
                    run_study(job.space, job.data, job.folder, journal, cluster, check, events, say)
            except Interrupted as request:
                interrupted = request.exit_code
                if mirroring:
                    mirroring.timeout_seconds = LAST_COPY_SECONDS
                with contextlib.suppress(OSError):  # the event only informs
                    journal.append("end", reason=str(request))
            except Exception as error:
                broken = error
            finally:
                keep_garbage()
    if broken is not None:
        code = report_failure(job.folder, job.resume_command, broken)
    else:
        interrupts.ignore()  # the last lines take a second
        code = finish_run(job.folder, job.resume_command, interrupted)
    try:
        interrupts.deferred = False
        interrupts.install()  # the last copy and the user's command may take long
        if mirroring:
            mirroring.finish()
    except Interrupted as request:
        code = request.exit_code  # the copy is not complete
    if job.on_end:
        _run_on_end(job.on_end, job.folder, code)
    interrupts.ignore()  # Ray's compiled code raises no Interrupted
    interrupts.exit_within(LEAVE_SECONDS, code)
    return code


def _first_lines(job: Job, cluster: Cluster) -> Iterator[str]:
    """Yield what is to be known before the first trial: where to look, and what is different here."""
    yield announce(cluster.dashboard_url)
    yield f"Live page: {job.folder / PAGE}"
    if job.mirror:
        yield f"copied to {job.mirror.uri}"
    if source := source_of(job.space.trainable or ""):
        yield f"runs {source.path.name} (sha256 {source.digest})"
    yield from (f"changed or left out here: {line}" for line in job.opening.get("left_out", []))
    yield from shm_warnings()
    yield from cluster.notices


def _run_on_end(command: str, folder: Path, code: int) -> None:
    """Run the user's command at the end of a search; say so if it fails. A signal or its timeout ends all of it."""
    environment = {**os.environ, "SEARCH_RUN": str(folder.absolute()), "SEARCH_EXIT_CODE": str(code)}
    with subprocess.Popen(command, shell=True, env=environment, start_new_session=True) as process:
        try:
            if status := process.wait(ON_END_SECONDS):
                print(f"--on-end: {subprocess.CalledProcessError(status, command)}", file=sys.stderr)
        except (subprocess.TimeoutExpired, Interrupted) as error:
            os.killpg(process.pid, signal.SIGKILL)
            print(f"--on-end: {error}", file=sys.stderr)


def _last_acts(job: Job, mirroring: Mirroring | None, exit_code: Callable[[], int]) -> int:
    """Copy the run and run the user's command where Ray is lost; return the exit code.

    `exit_code` is called after the copy: the signal that ended Ray may be a moment behind.
    """
    if mirroring:
        mirroring.timeout_seconds = LAST_COPY_SECONDS
        mirroring.finish()
    code = exit_code()
    if job.on_end:
        with contextlib.suppress(Exception):
            _run_on_end(job.on_end, job.folder, code)
    return code


def _watched(
    job: Job, cluster: Cluster, progress: Progress, mirroring: Mirroring | None, interrupts: Interrupts
) -> AbstractContextManager[None]:
    """End the process if Ray is lost, or blocks the response to a signal, which may have ended part of Ray too."""
    signalled_at: list[float] = []

    def why() -> str | None:
        if interrupts.exit_code is not None:
            signalled_at.append(time.monotonic())
            if time.monotonic() - signalled_at[0] > OBEY_SECONDS:
                return "Ray does not answer"
        return cluster.why_lost()

    def lost(why: str) -> None:
        progress.close()  # or the view would be drawn over the last lines
        leave = partial(_last_acts, job, mirroring, lambda: interrupts.exit_code or FAILED)
        abandon(job.folder, job.resume_command, why, leave)

    return watchdog(why, lost)
