"""The command line: a space file in, a results folder out.

    python -m search.run spaces/throughput.yaml [--set a.b=value] [--dry-run]
    python -m search.run --resume results/throughput-2026-11-20-1

Exit codes: 0 done, 1 failed, 2 bad input, 3 out of disk, 129, 130 and 143 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shlex
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from search.commandline import open_missing_streams, print_output
from search.exit_codes import BAD_INPUT, DONE, FAILED, OUT_OF_DISK, InputError
from search.record.columns import COLUMNS
from search.record.disk import check_writable, describe_os_error, is_out_of_space
from search.record.mirror import Mirror, MirrorError, Mirroring
from search.record.run_lock import RunLockedError, lock_run
from search.record.run_state import RunState
from search.record.source import save_source
from search.run_options import parser, wanted_nodes
from search.space.machine import Machine, describe_machine, git_commit, package_versions
from search.space.parsing import load_space
from search.space.restriction import for_machine
from search.space.space import Space
from search.space.space_file import read_space_file
from search.space.validation import Problem, SpaceError
from search.study.interrupt import Interrupted, Interrupts
from search.study.opening import description, known_measurements
from search.study.resumed import (
    budget_changes,
    changed_budget,
    check_length,
    check_replay,
    check_same_data,
    check_same_defaults,
    check_same_machine,
    check_same_space,
    is_finished,
    read_run,
    resume_space,
)
from search.study.run_folder import cannot_be_made, has_begun, made_folder, new_folder, remove_what_never_began
from search.study.shutdown import finish_run
from search.study.spent_budget import spent_budget
from search.text.unbreakable import unbreakable_errors
from trainables.contract import Data, DataError, Resources, source_of
from trainables.thread_waiting import thread_waiting

if TYPE_CHECKING:  # Ray is imported when the input is known to be good
    from search.execution.cluster import Cluster

COMMAND = ("python", "-m", "search.run")
NOT_BEGUN = "interrupted before the search began"

Fitted = tuple[Space, Data, list[str]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    open_missing_streams()
    with unbreakable_errors(), Interrupts() as interrupts:
        try:
            return _run(words, interrupts)
        except (SpaceError, DataError, InputError, RunLockedError, MirrorError) as error:
            print(error, file=sys.stderr)
            return BAD_INPUT
        except OSError as error:
            print(describe_os_error(error), file=sys.stderr)
            return OUT_OF_DISK if is_out_of_space(error) else FAILED
        except Interrupted as interrupted:
            if not interrupts.exit_message:  # else the run has said it
                print(NOT_BEGUN, file=sys.stderr)
            return interrupted.exit_code


def _run(words: list[str], interrupts: Interrupts) -> int:
    options = parser().parse_args(words, argparse.Namespace(words=words))
    if options.parameters is not None:
        return _list_parameters(options.parameters)
    if options.on and not options.dry_run:
        raise InputError("--on: belongs to --dry-run; a search runs on this machine or at --address")
    with _claimed_mirror(options) as mirror:
        if options.go_on:
            options = _resuming_if_begun(options, mirror)
        run = _resume if options.resume else _start
        return run(options, interrupts, mirror)


def _list_parameters(trainable: str) -> int:
    from search.space.parameter_list import parameter_list

    try:
        print_output(parameter_list(trainable))
    except LookupError as error:
        raise InputError(f"--parameters: {error}") from error
    return DONE


@contextmanager
def _claimed_mirror(options: argparse.Namespace) -> Iterator[Mirror | None]:
    """Yield the copy of the run, which no other process may write meanwhile; None: there is none."""
    if options.mirror is None or options.dry_run:
        yield None
        return
    name = options.name or (options.resume and options.resume.resolve().name)
    if not name:
        raise InputError("--mirror: needs the run's --name")
    if options.space is not None and options.space.suffix != ".py":
        load_space(options.space, options.set)  # before anything is written there
    mirror = Mirror(options.mirror, name)
    if mirror.is_in(folder := options.resume or options.results / name):
        raise InputError(f"--mirror {options.mirror}: {folder} is the run's own folder; name another one")
    try:
        mirror.claim()
        mirror.keep_claim()
        yield mirror
    finally:
        mirror.release()


def _resuming_if_begun(options: argparse.Namespace, mirror: Mirror | None) -> argparse.Namespace:
    """Return the options of --go-on as those of --resume, if the run has begun, here or in its copy."""
    if options.space is None or options.name is None or options.resume:
        raise InputError("--go-on: needs a space file and the run's --name, the same each time")
    folder = options.results / options.name
    _fetch(mirror, folder)
    asked = load_space(options.space, options.set)
    if not has_begun(folder):
        if folder.is_dir() and not options.dry_run:
            remove_what_never_began(folder)
        return options
    run_state = RunState(read_run(folder))
    began = run_state.info
    check_same_space(folder, began, asked)
    is_moved = asked.data.root is not None and asked.data.root != began.data_settings.get("root")
    moved = [f"data.root={json.dumps(asked.data.root, ensure_ascii=False)}"] if is_moved else []
    kept = [*changed_budget(run_state, asked), *moved]
    as_resume = {"space": None, "name": None, "warm_start": [], "resume": folder, "set": kept}
    return argparse.Namespace(**{**vars(options), **as_resume})


def _fetch(mirror: Mirror | None, folder: Path) -> None:
    """Bring the folder up to its copy, which may be ahead."""
    if mirror and mirror.fetch(folder):
        print(f"{folder}: copied from {mirror.uri}", file=sys.stderr)


def _key(override: str) -> str:
    return override.partition("=")[0].strip()


def _start(options: argparse.Namespace, interrupts: Interrupts, mirror: Mirror | None) -> int:
    """Start a new run."""
    if options.space is None:
        raise InputError("no space file: python -m search.run spaces/quickstart.yaml, or --resume RUN_DIR")
    if options.space.suffix == ".py":
        check = shlex.join(["python", "-m", "search.check", f"{options.space}"])
        raise InputError(f"{options.space}: a training file; {check} prints a space file for it")
    if options.dry_run:  # steps are timed in this process, as the search's would be
        os.environ.update(thread_waiting())
    wanted_nodes(options)  # a wrong one is told before anything else
    space = load_space(options.space, options.set)
    if space.trainable is None:
        raise InputError(f"{options.space}: trainable: missing; e.g. trainable: vgg19_cifar10")
    if taken := COLUMNS.keys() & (space.loaded_trainable.METRICS or {}).keys():
        what = f"reports {', '.join(sorted(taken))}, which the tables of results have already"
        raise InputError(f"{options.space}: trainable: {space.trainable}: {what}; choose another name")
    folder = new_folder(options)
    if mirror and mirror.has_run():
        raise InputError(f"{mirror.uri}: has a run {folder.name} already; choose another --name, or give --go-on, too")
    try:
        check_writable(folder)  # fail before starting Ray
    except OSError as error:
        raise cannot_be_made(folder, error) from error
    for earlier in options.warm_start:
        read_run(earlier)
    machine = describe_machine()
    if options.dry_run:
        return _print_plan(space, options.on or machine, options)
    # bad input is reported before Ray starts
    fitted = None if options.address else _fitted(space, machine.resources, options)
    with _connected(options, machine, interrupts, mirror) as cluster:
        from search.study.job import Job, run_job

        space, data, left_out = fitted or _fitted(space, cluster.resources, options)
        source = source_of(space.trainable or "")
        opening = {
            **description(space, data, options.results),
            "space_file": options.space.name,
            "machine": cluster.machine.to_mapping(),
            "versions": {**package_versions(), **(source.packages() if source else {})},
            "commit": git_commit(Path(__file__).parent),
            "command": [*COMMAND, *options.words],
            "left_out": left_out,
            "auto": space.meanings_of_auto(space.resources_per_trial(cluster.resources)),
        }
        known = known_measurements(space, opening, options.results, options.warm_start)
        folder = made_folder(options)
        opening["name"] = folder.name
        command = _resume_command(folder, options)
        with lock_run(folder):
            if source:
                save_source(source, folder)
            job = Job(space, data, folder, [], opening, known, command, mirror, options.on_end)
            return run_job(job, cluster, interrupts)


def _print_plan(space: Space, machine: Machine, options: argparse.Namespace) -> int:
    """Print the plan of a search on a machine; on another one (`--on`) nothing is timed."""
    from search.study.plan import describe_plan
    from search.study.run_estimate import estimate, untimed

    total = machine.resources.on(machine.num_nodes)
    space, left_out = for_machine(space, total)
    share = space.resources_per_trial(total)
    trainable = space.loaded_trainable
    if options.on:
        print_output(describe_plan(space, "as it is found there", machine, share, left_out, untimed(space)))
        return DONE
    data = _located(space, options)
    estimated = estimate(space, data)
    print_output(describe_plan(space, trainable.describe_data(data), machine, share, left_out, estimated))
    errors = [each.error for each in estimated.timed if each.error]
    if errors and len(errors) == len(estimated.timed):
        raise InputError(f"{options.space}: no configuration that was tried can be trained: {errors[0]}")
    return DONE


def _resume(options: argparse.Namespace, interrupts: Interrupts, mirror: Mirror | None) -> int:
    """Go on with a run where its journal ends."""
    if options.space is not None or options.name or options.warm_start:
        raise InputError("--resume: takes the space file, --name and --warm-start from the run; give none of them")
    folder = options.resume
    read_run(folder)  # before anything is written there
    if options.dry_run:
        raise InputError("--dry-run: a resumed run has no plan; leave it out")
    with lock_run(folder):
        if not options.go_on:  # which has done so to see whether the run has begun
            _fetch(mirror, folder)
        events = read_run(folder)
        run_state = RunState(events)
        space = resume_space(run_state, options.set, folder)
        check_length(run_state, space.budget)
        check_same_defaults(folder, run_state.info)
        machine = describe_machine()
        if not options.address:
            check_same_machine(run_state.info.machine, machine)
        trainable = space.loaded_trainable
        data = trainable.locate_data(space.data)
        warning = check_same_data(folder, run_state.info, data.name, trainable.describe_data(data))
        check_replay(folder, space, events)
        command = _resume_command(folder, options)
        is_over = is_finished(events[-1], run_state, space)
        spent = None if is_over else spent_budget(events, run_state, space)
        lines = [f"{spent}; the run stays as it was"] if spent else budget_changes(run_state, space.budget)
        for line in filter(None, [warning, *lines]):
            print(f"{folder}: {line}", file=sys.stderr)
        if is_over or spent:
            code = finish_run(folder, command)
            if mirror:
                Mirroring(mirror, folder, run_state).copy(everything=True)
            return code
        with _connected(options, machine, interrupts, mirror, run_state.info.machine.resources) as cluster:
            resumed = cluster.resumed(run_state.info.machine)
            check_same_machine(run_state.info.machine, resumed.machine)
            needed, found = space.resources_per_trial(resumed.resources).nodes, cluster.machine.num_nodes
            if needed > found:
                raise InputError(f"{folder}: each trial has {needed} nodes, and there are {found}; wait for the others")
            from search.study.job import Job, run_job

            opening = {"command": [*COMMAND, *options.words], "budget": space.budget.model_dump()}
            job = Job(space, data, folder, events, opening, [], command, mirror, options.on_end)
            return run_job(job, resumed, interrupts)


def _fitted(space: Space, total: Resources, options: argparse.Namespace) -> Fitted:
    """Return the space restricted to these resources, its data, and a line for each thing left out."""
    space, left_out = for_machine(space, total)
    return space, _located(space, options), left_out


def _located(space: Space, options: argparse.Namespace) -> Data:
    """Return the data of a new search.

    Raises:
        DataError: they are not where the machine has them.
        SpaceError: they are not where the space file says.
    """
    try:
        return space.loaded_trainable.locate_data(space.data)
    except DataError as error:
        key, _, what = f"{error}".partition(" ")
        if space.data.root is None or key != "data.root":
            raise
        _, source = read_space_file(options.space, options.set)
        raise source.error(Problem(("data", "root"), what)) from error


@contextmanager
def _connected(
    options: argparse.Namespace,
    machine: Machine,
    interrupts: Interrupts,
    mirror: Mirror | None,
    size: Resources | None = None,
) -> Iterator[Cluster]:
    """Connect to Ray, with signals deferred. `size`: what a run that goes on has used of each node."""
    from search.execution.cluster import ClusterError, connect

    def last_act() -> None:
        print(NOT_BEGUN, file=sys.stderr, flush=True)
        if mirror:
            mirror.release()

    labels, wait_seconds = wanted_nodes(options)
    interrupts.deferred = True
    threading.Thread(target=importlib.import_module, args=("search.study.job",), daemon=True).start()  # meanwhile
    if sys.stderr.isatty():  # it takes some seconds, in which a person would see nothing
        print(f"joining Ray at {options.address}" if options.address else "starting Ray", file=sys.stderr)
    try:
        with interrupts.attributed_to_signal(), contextlib.ExitStack() as stack:
            with interrupts.ending_at_once(last_act):
                cluster = stack.enter_context(
                    connect(
                        options.address,
                        machine,
                        not options.no_dashboard,
                        labels,
                        wait_seconds,
                        options.ask_for_nodes,
                        size,
                    )
                )
            interrupts.install()  # again: Ray has put its own in their place
            interrupts.check()
            yield cluster
    except ClusterError as error:
        raise InputError(str(error)) from error


def _resume_command(folder: Path, options: argparse.Namespace) -> str:
    """Return the command that goes on with the run, on one line: the last one that is printed.

    With --go-on it is the command itself, so that a job is submitted again.
    """
    if options.go_on:
        return shlex.join([*COMMAND, *options.words])
    words = [*COMMAND, "--resume", str(folder)]
    words += [w for item in options.set if options.resume and _key(item) == "data.root" for w in ("--set", item)]
    words += ["--address", options.address] if options.address else []
    words += ["--mirror", options.mirror] if options.mirror else []
    words += ["--on-end", options.on_end] if options.on_end else []
    words += [word for label in options.nodes for word in ("--nodes", label)]
    words += ["--wait-for-nodes", f"{options.wait_for_nodes:g}"] if options.wait_for_nodes else []
    words += ["--ask-for-nodes", str(options.ask_for_nodes)] if options.ask_for_nodes else []
    words += ["--no-dashboard"] if options.no_dashboard else []
    return shlex.join(words)


if __name__ == "__main__":
    sys.exit(main())
