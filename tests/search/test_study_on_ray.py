"""Whole studies on real Ray, with replayed curves: trials that succeed, fail, stop early and are retried."""

from __future__ import annotations

import contextlib
import errno
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from search.execution.cluster import Cluster
from search.execution.workers import Pool, worker_pool
from search.record.events import Event, Finish, Measurement, Start, Wait
from search.record.journal import FILE_NAME, Journal, Listener, read_journal
from search.record.run_state import RunState
from search.report.sweeps import loader_tables
from search.results import Run, load
from search.space.parsing import parse_space
from search.study.study import Study, complete_study, run_study
from tests.search.test_study import OBJECTIVES, PROBES, RATES, events_of
from trainables.contract import Layout, Resources


def study(where: Cluster | Pool, folder: Path, listeners: Sequence[Listener] = (), **keys: Any) -> Run:
    """Run a study in `folder`, on a cluster or on workers that are there; where a journal is already, go on with it."""
    space = parse_space({"trainable": "replay", "objectives": OBJECTIVES, "data": {"name": "generated"}, **keys})
    folder.mkdir(exist_ok=True)
    journal = folder / FILE_NAME
    events = read_journal(journal) if journal.exists() else []
    with Journal(journal, listeners, run_state=RunState(events)) as record:
        if events:
            record.append("resume", command=[], budget=space.budget.model_dump())
        else:
            described = space.to_mapping()
            record.append(
                "run", name="test", objectives=described["objectives"], data={"name": "generated"}, space=described
            )
        if isinstance(where, Cluster):
            run_study(space, space.data, folder, record, where, lambda: None, events)
        else:
            decider = Study(
                space, space.data, folder, record, space.resources_per_trial(Resources(cpus=2)), where.name, events
            )
            complete_study(decider, where, lambda: None)
    return load(folder)


def test_processes_that_a_task_leaves_running_are_ended() -> None:
    """Runs in another process: the Ray of these tests is a child of this one."""
    code = """
import subprocess
from search.execution.ray_watchdog import end_children
child = subprocess.Popen(["sleep", "60"])
end_children(5.0)
print(child.poll() is not None)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "True"


@pytest.fixture(scope="module")
def faults(pool: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """One trial that goes well, then one for each way to go wrong."""
    folder = tmp_path_factory.mktemp("results") / "faults"
    run = study(
        pool,
        folder,
        trainable="tests.faulty_replay",
        parameters={
            "fail_at_epoch": {"values": [0, 2]},
            "fail_with": {"values": ["exception", "infeasible", "nan"], "when": {"fail_at_epoch": 2}},
        },
        fixed={"learning_rate": 0.1},
        searcher={"name": "grid"},
        budget={"epochs": 2},
    )
    return folder, run


def trial(run: Run, **settings: Any) -> Any:
    """The row of the one trial with these settings."""
    rows = run.trials
    for name, value in settings.items():
        rows = rows[rows[f"config.{name}"] == value]
    return rows.squeeze()


def test_every_trial_started_has_one_row(faults: tuple[Path, Run]) -> None:
    _, run = faults
    starts = [event for event in read_journal(faults[0] / FILE_NAME) if isinstance(event, Start)]
    assert run.trials.trial_id.tolist() == [event.trial_id for event in starts]
    assert len(starts) == 4


def test_a_trial_that_raises_fails_with_the_reason_and_its_measurements_stay(faults: tuple[Path, Run]) -> None:
    row = trial(faults[1], fail_with="exception")
    assert (row.state, row.epochs, row.retries) == ("failed", 1, 0)
    assert row.reason.startswith("RuntimeError: epoch 2 was to fail (faulty_replay.py:")
    assert "Traceback" in (faults[0] / "trials" / row.trial_id / "error-rank0.txt").read_text()


def test_what_cannot_run_here_is_infeasible_and_no_failure(faults: tuple[Path, Run]) -> None:
    row = trial(faults[1], fail_with="infeasible")
    assert (row.state, row.reason) == ("infeasible", "epoch 2 was to be infeasible")


@pytest.mark.slow
def test_a_killed_worker_costs_a_retry_from_the_checkpoint_and_killed_again_the_trial(
    pool: Any, tmp_path: Path
) -> None:
    run = study(
        pool,
        tmp_path / "kills",
        trainable="tests.faulty_replay",
        parameters={"fail_once": {"values": [True, False]}},
        fixed={"fail_at_epoch": 2, "fail_with": "kill"},
        searcher={"name": "grid"},
        budget={"epochs": 2},
    )
    once, again = trial(run, fail_once=True), trial(run, fail_once=False)
    assert (once.state, once.epochs, once.retries) == ("complete", 2, 1)
    assert run.curves[run.curves.trial_id == once.trial_id].epoch.tolist() == [1, 2]
    assert (again.state, again.epochs, again.retries) == ("failed", 1, 1)
    assert "the worker of rank 0 died" in again.reason
    assert set(run.front.trial_id) == {once.trial_id}


def test_a_trial_that_measured_nothing_is_not_on_the_front(faults: tuple[Path, Run]) -> None:
    row = trial(faults[1], fail_with="nan")
    assert (row.state, row.epochs) == ("complete", 2)
    assert set(faults[1].front.trial_id) == {trial(faults[1], fail_at_epoch=0).trial_id}


def test_checkpoints_are_kept_for_the_front_alone_and_the_test_set_is_read_for_it_alone(
    faults: tuple[Path, Run],
) -> None:
    folder, run = faults
    front = set(run.front.trial_id)
    assert {path.parent.name for path in folder.glob("trials/*/checkpoint*")} == front
    assert set(run.trials.trial_id[run.trials.test_accuracy.notna()]) == front


@pytest.mark.slow
def test_a_resumed_run_is_the_run_that_was_never_interrupted(pool: Any, tmp_path: Path) -> None:
    """Cut off within an event: no finished trial is run again, none is lost, and the choices are the same."""
    keys: dict[str, Any] = {
        "parameters": RATES,
        "budget": {"trials": 5, "epochs": 2},
    }
    whole = study(pool, tmp_path / "whole", **keys)
    lines = (tmp_path / "whole" / FILE_NAME).read_bytes().splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if b'"measurement"' in line and b"t0003" in line)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    (tmp_path / "cut" / FILE_NAME).write_bytes(b"".join(lines[: cut + 1]) + lines[cut + 1][:20])
    (tmp_path / "cut" / "trials" / "t0003" / "checkpoint.json").write_text('{"epoch": 1, "metrics": {}}')
    resumed = study(pool, tmp_path / "cut", **keys)
    assert resumed.trials["config.learning_rate"].tolist() == whole.trials["config.learning_rate"].tolist()
    assert resumed.trials.val_accuracy.tolist() == whole.trials.val_accuracy.tolist()
    events = read_journal(tmp_path / "cut" / FILE_NAME)
    assert sorted(e.trial_id for e in events if isinstance(e, Finish)) == whole.trials.trial_id.tolist()
    assert sum(e.event == "start" for e in events) == 5


@pytest.mark.slow
def test_stopped_trials_make_way_and_leave_nothing_behind(pool: Any, tmp_path: Path) -> None:
    run = study(
        pool,
        tmp_path / "stopped",
        parameters={"learning_rate": {"values": [0.1, 1e-9, 1e-8, 1e-7]}},
        searcher={"name": "grid"},
        stopping={"name": "forecast"},
        budget={"epochs": 4},
    )
    assert run.trials.state.tolist()[0] == "complete"
    assert "stopped" in run.trials.state.tolist()
    stopped = run.trials[run.trials.state == "stopped"]
    assert (stopped.epochs < 4).all()
    assert (stopped.setup_seconds < 1).all(), "the workers of a stopped trial stay warm for the next one"
    assert not set(stopped.trial_id) & set(run.front.trial_id)
    assert run.curves.groupby("trial_id").decision.last()[stopped.trial_id].eq("stop").all()


@pytest.mark.slow
def test_layouts_switch_within_a_run_and_the_workers_end_with_it(cluster: Any, tmp_path: Path) -> None:
    before = train_workers()
    run = study(
        cluster,
        tmp_path / "layouts",
        parameters={"processes": {"values": [1, 2]}, "learning_rate": {"values": [0.1, 0.2]}},
        searcher={"name": "grid"},
        budget={"epochs": 1},
    )
    assert run.trials.state.tolist() == ["complete"] * 4
    again = run.trials.setup_seconds.tolist()[1::2]
    assert max(again) < 1.0, "the second trial of a layout finds its workers warm"
    deadline = time.monotonic() + 10
    while left := train_workers() - before:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def train_workers() -> set[int]:
    """Their process ids."""
    pids = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            if "RayTrainWo" in process.name():
                pids.add(process.pid)
    return pids


@pytest.fixture(scope="module")
def probes(pool: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """Three probes."""
    folder = tmp_path_factory.mktemp("results") / "probes"
    return folder, study(pool, folder, **PROBES)


def test_a_probe_measures_once_and_trains_nothing(probes: tuple[Path, Run]) -> None:
    """No checkpoint is written, and the test set is not read."""
    folder, run = probes
    assert run.trials.state.tolist() == ["complete"] * 3
    assert (run.trials.kind.tolist(), run.trials.epochs.tolist()) == (["probe"] * 3, [0] * 3)
    assert run.curves.epoch.tolist() == [0] * 3
    assert run.trials.images_per_second.tolist() == [400.0, 2000 / 3, 1000.0]
    assert "val_accuracy" not in run.curves
    assert "test" not in {event["event"] for event in events_of(folder)}
    assert len(run.front) == 3
    assert not list(folder.glob("trials/*/*"))


def test_a_run_of_probes_cut_off_goes_on_and_measures_none_twice(
    pool: Any, probes: tuple[Path, Run], tmp_path: Path
) -> None:
    """Cut off after the second probe had measured, and before anyone heard that it was over."""
    lines = (probes[0] / FILE_NAME).read_text().splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if '"measurement"' in line and "t0002" in line)
    (tmp_path / FILE_NAME).write_text("".join(lines[: cut + 1]))
    run = study(pool, tmp_path, **PROBES)
    assert run.trials.state.tolist() == ["complete"] * 3
    assert run.trials.images_per_second.tolist() == probes[1].trials.images_per_second.tolist()
    names = [(e.event, getattr(e, "trial_id", None)) for e in read_journal(tmp_path / FILE_NAME)]
    for event in ("start", "measurement", "finish"):
        assert [names.count((event, trial_id)) for trial_id in ("t0001", "t0002", "t0003")] == [1, 1, 1]


@pytest.mark.slow
def test_a_rank_that_fails_ends_its_trial_though_the_other_waits_for_it(pool: Any, tmp_path: Path) -> None:
    """Rank 0 raises where rank 1 waits for an answer; the next trial runs in a new group."""
    run = study(
        pool,
        tmp_path / "ranks",
        trainable="tests.faulty_replay",
        parameters={"fail_at_epoch": {"values": [1, 0]}},
        fixed={"processes": 2},
        searcher={"name": "grid"},
        budget={"epochs": 2},
    )
    assert run.trials.state.tolist() == ["failed", "complete"]
    assert run.trials.reason[0].startswith("rank 0: RuntimeError: epoch 1 was to fail")
    assert run.trials.seconds[0] < 30


@pytest.mark.slow
def test_a_thousand_calls_that_wait_leave_the_pool_able_to_answer(cluster: Any) -> None:
    """100 trials of eight ranks: all of them wait for an answer that another call must bring."""
    with worker_pool(cluster.resources, reserve_cpus=False) as pool:
        held = ray.get(pool.actor.lease.remote(Layout(2), "holds both cores"))
        waiting = [pool.actor.lease.remote(Layout(1), f"t{number:04}") for number in range(1200)]
        ray.get(pool.actor.places.remote("t0001"), timeout=30)
        assert ray.wait(waiting, timeout=0)[0] == []
        ray.get(pool.actor.release.remote(held), timeout=30)
        assert ray.wait(waiting, timeout=60)[0]


@pytest.mark.slow
def test_a_trial_waits_for_what_others_on_the_cluster_use(cluster: Any, tmp_path: Path) -> None:
    """Other programs hold both cores until the journal says that the trial waits for one of them."""
    held, released = [tmp_path / "first", tmp_path / "second"], tmp_path / "released"

    @ray.remote(num_cpus=0.9)  # idle workers of other tests have a thousandth of a core each
    def hold(mark: Path) -> None:
        mark.touch()
        while not released.exists():
            time.sleep(0.1)

    holding = [hold.remote(mark) for mark in held]
    while not all(mark.exists() for mark in held):
        time.sleep(0.1)
    with worker_pool(cluster.resources, reserve_cpus=True) as pool:
        run = study(
            pool,
            tmp_path / "busy",
            [lambda event: released.touch() if event.event == "wait" else None],
            parameters=RATES,
            budget={"trials": 1, "epochs": 1},
        )
    released.touch()
    ray.get(holding, timeout=30)
    assert run.trials.state.tolist() == ["complete"]
    waits = [event.reason for event in read_journal(tmp_path / "busy" / FILE_NAME) if isinstance(event, Wait)]
    assert waits == ["waits for 1 process with 1 core, which others on the cluster use", None]


@pytest.mark.slow
@pytest.mark.parametrize("at", ["start", "measurement", "finish"])
def test_a_journal_that_cannot_be_written_ends_the_run(pool: Any, tmp_path: Path, at: str) -> None:
    """Whichever of Tune's callbacks it happens in: Tune would log some errors and go on."""

    def full(event: Event) -> None:
        if event.event == at:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        study(pool, tmp_path / "full", [full], parameters=RATES, budget={"trials": 3})


@pytest.mark.slow
def test_a_trial_whose_tune_actor_is_killed_fails_and_the_next_one_has_workers(pool: Any, tmp_path: Path) -> None:
    def kill(event: Event) -> None:
        if isinstance(event, Measurement) and event.trial_id == "t0001":
            relays = [p for p in psutil.Process().children(recursive=True) if p.name().startswith("ray::TrialActor")]
            assert relays
            for relay in relays:
                relay.kill()

    keys = {"searcher": {"name": "grid"}, "fixed": {"seconds_per_epoch": 1.0}, "budget": {"epochs": 3}}
    run = study(pool, tmp_path / "relay", [kill], parameters={"learning_rate": {"values": [0.1, 0.2]}}, **keys)
    assert run.trials.state.tolist() == ["failed", "complete"]
    assert run.trials.reason[0] == "Ray Tune lost the trial's actor"


@pytest.mark.slow
def test_the_real_network_is_probed_under_ray(pool: Any, tmp_path: Path) -> None:
    """Rate, stages that add up, and a verdict; the summary compares the loaders."""
    run = study(
        pool,
        tmp_path / "real",
        **{**PROBES, "parameters": {"loader": {"values": ["workers", "memory"]}}},
        trainable="vgg19_cifar10",
        fixed={"batch_size": 64, "width": 0.0625},
        data={"name": "generated", "train_images": 1000, "val_images": 100},
    )
    trials = run.trials
    assert trials.state.tolist() == ["complete"] * 2, trials.reason.tolist()
    assert trials.images_per_second.between(trials.images_per_second_low, trials.images_per_second_high).all()
    assert (trials.seconds < 60).all()
    assert trials.bound_by.isin(["input", "compute"]).all()
    assert loader_tables(list(run.state.trials.values()), [])
    assert not list((tmp_path / "real").glob("trials/*/checkpoint*"))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["single", "ddp"])
def test_the_real_network_trains_under_ray(pool: Any, tmp_path: Path, strategy: str) -> None:
    """One process, or two that reduce their gradients, on generated pictures; the front is tested."""
    run = study(
        pool,
        tmp_path / "real",
        trainable="vgg19_cifar10",
        parameters={"strategy": {"values": [strategy]}},
        fixed={"batch_size": 64, "width": 0.0625, "learning_rate": 0.02, "conv_kernel": "library"},
        data={"name": "generated", "train_images": 256, "val_images": 100},
        searcher={"name": "grid"},
        budget={"epochs": 1, "repeats": 0},
    )
    assert run.trials.state.tolist() == ["complete"], run.trials.reason.tolist()
    assert (run.trials.images_per_second > 0).all()
    assert run.trials.val_accuracy.between(0, 1).all()
    assert run.front.test_accuracy.between(0, 1).all()


def test_rates_are_settled_by_turns_on_the_workers_and_again_after_a_resume(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("search.study.front_measurements.LEAST_DECIDING_SECONDS", 0.1)
    sizes = {"batch_size": {"values": [64, 96]}}
    keys: dict[str, Any] = {"parameters": sizes, "fixed": {"learning_rate": 0.1}, "searcher": {"name": "grid"}}
    run = study(pool, tmp_path / "run", budget={"epochs": 1, "deciding": 0.9}, **keys)
    turns = [event for event in events_of(run.folder) if event["event"] == "turn"]
    assert {(turn["trial_id"], turn["other"]) for turn in turns} <= {("t0001", "t0002"), ("t0002", "t0001")}
    assert 6 <= len(turns) <= 40
    one, other = run.state.candidates()
    ratio = run.state.rate_ratio(one, other)
    assert ratio is not None
    assert ratio.is_decided
    again = study(pool, run.folder, budget={"epochs": 1, "deciding": 0.9}, **keys)
    assert again.state.num_rounds(*again.state.candidates()) == len(turns)
