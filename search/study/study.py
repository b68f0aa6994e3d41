"""Composition root of a run: an Advisor whose decisions are journaled, run by Ray Tune on warm workers."""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from search.advisor.advisor import TOLD_BEFORE, Advisor
from search.advisor.proposal import Decision, Proposal
from search.execution import trial_actor, tune, workers
from search.execution.cluster import Cluster
from search.execution.nodes import NODES_POLL_SECONDS
from search.execution.protocol import Ended, Function, Task
from search.execution.trial_actor import Finished, Measured
from search.front.targets import with_targets
from search.record.events import Event
from search.record.journal import Journal
from search.record.run_end import GAVE_UP
from search.record.trial import Trial
from search.space.space import MOST_CONCURRENT_TRIALS, Space
from search.states import State
from search.study.front_measurements import CHECKPOINTS, FrontMeasurements
from search.text.reasons import without_rank
from trainables.contract import Config, Data, InfeasibleError, Layout, Resources, source_of

OUT_OF_TIME, OUT_OF_GPU_HOURS = "budget.hours is spent", "budget.gpu_hours is spent"
KEPT_FRONTS = 3  # one after the other, whose checkpoints are kept: rates that are measured again move trials
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
        cluster: Cluster | None = None,
    ) -> None:
        """Take up a run where `events`, its journal so far, leave it; `resources` are those of one trial.

        `cluster`: one whose nodes come and go; None: the number of trials at a time stays as it is.
        """
        self._space = space
        self._data = data
        self._folder = folder
        self._journal = journal
        self._resources = resources
        self._pool_name, self._cluster = pool_name, cluster
        self._nodes_known_until, self._concurrent_trials = -math.inf, space.concurrent_trials
        source = source_of(space.trainable) if space.trainable else None
        self._digest = source.digest if source else ""
        self._advisor = Advisor(space)
        self._pending = self._advisor.replay(events)
        self._run_state = journal.run_state
        self._running: dict[str, Proposal] = {}
        self._with_checkpoints = {path.name for path in folder.glob("trials/*")}  # trials that may have some
        self._failures: list[str | None] = []  # reasons, of this process
        self._clock = clock
        used = self._run_state.clock.searching_seconds() if events else 0.0
        hours = space.budget.hours
        self._deadline = None if hours is None else clock() + hours * 3600 - used

    @property
    def concurrent_trials(self) -> int:
        """Number of trials that may run at a time now; that of the space file is of the nodes at the start."""
        if self.fails_alike and self._running:
            return 0  # the running ones show whether the training works
        if self._cluster is not None and self._clock() >= self._nodes_known_until:
            self._concurrent_trials = self._cluster.concurrent_trials(self._space.concurrent_trials)
            self._nodes_known_until = self._clock() + NODES_POLL_SECONDS
        return self._concurrent_trials

    @property
    def most_at_a_time(self) -> int:
        """Number of trials that may ever run at a time."""
        return self._space.concurrent_trials if self._cluster is None else MOST_CONCURRENT_TRIALS

    def ask_for_no_nodes(self) -> None:
        """Withdraw the demand for nodes: the last trial has ended."""
        if self._cluster is not None:
            self._cluster.demand.withdraw()

    def why_over(self, more_gpu_seconds: float = 0.0) -> str | None:
        """Return which hours of the budget are spent, so that running trials end too; None: there are some left.

        `more_gpu_seconds`: those that the journal does not have yet.
        """
        if self._deadline is not None and self._clock() >= self._deadline:
            return OUT_OF_TIME
        hours = self._space.budget.gpu_hours
        if hours is not None and self._run_state.gpu_seconds() + more_gpu_seconds >= hours * 3600:
            return OUT_OF_GPU_HOURS
        return None

    @property
    def fails_alike(self) -> bool:
        """True if no trial trains so far, and the last ones failed for the same reason."""
        last = self._failures[-MAX_ALIKE_FAILURES:]
        if len(last) < MAX_ALIKE_FAILURES or len({without_rank(reason or "") for reason in last}) > 1:
            return False
        return not any(map(self._trains, self._run_state.trials.values()))

    def _trains(self, trial: Trial) -> bool:
        """Return whether a trial shows that the training works; probes do only where there is nothing else."""
        has_measured = trial.curve if self._space.evaluation == "probe" else trial.epochs
        return bool(has_measured) and trial.state in ("running", "complete", "stopped")

    def propose(self) -> Proposal | None:
        """Return the next trial: those that an earlier process left unfinished come first."""
        if self.why_over() or self.fails_alike:
            return None
        self._finish_stopped()
        resumed = bool(self._pending)
        proposal = self._pending.pop(0) if resumed else self._advisor.propose()
        if proposal is None:
            return None
        if not resumed:
            layout = self._layout(proposal)
            gpus = {"gpus": layout.processes * layout.gpus_per_process} if layout and layout.gpus_per_process else {}
            self._journal.append(
                "start", trial_id=proposal.trial_id, config=proposal.config, kind=proposal.kind, **gpus
            )
        self._running[proposal.trial_id] = proposal
        return proposal

    def next_layout(self) -> Layout | None:
        """Layout of the next trial, or None if there is none or it cannot run here."""
        proposal = self.propose()
        if proposal is None:
            return None
        self._pending.insert(0, proposal)
        del self._running[proposal.trial_id]
        return self._layout(proposal)

    def _layout(self, proposal: Proposal) -> Layout | None:
        """Return the layout of a trial; None: it cannot run here."""
        with contextlib.suppress(InfeasibleError):
            return self._space.loaded_trainable.layout(proposal.config, self._resources)
        return None

    def observe(self, trial_id: str, measured: Measured) -> Decision:
        """Journal a measurement with its answer. Out of hours, a trial that has epochs to go is stopped."""
        metrics: Mapping[str, float] = measured.metrics
        observed = self._advisor.trials[trial_id]
        if measured.epoch:
            metrics = with_targets(self._space.targets, observed.metrics, metrics)
        decision = self._advisor.observe(trial_id, measured.epoch, metrics)
        reason = observed.why_stopped
        trial = self._run_state.trials[trial_id]
        over = self.why_over(trial.gpus * measured.seconds - trial.gpu_seconds)
        if over and trial.kind != "probe" and measured.epoch < self._space.last_epoch(trial.config):
            decision, reason = Decision.STOP, over
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

    def wait(self, trial_id: str, reason: str | None) -> Decision:
        """Journal that a trial waits for what others on the cluster use (None: no longer), until time is up."""
        if reason != self._run_state.trials[trial_id].waits_for:
            self._journal.append("wait", trial_id=trial_id, reason=reason)
        if reason is None or (over := self.why_over()) is None:
            return Decision.CONTINUE
        self.finish(trial_id, Finished("stopped", over, None, None))
        return Decision.STOP

    def finish(self, trial_id: str, finished: Finished) -> None:
        """Journal the end of a trial; keep checkpoints only where the test set may still be read."""
        proposal = self._running.pop(trial_id)
        if finished.state == "failed":
            self._failures.append(finished.reason)
        metrics = dict(self._advisor.trials[trial_id].metrics)
        trainable = self._space.loaded_trainable
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
        self._advisor.finish(trial_id, finished.state, finished.metrics)
        self._with_checkpoints.add(trial_id)
        self._drop_checkpoints()

    def _finish_stopped(self) -> None:
        """Journal the end of trials of an earlier process that had been told to stop."""
        for proposal in list(self._pending):
            curve = self._run_state.trials[proposal.trial_id].curve
            if curve and curve[max(curve)].decision == "stop":
                reason = self._advisor.trials[proposal.trial_id].why_stopped or TOLD_BEFORE
                self._end_pending(proposal, "stopped", reason)

    def finish_pending(self) -> None:
        """Journal the end of trials of an earlier process that the hours of the budget do not allow to go on."""
        while self._pending and (over := self.why_over()):
            proposal = self._pending[0]
            last_epoch = 0 if proposal.kind == "probe" else self._space.last_epoch(proposal.config)
            if max(self._run_state.trials[proposal.trial_id].curve, default=-1) >= last_epoch:
                self._end_pending(proposal, "complete", None)
            else:
                self._end_pending(proposal, "stopped", over)

    def _end_pending(self, proposal: Proposal, state: State, reason: str | None) -> None:
        self._pending.remove(proposal)
        self._running[proposal.trial_id] = proposal
        self.finish(proposal.trial_id, Finished(state, reason, None, None))

    def crash(self, trial_id: str, reason: str) -> None:
        """Journal that the trial's own actor is gone; its worker group must not stay leased to it."""
        # first: it raises if Ray itself is gone, which is not the trial's failure
        end = workers.end_lease(self._pool_name, trial_id) or Ended("failed", reason)
        if trial_id in self._running:
            self.finish(trial_id, Finished(end.state, end.reason, None, None))

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

    def _task(self, trial_id: str, config: Config, function: Function) -> Task:
        return Task(
            trial_id=trial_id,
            trainable=self._space.trainable or "",
            function=function,
            config=config,
            data=self._data,
            folder=str(self._folder.absolute() / "trials" / trial_id),  # workers may run in another folder
            epochs=self._space.last_epoch(config),
            digest=self._digest,
        )

    def front_measurements(self, pool: Any, check: Callable[[], None]) -> FrontMeasurements:
        """Return what measures the front after the search, on the workers of this pool."""
        return FrontMeasurements(
            self._space, self._journal, self._resources, self._task, partial(workers.run_task, pool), check, self._clock
        )

    def why_ended(self) -> str:
        """Return the reason why no further trial was started."""
        if self.fails_alike:
            return f"the first {MAX_ALIKE_FAILURES} trials failed for the same reason"
        return self.why_over() or self._advisor.stop_reason or GAVE_UP

    def end(self, reason: str) -> None:
        """Journal that the run is over."""
        self._journal.append("end", reason=reason)

    def _drop_checkpoints(self) -> None:
        """Keep the checkpoints of unfinished trials and, for the test set, of the first three fronts.

        Trials without a checkpoint were on no such front, so that all of them need not be compared again.
        """
        front = {point.trial_id for point in self._run_state.fronts_among(self._with_checkpoints, layers=KEPT_FRONTS)}
        wanted = {*self._running, *front, *(proposal.trial_id for proposal in self._pending)}
        for trial_id in self._with_checkpoints - wanted:
            for checkpoint in (self._folder / "trials" / trial_id).glob(CHECKPOINTS):
                if checkpoint.is_dir() and not checkpoint.is_symlink():
                    shutil.rmtree(checkpoint, ignore_errors=True)
                else:
                    checkpoint.unlink(missing_ok=True)
        self._with_checkpoints &= wanted


def run_study(
    space: Space,
    data: Data,
    folder: Path,
    journal: Journal,
    cluster: Cluster,
    check: Callable[[], None],
    events: Sequence[Event] = (),
    announce: Callable[[str], None] = lambda text: None,
) -> None:
    """Run trials on workers of their own until the budget is spent, then test the front.

    `check` is called several times a second, and may raise to end the run. `announce` tells what happens next.
    """
    with workers.worker_pool(cluster.resources, not cluster.owned, cluster.nodes) as pool:
        resources = space.resources_per_trial(cluster.resources)
        joined = None if cluster.owned else cluster
        study = Study(space, data, folder, journal, resources, pool.name, events, cluster=joined)
        complete_study(study, pool, check, announce)


def complete_study(
    study: Study, pool: workers.Pool, check: Callable[[], None], announce: Callable[[str], None] = lambda text: None
) -> None:
    """Run the study on workers that may outlive it; `check` and `announce` as for `run_study`."""
    if (layout := study.next_layout()) is not None:
        pool.actor.warm.remote(layout)  # the group starts while Tune does; both take seconds
    tune.run_trials(study, study.most_at_a_time, pool.storage, check)
    study.ask_for_no_nodes()
    study.finish_pending()
    reason = study.why_ended()
    front = study.front_measurements(pool.actor, check)
    if (plan := front.plan()) is not None:
        announce(f"{reason}: no more trials; now {plan}")
    front.repeat()
    front.decide()
    front.test()
    study.end(reason)
