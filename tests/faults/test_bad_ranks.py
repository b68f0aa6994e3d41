"""One bad rank ends its trial on all ranks and is named, whatever the strategy; the next trial runs."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from search.execution import trial_actor
from search.execution.protocol import Place
from search.record.events import Event, Measurement
from tests.search.test_study_on_ray import study, train_workers
from trainables.contract import TIMEOUT_VARIABLE
from trainables.strategy_table import STRATEGIES

SEVERAL = [name for name, row in STRATEGIES.items() if not row.one_process]
ONE_AFTER_THE_OTHER: dict[str, Any] = {"searcher": {"name": "grid"}, "budget": {"epochs": 3, "repeats": 0}}


class Saboteur:
    """Listens to a run's journal, and sends a signal to a rank of some trials after their first epoch."""

    def __init__(self, victims: dict[str, int | None], number: int) -> None:
        """`victims`: a rank by trial; None: one that goes wrong by itself."""
        self._victims, self._number = victims, number
        self.hit_at: dict[str, float] = {}
        self.noticed_at: dict[str, float] = {}
        self.pids: set[int] = set()  # of all ranks of the trials that it was after
        self.living_on: set[int] = set()  # of them, when a trial after theirs has trained

    def __call__(self, event: Event) -> None:
        trial_id = getattr(event, "trial_id", "")
        if trial_id not in self._victims and event.event == "measurement":
            self.living_on |= set(filter(psutil.pid_exists, self.pids))
        if trial_id in self._victims and isinstance(event, Measurement) and event.epoch == 1:
            threading.Thread(target=self._hit, args=(trial_id,), daemon=True).start()
        if trial_id in self._victims and event.event in ("retry", "finish"):
            self.noticed_at.setdefault(trial_id, time.monotonic())

    def _hit(self, trial_id: str) -> None:
        time.sleep(0.2)  # the second epoch has begun
        places = places_of(trial_id)
        self.pids |= {place.pid for place in places.values()}
        self.hit_at[trial_id] = time.monotonic()
        if (rank := self._victims[trial_id]) is not None:
            os.kill(places[rank].pid, self._number)


def places_of(trial_id: str) -> dict[int, Place]:
    import ray

    pools = [ray.get_actor(name) for name in ray.util.list_named_actors() if name.startswith("worker-pool-")]
    return next((places for pool in pools if (places := ray.get(pool.places.remote(trial_id)))), {})


def left_behind(pids: set[int], before: set[int]) -> set[int]:
    """Processes of a run that are still there some seconds after it; those from before it are not its."""
    deadline = time.monotonic() + 15
    while (left := train_workers() - before | set(filter(psutil.pid_exists, pids))) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


@pytest.mark.slow
@pytest.mark.parametrize("strategy", SEVERAL)
def test_a_killed_rank_is_named_at_once_and_the_next_trial_runs(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    """One trial loses a rank, rank 0 with the first strategy, and a trial comes after it. No retries."""
    rank = min(SEVERAL.index(strategy), 1)
    saboteur, before = Saboteur({"t0001": rank}, signal.SIGKILL), train_workers()
    monkeypatch.setattr(trial_actor, "MAX_RETRIES", 0)
    run = study(
        cluster,
        tmp_path / "killed",
        [saboteur],
        trainable="vgg19_cifar10",
        parameters={"seed": {"values": [0, 1]}},
        fixed={
            "strategy": strategy,
            "batch_size": 64,
            "width": 0.0625,
            "conv_kernel": "library",
            "world_size": 2,
            "learning_rate": 0.01,
        },
        data={"name": "generated", "train_images": 1000, "val_images": 100},
        **ONE_AFTER_THE_OTHER,
    )
    lost, after = (row for _, row in run.trials.iterrows())
    assert (lost.state, after.state) == ("failed", "complete"), (lost.reason, after.reason)
    assert lost.reason.startswith(f"the worker of rank {rank} died: ")
    assert saboteur.noticed_at["t0001"] - saboteur.hit_at["t0001"] < 10
    assert lost.epochs < 3
    assert left_behind(saboteur.pids, before) == set()


@pytest.mark.slow
def test_a_rank_that_hangs_or_is_stopped_ends_its_trial_and_is_named(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks: rank 0 hangs in its work; then the process of rank 1 is stopped; then a trial runs well."""
    monkeypatch.setenv(TIMEOUT_VARIABLE, "5")
    before = train_workers()
    saboteur = Saboteur({"t0001": None, "t0002": 1}, signal.SIGSTOP)
    run = study(
        cluster,
        tmp_path / "silent",
        [saboteur],
        trainable="tests.faulty_replay",
        parameters={"fail_at_epoch": {"values": [2, 0, 4]}},  # there is no fourth
        fixed={"processes": 2, "seconds_per_epoch": 1.0, "fail_with": "hang"},
        **ONE_AFTER_THE_OTHER,
    )
    assert run.trials.state.tolist() == ["failed", "failed", "complete"], run.trials.reason.tolist()
    assert run.trials.reason[0] in ("rank 0 did not answer for 5 s", "rank 0 did nothing for 5 s")  # who notices first
    assert run.trials.reason[1] == "rank 1 did not answer for 5 s"
    assert saboteur.noticed_at["t0002"] - saboteur.hit_at["t0002"] < 15
    assert run.trials.retries.tolist() == [0, 0, 0]
    assert saboteur.living_on == set()
    assert left_behind(saboteur.pids, before) == set()
