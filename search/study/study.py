"""Composition root of a run: an Advisor whose decisions are journaled, run by Ray Tune on warm workers."""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from search.advisor.advisor import Advisor
from search.advisor.proposal import Decision, Proposal
from search.execution import trial_actor, tune, workers
from search.execution.cluster import Cluster
from search.execution.protocol import Ended, GroupError, Task
from search.execution.trial_actor import Finished, Measured
from search.front.differences import FEWEST_ROUNDS
from search.front.neighbour import Neighbour, promising
from search.front.neighbours import neighbours
from search.front.targets import with_targets
from search.record.journal import Event, Journal
from search.record.trial import Trial
from search.space.parameters import Choice
from search.space.space import Space
from search.study.deciding import ROUNDS_AT_A_TIME, Pair, next_pair, next_to_train_again
from trainables.contract import Config, Data, InfeasibleError, Layout, Measurement, Resources, load_trainable, source_of

OUT_OF_TIME = "budget.hours is spent"
LEAST_DECIDING_SECONDS = 15.0  # of two configurations to start, and of some rounds
MAX_MEMORY_TOGETHER = 0.9  # of what there is, for configurations that take turns
SCREENING_SHARE = 0.6  # of the time for the neighbours of a trial; the rest measures the promising ones again
SECONDS_OF_A_NEIGHBOUR = 6.0  # to build it, to warm it up, and of its turns, where steps are short
STEPS_OF_A_NEIGHBOUR = 2 * FEWEST_ROUNDS + 5  # at least: one to warm up and one to count in each turn
MAX_ALIKE_FAILURES = 5  # of the first trials; more would fail alike


class Study:
    """Passes proposals and measurements between the Advisor and Ray Tune, through the journal.

    What the Advisor decides is on the disk before Tune acts on it; how a trial ended, before the Advisor learns of it.
    """

    def __init__(
        self,
        space: Space,
        data: Data,
        folder: Path,
        journal: Journal,
        resources: Resources,
        pool_name: str,
        events: Sequence[Event] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take up a run where `events`, its journal so far, leave it; `resources` are those of one trial."""
        self._space = space
        self._data = data
        self._folder = folder
        self._journal = journal
        self._resources = resources
        self._pool_name = pool_name
        source = source_of(space.trainable) if space.trainable else None
        self._digest = source.digest if source else ""
        self._advisor = Advisor(space)
        self._pending = self._advisor.replay(events)
        self._run_state = journal.run_state
        self._running: dict[str, Proposal] = {}
        self._has_trained = any(self._trains(t.kind, t.state) for t in self._run_state.trials.values())
        self._failures: list[str | None] = []  # reasons, of this process
        self._clock = clock
        used = self._run_state.active_seconds() if events else 0.0
        hours = space.budget.hours
        self._deadline = None if hours is None else clock() + hours * 3600 - used

    @property
    def concurrent_trials(self) -> int:
        """Maximum number of trials that run at a time."""
        return self._space.concurrent_trials

    @property
    def out_of_time(self) -> bool:
        """True if the hours of the budget are spent."""
        return self._deadline is not None and self._clock() >= self._deadline

    @property
    def fails_alike(self) -> bool:
        """True if no trial has trained so far and the last ones failed for the same reason."""
        last = self._failures[-MAX_ALIKE_FAILURES:]
        return not self._has_trained and len(last) == MAX_ALIKE_FAILURES and len(set(last)) == 1

    def _trains(self, kind: str, state: str) -> bool:
        """Return whether such a trial shows that the training works; probes do only where there is nothing else."""
        return state in ("complete", "stopped") and (kind == "train" or self._space.evaluation == "probe")

    def propose(self) -> Proposal | None:
        """Return the next trial: those that an earlier process left unfinished come first."""
        if self.out_of_time or self.fails_alike:
            return None
        resumed = bool(self._pending)
        proposal = self._pending.pop(0) if resumed else self._advisor.propose()
        if proposal is None:
            return None
        if not resumed:
            self._journal.append("start", trial_id=proposal.trial_id, config=proposal.config, kind=proposal.kind)
        self._running[proposal.trial_id] = proposal
        return proposal

    def next_layout(self) -> Layout | None:
        """Layout of the next trial, or None if there is none or it cannot run here."""
        proposal = self.propose()
        if proposal is None:
            return None
        self._pending.insert(0, proposal)
        del self._running[proposal.trial_id]
        with contextlib.suppress(InfeasibleError):
            return load_trainable(self._space.trainable or "").layout(proposal.config, self._resources)
        return None

    def observe(self, trial_id: str, measured: Measured) -> Decision:
        """Journal a measurement with its answer. Out of time, a trial that has epochs to go is stopped."""
        metrics: Mapping[str, float] = measured.metrics
        if measured.epoch:
            metrics = with_targets(self._space.targets, self._advisor.metrics(trial_id), metrics)
        decision = self._advisor.observe(trial_id, measured.epoch, metrics)
        reason = self._advisor.why_stopped(trial_id)
        if self.out_of_time and measured.epoch < self._space.last_epoch:
            decision, reason = Decision.STOP, OUT_OF_TIME
        self._journal.append(
            "measurement",
            trial_id=trial_id,
            epoch=measured.epoch,
            metrics=dict(metrics),
            decision=decision.value,
            seconds=measured.seconds,
            **({"samples": dict(measured.samples)} if measured.samples else {}),
        )
        if decision is Decision.STOP:
            self.finish(trial_id, Finished("stopped", reason, measured.seconds, measured.setup_seconds))
        return decision

    def retry(self, trial_id: str, reason: str) -> None:
        """Journal that a trial goes on from its checkpoint with new workers."""
        self._journal.append("retry", trial_id=trial_id, reason=reason)

    def finish(self, trial_id: str, finished: Finished) -> None:
        """Journal the end of a trial; keep checkpoints only where the test set may still be read."""
        proposal = self._running.pop(trial_id)
        if finished.state == "failed":
            self._failures.append(finished.reason)
        self._has_trained |= self._trains(proposal.kind, finished.state)
        metrics = self._advisor.metrics(trial_id)
        trainable = load_trainable(self._space.trainable or "")
        verdict = trainable.explain(proposal.config, metrics, self._resources) if metrics else None
        self._journal.append(
            "finish",
            trial_id=trial_id,
            state=finished.state,
            reason=finished.reason,
            seconds=finished.seconds,
            setup_seconds=finished.setup_seconds,
            verdict=None if verdict is None else asdict(verdict),  # words and numbers that need no trainable
            metrics=dict(finished.metrics),
        )
        self._advisor.finish(trial_id, finished.state, finished.reason, finished.metrics)
        self._drop_checkpoints()

    def crash(self, trial_id: str, reason: str) -> None:
        """Journal that the trial's own actor is gone; its worker group must not stay leased to it."""
        # first: it raises if Ray itself is gone, which is not the trial's failure
        workers.end_lease(self._pool_name, trial_id)
        if trial_id in self._running:
            self.finish(trial_id, Finished("failed", reason, None, None))

    def trial_config(self, proposal: Proposal) -> dict[str, Any]:
        """Return the configuration with which `search.execution.trial_actor.TrialActor` runs a proposal."""
        known = self._run_state.trials.get(proposal.trial_id)
        task = self._task(proposal.trial_id, proposal.config, proposal.kind)
        Path(task.folder).mkdir(parents=True, exist_ok=True)
        return {
            "task": task,
            "resources": self._resources,
            "pool": self._pool_name,
            "last_epoch": max(known.curve, default=-1) if known else -1,
            "seconds_before": known.seconds if known and known.curve else 0.0,
            "retries": trial_actor.MAX_RETRIES,
        }

    def _task(self, trial_id: str, config: Config, function: Literal["train", "probe", "test", "turns"]) -> Task:
        return Task(
            trial_id=trial_id,
            trainable=self._space.trainable or "",
            function=function,
            config=config,
            data=self._data,
            folder=str(self._folder.absolute() / "trials" / trial_id),  # workers may run in another folder
            epochs=self._space.budget.epochs,
            digest=self._digest,
        )

    def repeat_front(self, pool: Any, check: Callable[[], None]) -> None:
        """Probe the trained points of the front again, in turn.

        One fast measurement may be luck. A point that joins the front because another proved slower is probed too.
        """
        if self._space.trial_kind == "probe":
            return
        for turn in range(1, self._space.budget.repeats + 1):
            tried = set[str]()
            while due := [t for t in self._run_state.front() if len(t.repeats) < turn and t.trial_id not in tried]:
                tried |= {point.trial_id for point in due}
                for point in due:
                    self._measure(point, "probe", pool, check)

    def decide_front(self, pool: Any, check: Callable[[], None]) -> None:
        """Measure rates in turns, two trials at a time, until the front is decided or the time for it is spent."""
        trainable, run_state = load_trainable(self._space.trainable or ""), self._run_state
        spent = run_state.deciding_seconds
        searched = run_state.active_seconds() - spent
        end = self._clock() + self._space.budget.deciding * searched - spent
        if hasattr(trainable, "turns"):
            self._decide_rates(end, pool, check)
        self._train_again(end, pool, check)

    def _decide_rates(self, end: float, pool: Any, check: Callable[[], None]) -> None:
        """Take turns: pairs on which the front depends, then the neighbours of the picks in half of what is left."""
        run_state = self._run_state
        impossible = set[frozenset[str]]()
        while end - self._clock() >= LEAST_DECIDING_SECONDS and (pair := next_pair(run_state, impossible)):
            before = run_state.num_rounds(*pair)
            self._take_turns(pair, end, pool, check)
            if run_state.num_rounds(*pair) == before:
                impossible.add(frozenset(trial.trial_id for trial in pair))
        middle = self._clock() + (end - self._clock()) / 2
        for trial in {each.trial_id: each for each in run_state.picked()}.values():
            self._try_neighbours(trial, middle, pool, check)

    def _train_again(self, end: float, pool: Any, check: Callable[[], None]) -> None:
        """Train points of the front with other seeds, the doubtful ones first, while there is time for one more."""
        trainable, run_state = load_trainable(self._space.trainable or ""), self._run_state
        if self._space.trial_kind == "probe" or "seed" not in (trainable.PARAMETERS or {}):
            return
        while (trial := next_to_train_again(run_state, end - self._clock())) is not None:
            seed = int(trial.config.get("seed", 0)) + 1 + len(trial.again)
            task = self._task(trial.trial_id, {**trial.config, "seed": seed}, "train")
            task = replace(task, folder=f"{task.folder}-seed-{seed}")
            Path(task.folder).mkdir(parents=True, exist_ok=True)
            epochs = list[int]()

            def goes_on(measurement: Measurement, epochs: list[int] = epochs, late: float = trial.seconds) -> bool:
                epochs.append(measurement.epoch)
                return self._clock() < end + late  # it may take longer than before, but not for ever

            ended = self._run(task, pool, check, goes_on)
            shutil.rmtree(task.folder, ignore_errors=True)
            if ended is None or ended.state != "complete" or max(epochs, default=0) < task.epochs:
                return
            self._journal.append("again", trial_id=trial.trial_id, seed=seed, metrics=dict(ended.metrics))

    def _try_neighbours(self, trial: Trial, end: float, pool: Any, check: Callable[[], None]) -> None:
        """Measure which change of one setting makes a trial faster, in turns; the promising ones a second time.

        Neighbours with another layout would need processes of their own, which only `search.advise` has.
        """
        trainable, seconds = load_trainable(self._space.trainable or ""), end - self._clock()
        layout = trainable.layout(trial.config, self._resources)
        known = {(each.parameter, each.new) for each in trial.neighbours if each.estimate}
        searched = {name: each.values for name, each in self._space.parameters.items() if isinstance(each, Choice)}
        bound = trial.verdict.bound_by if trial.verdict else None
        found = neighbours(trainable, trial.config, self._resources, searched, bound)
        due = [each for each in found if each.layout == layout and (each.parameter, each.new) not in known]
        due = [each for each in due if not each.is_slow_to_start]
        share = trial.metrics.get("peak_memory_fraction", 0.0)
        fitting = int(MAX_MEMORY_TOGETHER / share) - 1 if share > 0 else len(due)
        each_takes = SECONDS_OF_A_NEIGHBOUR + STEPS_OF_A_NEIGHBOUR * math.fsum(trial.stages.values())
        affordable = int((SCREENING_SHARE * seconds - LEAST_DECIDING_SECONDS) / each_takes)
        self._beside(trial, due[: max(0, min(fitting, affordable))], FEWEST_ROUNDS, end, pool, check)
        again = [each.again() for each in promising(trial.neighbours) if not each.measured_again]
        if end - self._clock() >= LEAST_DECIDING_SECONDS:
            self._beside(trial, again, ROUNDS_AT_A_TIME, end, pool, check)

    def _beside(
        self, trial: Trial, tried: Sequence[Neighbour], rounds: int, end: float, pool: Any, check: Callable[[], None]
    ) -> None:
        """Measure a trial and some neighbours in turns in one group; if it cannot hold all of them, each half."""
        if not tried or self._clock() >= end:
            return
        task = self._task(trial.trial_id, trial.config, "turns")
        task = replace(task, rivals=tuple({**trial.config, **each.changed} for each in tried))

        def goes_on(measurement: Measurement) -> bool:
            own = measurement.metrics["rate_0"]
            for place, each in enumerate(tried, start=1):
                each.rounds.append((measurement.metrics[f"rate_{place}"], own))
                changed = {"parameter": each.parameter, "old": each.old, "value": each.new}
                rates, again = list(each.rounds[-1]), each.measured_again
                self._journal.append("neighbour", trial_id=trial.trial_id, **changed, rates=rates, again=again)
            found = [each.estimate for each in tried]
            decided = all(estimate is not None and estimate.is_decided for estimate in found)
            return not decided and measurement.epoch < rounds and self._clock() < end

        ended = self._run(task, pool, check, goes_on)
        if ended is not None and ended.state != "complete" and len(tried) > 1 and not tried[0].rounds:
            middle = len(tried) // 2
            for half in (tried[:middle], tried[middle:]):
                self._beside(trial, half, rounds, end, pool, check)

    def _take_turns(self, pair: Pair, end: float, pool: Any, check: Callable[[], None]) -> None:
        """Measure the rates of two trials in turns for some rounds, if one group can hold both."""
        one, other = pair
        task = replace(self._task(one.trial_id, one.config, "turns"), rivals=(other.config,))
        trainable = load_trainable(task.trainable)
        layout = trainable.layout(one.config, self._resources)
        shares = [trial.metrics.get("peak_memory_fraction", 0.0) for trial in pair]
        if trainable.layout(other.config, self._resources) != layout or sum(shares) > MAX_MEMORY_TOGETHER:
            return

        def goes_on(measurement: Measurement) -> bool:
            rates = [measurement.metrics["rate_0"], measurement.metrics["rate_1"]]
            self._journal.append("turn", trial_id=one.trial_id, other=other.trial_id, rates=rates)
            ratio = self._run_state.rate_ratio(one, other)
            decided = ratio is not None and ratio.is_decided and measurement.epoch >= FEWEST_ROUNDS
            return not decided and measurement.epoch < ROUNDS_AT_A_TIME and self._clock() < end

        self._run(task, pool, check, goes_on)

    def _run(
        self, task: Task, pool: Any, check: Callable[[], None], goes_on: Callable[[Measurement], bool]
    ) -> Ended | None:
        """Run a task after the search; None: no group can hold it, or its processes died."""
        layout = load_trainable(task.trainable).layout(task.config, self._resources)
        with contextlib.suppress(InfeasibleError, GroupError):
            ended = workers.run_task(pool, layout, task, check, goes_on)
            return ended if isinstance(ended, Ended) else None
        return None

    def test_front(self, pool: Any, check: Callable[[], None]) -> None:
        """Read the test set once for each trained point of the front."""
        if self._space.trial_kind == "probe":
            return
        for point in self._run_state.front():
            if not point.test_metrics:
                self._measure(point, "test", pool, check)

    def _measure(self, point: Trial, function: Literal["probe", "test"], pool: Any, check: Callable[[], None]) -> None:
        """Run a function of the trainable for a point of the front; journal its metrics."""
        task = self._task(point.trial_id, point.config, function)
        layout = load_trainable(task.trainable).layout(point.config, self._resources)
        ended = workers.run_task(pool, layout, task, check)
        if isinstance(ended, Ended) and ended.state == "complete":
            event = "repeat" if function == "probe" else "test"
            self._journal.append(event, trial_id=point.trial_id, metrics=dict(ended.metrics))

    def why_ended(self) -> str:
        """Return the reason why no further trial was started."""
        if self.fails_alike:
            return f"the first {MAX_ALIKE_FAILURES} trials failed for the same reason"
        return OUT_OF_TIME if self.out_of_time else self._advisor.stop_reason or "Ray Tune gave up"

    def end(self, reason: str) -> None:
        """Journal that the run is over."""
        self._journal.append("end", reason=reason)

    def _drop_checkpoints(self) -> None:
        """Keep the checkpoints of unfinished trials and, for the test set, of the first two fronts."""
        front = {point.trial_id for point in self._run_state.front(layers=2)}
        wanted = {*self._running, *front, *(proposal.trial_id for proposal in self._pending)}
        for folder in (self._folder / "trials").iterdir():
            if folder.name not in wanted:
                for checkpoint in folder.glob("checkpoint*"):  # other libraries' are folders
                    if checkpoint.is_dir() and not checkpoint.is_symlink():
                        shutil.rmtree(checkpoint, ignore_errors=True)
                    else:
                        checkpoint.unlink(missing_ok=True)


def run_study(
    space: Space,
    data: Data,
    folder: Path,
    journal: Journal,
    cluster: Cluster,
    check: Callable[[], None],
    events: Sequence[Event] = (),
) -> None:
    """Run trials on workers of their own until the budget is spent, then test the front.

    `check` is called several times a second, and may raise to end the run.
    """
    with workers.worker_pool(cluster.resources, reserve_cpus=not cluster.owned) as pool:
        study = Study(space, data, folder, journal, space.resources_per_trial(cluster.resources), pool.name, events)
        complete_study(study, pool, check)


def complete_study(study: Study, pool: workers.Pool, check: Callable[[], None]) -> None:
    """Run the study on workers that may outlive it."""
    if (layout := study.next_layout()) is not None:
        pool.actor.warm.remote(layout)  # the group starts while Tune does; both take seconds
    tune.run_trials(study, study.concurrent_trials, pool.storage, check)
    reason = study.why_ended()
    study.repeat_front(pool.actor, check)
    study.decide_front(pool.actor, check)
    study.test_front(pool.actor, check)
    study.end(reason)
