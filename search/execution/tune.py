"""Adapters of the search to Ray Tune: a Searcher, a TrialScheduler and a Stopper that pass everything on."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import ray
from ray import tune
from ray.tune import TuneError
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher
from ray.tune.stopper import Stopper

from search.advisor.proposal import Decision, Proposal
from search.execution import ray_hooks
from search.execution.nodes import NODE_ID
from search.execution.trial_actor import DiskFull, Finished, Measured, Retried, TrialActor, Waiting


class Decider(Protocol):
    """Receiver of Tune's events: a journaled Advisor."""

    @property
    def concurrent_trials(self) -> int:
        """Number of trials that may run at a time now."""
        ...

    def propose(self) -> Proposal | None:
        """Return the next trial; None: there will be none."""
        ...

    def observe(self, trial_id: str, measured: Measured) -> Decision:
        """Take in a measurement; decide whether to go on."""
        ...

    def retry(self, trial_id: str, reason: str) -> None:
        """Take in the death of the trial's workers; it goes on with new ones."""
        ...

    def wait(self, trial_id: str, reason: str | None) -> Decision:
        """Take in that the trial waits for what others on the cluster use (None: no longer); decide as in `observe`."""
        ...

    def finish(self, trial_id: str, finished: Finished) -> None:
        """Take in the end of a trial."""
        ...

    def crash(self, trial_id: str, reason: str) -> None:
        """Take in the loss of the trial's actor."""
        ...

    def trial_config(self, proposal: Proposal) -> dict[str, Any]:
        """Return the configuration of `TrialActor` that runs a proposal."""
        ...


class _Adapter:
    def __init__(self, decider: Decider, check: Callable[[], None], errors: list[Exception]) -> None:
        """`errors` collects errors that Tune would log and forget, such as a full disk when a trial ends."""
        super().__init__()
        self._decider, self._check, self._errors = decider, check, errors
        self._trial_ids: dict[str, str] = {}  # by Tune's names of the trials
        self._running: set[str] = set()  # likewise

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its parts into snapshots that nobody reads

    @contextmanager
    def _keep_error(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._errors.append(error)


class AdvisorSearcher(_Adapter, Searcher):  # type: ignore[misc]  # Ray has no types
    """Asks the decider for proposals, while it has room for another trial."""

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the configuration of the next trial, None where it has to wait, or FINISHED."""
        if len(self._running) >= self._decider.concurrent_trials:
            return None
        proposal = self._decider.propose()
        if proposal is None:
            return str(Searcher.FINISHED)
        self._trial_ids[trial_id] = proposal.trial_id
        self._running.add(trial_id)
        return self._decider.trial_config(proposal)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Pass on the crash of a trial's actor; any other end was in the trial's last result."""
        self._running.discard(trial_id)
        if error:
            self._check()  # the signal that ends the run may have ended the actor: not the trial's failure
            with self._keep_error():
                self._decider.crash(self._trial_ids[trial_id], "Ray Tune lost the trial's actor")

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: the journal is the record."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing: the journal is the record."""


class AdvisorScheduler(_Adapter, FIFOScheduler):  # type: ignore[misc]  # Ray has no types
    """Passes each result to the decider, and its answer to Tune."""

    def on_trial_result(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> str:
        """Return Tune's word for whether the trial goes on."""
        trial_id = trial.config["task"].trial_id
        match result["outcome"]:
            case Measured() as measured:
                if self._decider.observe(trial_id, measured) is Decision.STOP:
                    return str(TrialScheduler.STOP)
            case Retried(reason=reason):
                self._decider.retry(trial_id, reason)
            case Waiting(reason=reason):
                if self._decider.wait(trial_id, reason) is Decision.STOP:
                    return str(TrialScheduler.STOP)
            case DiskFull(reason=reason):
                raise OSError(errno.ENOSPC, reason)
        return str(TrialScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> None:
        """Pass on how a trial ended by itself; a stopped trial's last result is a measurement, answered before."""
        if isinstance(finished := result["outcome"], Finished):
            with self._keep_error():
                self._decider.finish(trial.config["task"].trial_id, finished)


class Check(_Adapter, Stopper):  # type: ignore[misc]  # Ray has no types
    """Calls `check`, several times a second, in the main thread and between two events: a safe place to interrupt."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Stop no single trial."""
        return False

    def stop_all(self) -> bool:
        """Stop the run only by an exception: that of `check`, or an error that Tune has not raised."""
        self._check()
        if self._errors:
            raise self._errors[0]
        return False


def run_trials(decider: Decider, most_at_a_time: int, storage: str, check: Callable[[], None]) -> None:
    """Run what the decider proposes until it proposes nothing more, or `check` raises.

    Raises whatever the decider raises, e.g. OSError when the journal cannot be written.
    """
    errors: list[Exception] = []
    # the trial's actor only relays, the cores are for its worker group; Tune refuses actors without resources: a byte
    beside_driver = tune.PlacementGroupFactory(
        [{"memory": 1}], bundle_label_selector=[{NODE_ID: ray.get_runtime_context().get_node_id()}]
    )
    try:
        with ray_hooks.actors_may_run_out_of_memory():
            tune.run(
                tune.with_resources(TrialActor, beside_driver),
                config={},
                num_samples=-1,
                search_alg=AdvisorSearcher(decider, check, errors),
                scheduler=AdvisorScheduler(decider, check, errors),
                stop=Check(decider, check, errors),
                max_concurrent_trials=most_at_a_time,
                reuse_actors=True,
                storage_path=storage,
                verbose=0,
                log_to_file=False,
                raise_on_failed_trial=False,
            )
    except TuneError as error:
        raise error.__context__ or error from None  # Tune reports an error as a text
