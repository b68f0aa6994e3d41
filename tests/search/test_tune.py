"""What Ray Tune is told: how many trials may run, and what a trial does when its workers are lost."""

from types import SimpleNamespace
from typing import Any

from ray.tune.search import Searcher

from search.execution.protocol import Died, Ended, Task
from search.execution.trial_actor import MAX_NODES_LOST, Finished, Outcome, Retried, TrialActor
from search.execution.tune import AdvisorSearcher
from trainables.contract import Data, Resources


class Decider:
    """Two trials at a time, then three."""

    concurrent_trials = 2
    proposed = 0

    def propose(self) -> Any:
        self.proposed += 1
        return SimpleNamespace(trial_id=f"t{self.proposed:04d}") if self.proposed < 6 else None

    def trial_config(self, proposal: Any) -> dict[str, Any]:
        return {"task": proposal.trial_id}


def test_as_many_trials_are_started_as_there_is_room_for_now() -> None:
    decider = Decider()
    searcher = AdvisorSearcher(decider, lambda: None, [])  # type: ignore[arg-type]
    assert [searcher.suggest(name) for name in "abc"] == [{"task": "t0001"}, {"task": "t0002"}, None]
    searcher.on_trial_complete("a", {})
    assert [searcher.suggest(name) for name in "cd"] == [{"task": "t0003"}, None]
    decider.concurrent_trials = 3
    assert [searcher.suggest(name) for name in "de"] == [{"task": "t0004"}, None]
    for name in "bcd":
        searcher.on_trial_complete(name, {})
    assert searcher.suggest("e") == {"task": "t0005"}
    assert searcher.suggest("f") == Searcher.FINISHED


class Client:
    """Worker groups that end as told."""

    def __init__(self, ends: list[Died | Ended]) -> None:
        self.ends, self.has_group = ends, False

    def submit(self, layout: Any, task: Task) -> None:
        self.has_group = True

    def answer(self, go_on: bool) -> None:
        assert go_on

    def next_message(self) -> Died | Ended:
        return self.ends.pop(0)

    def release(self) -> None:
        self.has_group = False


def outcomes(*ends: Died | Ended) -> list[Outcome]:
    actor: Any = object.__new__(TrialActor)
    actor._client = Client(list(ends))
    task = Task("t0001", "replay", "train", {}, Data(), "folder", epochs=1)
    actor._begin({"task": task, "resources": Resources(1), "last_epoch": 1, "seconds_before": 0.0, "retries": 1})
    return [actor.step()["outcome"] for _ in ends]


def test_nodes_that_are_lost_cost_no_retry_but_there_is_an_end_of_it() -> None:
    lost = Died("node lost", node_lost=True)
    *before, last = outcomes(*[lost] * 5, Died("killed"), *[lost] * 5, Ended("complete"))
    assert all(isinstance(each, Retried) for each in before)
    assert isinstance(last, Finished)
    assert last.state == "complete"
    *before, last = outcomes(*[lost] * (MAX_NODES_LOST + 2))
    assert all(isinstance(each, Retried) for each in before)
    assert (last.state, last.reason) == ("failed", "node lost (after 1 retry)")  # type: ignore[union-attr]


def test_workers_that_die_again_end_the_trial() -> None:
    first, second = outcomes(Died("killed"), Died("killed"))
    assert isinstance(first, Retried)
    assert isinstance(second, Finished)
    assert second.state == "failed"
