"""Measurements of the front after the search: repeated probes, turns, trainings with other seeds, the test set."""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from search.execution.protocol import Ended, Function, GroupError, Task
from search.front.differences import FEWEST_ROUNDS
from search.front.neighbour import Neighbour, promising
from search.front.roles import has_test
from search.front.settings_to_try import neighbours
from search.record.journal import Journal
from search.record.mirror import OTHER_SEED
from search.record.trial import Trial
from search.space.parameters import Choice
from search.space.space import Space
from search.study.deciding import ROUNDS_AT_A_TIME, doubtful_trials, next_pair, next_to_train_again
from search.text.durations import format_duration
from search.text.numbers import join_words, plural
from trainables.contract import Config, InfeasibleError, Measurement, Resources, load_trainable

ROUNDS_TOGETHER = 2 * FEWEST_ROUNDS  # of all trials in doubt; what is in doubt after them has more
CHECKPOINTS = "checkpoint*"  # in the folder of a trial; those of other libraries are folders
NO_CHECKPOINT = "no checkpoint was kept, as it was far from the front when it ended; search.train measures it"
NEVER_ANY = "the training saves no checkpoint; a loop of your own gives trial.report one: checkpoint=..."
LEAST_DECIDING_SECONDS = 15.0  # of two configurations to start, and of some rounds
MAX_MEMORY_TOGETHER = 0.9  # of what there is, for configurations that take turns
SCREENING_SHARE = 0.6  # of the time for the neighbours of a trial; the rest measures the promising ones again
# of several configurations in one group: to build it, to warm it up, and of its turns, where steps are short
SECONDS_OF_EACH = 6.0


class FrontMeasurements:
    """Measures the points of the front on the workers of a run, and journals what it finds."""

    def __init__(
        self,
        space: Space,
        journal: Journal,
        resources: Resources,
        make_task: Callable[[str, Config, Function], Task],
        run_task: Callable[..., object],
        check: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """`make_task`: of a trial's name, its configuration and a function of the trainable.

        `run_task` is `search.execution.workers.run_task` of a pool. `check` is called several times a second, and may
        raise to end the run.
        """
        self._space = space
        self._journal = journal
        self._run_state = journal.run_state
        self._resources = resources
        self._make_task = make_task
        self._run_task = run_task
        self._check = check
        self._clock = clock
        self._turn_seconds = 0.0  # of one trial in a round of the last turns; 0: not known yet

    def plan(self) -> str | None:
        """Return what will be measured, and how long the part takes whose time is known; None: nothing."""
        front, seconds = self._run_state.front(), self._seconds_for_deciding()
        steps = ["probed again"] * (self._space.num_repeats > 0)
        ways = ["rates in turns", "changes of one setting"] * hasattr(self._space.loaded_trainable, "turns")
        ways += ["trainings with other seeds"] * self._trains_again
        decides = bool(ways) and seconds >= LEAST_DECIDING_SECONDS
        steps += [f"compared for up to {format_duration(seconds)} (by {join_words(ways)})"] * decides
        steps += ["tested"] * self._is_tested
        return f"the front ({plural(len(front), 'point')}) is {join_words(steps)}" if front and steps else None

    def repeat(self) -> None:
        """Probe the trained points of the front again, in turn.

        One fast measurement may be luck. A point that joins the front because another proved slower is probed too.
        """
        for turn in range(1, self._space.num_repeats + 1):
            tried = set[str]()
            while due := [t for t in self._run_state.front() if len(t.repeats) < turn and t.trial_id not in tried]:
                tried |= {point.trial_id for point in due}
                for point in due:
                    self._measure(point, "probe")

    def decide(self) -> None:
        """Measure rates in turns, then train again what is in doubt, until the time for it is spent.

        A first training with another seed comes before, if it leaves half of the time: without any, nothing is known of
        how much of each value is luck (results/published/2026-11-30-claims.md).
        """
        trainable, seconds = self._space.loaded_trainable, self._seconds_for_deciding()
        end = self._clock() + seconds
        if not any(trial.again for trial in self._run_state.trials.values()):
            self._train_again(self._clock() + seconds / 2)
        if hasattr(trainable, "turns"):
            self._decide_rates(end)
        while self._train_again(end):
            pass

    def _seconds_for_deciding(self) -> float:
        seconds = self._space.budget.deciding * self._run_state.clock.searching_seconds()
        return max(0.0, seconds - self._run_state.clock.deciding_seconds)

    def _decide_rates(self, end: float) -> None:
        """Take turns: all trials in doubt, then pairs of them, then the picks' neighbours in half of what is left."""
        run_state = self._run_state
        if len(together := self._fitting_together(end)) > 2:
            self._take_turns(together, end, ROUNDS_TOGETHER)
        impossible = set[frozenset[str]]()
        while end - self._clock() >= LEAST_DECIDING_SECONDS and (pair := next_pair(run_state, impossible)):
            before = run_state.num_rounds(*pair)
            if len(self._fitting(pair)) == len(pair) and self._have_time(pair, end):
                self._take_turns(pair, end, ROUNDS_AT_A_TIME)
            if run_state.num_rounds(*pair) == before:
                impossible.add(frozenset(trial.trial_id for trial in pair))
        middle = self._clock() + (end - self._clock()) / 2
        knee = run_state.knee  # first, because it is recommended
        picks = sorted({each.trial_id: each for each in run_state.picked()}.values(), key=lambda each: each is not knee)
        for place, trial in enumerate(picks):
            now = self._clock()
            self._try_neighbours(trial, now + (middle - now) / (len(picks) - place))

    def _train_again(self, end: float) -> bool:
        """Train a point of the front with another seed, if there is time; return whether another may follow."""
        trainable, run_state = self._space.loaded_trainable, self._run_state
        if not self._trains_again:
            return False
        if (trial := next_to_train_again(run_state, end - self._clock())) is None:
            return False
        seed = trial.next_seed(int(trainable.PARAMETERS["seed"].default or 0))  # type: ignore[index]
        task = self._make_task(trial.trial_id, {**trial.config, "seed": seed}, "train")
        task = replace(task, folder=f"{task.folder}{OTHER_SEED}{seed}", epochs=trial.epochs)
        Path(task.folder).mkdir(parents=True, exist_ok=True)
        epochs, latest = list[int](), end + trial.seconds  # it may take longer than before, but not for ever

        def goes_on(measurement: Measurement) -> bool:
            epochs.append(measurement.epoch)
            return self._clock() < latest

        ended = self._run(task, goes_on)
        if ended and ended.retry:
            ended = self._run(task, goes_on)
        shutil.rmtree(task.folder, ignore_errors=True)
        if ended is None or (ended.state == "complete" and max(epochs, default=0) < task.epochs):
            return False
        failed = ended.state != "complete"
        found = {"reason": ended.reason or ended.state} if failed else {}
        metrics = {} if failed else dict(ended.metrics)
        self._journal.append("again", trial_id=trial.trial_id, seed=seed, metrics=metrics, **found)
        return True

    def _try_neighbours(self, trial: Trial, end: float) -> None:
        """Measure which change of one setting makes a trial faster, in turns; the promising ones a second time.

        Neighbours with another layout would need processes of their own, which only `search.advise` has.
        """
        trainable, seconds = self._space.loaded_trainable, end - self._clock()
        layout = trainable.layout(trial.config, self._resources)
        known = {(each.parameter, each.new) for each in trial.neighbours if each.estimate}
        searched = {name: each.values for name, each in self._space.parameters.items() if isinstance(each, Choice)}
        bound = trial.verdict.bound_by if trial.verdict else None
        found = neighbours(trainable, trial.config, self._resources, searched, bound)
        due = [each for each in found if each.layout == layout and (each.parameter, each.new) not in known]
        due = [each for each in due if not each.is_slow_to_start]
        share = trial.metrics.get("peak_memory_fraction", 0.0)
        fitting = int(MAX_MEMORY_TOGETHER / share) - 1 if share > 0 else len(due)
        affordable = _affordable([trial] * len(due), SCREENING_SHARE * seconds - LEAST_DECIDING_SECONDS)
        self._beside(trial, due[: max(0, min(fitting, affordable))], FEWEST_ROUNDS, end)
        again = [each.again() for each in promising(trial.neighbours) if not each.measured_again]
        if end - self._clock() >= LEAST_DECIDING_SECONDS:
            self._beside(trial, again, ROUNDS_AT_A_TIME, end)

    def _beside(self, trial: Trial, tried: Sequence[Neighbour], rounds: int, end: float) -> None:
        """Measure a trial and some neighbours in turns in one group; if it cannot hold all of them, each half."""
        if not tried or self._clock() >= end:
            return
        task = self._make_task(trial.trial_id, trial.config, "turns")
        task = replace(task, rivals=tuple({**trial.config, **each.changed} for each in tried))

        def goes_on(measurement: Measurement) -> bool:
            own = measurement.metrics["rate_0"]
            for place, each in enumerate(tried, start=1):
                each.rounds.append((measurement.metrics[f"rate_{place}"], own))
                changed = {"parameter": each.parameter, "old": each.old, "value": each.new}
                rates, again = list(each.rounds[-1]), each.measured_again
                self._journal.append("neighbour", trial_id=trial.trial_id, **changed, rates=rates, again=again)
            # what is measured again is published: ending where it is decided would favour luck
            decided = all(each.estimate is not None and each.estimate.is_decided for each in tried)
            decided &= not any(each.measured_again for each in tried)
            return not decided and measurement.epoch < rounds and self._clock() < end

        ended = self._run(task, goes_on)
        if ended is not None and ended.state != "complete" and len(tried) > 1 and not tried[0].rounds:
            middle = len(tried) // 2
            for half in (tried[:middle], tried[middle:]):
                self._beside(trial, half, rounds, end)

    def _fitting_together(self, end: float) -> list[Trial]:
        """Return the trials in doubt that one group can hold and measure in the time, the slowest first."""
        trials = self._fitting(doubtful_trials(self._run_state))
        return sorted(trials[: _affordable(trials, end - self._clock())], key=lambda trial: trial.rate)

    def _fitting(self, trials: Sequence[Trial]) -> list[Trial]:
        """Return the trials with the layout of the first that fit into memory together."""
        trainable, found, memory = self._space.loaded_trainable, list[Trial](), 0.0
        layouts = [trainable.layout(trial.config, self._resources) for trial in trials]
        for trial, layout in zip(trials, layouts, strict=True):
            share = trial.metrics.get("peak_memory_fraction", 0.0)
            if layout == layouts[0] and memory + share <= MAX_MEMORY_TOGETHER:
                found.append(trial)
                memory += share
        return found

    def _take_turns(self, trials: Sequence[Trial], end: float, rounds: int) -> None:
        """Measure the rates of trials in turns in one group; a round counts for each trial and the next in order.

        They end early where the time is too short for as many rounds as an interval needs. Pairs that share a trial
        share the errors of its turns, with opposite signs: intervals over several pairs, which are computed as if
        errors were independent, are too long rather than too short.
        """
        task = self._make_task(trials[0].trial_id, trials[0].config, "turns")
        task = replace(task, rivals=tuple(trial.config for trial in trials[1:]))
        pairs, times = list(itertools.pairwise(trials)), list[float]()

        def goes_on(measurement: Measurement) -> bool:
            rates = [measurement.metrics[f"rate_{place}"] for place in range(len(trials))]
            for (one, other), both in zip(pairs, itertools.pairwise(rates), strict=True):
                self._journal.append("turn", trial_id=one.trial_id, other=other.trial_id, rates=list(both))
            times.append(self._clock())
            ratios = [self._run_state.rate_ratio(*pair) for pair in pairs]
            decided = measurement.epoch >= FEWEST_ROUNDS and all(ratio and ratio.is_decided for ratio in ratios)
            if len(times) > 1:  # the first round has the start of the group in it
                self._turn_seconds = (times[-1] - times[0]) / (len(times) - 1) / len(trials)
            return not decided and measurement.epoch < rounds and self._have_time(trials, end)

        self._run(task, goes_on)

    def _have_time(self, trials: Sequence[Trial], end: float) -> bool:
        """Return whether the time is enough for the rounds that an interval needs; True while that is not known."""
        done = min(self._run_state.num_rounds(*pair) for pair in itertools.pairwise(trials))
        seconds = max(0, FEWEST_ROUNDS - done) * len(trials) * self._turn_seconds
        return self._clock() + seconds < end

    def _run(self, task: Task, goes_on: Callable[[Measurement], bool]) -> Ended | None:
        """Run a task after the search; None: no group can hold it, or its processes died.

        Raises:
            OSError: the disk is full. The task may be done when there is space.
        """
        layout = load_trainable(task.trainable).layout(task.config, self._resources)
        with contextlib.suppress(InfeasibleError, GroupError):
            ended = self._run_task(layout, task, self._check, goes_on)
            if not isinstance(ended, Ended):
                return None
            if ended.disk_full:
                raise OSError(errno.ENOSPC, ended.reason)
            return ended
        return None

    @property
    def _trains_again(self) -> bool:
        """True if trials are trained and the training has a seed."""
        return self._space.trial_kind != "probe" and "seed" in (self._space.loaded_trainable.PARAMETERS or {})

    @property
    def _is_tested(self) -> bool:
        """True if trials are trained and the training may have a test set."""
        return self._space.trial_kind != "probe" and has_test(self._space.loaded_trainable.METRICS)

    def test(self) -> None:
        """Read the test set once for each trained point of the front, where the training has one."""
        if not self._is_tested:
            return
        for point in self._run_state.front():
            if not point.test_metrics and point.test_failure not in (NO_CHECKPOINT, NEVER_ANY):
                self._measure(point, "test")

    def _measure(self, point: Trial, function: Literal["probe", "test"]) -> None:
        """Run a function of the trainable for a point of the front; journal its metrics."""
        task = self._make_task(point.trial_id, point.config, function)
        ended = self._run(task, lambda _: True)
        if ended is not None and ended.state == "complete":
            event = "repeat" if function == "probe" else "test"
            self._journal.append(event, trial_id=point.trial_id, metrics=dict(ended.metrics))
        elif ended is not None and function == "test":
            self._journal.append("test", trial_id=point.trial_id, metrics={}, reason=_why_untested(task, ended))


def _why_untested(task: Task, ended: Ended) -> str | None:
    """Return why a test failed: there is no checkpoint of this trial, or of any trial, or the test's own reason."""
    folder = Path(task.folder)
    if any(folder.glob(CHECKPOINTS)):
        return ended.reason
    return NO_CHECKPOINT if any(folder.parent.glob(f"*/{CHECKPOINTS}")) else NEVER_ANY


def _affordable(trials: Sequence[Trial], seconds: float) -> int:
    """Return how many of the trials, from the first on, one group can start and give turns in the time."""
    needed = itertools.accumulate(
        SECONDS_OF_EACH + _steps(trial) * math.fsum(trial.stages.values()) for trial in trials
    )
    return sum(each <= seconds for each in needed)


def _steps(trial: Trial) -> int:
    """Return the steps of a trial in the fewest rounds and before them; a turn has one for each loader process."""
    return FEWEST_ROUNDS * (1 + max(1, int(trial.config.get("num_workers", 0)))) + 5
