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
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.execution.watch import watched
from search.outcome import BAD_INPUT, DONE, FAILED, OUT_OF_DISK, InputError, Parser
from search.record.disk import is_full, refuse_unwritable, told
from search.record.journal import FILE_NAME, Event, steady_clock
from search.record.owner import OwnedError, owned
from search.space.machine import Machine, describe_machine, git_commit, small_shm, versions
from search.space.space import Space, SpaceError, load_space
from search.study.ending import abandon, broken_off, closed
from search.study.interrupt import Interrupted, Interrupts
from search.study.resumed import (
    is_over,
    journal_of,
    refuse_contradictions,
    refuse_other_machine,
    resumed_space,
)
from search.text.wording import count
from trainables.contract import Data, DataError, Resources, load_trainable

if TYPE_CHECKING:  # Ray is imported when the input is known to be good
    from search.execution.cluster import Cluster
    from search.terminal.progress import Progress

LEAVE_SECONDS = 5.0  # a Ray that is whole takes two to three
OBEY_SECONDS = 8.0  # for a signal to end the study, which waits for no epoch

Fitted = tuple[Space, Data, list[str]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    try:
        options = _parser().parse_args(arguments)
        with Interrupts() as interrupts:
            return _resume(options, interrupts) if options.resume else _start(options, interrupts)
    except (SpaceError, DataError, InputError, OwnedError) as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        print(told(error), file=sys.stderr)
        return OUT_OF_DISK if is_full(error) else FAILED
    except Interrupted as interrupted:
        return interrupted.exit_code  # before anything was begun


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m search.run",
        description="Find the training configurations worth running on this machine.",
        allow_abbrev=False,
    )
    parser.add_argument("space", nargs="?", type=Path, metavar="SPACE.yaml", help="what to search, and towards what")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="e.g. --set budget.hours=0.25")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    parser.add_argument("--name", help="of the run's folder; default: the space file's name, the day and a number")
    parser.add_argument(
        "--resume", type=Path, metavar="RUN_DIR", help="go on with a run; --set budget.*=... extends it"
    )
    parser.add_argument(
        "--warm-start",
        action="append",
        default=[],
        type=Path,
        metavar="RUN_DIR",
        help="begin with what this earlier run knows: accuracies, and rates if they are of this machine",
    )
    parser.add_argument("--address", help="run on the Ray cluster at this address (auto: the one of this machine)")
    parser.add_argument("--dry-run", action="store_true", help="print the plan; start and write nothing")
    parser.add_argument("--no-dashboard", action="store_true", help="do without the Ray dashboard")
    return parser


@dataclass(frozen=True)
class _Job:
    """A run that is about to begin or to go on: everything checked, nothing started."""

    space: Space  # as this machine can do it
    data: Data
    folder: Path
    events: list[Event]  # of the run so far; none: it is new
    opening: Event  # what the journal's next line says
    known: list[dict[str, Any]]  # what earlier runs measured that is of use
    resume_command: str


def _start(options: argparse.Namespace, interrupts: Interrupts) -> int:
    """A new run."""
    if options.space is None:
        raise InputError("no space file: python -m search.run spaces/quickstart.yaml, or --resume RUN_DIR")
    space = load_space(options.space, options.set)
    if space.trainable is None:
        raise InputError(f"{options.space}: trainable: missing; e.g. trainable: vgg19_cifar10")
    _refuse_unwritable(_new_folder(options))
    for earlier in options.warm_start:
        journal_of(earlier)
    machine, local = _here()
    fitted = None if options.address else _fitted(space, local)  # a fault is told before Ray is started
    if options.dry_run:
        return _dry_run(fitted or _fitted(space, local), machine, space.share(local))
    with _connected(options, local, interrupts) as cluster:
        space, data, left_out = fitted or _fitted(space, cluster.resources)
        opening = {
            **_described(space, data),
            "space_file": options.space.name,
            "machine": {**machine.to_mapping(), "num_nodes": cluster.num_nodes},
            "versions": versions(),
            "commit": git_commit(Path(__file__).parent),
            "command": _command(options),
            "left_out": left_out,
        }
        known = _known(space, opening, options)
        folder = _made_folder(options)
        opening["name"] = folder.name
        job = _Job(space, data, folder, [], opening, known, _resume_command(folder, options))
        with owned(folder):
            return _run(job, cluster, interrupts)


def _resume(options: argparse.Namespace, interrupts: Interrupts) -> int:
    """Go on with a run where its journal ends."""
    if options.space is not None or options.name or options.warm_start:
        raise InputError("--resume takes the space, the name and what was known from the run; give none of them")
    folder = options.resume
    journal_of(folder)  # before anything is written there
    if options.dry_run:
        raise InputError("--dry-run: of a run that is resumed nothing is planned; leave it out")
    with owned(folder):
        events = journal_of(folder)
        space = resumed_space(events, options.set)
        machine, local = _here()
        refuse_other_machine(events, machine)
        data = load_trainable(space.trainable or "").locate_data(space.data)
        if data.name != events[0]["data"]["name"]:
            was = events[0]["data"]["name"]
            raise InputError(f"{folder}: the run's data is {was}, but {data.name} is what is here")
        refuse_contradictions(folder, space, events)
        opening: Event = {"command": _command(options), "budget": space.budget.model_dump()}
        job = _Job(space, data, folder, events, opening, [], _resume_command(folder, options))
        if is_over(events, space):
            return closed(folder, job.resume_command)
        with _connected(options, local, interrupts) as cluster:
            return _run(job, cluster, interrupts)


def _run(job: _Job, cluster: Cluster, interrupts: Interrupts) -> int:
    """Run a study that has its folder and its cluster, whatever happens to it."""
    from search.execution.dashboard import Metrics, announce
    from search.page.live import LivePage
    from search.page.page import FILE_NAME as PAGE
    from search.record.journal import Journal
    from search.study.study import run_study
    from search.terminal.progress import Progress

    interrupted, broken = None, None
    interrupts.last_words = f"\ninterrupted twice; to go on:\n  {job.resume_command}\n"
    clock = steady_clock()
    with Progress(clock=clock) as progress, LivePage(job.folder), _watched(job, cluster, progress, interrupts):
        progress.announce(announce(cluster.dashboard_url))
        progress.announce(f"Live page: {job.folder / PAGE}")
        for line in [*(f"left out: {line}" for line in job.opening.get("left_out", [])), *small_shm()]:
            progress.announce(line)
        metrics = Metrics()
        progress.replay(job.events)
        metrics.replay(job.events)
        with Journal(job.folder / FILE_NAME, [progress, metrics], clock) as journal:
            try:
                events = [*job.events, journal.append("resume" if job.events else "run", **job.opening)]
                if job.known:
                    events.append(journal.append("known", measurements=job.known))
                    progress.announce(f"known from earlier runs: {count(len(job.known), 'measurement')}")
                with interrupts.blamed():
                    run_study(job.space, job.data, job.folder, journal, cluster, interrupts.check, events)
            except Interrupted as signal:
                interrupted = signal.exit_code
                with contextlib.suppress(OSError):  # it is for people
                    journal.append("end", reason=str(signal))
            except Exception as error:
                broken = error
    if broken is not None:
        code = broken_off(job.folder, job.resume_command, broken)
    else:
        interrupts.ignore()  # what is left takes a second
        code = closed(job.folder, job.resume_command, interrupted)
    interrupts.leave_within(LEAVE_SECONDS, code)
    return code


def _watched(job: _Job, cluster: Cluster, progress: Progress, interrupts: Interrupts) -> AbstractContextManager[None]:
    """Ends the process if Ray is gone or keeps it from obeying a signal, which may have ended a part of Ray as well."""
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

    return watched(why, lost)


def _dry_run(fitted: Fitted, machine: Machine, share: Resources) -> int:
    from search.study.estimate import estimate
    from search.study.plan import describe_plan

    space, data, left_out = fitted
    described = load_trainable(space.trainable or "").describe_data(data)
    print(describe_plan(space, described, machine, share, left_out, estimate(space, data)))
    return DONE


def _fitted(space: Space, total: Resources) -> Fitted:
    """The space as these resources can do it, its data found, and a line for each thing left out."""
    space, left_out = space.restricted(space.share(total))
    return space, load_trainable(space.trainable or "").locate_data(space.data), left_out


@contextmanager
def _connected(options: argparse.Namespace, local: Resources, interrupts: Interrupts) -> Iterator[Cluster]:
    """Ray, with signals deferred."""
    from search.execution.cluster import ClusterError, connect

    interrupts.deferred = True
    threading.Thread(target=importlib.import_module, args=("search.study.study",), daemon=True).start()  # meanwhile
    if sys.stderr.isatty():  # it takes some seconds, in which a person would see nothing
        print(f"joining Ray at {options.address}" if options.address else "starting Ray", file=sys.stderr)
    try:
        with interrupts.blamed(), contextlib.ExitStack() as stack:
            with interrupts.obeyed_at_once():
                cluster = stack.enter_context(connect(options.address, local, not options.no_dashboard))
            interrupts.install()  # again: Ray has put its own in their place
            interrupts.check()
            yield cluster
    except ClusterError as error:
        raise InputError(str(error)) from error


def _here() -> tuple[Machine, Resources]:
    """This machine, and what a trial could have of it."""
    machine = describe_machine()
    return machine, Resources(cpus=machine.cores, gpus=len(machine.gpus))


def _described(space: Space, data: Data) -> Event:
    """What the journal says of a space and its data."""
    trainable = load_trainable(space.trainable or "")
    return {
        "space": _without_root(space),
        "trainable": space.trainable,
        "objectives": [{"metric": o.metric, "goal": o.goal} for o in space.objectives],
        "constraints": [str(constraint) for constraint in space.constraints],
        "budget": space.budget.model_dump(),
        "grid_points": space.grid_points,
        "metrics": {name: metric.unit for name, metric in (trainable.METRICS or {}).items()},
        "data": {"name": data.name, "description": trainable.describe_data(data)},
        "seed": space.searcher.seed,
    }


def _known(space: Space, opening: Event, options: argparse.Namespace) -> list[dict[str, Any]]:
    """What earlier runs measured: those that were asked for, and of rates the newest ones beside the new run."""
    from search.record import earlier

    known = earlier.rates(space, opening, options.results)
    asked = earlier.everything(space, opening, options.warm_start)
    if options.warm_start and not asked:
        folders = ", ".join(map(str, options.warm_start))
        raise InputError(f"--warm-start {folders}: nothing there is of use here: other data, length or fixed settings")
    sources = {measurement["source"] for measurement in asked}
    return [*asked, *(measurement for measurement in known if measurement["source"] not in sources)]


def _new_folder(options: argparse.Namespace) -> Path:
    """Where the run will be; it must not exist yet."""
    if options.name is not None:
        if Path(options.name).name != options.name or options.name in ("", ".", ".."):
            raise InputError(f"--name {options.name}: a name, not a path; --results DIR says where")
        folder: Path = options.results / options.name
        if folder.exists():
            run = (folder / FILE_NAME).is_file() and (folder / FILE_NAME).stat().st_size
            or_resume = f", or go on with it: --resume {folder}" if run else ", or remove it: no run began there"
            raise InputError(f"{folder}: exists already; choose another --name{or_resume}")
        return folder
    stem = f"{options.space.stem}-{datetime.date.today().isoformat()}"
    number = 1
    while (folder := options.results / f"{stem}-{number}").exists():
        number += 1
    return folder


def _made_folder(options: argparse.Namespace) -> Path:
    """Another run that starts at the same moment may take the number."""
    while True:
        folder = _new_folder(options)
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            continue


def _refuse_unwritable(folder: Path) -> None:
    """Rather now than when Ray is up."""
    try:
        refuse_unwritable(folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {told(error)}; --results DIR says where else") from error


def _without_root(space: Space) -> dict[str, Any]:
    """Folders of the machine stay out of the results."""
    mapping = space.to_mapping()
    return {**mapping, "data": {**mapping["data"], "root": None}}


def _command(options: argparse.Namespace) -> list[str]:
    """The command as it was given, without folders of the machine."""
    words = ["python", "-m", "search.run"]
    words += [f"--resume={options.resume.name}"] if options.resume else [str(options.space.name)]
    return words + [f"--set={item}" for item in options.set if not item.startswith("data.root=")]


def _resume_command(folder: Path, options: argparse.Namespace) -> str:
    words = ["python", "-m", "search.run", "--resume", str(folder)]
    words += [w for item in options.set if item.startswith("data.root=") for w in ("--set", item)]
    words += ["--address", options.address] if options.address else []
    return shlex.join(words)


if __name__ == "__main__":
    sys.exit(main())
