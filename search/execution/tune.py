"""Ray Tune's Searcher and TrialScheduler: thin adapters over whoever decides."""

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
from search.execution.trial import DiskFull, Finished, Measured, Retried, Trial


class Decider(Protocol):
    """What Tune's events are passed to: a journaled Advisor."""

    def propose(self) -> Proposal | None:
        """The next trial, or None when there will be none."""
        ...

    def observe(
        self, trial_id: str, epoch: int, metrics: Mapping[str, float], seconds: float, setup_seconds: float
    ) -> Decision:
        """An epoch's measurement; whether to go on."""
        ...

    def retry(self, trial_id: str, reason: str) -> None:
        """The trial's workers died; it goes on with new ones."""
        ...

    def finish(
        self,
        trial_id: str,
        state: str,
        reason: str | None,
        seconds: float,
        setup_seconds: float,
        metrics: Mapping[str, float],
    ) -> None:
        """The trial is over; `metrics`: what is known of one that cannot run."""
        ...

    def crash(self, trial_id: str, reason: str) -> None:
        """The trial's own actor is gone."""
        ...

    def trial_config(self, proposal: Proposal) -> dict[str, Any]:
        """What `search.execution.trial.Trial` needs to know to run it."""
        ...


class AdvisorSearcher(Searcher):  # type: ignore[misc]  # Ray has no types
    """Asks for proposals. Tune's own trial names are its own affair."""

    def __init__(self, decider: Decider, check: Callable[[], None], unheard: list[Exception]) -> None:
        super().__init__()
        self._decider = decider
        self._check = check
        self._unheard = unheard
        self._trial_ids: dict[str, str] = {}  # by Tune's

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The next trial's configuration, or FINISHED."""
        proposal = self._decider.propose()
        if proposal is None:
            finished: str = Searcher.FINISHED
            return finished
        self._trial_ids[trial_id] = proposal.trial_id
        return self._decider.trial_config(proposal)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial that ended by itself has said so in its last result; only a crash of its actor is news."""
        if error:
            self._check()  # an actor that ended by the signal that ends the run is no fault of its trial
            with _kept(self._unheard):
                self._decider.crash(self._trial_ids[trial_id], "Ray Tune lost the trial's actor")

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the journal is the record."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the journal is the record."""

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its searchers into snapshots that nobody reads


class AdvisorScheduler(FIFOScheduler):  # type: ignore[misc]  # Ray has no types
    """Passes each result on, and Tune the answer."""

    def __init__(self, decider: Decider, unheard: list[Exception]) -> None:
        super().__init__()
        self._decider = decider
        self._unheard = unheard

    def on_trial_result(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> str:
        """Whether the trial goes on, in Tune's words."""
        trial_id = trial.config["trial_id"]
        match result["outcome"]:
            case Measured(epoch=epoch, metrics=metrics, seconds=seconds, setup_seconds=setup_seconds):
                if self._decider.observe(trial_id, epoch, metrics, seconds, setup_seconds) is Decision.STOP:
                    return str(TrialScheduler.STOP)
            case Retried(reason=reason):
                self._decider.retry(trial_id, reason)
            case DiskFull(reason=reason):
                raise OSError(errno.ENOSPC, reason)
        return str(TrialScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> None:
        """The last result says how a trial ended; a stopped one's, which is a measurement, was answered already."""
        match result["outcome"]:
            case Finished(state, reason, seconds, setup_seconds, metrics):
                with _kept(self._unheard):
                    self._decider.finish(trial.config["trial_id"], state, reason, seconds, setup_seconds, metrics)

    def __getstate__(self) -> dict[str, Any]:
        return {}


class Check(Stopper):  # type: ignore[misc]  # Ray has no types
    """Called several times a second, in the main thread and between two events: a safe place to be interrupted."""

    def __init__(self, check: Callable[[], None], unheard: list[Exception]) -> None:
        self._check = check
        self._unheard = unheard

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """No trial is stopped here."""
        return False

    def stop_all(self) -> bool:
        """Nor are all, unless by an exception."""
        self._check()
        if self._unheard:
            raise self._unheard[0]
        return False

    def __getstate__(self) -> dict[str, Any]:
        return {}


def run_trials(decider: Decider, concurrent_trials: int, storage: str, check: Callable[[], None]) -> None:
    """Run what the decider proposes until it proposes nothing more, or `check` raises.

    Raises whatever the decider raises, e.g. OSError when the journal cannot be written.
    """
    try:
        _run(decider, concurrent_trials, storage, check)
    except TuneError as error:
        raise error.__context__ or error from None  # Tune reports an error as a text


@contextmanager
def _kept(unheard: list[Exception]) -> Iterator[None]:
    """Keep an error that Tune would log and forget, such as a full disk when a trial ends."""
    try:
        yield
    except Exception as error:
        unheard.append(error)


def _run(decider: Decider, concurrent_trials: int, storage: str, check: Callable[[], None]) -> None:
    unheard: list[Exception] = []
    # the trial's actor only relays, the cores are for its worker group; Tune wants it to ask for something: a byte
    beside_driver = tune.PlacementGroupFactory(
        [{"memory": 1}], bundle_label_selector=[{"ray.io/node-id": ray.get_runtime_context().get_node_id()}]
    )
    tune.run(
        tune.with_resources(Trial, beside_driver),
        config={},
        num_samples=-1,
        search_alg=AdvisorSearcher(decider, check, unheard),
        scheduler=AdvisorScheduler(decider, unheard),
        stop=Check(check, unheard),
        max_concurrent_trials=concurrent_trials,
        reuse_actors=True,
        storage_path=storage,
        verbose=0,
        log_to_file=False,
        raise_on_failed_trial=False,
    )
