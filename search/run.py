"""The command line: a space file in, a results folder out.

    python -m search.run spaces/throughput.yaml [--set a.b=value] [--dry-run]
    python -m search.run --resume results/throughput-2026-11-20-1

Exit codes: 0 done, 1 failed, 2 bad input, 3 out of disk, 130 and 143 interrupted.
"""

from __future__ import annotations

import argparse
import datetime
import errno
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from search.history import History
from search.interrupt import Interrupted, Interrupts
from search.journal import FILE_NAME, Event, read_journal
from search.machine import Machine, describe_machine, git_commit, versions
from search.space import Space, SpaceError, load_space, parse_space
from trainables.contract import DataError, Resources, load_trainable

DONE, FAILED, BAD_INPUT, OUT_OF_DISK = 0, 1, 2, 3


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


def _start(options: argparse.Namespace, interrupts: Interrupts) -> int:
    """A new run."""
    if options.space is None:
        raise InputError("no space file: python -m search.run spaces/quickstart.yaml, or --resume RUN_DIR")
    space = load_space(options.space, options.set)
    if space.trainable is None:
        raise InputError(f"{options.space}: trainable: missing; e.g. trainable: vgg19_cifar10")
    folder = _new_folder(options)
    machine = describe_machine()
    local = Resources(cpus=machine.cores, gpus=len(machine.gpus))
    if options.dry_run:
        return _dry_run(space, machine, local)
    interrupts.deferred = True
    with _connected(options, local) as (cluster, connected_line):
        interrupts.check()
        space, left_out = space.restricted(_share(space, cluster.resources))
        trainable = load_trainable(space.trainable or "")
        data = trainable.locate_data(space.data)
        run: Event = {
            "name": folder.name,
            "space_file": options.space.name,
            "space": _without_root(space),
            "trainable": space.trainable,
            "objectives": [{"metric": o.metric, "goal": o.goal} for o in space.objectives],
            "constraints": [str(constraint) for constraint in space.constraints],
            "budget": space.budget.model_dump(),
            "metrics": {name: metric.unit for name, metric in (trainable.METRICS or {}).items()},
            "data": {"name": data.name, "description": trainable.describe_data(data)},
            "machine": {**machine.to_mapping(), "num_nodes": cluster.num_nodes},
            "versions": versions(),
            "commit": git_commit(Path(__file__).parent),
            "seed": space.searcher.seed,
            "command": _command(options),
            "left_out": left_out,
        }
        folder.mkdir(parents=True)
        return _run(space, data, folder, cluster, [], run, connected_line, options, interrupts)


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
    machine = describe_machine()
    _refuse_other_machine(events[0], machine)
    assert space.trainable is not None
    data = load_trainable(space.trainable).locate_data(space.data)
    if data.name != events[0]["data"]["name"]:
        raise InputError(f"{folder}: the run's data is {events[0]['data']['name']}, but {data.name} is what is here")
    local = Resources(cpus=machine.cores, gpus=len(machine.gpus))
    interrupts.deferred = True
    with _connected(options, local) as (cluster, connected_line):
        interrupts.check()
        resume: Event = {"command": _command(options), "budget": space.budget.model_dump()}
        return _run(space, data, folder, cluster, events, resume, connected_line, options, interrupts)


def _run(
    space: Space,
    data: Any,
    folder: Path,
    cluster: Any,
    events: list[Event],
    first: Event,
    connected_line: str,
    options: argparse.Namespace,
    interrupts: Interrupts,
) -> int:
    """Run a study that has its folder and its cluster, whatever happens to it."""
    from search.dashboard import Metrics
    from search.journal import Journal
    from search.progress import Progress
    from search.study import run_study, write_results

    command = _resume_command(folder, options)
    code = DONE
    interrupts.install()  # again: Ray has put its own in their place
    with Progress() as progress:
        progress.announce(connected_line)
        metrics = Metrics()
        for listener in (progress, metrics):
            listener.replay(events)
        with Journal(folder / FILE_NAME, listeners=[progress, metrics]) as journal:
            journal.append("resume" if events else "run", **first)
            try:
                run_study(
                    space, data, folder, journal, cluster.resources, options.address is None, interrupts.check, events
                )
            except Interrupted as interrupted:
                code = interrupted.exit_code
                journal.append("end", reason=str(interrupted))
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                print(f"{folder}: no space left on the disk; free some, then: {command}", file=sys.stderr)
                return OUT_OF_DISK
    interrupts.ignore()  # what is left takes a second
    write_results(folder)
    _say(folder, command if code else None)
    history = History(read_journal(folder / FILE_NAME))
    return code or (DONE if history.counts()["complete"] else FAILED)


def _say(folder: Path, resume_command: str | None) -> None:
    """The last lines: what was found and where it is, or how to go on."""
    from search.report import closing_lines

    print(closing_lines(folder))
    if resume_command:
        print(f"interrupted; to go on:\n  {resume_command}")
    sys.stdout.flush()


def _dry_run(space: Space, machine: Machine, local: Resources) -> int:
    from search.plan import describe_plan, estimate

    share = _share(space, local)
    space, left_out = space.restricted(share)
    assert space.trainable is not None
    trainable = load_trainable(space.trainable)
    data = trainable.locate_data(space.data)
    print(describe_plan(space, trainable.describe_data(data), machine, share, left_out, estimate(space, data)))
    return DONE


def _connected(options: argparse.Namespace, local: Resources) -> Any:
    """A context manager: the cluster, and a line about its dashboard."""
    from contextlib import contextmanager

    from search.cluster import ClusterError, connect
    from search.dashboard import announce

    @contextmanager
    def connected() -> Any:
        try:
            with connect(options.address, local, not options.no_dashboard) as cluster:
                yield cluster, announce(cluster.dashboard_url)
        except ClusterError as error:
            raise InputError(str(error)) from error

    return connected()


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


def _share(space: Space, total: Resources) -> Resources:
    """What one of the concurrent trials gets."""
    share = Resources(cpus=total.cpus // space.concurrent_trials, gpus=total.gpus // space.concurrent_trials)
    if share.cpus == 0 or (total.gpus and not share.gpus):
        raise InputError(
            f"concurrent_trials: {space.concurrent_trials} trials cannot share {total.cpus} cores, {total.gpus} GPUs"
        )
    return share


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
