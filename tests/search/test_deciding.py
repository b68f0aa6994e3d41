"""Turns at the end of a search: which trials have them, until when, and what is written down. Without Ray."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from search.execution import workers
from search.execution.protocol import Ended, GroupError, Task
from search.execution.trial_actor import Finished, Measured
from search.front.neighbour import gains
from search.record.journal import FILE_NAME, Journal
from search.record.run_clock import RunClock
from search.record.run_state import RunState
from search.report import causes
from search.report.front_tables import front_section
from search.results import load
from search.space.parsing import parse_space
from search.space.space import Space
from search.study.deciding import ROUNDS_AT_A_TIME, next_to_train_again
from search.study.front_measurements import FrontMeasurements
from search.study.study import Study
from tests.search.runs import Recorder, config, interval, typed
from trainables.contract import Measurement, Resources, Verdict, load_trainable

OBJECTIVES = [
    {"metric": "val_accuracy", "goal": "maximize"},
    {"metric": "images_per_second", "goal": "maximize"},
]
SPACE: dict[str, Any] = {
    "trainable": "vgg19_cifar10",
    "objectives": OBJECTIVES,
    "parameters": {"batch_size": {"values": [32, 64, 128, 256]}},
    "searcher": {"name": "grid"},
    "budget": {"epochs": 1, "repeats": 0, "deciding": 0.1},
}
Trials = list[tuple[float, dict[str, float]]]
Turn = Callable[[Task, int], Sequence[float]]  # rates in a round


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def decided(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    measured: Trials,
    turn: Turn | None,
    beside: Callable[[Task], Sequence[float]] | None = None,
    seconds: float = 0.0,
    clock: Clock | None = None,
    fails: Callable[[Task], Ended | None] = lambda task: None,
    **keys: Any,
) -> tuple[RunState, list[Task]]:
    """State after deciding, of trials with these accuracies and rates, and the tasks that ran.

    A round takes 1 s; without a `turn`, tasks end before their first round. `beside`: rates with neighbours, else they
    have no turns. `seconds`: of a training, else there is none with another seed. `fails`: how one fails.
    """
    clock, tasks = clock or Clock(), []
    if not beside:
        monkeypatch.setattr(FrontMeasurements, "_try_neighbours", lambda *arguments: None)
    if not seconds:
        monkeypatch.setattr(FrontMeasurements, "_train_again", lambda *arguments: None)

    def run_task(pool: Any, layout: Any, task: Task, check: Any, goes_on: Callable[[Measurement], bool]) -> Ended:
        tasks.append(task)
        clock.now += seconds if task.function == "train" else 0.0
        if failed := fails(task):
            return failed
        if task.function == "train":
            metrics = {"val_accuracy": 0.70 + 0.01 * (task.config["seed"] % 3), "images_per_second": 100.0}
            goes_on(Measurement(1, metrics))
            assert Path(task.folder).is_dir()
            return Ended("complete", metrics=metrics)
        for number in range(1, 1000 if turn else 1):
            assert turn is not None
            clock.now += 1
            if beside and "fused_optimizer" in task.rivals[-1] and len(task.rivals) > 1:
                return Ended("infeasible", "fused_optimizer")
            rates: Sequence[float] = beside(task) if beside else turn(task, number)
            if not goes_on(Measurement(number, {f"rate_{place}": rate for place, rate in enumerate(rates)})):
                break
        return Ended("complete")

    monkeypatch.setattr(workers, "run_task", run_task)
    monkeypatch.setattr(RunClock, "active_seconds", lambda self, now=None: 1000.0)
    space = parse_space(SPACE | keys)
    (folder / "trials").mkdir()
    with Journal(folder / FILE_NAME) as journal:
        mapping = space.to_mapping()
        about = {
            "constraints": mapping.get("constraints", []),
            "trainable": "vgg19_cifar10",
            "metrics": dict.fromkeys(interval(1.0, 1.0), "images/s"),
        }
        objectives = mapping["objectives"]
        journal.append("run", name="x", objectives=objectives, data={"name": "generated"}, space=mapping, **about)
        study = Study(space, space.data, folder, journal, Resources(cpus=2), "pool", (), clock)
        for accuracy, rates in measured:
            trial = study.propose()
            assert trial is not None
            study.observe(trial.trial_id, Measured(1, {"val_accuracy": accuracy, **rates}, 1.0, 0.0))
            study.finish(trial.trial_id, Finished("complete", None, seconds or 1.0, 0.0))
        study.front_measurements(None, lambda: None).decide()
    return load(folder).state, tasks


def faster_by(ratio: float) -> Turn:
    return lambda task, number: (100.0 * ratio * math.exp(0.02 * math.sin(number)), 100.0)


def test_turns_end_when_the_order_is_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = [(0.70, interval(100.0, 30.0)), (0.69, interval(104.0, 30.0))]
    state, tasks = decided(tmp_path, monkeypatch, measured, faster_by(1.2))
    assert [(task.function, task.trial_id, len(task.rivals)) for task in tasks] == [("turns", "t0001", 1)]
    assert 6 <= state.num_rounds(*state.trials.values()) <= 10
    assert [trial.trial_id for trial in state.front()] == ["t0001"]


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (
            {"repeats": 1, "deciding": 0.1},
            "the front (2 points) is probed again, compared for up to 1 min 40 s"
            " (by rates in turns, changes of one setting and trainings with other seeds) and tested",
        ),
        (
            {"repeats": 0, "deciding": 0.1},
            "the front (2 points) is compared for up to 1 min 40 s"
            " (by rates in turns, changes of one setting and trainings with other seeds) and tested",
        ),
        ({"repeats": 0, "deciding": 0.0}, "the front (2 points) is tested"),
    ],
)
def test_what_follows_the_search_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: dict[str, float], said: str
) -> None:
    told = list[str | None]()
    monkeypatch.setattr(FrontMeasurements, "decide", lambda self: told.append(self.plan()))
    measured = [(0.70, interval(100.0, 1.0)), (0.60, interval(200.0, 1.0))]
    decided(tmp_path, monkeypatch, measured, None, budget={"epochs": 1, **budget})
    assert told == [said]


def test_the_time_for_deciding_is_a_part_of_the_search_whatever_repeated_probes_took(tmp_path: Path) -> None:
    recorder = Recorder(constraints=[])
    recorder.complete("t0001", [0.7], 100.0, config())
    recorder.add(
        "measurement", 3600.0, trial_id="t0001", epoch=1, metrics={"val_accuracy": 0.7, **interval(100.0, 1.0)}
    )
    state = RunState(typed(recorder.events))
    space = parse_space(SPACE)
    journal: Any = SimpleNamespace(run_state=state)
    measurements = FrontMeasurements(space, journal, Resources(cpus=2), *[lambda *_: None] * 3, Clock())  # type: ignore
    told = measurements.plan()
    for _ in range(2):
        recorder.add("repeat", 900.0, trial_id="t0001", metrics=interval(100.0, 1.0))
        state.apply(*typed(recorder.events[-1:]))
    assert state.clock.ending_seconds >= 900.0
    assert measurements.plan() == told


def test_nothing_follows_a_search_without_a_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[str | None]()
    monkeypatch.setattr(FrontMeasurements, "decide", lambda self: told.append(self.plan()))
    decided(tmp_path, monkeypatch, [], None)
    assert told == [None]


def test_equal_rates_are_a_tie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = [(0.70, interval(100.0, 30.0)), (0.69, interval(104.0, 30.0))]
    state, _ = decided(tmp_path, monkeypatch, measured, faster_by(1.001))
    ratio = state.rate_ratio(*state.trials.values())
    assert ratio is not None
    assert ratio.is_tie


def test_rates_whose_order_does_not_matter_have_no_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last two are not on the front whichever is faster; of the first two the order is certain."""
    measured = [
        (0.9, interval(100.0, 1.0)),
        (0.8, interval(200.0, 1.0)),
        (0.1, interval(50, 20)),
        (0.1, interval(51, 20)),
    ]
    assert decided(tmp_path, monkeypatch, measured, faster_by(1.2))[1] == []


def test_a_rate_in_no_objective_and_no_constraint_has_no_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = [{"metric": "val_accuracy", "goal": "maximize"}, {"metric": "val_loss", "goal": "minimize"}]
    measured = [(0.70 + place / 100, {"val_loss": 1 + place / 10, **interval(100 + place, 20)}) for place in range(2)]
    assert decided(tmp_path, monkeypatch, measured, faster_by(1.2), objectives=losses)[1] == []
    (tmp_path / "limited").mkdir()
    keys: dict[str, Any] = {"objectives": losses, "constraints": ["images_per_second >= 90"]}
    assert decided(tmp_path / "limited", monkeypatch, measured, faster_by(1.2), **keys)[1]


def test_deciding_ends_when_its_time_is_spent_and_others_have_their_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates that jump by a half are never decided; 100 s are a tenth of the time."""
    measured = [(0.70 - 0.001 * i, interval(100.0 + i, 30.0)) for i in range(4)]

    def jumping(task: Task, number: int) -> list[float]:
        rates = (100.0 * (1.5 if number % 2 else 1 / 1.5), 100.0)
        return [rates[place % 2] for place in range(1 + len(task.rivals))]

    state, tasks = decided(tmp_path, monkeypatch, measured, jumping)
    trials = list(state.trials.values())
    rounds = [state.num_rounds(one, other) for i, one in enumerate(trials) for other in trials[i + 1 :]]
    # each round of all four together, the first 12 of them, counts for three pairs
    assert 85 + 24 <= sum(rounds) <= 100 + 24
    assert max(rounds) <= 2 * ROUNDS_AT_A_TIME
    assert len({(task.trial_id, task.rivals[0]["batch_size"]) for task in tasks}) >= 3


def test_all_trials_in_doubt_have_turns_together_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the slowest to the fastest; each round counts for neighbours in that order. The surely bad is left out."""
    measured = [(0.70 - 0.01 * i, interval(rate, 30.0)) for i, rate in enumerate((104.0, 100.0, 108.0))]
    measured.append((0.1, interval(20.0, 1.0)))

    def turn(task: Task, number: int) -> list[float]:
        noise = 1 + 0.02 * math.sin(number)
        return [100.0 * noise, 110.0 / noise, 121.0][: 1 + len(task.rivals)]

    state, tasks = decided(tmp_path, monkeypatch, measured, turn)
    assert [[task.config["batch_size"], *(rival["batch_size"] for rival in task.rivals)] for task in tasks] == [
        [64, 32, 128]
    ]
    first, second, third, _ = state.trials.values()
    assert state.num_rounds(second, first) == state.num_rounds(first, third) == 6
    assert state.num_rounds(second, third) == 0
    ratio = state.rate_ratio(third, second)
    assert ratio is not None
    assert ratio.is_decided
    assert ratio.ratio[0] == pytest.approx(1.21, rel=0.02)
    assert [trial.trial_id for trial in state.front()] == ["t0001", "t0003"]


def test_trials_whose_turns_with_loader_processes_are_long_have_turns_in_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn has a step for each loader process, here of 1 s; three configurations would take 180 s of 100 s."""
    stages = {"forward_seconds": 0.5, "backward_seconds": 0.5}
    measured = [(0.70 - 0.01 * i, interval(100.0 + i, 30.0) | stages) for i in range(3)]
    keys: dict[str, Any] = {"fixed": {"num_workers": 8, "loader": "workers"}}
    _, tasks = decided(tmp_path, monkeypatch, measured, faster_by(1.2), **keys)
    assert tasks
    assert {len(task.rivals) for task in tasks} == {1}


def test_turns_that_are_too_long_for_all_in_doubt_go_on_in_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round of three takes 21 s, one of two 14 s, and there are 100 s."""
    measured = [(0.70 - 0.01 * i, interval(100.0 + i, 30.0)) for i in range(3)]

    def turn(task: Task, number: int) -> list[float]:
        number_of_trials = 1 + len(task.rivals)
        clock.now += 7 * number_of_trials - 1
        return [100.0, 120.0 + number % 2, 144.0][:number_of_trials]

    clock = Clock()
    state, tasks = decided(tmp_path, monkeypatch, measured, turn, clock=clock)
    assert [len(task.rivals) for task in tasks] == [2, 1]
    assert max(state.num_rounds(*pair) for pair in state.pairs) >= 6


def test_trials_in_doubt_that_do_not_fit_together_have_turns_in_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = {"peak_memory_fraction": 0.4}
    measured = [(0.70 - 0.01 * i, interval(100.0 + i, 30.0) | memory) for i in range(3)]
    state, tasks = decided(tmp_path, monkeypatch, measured, faster_by(1.2))
    assert {len(task.rivals) for task in tasks} == {1}
    assert len(state.pairs) >= 2


@pytest.mark.parametrize("why", ["memory", "layout", "no time", "switched off"])
def test_a_pair_that_cannot_have_turns_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    memory = {"peak_memory_fraction": 0.6 if why == "memory" else 0.1}
    measured = [(0.70, interval(100.0, 30.0) | memory), (0.69, interval(104.0, 30.0) | memory)]
    keys: dict[str, Any] = {}
    if why == "layout":
        keys["parameters"] = {"strategy": {"values": ["single", "ddp"]}}
    if why in ("no time", "switched off"):
        keys["budget"] = SPACE["budget"] | {"deciding": 0.01 if why == "no time" else 0}
    state, tasks = decided(tmp_path, monkeypatch, measured, faster_by(1.2), **keys)
    assert tasks == []
    assert len(state.front()) == 2


def test_a_pair_whose_turns_fail_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = [(0.70, interval(100.0, 30.0)), (0.69, interval(104.0, 30.0))]
    state, tasks = decided(tmp_path, monkeypatch, measured, None)
    assert len(tasks) == 1
    assert len(state.front()) == 2


def by_setting(task: Task) -> list[float]:
    """Rates with each change: only one is a gain."""
    noise = random.uniform(0.99, 1.01)
    return [100.0, *(noise * (130.0 if rival.get("num_workers") == 1 else 100.0) for rival in task.rivals)]


def test_what_is_left_of_the_time_goes_to_the_neighbours_of_the_picks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one pick here. A gain is measured a second time; where one change cannot run, the others are measured."""
    random.seed(0)
    measured, budget = [(0.70, interval(100.0, 1.0))], SPACE["budget"] | {"deciding": 0.3}
    keys: dict[str, Any] = {"budget": budget, "fixed": {"loader": "workers"}}
    state, tasks = decided(tmp_path, monkeypatch, measured, faster_by(1.0), by_setting, **keys)
    trial = state.trials["t0001"]
    assert [(each.parameter, each.old, each.new) for each in gains(trial.neighbours)] == [("num_workers", 0, 1)]
    assert [rival["num_workers"] for rival in tasks[-1].rivals] == [1]
    assert {task.config["batch_size"] for task in tasks} == {trial.config["batch_size"]}
    names = {each.parameter for each in trial.neighbours if each.estimate}
    assert {"memory_format", "fused_optimizer", "threads"} <= names
    assert not {"strategy", "learning_rate"} & names  # another layout; without effect
    text = flat(causes.verdicts([replace(trial, verdict=Verdict("compute", 0.9, "90% of each step is training"))]))
    assert "90% of each step is training. num_workers 0 -> 1: 1.30 (1." in text


def test_points_whose_accuracies_are_doubtful_are_trained_with_other_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 s are left; each training takes 30. The slower trial may be less accurate, too."""
    measured = [(0.700, interval(100.0, 1.0)), (0.702, interval(90.0, 1.0)), (0.50, interval(50.0, 1.0))]
    state, tasks = decided(tmp_path, monkeypatch, measured, faster_by(1.1), seconds=30.0)
    seeds = [(task.trial_id, task.config["seed"]) for task in tasks if task.function == "train"]
    assert 2 <= len(seeds) <= 3
    assert {trial_id for trial_id, _ in seeds} <= {"t0001", "t0002"}
    trial = state.trials[seeds[0][0]]
    assert [event.seed for event in trial.again] == [seed for trial_id, seed in seeds if trial_id == trial.trial_id]
    values = [trial.curve[1].metrics["val_accuracy"], *(event.metrics["val_accuracy"] for event in trial.again)]
    assert trial.metrics["val_accuracy"] == pytest.approx(sum(values) / len(values))
    assert not [path for path in (tmp_path / "trials").iterdir() if "seed" in path.name]


@pytest.mark.parametrize(("seconds", "first"), [(30.0, "train"), (60.0, "turns")])
def test_one_training_with_another_seed_comes_before_turns_if_it_leaves_half_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, first: str
) -> None:
    """100 s are there."""
    measured = [(0.70, interval(100.0, 30.0)), (0.69, interval(104.0, 30.0))]
    _, tasks = decided(tmp_path, monkeypatch, measured, faster_by(1.2), seconds=seconds)
    assert tasks[0].function == first
    assert {task.function for task in tasks} == {"turns", "train"}


def test_each_pick_is_trained_with_another_seed_before_what_is_doubtful(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two are equal but for noise; all but the first are picks, two of them without doubt on the front."""
    measured = [(0.700, 100.0), (0.702, 99.0), (0.50, 200.0), (0.30, 300.0)]
    trials = [(accuracy, interval(rate, 1.0)) for accuracy, rate in measured]
    _, tasks = decided(tmp_path, monkeypatch, trials, faster_by(1.1), seconds=30.0)
    assert [task.trial_id for task in tasks if task.function == "train"] == [
        "t0003",
        "t0002",
        "t0004",
    ]  # the knee first


def test_trials_that_share_an_accuracy_are_trained_with_different_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They differ in the loader processes alone; with the memory as an objective, both are on the front."""
    keys: dict[str, Any] = {
        "parameters": {"num_workers": {"values": [0, 1]}},
        "fixed": {"loader": "workers"},
        "objectives": [*OBJECTIVES, {"metric": "peak_memory_gib", "goal": "minimize"}],
    }
    trials = [(0.7, interval(100.0 * n, 1.0) | {"peak_memory_gib": 1.0 * n}) for n in (1, 2)]
    _, tasks = decided(tmp_path, monkeypatch, trials, faster_by(1.1), seconds=30.0, **keys)
    trained = [(task.trial_id, task.config["seed"]) for task in tasks if task.function == "train"]
    assert len(trained) == len({seed for _, seed in trained}) == 3
    assert {trial_id for trial_id, _ in trained} == {"t0001", "t0002"}


def test_a_training_with_another_seed_that_fails_is_told_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(task: Task) -> Ended | None:
        failing = (task.function, task.trial_id) == ("train", "t0001")
        return Ended("failed", "the loss is not finite") if failing else None

    measured = [(0.700, interval(100.0, 1.0)), (0.50, interval(200.0, 1.0))]
    state, tasks = decided(tmp_path, monkeypatch, measured, faster_by(1.1), seconds=20.0, fails=fails)
    seeds = [(task.trial_id, task.config["seed"]) for task in tasks if task.function == "train"]
    assert seeds == [("t0001", 1), ("t0002", 1), ("t0002", 2)]
    trial = state.trials["t0001"]
    assert (trial.again, [event.reason for event in trial.failed_again]) == ([], ["the loss is not finite"])
    assert trial.metrics["val_accuracy"] == 0.7
    assert "t0001 failed with seed 1: the loss is not finite." in flat(front_section(load(tmp_path)))


def test_a_training_with_another_seed_that_lost_a_process_is_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = [Ended("failed", "a loader process was killed", retry=True)]
    measured = [(0.700, interval(100.0, 1.0)), (0.50, interval(200.0, 1.0))]
    state, _ = decided(
        tmp_path, monkeypatch, measured, faster_by(1.1), seconds=20.0, fails=lambda task: lost.pop() if lost else None
    )
    assert not any(trial.failed_again for trial in state.trials.values())
    assert state.trials["t0001"].again


def test_a_full_disk_in_turns_ends_deciding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Ended("failed", "events: No space left on device", disk_full=True)
    measured = [(0.700, interval(100.0, 20.0)), (0.700, interval(101.0, 20.0))]
    with pytest.raises(OSError, match="No space left on device"):
        decided(tmp_path, monkeypatch, measured, faster_by(1.1), fails=lambda task: full)


def test_a_full_disk_ends_deciding_and_keeps_the_training_with_another_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Ended("failed", "curves.csv: No space left on device", disk_full=True)
    measured = [(0.700, interval(100.0, 1.0)), (0.50, interval(200.0, 1.0))]
    with pytest.raises(OSError, match="No space left on device"):
        decided(tmp_path, monkeypatch, measured, faster_by(1.1), seconds=20.0, fails=lambda task: full)
    assert not load(tmp_path).state.trials["t0001"].failed_again
    assert [path.name for path in (tmp_path / "trials").iterdir()] == ["t0001-seed-1"]


def test_another_seed_is_another_than_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainable = load_trainable("vgg19_cifar10")
    usual = {**trainable.PARAMETERS, "seed": replace(trainable.PARAMETERS["seed"], default=1)}
    monkeypatch.setattr(trainable, "PARAMETERS", usual)
    measured = [(0.700, interval(100.0, 1.0)), (0.50, interval(200.0, 1.0))]
    _, tasks = decided(tmp_path, monkeypatch, measured, faster_by(1.1), seconds=40.0)
    assert [task.config["seed"] for task in tasks if task.function == "train"] == [2, 2]


def test_another_seed_is_trained_for_as_many_epochs_as_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """budget.epochs was raised since, and no further trial was complete."""
    measured = [(0.700, interval(100.0, 1.0)), (0.50, interval(200.0, 1.0))]
    monkeypatch.setattr(Space, "last_epoch", lambda space, config: 1 if "seed" not in config else 3)
    _, tasks = decided(tmp_path, monkeypatch, measured, faster_by(1.1), seconds=40.0)
    assert [task.epochs for task in tasks if task.function == "train"] == [1, 1]


def test_nothing_is_trained_again_for_which_there_is_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = [(0.700, interval(100.0, 1.0)), (0.702, interval(90.0, 1.0))]
    _, tasks = decided(tmp_path, monkeypatch, measured, faster_by(1.1), seconds=101.0)
    assert [task for task in tasks if task.function == "train"] == []


@pytest.mark.parametrize("part", [FrontMeasurements.repeat, FrontMeasurements.test])
def test_a_group_that_does_not_start_leaves_a_point_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: Callable[[FrontMeasurements], None]
) -> None:
    def run_task(*arguments: Any) -> Ended:
        raise GroupError("1 process did not start within 180 s")

    monkeypatch.setattr(workers, "run_task", run_task)
    (tmp_path / "trials").mkdir()
    space = parse_space(SPACE | {"budget": {"epochs": 1, "repeats": 1}})
    with Journal(tmp_path / FILE_NAME) as journal:
        journal.append("run", name="x", objectives=OBJECTIVES, data={"name": "generated"}, trainable="vgg19_cifar10")
        study = Study(space, space.data, tmp_path, journal, Resources(cpus=2), "pool", (), Clock())
        trial = study.propose()
        assert trial is not None
        study.observe(trial.trial_id, Measured(1, {"val_accuracy": 0.7, **interval(100.0, 1.0)}, 1.0, 0.0))
        study.finish(trial.trial_id, Finished("complete", None, 1.0, 0.0))
        part(study.front_measurements(None, lambda: None))
    (point,) = load(tmp_path).state.front()
    assert (point.repeats, point.test_metrics) == ([], {})


def flat(blocks: list[str]) -> str:
    return " ".join(" ".join(blocks).split())


def test_of_picks_with_one_seed_the_recommended_one_is_trained_again_first() -> None:
    recorder = Recorder(constraints=[])
    for number, (accuracy, rate) in enumerate(((0.80, 100.0), (0.75, 300.0), (0.50, 320.0)), start=1):
        recorder.start(f"t000{number}", **config(32 * number))
        recorder.measure(f"t000{number}", 1, val_accuracy=accuracy, **interval(rate, 30.0))
        recorder.finish(f"t000{number}")
    state = RunState(typed(recorder.events))
    for trial in state.trials.values():
        trial.seconds = 10.0
    first = next_to_train_again(state, 60.0)
    assert first is state.knee is state.trials["t0002"]
    state.apply(typed([{"event": "again", "trial_id": "t0002", "seed": 1, "metrics": {"val_accuracy": 0.75}}])[0])
    assert next_to_train_again(state, 60.0) is not first
    assert next_to_train_again(state, 5.0) is None


def test_of_trials_with_nearly_the_same_settings_one_is_trained_again() -> None:
    """All have equal accuracies but for noise; the first is picked, the others are near copies of one another."""
    recorder = Recorder(constraints=[])
    for number, (rate, learning_rate) in enumerate(((100.0, 0.01), (99.9, 0.2), (99.8, 0.2002), (99.7, 0.2001)), 1):
        recorder.complete(f"t000{number}", [0.3, 0.5, 0.7 - 0.0001 * number], rate, config(64, learning_rate))
    trained = []
    for seed in range(1, 9):
        state = RunState(typed(recorder.events))
        if (trial := next_to_train_again(state, math.inf)) is None:
            break
        trained.append(trial.trial_id)
        recorder.add("again", trial_id=trial.trial_id, seed=seed, metrics={"val_accuracy": 0.7 + 0.001 * (seed % 2)})
    assert trained[0] == "t0001"
    assert len({"t0002", "t0003", "t0004"} & {*trained}) == 1
