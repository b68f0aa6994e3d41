"""The command line: a space file in, a results folder out.

    python -m search.run spaces/throughput.yaml [--set a.b=value] [--dry-run]
    python -m search.run --resume results/throughput-2026-11-20-1

Exit codes: 0 done, 1 failed, 2 bad input, 3 out of disk, 129, 130 and 143 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.execution.ray_watchdog import watchdog
from search.exit_codes import BAD_INPUT, DONE, FAILED, OUT_OF_DISK, InputError
from search.record.defaults import stated_defaults
from search.record.disk import check_writable, describe_os_error, is_out_of_space
from search.record.events import Event, Opening, parse
from search.record.journal import FILE_NAME, steady_clock
from search.record.mirror import Mirror, MirrorError, Mirroring
from search.record.run_lock import FILE_NAME as LOCK_NAME
from search.record.run_lock import RunLockedError, lock_run
from search.record.run_state import RunState
from search.record.source import recorded_name, save_source
from search.run_options import parser, wanted_nodes
from search.space.machine import Machine, describe_machine, git_commit, package_versions, shm_warnings
from search.space.space import Space, load_space
from search.space.validation import SpaceError
from search.study.interrupt import Interrupted, Interrupts
from search.study.resumed import (
    check_replay,
    check_same_defaults,
    check_same_machine,
    check_same_space,
    is_finished,
    read_run,
    resume_space,
)
from search.study.shutdown import abandon, finish_run, keep_garbage, report_failure
from search.text.numbers import plural
from trainables.contract import Data, DataError, Resources, load_trainable, source_of

if TYPE_CHECKING:  # Ray is imported when the input is known to be good
    from search.execution.cluster import Cluster
    from search.terminal.progress import Progress

COMMAND = ("python", "-m", "search.run")
BEFORE_THE_FIRST_EVENT = {FILE_NAME, LOCK_NAME, "source"}  # in the folder of a run
LEAVE_SECONDS = 5.0  # for the shutdown of Ray, which takes two to three if no part of it is lost
ON_END_SECONDS = 60.0  # for the command of --on-end
OBEY_SECONDS = 8.0  # for a signal to end the study, which waits for no epoch

Fitted = tuple[Space, Data, list[str]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = parser().parse_args(words, argparse.Namespace(words=words))
        if options.parameters is not None:
            return _list_parameters(options.parameters)
        with Interrupts() as interrupts, _claimed_mirror(options) as mirror:
            if options.go_on:
                options = _resuming_if_begun(options, mirror)
            run = _resume if options.resume else _start
            return run(options, interrupts, mirror)
    except (SpaceError, DataError, InputError, RunLockedError, MirrorError) as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        print(describe_os_error(error), file=sys.stderr)
        return OUT_OF_DISK if is_out_of_space(error) else FAILED
    except Interrupted as interrupted:
        return interrupted.exit_code  # before the run started


def _list_parameters(trainable: str) -> int:
    from search.commandline import print_output
    from search.space.parameter_list import parameter_list

    try:
        print_output(parameter_list(trainable))
    except LookupError as error:
        raise InputError(f"--parameters: {error}") from error
    return DONE


@dataclass(frozen=True)
class _Job:
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


@contextmanager
def _claimed_mirror(options: argparse.Namespace) -> Iterator[Mirror | None]:
    """Yield the copy of the run, which no other process may write meanwhile; None: there is none."""
    if options.mirror is None or options.dry_run:
        yield None
        return
    name = options.name or (options.resume and options.resume.resolve().name)
    if not name:
        raise InputError("--mirror: needs the run's --name")
    mirror = Mirror(options.mirror, name)
    mirror.claim()
    try:
        yield mirror
    finally:
        mirror.release()


def _resuming_if_begun(options: argparse.Namespace, mirror: Mirror | None) -> argparse.Namespace:
    """Return the options of --go-on as those of --resume, if the run has begun, here or in its copy."""
    if options.space is None or options.name is None or options.resume:
        raise InputError("--go-on: needs a space file and the run's --name, the same each time")
    folder = options.results / options.name
    if mirror and mirror.fetch(folder):
        print(f"{folder}: copied from {mirror.uri}", file=sys.stderr)
    if not (folder / FILE_NAME).is_file() or not (folder / FILE_NAME).stat().st_size:
        if folder.is_dir() and {path.name for path in folder.iterdir()} <= BEFORE_THE_FIRST_EVENT:
            with lock_run(folder):
                shutil.rmtree(folder)
        return options
    check_same_space(folder, RunState(read_run(folder)).info.space or {}, load_space(options.space, options.set))
    kept = [item for item in options.set if item.startswith(("budget.", "data.root="))]
    as_resume = {"space": None, "name": None, "warm_start": [], "resume": folder, "set": kept}
    return argparse.Namespace(**{**vars(options), **as_resume})


def _start(options: argparse.Namespace, interrupts: Interrupts, mirror: Mirror | None) -> int:
    """Start a new run."""
    if options.on and not options.dry_run:
        raise InputError("--on: belongs to --dry-run; a search runs on this machine or at --address")
    if options.space is None:
        raise InputError("no space file: python -m search.run spaces/quickstart.yaml, or --resume RUN_DIR")
    space = load_space(options.space, options.set)
    if space.trainable is None:
        raise InputError(f"{options.space}: trainable: missing; e.g. trainable: vgg19_cifar10")
    folder = _new_folder(options)
    if mirror and mirror.has_run():
        raise InputError(f"{mirror.uri}: has a run {folder.name} already; choose another --name, or give --go-on, too")
    try:
        check_writable(folder)  # fail before starting Ray
    except OSError as error:
        what = f"{folder}: cannot be made: {describe_os_error(error)}"
        raise InputError(f"{what}; --results DIR says where else") from error
    for earlier in options.warm_start:
        read_run(earlier)
    machine = describe_machine()
    if options.dry_run:
        print(_plan(space, options.on or machine, elsewhere=options.on is not None))
        return DONE
    fitted = None if options.address else _fitted(space, machine.resources)  # report bad input before starting Ray
    with _connected(options, machine, interrupts) as cluster:
        space, data, left_out = fitted or _fitted(space, cluster.resources)
        source = source_of(space.trainable or "")
        opening = {
            **_described(space, data, options.results),
            "space_file": options.space.name,
            "machine": cluster.machine.to_mapping(),
            "versions": {**package_versions(), **(source.packages() if source else {})},
            "commit": git_commit(Path(__file__).parent),
            "command": [*COMMAND, *options.words],
            "left_out": left_out,
            "auto": space.meanings_of_auto(space.resources_per_trial(cluster.resources)),
        }
        known = _known(space, opening, options)
        folder = _made_folder(options)
        opening["name"] = folder.name
        if source:
            save_source(source, folder)
        job = _Job(space, data, folder, [], opening, known, _resume_command(folder, options), mirror, options.on_end)
        with lock_run(folder):
            return _run(job, cluster, interrupts)


def _plan(space: Space, machine: Machine, elsewhere: bool) -> str:
    """Return the plan of a search on a machine; `elsewhere`: not on this one, so that nothing is timed."""
    from search.study.plan import describe_plan
    from search.study.run_estimate import estimate, untimed

    share = space.resources_per_trial(machine.resources.on(machine.num_nodes))
    space, left_out = space.restrict_to(share)
    trainable = load_trainable(space.trainable or "")
    if elsewhere:
        return describe_plan(space, "as it is found there", machine, share, left_out, untimed(space))
    data = trainable.locate_data(space.data)
    return describe_plan(space, trainable.describe_data(data), machine, share, left_out, estimate(space, data))


def _resume(options: argparse.Namespace, interrupts: Interrupts, mirror: Mirror | None) -> int:
    """Go on with a run where its journal ends."""
    if options.space is not None or options.name or options.warm_start:
        raise InputError("--resume takes the space, the name and what was known from the run; give none of them")
    folder = options.resume
    read_run(folder)  # before anything is written there
    if options.dry_run:
        raise InputError("--dry-run: of a run that is resumed nothing is planned; leave it out")
    with lock_run(folder):
        events = read_run(folder)
        run_state = RunState(events)
        space = resume_space(run_state, options.set, folder)
        check_same_defaults(folder, run_state.info)
        machine = describe_machine()
        if not options.address:
            check_same_machine(run_state.info.machine, machine)
        data = load_trainable(space.trainable or "").locate_data(space.data)
        if data.name != (was := run_state.info.data.name):
            raise InputError(f"{folder}: the run's data is {was}, but {data.name} is what is here")
        check_replay(folder, space, events)
        opening = {"command": [*COMMAND, *options.words], "budget": space.budget.model_dump()}
        job = _Job(space, data, folder, events, opening, [], _resume_command(folder, options), mirror, options.on_end)
        if is_finished(events[-1], run_state, space):
            code = finish_run(folder, job.resume_command)
            if mirror:
                Mirroring(mirror, folder, run_state).copy(everything=True)
            return code
        with _connected(options, machine, interrupts) as cluster:
            resumed = cluster.resumed(run_state.info.machine)
            check_same_machine(run_state.info.machine, resumed.machine)
            needed, found = space.resources_per_trial(resumed.resources).nodes, cluster.machine.num_nodes
            if needed > found:
                raise InputError(f"{folder}: each trial has {needed} nodes, and there are {found}; wait for the others")
            return _run(job, resumed, interrupts)


def _first_lines(job: _Job, cluster: Cluster) -> Iterator[str]:
    """Yield what is to be known before the first trial: where to look, and what is different here."""
    from search.execution.dashboard import announce
    from search.page.document import FILE_NAME as PAGE

    yield announce(cluster.dashboard_url)
    yield f"Live page: {job.folder / PAGE}"
    if job.mirror:
        yield f"copied to {job.mirror.uri}"
    if source := source_of(job.space.trainable or ""):
        yield f"runs {source.path.name} (sha256 {source.digest})"
    yield from (f"left out: {line}" for line in job.opening.get("left_out", []))
    yield from shm_warnings()
    yield from cluster.notices


def _run(job: _Job, cluster: Cluster, interrupts: Interrupts) -> int:
    """Run a study that has its folder and its cluster, whatever happens to it."""
    from search.execution.dashboard import Metrics
    from search.page.live import LivePage
    from search.record.journal import Journal, Listener
    from search.study.study import run_study
    from search.terminal.progress import Progress

    interrupted, broken = None, None
    interrupts.exit_message = f"\ninterrupted twice; to go on:\n  {job.resume_command}\n"
    clock = steady_clock()
    run_state = RunState(job.events)
    mirroring = Mirroring(job.mirror, job.folder, run_state) if job.mirror else None
    live = Progress(run_state, clock=clock), LivePage(job.folder, run_state), mirroring or contextlib.nullcontext()
    with live[0] as progress, live[1], live[2], _watched(job, cluster, progress, interrupts):
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
                    check, announce = interrupts.check, progress.announce
                    run_study(job.space, job.data, job.folder, journal, cluster, check, events, announce)
            except Interrupted as signal:
                interrupted = signal.exit_code
                with contextlib.suppress(OSError):  # the event only informs
                    journal.append("end", reason=str(signal))
            except Exception as error:
                broken = error
            finally:
                keep_garbage()
    if broken is not None:
        code = report_failure(job.folder, job.resume_command, broken)
    else:
        interrupts.ignore()  # what is left takes a second
        code = finish_run(job.folder, job.resume_command, interrupted)
    if mirroring:
        mirroring.copy(everything=True)
    if job.on_end:
        _run_on_end(job.on_end, job.folder, code)
    interrupts.exit_within(LEAVE_SECONDS, code)
    return code


def _run_on_end(command: str, folder: Path, code: int) -> None:
    """Run the user's command at the end of a search; where it fails, say so."""
    environment = {**os.environ, "SEARCH_RUN": str(folder.absolute()), "SEARCH_EXIT_CODE": str(code)}
    try:
        subprocess.run(command, shell=True, check=True, env=environment, timeout=ON_END_SECONDS)
    except subprocess.SubprocessError as error:
        print(f"--on-end: {error}", file=sys.stderr)


def _watched(job: _Job, cluster: Cluster, progress: Progress, interrupts: Interrupts) -> AbstractContextManager[None]:
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
        abandon(job.folder, job.resume_command, why, lambda: interrupts.exit_code or FAILED)

    return watchdog(why, lost)


def _fitted(space: Space, total: Resources) -> Fitted:
    """Return the space restricted to these resources, its data, and a line for each thing left out."""
    space, left_out = space.restrict_to(space.resources_per_trial(total))
    return space, load_trainable(space.trainable or "").locate_data(space.data), left_out


@contextmanager
def _connected(options: argparse.Namespace, machine: Machine, interrupts: Interrupts) -> Iterator[Cluster]:
    """Connect to Ray, with signals deferred."""
    from search.execution.cluster import ClusterError, connect

    labels, wait_seconds = wanted_nodes(options)
    interrupts.deferred = True
    threading.Thread(target=importlib.import_module, args=("search.study.study",), daemon=True).start()  # meanwhile
    if sys.stderr.isatty():  # it takes some seconds, in which a person would see nothing
        print(f"joining Ray at {options.address}" if options.address else "starting Ray", file=sys.stderr)
    try:
        with interrupts.attributed_to_signal(), contextlib.ExitStack() as stack:
            with interrupts.ending_at_once():
                cluster = stack.enter_context(
                    connect(
                        options.address, machine, not options.no_dashboard, labels, wait_seconds, options.ask_for_nodes
                    )
                )
            interrupts.install()  # again: Ray has put its own in their place
            interrupts.check()
            yield cluster
    except ClusterError as error:
        raise InputError(str(error)) from error


def _described(space: Space, data: Data, results: Path) -> dict[str, Any]:
    """Return the journal fields that describe a space and its data."""
    trainable, source = load_trainable(space.trainable or ""), source_of(space.trainable or "")
    name = recorded_name(space.trainable or "", results)
    mapping = {**space.to_mapping(), "trainable": name}
    if not data.val_images:  # all validation samples, of a number that is not known
        del mapping["data"]["val_images"]
    return {
        "space": mapping,
        "defaults": stated_defaults(trainable),
        "trainable": name,
        "source": source.digest if source else "",
        "objectives": [{"metric": o.metric, "goal": o.goal} for o in space.objectives],
        "constraints": [str(constraint) for constraint in space.stated_constraints],
        "budget": space.budget.model_dump(),
        "grid_points": space.grid_points,
        "metrics": {name: metric.unit for name, metric in space.known_metrics.items()},
        "data": {"name": data.name, "description": trainable.describe_data(data)},
        "seed": space.searcher.seed,
    }


def _known(space: Space, fields: dict[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return measurements of the requested earlier runs, and rates of the newest runs beside the new one."""
    from search.record import warm_start

    opening = parse(json.dumps({"event": "run", "time": 0.0, "name": "", **fields}).encode())
    assert isinstance(opening, Opening)
    known = warm_start.recent_rates(space, opening, options.results)
    asked = warm_start.all_measurements(space, opening, options.warm_start)
    if options.warm_start and not asked:
        folders = ", ".join(map(str, options.warm_start))
        raise InputError(f"--warm-start {folders}: nothing there is of use here: other data, length or fixed settings")
    sources = {measurement["source"] for measurement in asked}
    return [*asked, *(measurement for measurement in known if measurement["source"] not in sources)]


def _new_folder(options: argparse.Namespace) -> Path:
    """Return the folder of the new run; it must not exist yet."""
    if options.name is not None:
        if Path(options.name).name != options.name or options.name in ("", ".", ".."):
            raise InputError(f"--name {options.name}: a name, not a path; --results DIR says where")
        folder: Path = options.results / options.name
        if folder.exists():
            run = (folder / FILE_NAME).is_file() and (folder / FILE_NAME).stat().st_size
            resume = f"go on with it: --resume {shlex.quote(str(folder))}"
            other = resume if run else "remove it: no run began there"
            raise InputError(f"{folder}: exists already; choose another --name, or {other}")
        return folder
    stem = f"{options.space.stem}-{datetime.date.today().isoformat()}"
    folders = (Path(options.results, f"{stem}-{number}") for number in itertools.count(1))
    return next(folder for folder in folders if not folder.exists())


def _made_folder(options: argparse.Namespace) -> Path:
    """Make the folder of the new run; another run that starts at the same moment may take the number."""
    while True:
        folder = _new_folder(options)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder


def _resume_command(folder: Path, options: argparse.Namespace) -> str:
    """Return the command that goes on with the run, on one line: the last one that is printed.

    With --go-on it is the command itself, so that a job is submitted again.
    """
    if options.go_on:
        return shlex.join([*COMMAND, *options.words])
    words = [*COMMAND, "--resume", str(folder)]
    words += [w for item in options.set if options.resume and item.startswith("data.root=") for w in ("--set", item)]
    words += ["--address", options.address] if options.address else []
    words += ["--mirror", options.mirror] if options.mirror else []
    words += ["--on-end", options.on_end] if options.on_end else []
    words += [word for label in options.nodes for word in ("--nodes", label)]
    words += ["--ask-for-nodes", str(options.ask_for_nodes)] if options.ask_for_nodes else []
    return shlex.join(words)


if __name__ == "__main__":
    sys.exit(main())
