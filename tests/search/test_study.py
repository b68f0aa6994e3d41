"""What a Study decides and writes down, without Ray or a worker: the clock is set, the measurements are given."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from search.advisor.proposal import Decision
from search.execution import workers
from search.execution.protocol import BusyError, Ended, GroupError, PoolClient, Task
from search.execution.trial_actor import Finished, Measured
from search.record.events import Event
from search.record.journal import FILE_NAME, Journal, read_journal
from search.record.run_state import RunState
from search.results import load
from search.space.parsing import parse_space
from search.study.front_measurements import NEVER_ANY, NO_CHECKPOINT
from search.study.study import Study
from tests.search.runs import interval, typed
from trainables import replay
from trainables.contract import Layout, Resources

RATES = {"learning_rate": {"min": 0.001, "max": 0.5, "log": True}}
OBJECTIVES = [
    {"metric": "val_accuracy", "goal": "maximize"},
    {"metric": "images_per_second", "goal": "maximize"},
]


PROBES: dict[str, Any] = {
    "evaluation": "probe",
    "objectives": [OBJECTIVES[1], {"metric": "peak_memory_fraction", "goal": "minimize"}],
    "parameters": {"batch_size": {"values": [64, 128, 256]}},
    "searcher": {"name": "grid"},
}


def events_of(folder: Path) -> list[dict[str, Any]]:
    """The journal's lines, whether or not they make a whole run."""
    return [json.loads(line) for line in (folder / FILE_NAME).read_text().splitlines()]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def decider(folder: Path, journal: Journal, clock: Clock, events: list[Event] = [], **keys: Any) -> Study:  # noqa: B006
    """A Study that no Ray has heard of yet."""
    space = parse_space({"trainable": "replay", "objectives": OBJECTIVES, "parameters": RATES, **keys})
    (folder / "trials").mkdir(exist_ok=True)
    return Study(space, space.data, folder, journal, Resources(cpus=1), "pool", events, clock)


def test_when_the_hours_are_spent_trials_are_stopped_and_none_is_started(tmp_path: Path) -> None:
    clock = Clock()
    with Journal(tmp_path / FILE_NAME) as journal:
        study = decider(tmp_path, journal, clock, budget={"hours": 1, "epochs": 3})
        late, done = study.propose(), study.propose()
        assert late is not None
        assert done is not None
        row = {"val_accuracy": 0.1, "images_per_second": 1.0}
        assert study.observe(late.trial_id, Measured(1, row, 1.0, 0.0)) is Decision.CONTINUE
        clock.now += 3600
        assert study.observe(late.trial_id, Measured(2, row, 1.0, 0.0)) is Decision.STOP
        assert study.observe(done.trial_id, Measured(3, row, 1.0, 0.0)) is Decision.CONTINUE
        assert study.propose() is None
    finish = [event for event in events_of(tmp_path) if event["event"] == "finish"]
    assert [(e["trial_id"], e["state"], e["reason"]) for e in finish] == [("t0001", "stopped", "budget.hours is spent")]
    assert study.why_ended() == "budget.hours is spent"


@pytest.mark.parametrize(
    ("reasons", "ends"),
    [
        (["KeyError: 'val_iou'"] * 5, True),
        (["KeyError: 'val_iou'"] * 4, False),
        ([*["KeyError: 'val_iou'"] * 3, *(f"rank {rank}: KeyError: 'val_iou'" for rank in (0, 1))], True),
        ([f"ValueError: {number}" for number in range(8)], False),
        ([None, *["KeyError: 'val_iou'"] * 8], False),  # None: that one completes
    ],
)
def test_a_search_whose_first_trials_fail_alike_ends(tmp_path: Path, reasons: list[str | None], ends: bool) -> None:
    with Journal(tmp_path / FILE_NAME) as journal:
        study = decider(tmp_path, journal, Clock(), budget={"trials": 20, "epochs": 1})
        for reason in reasons:
            trial = study.propose()
            assert trial is not None
            if reason is None:
                study.observe(trial.trial_id, Measured(1, {"val_accuracy": 0.1, "images_per_second": 1.0}, 1.0, 0.0))
            study.finish(trial.trial_id, Finished("failed" if reason else "complete", reason, 1.0, 0.0))
        assert (study.propose() is None) == ends
    if ends:
        assert study.why_ended() == "the first 5 trials failed for the same reason"


@pytest.mark.parametrize("fails_too", [False, True])
def test_a_first_trial_that_still_trains_decides_whether_failures_end_the_search(
    tmp_path: Path, fails_too: bool
) -> None:
    row = {"val_accuracy": 0.1, "images_per_second": 1.0}
    with Journal(tmp_path / FILE_NAME) as journal:
        study = decider(tmp_path, journal, Clock(), budget={"trials": 20, "epochs": 2}, concurrent_trials=2)
        first = study.propose()
        assert first is not None
        for _ in range(5):
            assert study.concurrent_trials == 2
            other = study.propose()
            assert other is not None
            study.finish(other.trial_id, Finished("failed", "KeyError: 'val_iou'", 1.0, 0.0))
        assert study.concurrent_trials == 0  # none is started until it is known
        if fails_too:
            study.finish(first.trial_id, Finished("failed", "KeyError: 'val_iou'", 1.0, 0.0))
        else:
            study.observe(first.trial_id, Measured(1, row, 1.0, 0.0))
        assert study.concurrent_trials == 2
        assert (study.propose() is None) == fails_too


def test_a_trial_that_is_stopped_says_what_for(tmp_path: Path) -> None:
    with Journal(tmp_path / FILE_NAME) as journal:
        study = decider(tmp_path, journal, Clock(), budget={"total_epochs": 3, "epochs": 3}, stopping={"name": "none"})
        first, second = study.propose(), study.propose()
        assert first is not None
        assert second is not None
        row = {"val_accuracy": 0.1, "images_per_second": 1.0}
        asked = ((first, 1), (second, 1), (first, 2))
        decisions = [study.observe(trial.trial_id, Measured(epoch, row, 1.0, 0.0)) for trial, epoch in asked]
    assert decisions == [Decision.CONTINUE, Decision.CONTINUE, Decision.STOP]
    assert events_of(tmp_path)[-1]["reason"] == "budget.total_epochs is spent" == study.why_ended()


def test_what_bound_a_trial_is_written_down_with_its_end(tmp_path: Path) -> None:
    """So that the results say it where the trainable is not installed."""
    stages = {"load_seconds": 0.6, "forward_seconds": 0.2, "backward_seconds": 0.2}
    probe = {**PROBES, "trainable": "vgg19_cifar10", "fixed": {"loader": "workers"}}
    probe["objectives"] = [OBJECTIVES[1], {"metric": "peak_memory_gib", "goal": "minimize"}]
    with Journal(tmp_path / FILE_NAME) as journal:
        study = decider(tmp_path, journal, Clock(), **probe)
        for metrics in (stages, {}):
            trial = study.propose()
            assert trial is not None
            row = {"images_per_second": 1.0, "peak_memory_gib": 1.0, **metrics}
            study.observe(trial.trial_id, Measured(0, row, 1.0, 0.0))
            study.finish(trial.trial_id, Finished("complete", None, 1.0, 0.0))
    explained, unknown = (e["verdict"] for e in events_of(tmp_path) if e["event"] == "finish")
    assert (explained["bound_by"], explained["share"], unknown) == ("input", pytest.approx(0.6), None)


def test_when_the_gpu_hours_are_spent_trials_are_stopped_and_none_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "layout", lambda config, resources: Layout(processes=4, gpus_per_process=1))
    row = {"val_accuracy": 0.1, "images_per_second": 1.0}
    with Journal(tmp_path / FILE_NAME) as journal:
        study = decider(tmp_path, journal, Clock(), budget={"gpu_hours": 2, "epochs": 3})
        first, second, third = (proposal.trial_id for _ in range(3) if (proposal := study.propose()))
        assert study.observe(first, Measured(1, row, 1000.0, 0.0)) is Decision.CONTINUE
        assert study.propose() is not None
        assert study.observe(second, Measured(1, row, 800.0, 0.0)) is Decision.STOP  # 4 x (1000 + 800) s are 2 h
        assert study.propose() is None
        assert study.observe(third, Measured(3, row, 900.0, 0.0)) is Decision.CONTINUE  # it is complete
    assert [event["gpus"] for event in events_of(tmp_path) if event["event"] == "start"] == [4] * 4
    assert study.why_ended() == "budget.gpu_hours is spent"


def test_the_hours_of_earlier_processes_count(tmp_path: Path) -> None:
    space = parse_space({"objectives": OBJECTIVES, "parameters": RATES, "budget": {"hours": 1}})
    run = {"event": "run", "time": 0.0, "name": "x", "objectives": OBJECTIVES, "space": space.to_mapping()}
    run["data"] = {"name": "generated"}
    past = typed([run, {"event": "end", "time": 3000.0, "reason": "interrupted"}])
    clock = Clock()
    with Journal(tmp_path / FILE_NAME, run_state=RunState(past)) as journal:
        study = decider(tmp_path, journal, clock, past, budget={"hours": 1})
        clock.now += 599
        assert study.why_over() is None
        clock.now += 1
        assert study.why_over()


def test_trials_that_are_left_when_the_hours_are_spent_have_an_end(tmp_path: Path) -> None:
    """The process was killed when one had measured its last epoch and the other had not."""
    budget, now = {"hours": 1, "epochs": 3}, [0.0]
    row = {"val_accuracy": 0.1, "images_per_second": 1.0}
    opening = {"name": "r", "objectives": OBJECTIVES, "data": {"name": "d"}, "trainable": "replay", "budget": budget}
    with Journal(tmp_path / FILE_NAME, clock=lambda: now[0]) as journal:
        journal.append("run", **opening)
        study = decider(tmp_path, journal, Clock(), budget=budget)
        for epoch in (1, 3):
            trial = study.propose()
            assert trial is not None
            now[0] += 1801.0
            study.observe(trial.trial_id, Measured(epoch, row, 1801.0, 0.0))
    events = read_journal(tmp_path / FILE_NAME)
    with Journal(tmp_path / FILE_NAME, clock=lambda: now[0], run_state=RunState(events)) as journal:
        events.append(journal.append("resume", budget=budget))
        study = decider(tmp_path, journal, Clock(), events, budget=budget)
        assert study.next_layout() is None
        study.finish_pending()
    ends = [event for event in events_of(tmp_path) if event["event"] == "finish"]
    assert [(e["trial_id"], e["state"], e["reason"]) for e in ends] == [
        ("t0001", "stopped", "budget.hours is spent"),
        ("t0002", "complete", None),
    ]


def test_a_trial_that_goes_on_after_a_resume_waits_no_longer(tmp_path: Path) -> None:
    opening = {"name": "r", "objectives": OBJECTIVES, "data": {"name": "d"}, "trainable": "replay"}
    with Journal(tmp_path / FILE_NAME) as journal:
        journal.append("run", **opening)
        study = decider(tmp_path, journal, Clock(), budget={"trials": 2})
        trial = study.propose()
        assert trial is not None
        study.wait(trial.trial_id, "waits for 1 core")
        assert journal.run_state.trials[trial.trial_id].waits_for
        journal.append("resume")
        assert journal.run_state.trials[trial.trial_id].waits_for is None


def test_time_after_the_search_is_not_of_the_search_where_it_is_interrupted() -> None:
    metrics = {"val_accuracy": 0.5, "images_per_second": 10.0}
    state = RunState(
        typed(
            [
                {"event": "run", "time": 0.0, "name": "r", "objectives": OBJECTIVES, "data": {"name": "d"}},
                {"event": "start", "time": 0.0, "trial_id": "t0001", "config": {}},
                {"event": "measurement", "time": 3600.0, "trial_id": "t0001", "epoch": 1, "metrics": metrics},
                {"event": "finish", "time": 3600.0, "trial_id": "t0001", "state": "complete"},
                {"event": "end", "time": 5400.0, "reason": "interrupted by SIGTERM"},  # in a training with another seed
            ]
        )
    )
    assert (state.clock.searching_seconds(), state.clock.deciding_seconds) == (3600.0, 1800.0)
    for event in typed(
        [
            {"event": "resume", "time": 6000.0},
            {"event": "again", "time": 7800.0, "trial_id": "t0001", "seed": 1, "metrics": metrics},
        ]
    ):
        state.apply(event)
    assert (state.clock.searching_seconds(), state.clock.deciding_seconds) == (3600.0, 3600.0)


def test_a_wait_is_written_once_and_ends_with_the_hours(tmp_path: Path) -> None:
    clock = Clock()
    with Journal(tmp_path / FILE_NAME, clock=clock) as journal:
        study = decider(tmp_path, journal, clock, budget={"hours": 1})
        trial = study.propose()
        assert trial is not None
        for reason in ("waits for 1 core", "waits for 1 core", None, "waits for 1 core"):
            assert study.wait(trial.trial_id, reason) is Decision.CONTINUE
        clock.now += 3600
        assert study.wait(trial.trial_id, "waits for 1 core") is Decision.STOP
    events = events_of(tmp_path)
    assert [e["reason"] for e in events if e["event"] == "wait"] == ["waits for 1 core", None, "waits for 1 core"]
    assert [e["state"] for e in events if e["event"] == "finish"] == ["stopped"]


def test_nothing_is_acted_on_before_it_is_written(tmp_path: Path) -> None:
    """Where the journal cannot be written, no trial is proposed and no measurement answered."""

    def full(event: Event) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(tmp_path / FILE_NAME, [full]) as journal:
        study = decider(tmp_path, journal, Clock(), budget={"trials": 3})
        with pytest.raises(OSError, match="No space left"):
            study.propose()


@pytest.mark.parametrize(("kept", "reason"), [("t0003", "no pictures"), ("t0001", NO_CHECKPOINT), (None, NEVER_ANY)])
def test_who_comes_to_the_front_because_another_proves_slower_is_probed_and_tested_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str | None, reason: str
) -> None:
    """Three trials of one accuracy; the fastest was lucky, and so was the next."""
    probed = {"t0001": 500.0, "t0002": 600.0, "t0003": 700.0}
    asked = []

    def call(pool: Any, layout: Any, task: Task, check: Any, goes_on: Any) -> Ended:
        asked.append((task.function, task.trial_id))
        if task.function == "test":
            return Ended("failed", "no pictures")
        return Ended("complete", metrics=interval(probed[task.trial_id], 1.0))

    monkeypatch.setattr(workers, "run_task", call)
    keys: dict[str, Any] = {
        "searcher": {"name": "random"},
        "stopping": {"name": "none"},
        "budget": {"trials": 3, "epochs": 1},
    }
    with Journal(tmp_path / FILE_NAME) as journal:
        study = decider(tmp_path, journal, Clock(), **keys)
        space = parse_space({"trainable": "replay", "objectives": OBJECTIVES, "parameters": RATES, **keys}).to_mapping()
        journal.append("run", name="x", objectives=OBJECTIVES, data={"name": "generated"}, space=space)
        for lucky in (900.0, 800.0, 700.0):
            trial = study.propose()
            assert trial is not None
            study.observe(trial.trial_id, Measured(1, {"val_accuracy": 0.5, **interval(lucky, 400.0)}, 1.0, 0.0))
            study.finish(trial.trial_id, Finished("complete", None, 1.0, 0.0))
        front = study.front_measurements(None, lambda: None)
        front.repeat()
        if kept:
            (tmp_path / "trials" / kept).mkdir(parents=True, exist_ok=True)
            (tmp_path / "trials" / kept / "checkpoint.pt").touch()
        front.test()
        if kept != "t0003":
            front.test()  # as where the run is extended: the reason stands
    assert asked == [("probe", "t0001"), ("probe", "t0002"), ("probe", "t0003"), ("test", "t0003")]
    assert load(tmp_path).front.trial_id.tolist() == ["t0003"]
    assert [event["reason"] for event in events_of(tmp_path) if event["event"] == "test"] == [reason]


def test_what_others_use_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(client: Any, layout: Layout, task: Task) -> None:
        raise BusyError("waits for 1 core, which others on the cluster use")

    monkeypatch.setattr(PoolClient, "submit", submit)
    monkeypatch.setattr(workers, "timeout_seconds", lambda: 0.1)
    task = Task("t0001", "replay", "test", {}, parse_space(PROBES).data, "folder", 1)
    with pytest.raises(GroupError, match="waits for 1 core"):
        workers.run_task(SimpleNamespace(), Layout(1), task, lambda: None)


@pytest.mark.parametrize(
    ("end", "state", "reason"),
    [
        (None, "failed", "lost"),
        (Ended("infeasible", "out of host memory: rank 0"), "infeasible", "out of host memory: rank 0"),
    ],
)
def test_a_lost_trial_cannot_run_here_if_memory_ended_its_workers_too(
    end: Ended | None, state: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "end_lease", lambda pool_name, trial_id: end)
    with Journal(tmp_path / FILE_NAME) as journal:
        study = decider(tmp_path, journal, Clock(), budget={"trials": 3})
        trial = study.propose()
        assert trial is not None
        study.crash(trial.trial_id, "lost")
    finish = events_of(tmp_path)[-1]
    assert (finish["state"], finish["reason"]) == (state, reason)


def test_a_probe_is_over_when_it_has_measured_also_when_time_is_up(tmp_path: Path) -> None:
    clock = Clock()
    with Journal(tmp_path / FILE_NAME) as journal:
        study = decider(tmp_path, journal, clock, **{**PROBES, "budget": {"hours": 1}})
        late = study.propose()
        assert late is not None
        clock.now += 3600
        assert study.observe(late.trial_id, Measured(0, {"images_per_second": 1.0}, 1.0, 0.0)) is Decision.CONTINUE


def test_checkpoints_of_stopped_trials_are_deleted_also_where_another_library_made_folders(tmp_path: Path) -> None:
    with Journal(tmp_path / FILE_NAME) as journal:
        study = decider(tmp_path, journal, Clock(), budget={"trials": 3, "epochs": 3})
        trial = study.propose()
        assert trial is not None
        folder = tmp_path / "trials" / trial.trial_id
        (folder / "checkpoint-200").mkdir(parents=True)
        for name in ("checkpoint-200/weights.bin", "checkpoint.pt", "log.txt"):
            (folder / name).write_text("x")
        study.finish(trial.trial_id, Finished("stopped", "slow", 1.0, 0.0))
    assert [path.name for path in folder.iterdir()] == ["log.txt"]
