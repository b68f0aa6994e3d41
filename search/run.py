"""The command line: a space file in, a results folder out.

    python -m search.run spaces/throughput.yaml [--set a.b=value] [--dry-run]
    python -m search.run --resume results/throughput-2026-11-20-1

Exit codes: 0 done, 1 failed, 2 bad input, 3 out of disk, 130 and 143 interrupted.
"""

from __future__ import annotations

import argparse
import datetime
import errno
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.history import History
from search.interrupt import Interrupted, Interrupts
from search.journal import FILE_NAME, Event, read_journal
from search.machine import Machine, describe_machine, git_commit, versions
from search.space import Space, SpaceError, load_space, parse_space
from trainables.contract import Data, DataError, Resources, load_trainable

if TYPE_CHECKING:  # Ray is imported when the input is known to be good
    from search.cluster import Cluster

DONE, FAILED, BAD_INPUT, OUT_OF_DISK = 0, 1, 2, 3


Fitted = tuple[Space, Data, list[str]]


class InputError(Exception):
    """Something that was asked for cannot be done; the message is one line, with what would do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        with Interrupts() as interrupts:
            return _resume(options, interrupts) if options.resume else _start(options, interrupts)
    except (SpaceError, DataError, InputError) as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    except Interrupted as interrupted:
        return interrupted.exit_code  # before anything was begun


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m search.run",
        description="Find the training configurations worth running on this machine.",
    )
    parser.add_argument("space", nargs="?", type=Path, metavar="SPACE.yaml", help="what to search, and towards what")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="e.g. --set budget.hours=0.25")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    parser.add_argument("--name", help="of the run's folder; default: the space file's name, the day and a number")
    parser.add_argument(
        "--resume", type=Path, metavar="RUN_DIR", help="go on with a run; --set budget.*=... extends it"
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
    resume_command: str


def _start(options: argparse.Namespace, interrupts: Interrupts) -> int:
    """A new run."""
    if options.space is None:
        raise InputError("no space file: python -m search.run spaces/quickstart.yaml, or --resume RUN_DIR")
    space = load_space(options.space, options.set)
    if space.trainable is None:
        raise InputError(f"{options.space}: trainable: missing; e.g. trainable: vgg19_cifar10")
    folder = _new_folder(options)
    machine, local = _here()
    fitted = None if options.address else _fitted(space, local)  # a fault is told before Ray is started
    if options.dry_run:
        return _dry_run(fitted or _fitted(space, local), machine, space.share(local))
    with _connected(options, local, interrupts) as cluster:
        space, data, left_out = fitted or _fitted(space, cluster.resources)
        opening = {
            **_described(space, data),
            "name": folder.name,
            "space_file": options.space.name,
            "machine": {**machine.to_mapping(), "num_nodes": cluster.num_nodes},
            "versions": versions(),
            "commit": git_commit(Path(__file__).parent),
            "command": _command(options),
            "left_out": left_out,
        }
        folder.mkdir(parents=True)
        resume = _resume_command(folder, options)
        return _run(_Job(space, data, folder, [], opening, resume), cluster, interrupts)


def _resume(options: argparse.Namespace, interrupts: Interrupts) -> int:
    """Go on with a run where its journal ends."""
    if options.space is not None or options.name:
        raise InputError("--resume takes the space and the name from the run; give neither")
    folder = options.resume
    try:
        events = read_journal(folder / FILE_NAME)
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: not the folder of a run: {error}") from error
    space = _resumed_space(events, options.set)
    machine, local = _here()
    _refuse_other_machine(events[0], machine)
    data = load_trainable(space.trainable or "").locate_data(space.data)
    if data.name != events[0]["data"]["name"]:
        raise InputError(f"{folder}: the run's data is {events[0]['data']['name']}, but {data.name} is what is here")
    opening: Event = {"command": _command(options), "budget": space.budget.model_dump()}
    resume = _resume_command(folder, options)
    with _connected(options, local, interrupts) as cluster:
        return _run(_Job(space, data, folder, events, opening, resume), cluster, interrupts)


def _run(job: _Job, cluster: Cluster, interrupts: Interrupts) -> int:
    """Run a study that has its folder and its cluster, whatever happens to it."""
    from search.dashboard import Metrics, announce
    from search.journal import Journal
    from search.progress import Progress
    from search.study import run_study, write_results

    code = DONE
    interrupts.install()  # again: Ray has put its own in their place
    with Progress() as progress:
        progress.announce(announce(cluster.dashboard_url))
        for line in job.opening.get("left_out", []):
            progress.announce(f"left out: {line}")
        metrics = Metrics()
        progress.replay(job.events)
        metrics.replay(job.events)
        with Journal(job.folder / FILE_NAME, [progress, metrics]) as journal:
            try:
                journal.append("resume" if job.events else "run", **job.opening)
                run_study(job.space, job.data, job.folder, journal, cluster, interrupts.check, job.events)
            except Interrupted as interrupted:
                code = interrupted.exit_code
                journal.append("end", reason=str(interrupted))
            except Exception as error:
                full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
                what = "no space left on the disk; free some, then" if full else "the run broke off; to go on"
                print(f"{job.folder}: {what}: {job.resume_command}", file=sys.stderr)
                if full:
                    return OUT_OF_DISK
                raise
    interrupts.ignore()  # what is left takes a second
    write_results(job.folder)
    _say(job.folder, job.resume_command if code else None)
    history = History(read_journal(job.folder / FILE_NAME))
    return code or (DONE if history.counts()["complete"] else FAILED)


def _say(folder: Path, resume_command: str | None) -> None:
    """The last lines: what was found and where it is, or how to go on."""
    from search.report import closing_lines

    lines = [closing_lines(folder)] + [f"interrupted; to go on:\n  {resume_command}"] * (resume_command is not None)
    try:
        print(*lines, sep="\n", flush=True)
    except BrokenPipeError:  # as by `| head`; nobody reads on, and Python's own last flush must find an open file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dry_run(fitted: Fitted, machine: Machine, share: Resources) -> int:
    from search.plan import describe_plan, estimate

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
    from search.cluster import ClusterError, connect

    interrupts.deferred = True
    try:
        with connect(options.address, local, not options.no_dashboard) as cluster:
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


def _new_folder(options: argparse.Namespace) -> Path:
    """Where the run will be; it must not exist yet."""
    if options.name is not None:
        if Path(options.name).name != options.name or options.name in ("", ".", ".."):
            raise InputError(f"--name {options.name}: a name, not a path; --results DIR says where")
        folder: Path = options.results / options.name
        if folder.exists():
            raise InputError(f"{folder}: exists already; choose another --name, or go on with it: --resume {folder}")
        return folder
    stem = f"{options.space.stem}-{datetime.date.today().isoformat()}"
    number = 1
    while (folder := options.results / f"{stem}-{number}").exists():
        number += 1
    return folder


def _resumed_space(events: Sequence[Event], overrides: Sequence[str]) -> Space:
    """The run's space as it was, with its budget as last extended, and with what `overrides` extend now."""
    import ruamel.yaml

    mapping = dict(events[0]["space"])
    for event in events:
        if event["event"] == "resume":
            mapping["budget"] = event["budget"]
    for override in overrides:
        key, _, value = override.partition("=")
        section, _, name = key.partition(".")
        if key != "data.root" and section != "budget":
            raise InputError(
                f"--set {override}: a resumed run keeps its {section}; only budget.* and data.root may change"
            )
        mapping[section] = {**mapping[section], name: ruamel.yaml.YAML(typ="safe").load(value)}
    return parse_space(mapping, "--resume")


def _refuse_other_machine(run: Event, machine: Machine) -> None:
    """Rates of two machines have no place on one front."""
    there, here = run["machine"], machine.to_mapping()
    for key in ("cpu_name", "cores", "gpus"):
        if there[key] != here[key]:
            raise InputError(
                f"the run was made on another machine: {key} {there[key]} there, {here[key]} here; start a new one"
            )


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
