"""Turns of a training with its own loop: it counts some steps, reports their rate, and waits to be asked again."""

from __future__ import annotations

import time

from trainables.contract import Measurement, Worker
from trainables.machine.devices import synchronize
from trainables.own_trial import OwnTrial, ProbeEnd
from trainables.parallel import ranks
from trainables.samples.paused_loaders import PausedLoaders
from trainables.samples.worker_batches import PREFETCHED_BATCHES
from trainables.turns import WARMUP_SECONDS, steps_of_a_turn

WARMUP_STEPS = 3
UNCOUNTED_STEPS = 1  # of a turn: caches hold the data of another configuration


class OwnTurns:
    """Listener of the steps of an `OwnTrial`. The time between epochs, in which a loop validates, does not count."""

    def __init__(self, trial: OwnTrial, worker: Worker, loader_processes: int) -> None:
        self._trial, self._worker = trial, worker
        self._loader_processes, self._loaders = loader_processes, PausedLoaders()
        self._steps_of_a_turn = 0  # 0: warming up
        self._rounds = 0
        self._steps, self._units = 0, 0  # since a turn, or the warm-up, began
        self._seconds, self._since = 0.0, 0.0

    def resume(self) -> None:
        """Called before steps begin."""
        self._since = time.perf_counter()

    def pause(self) -> None:
        """Hear that the loop does something else."""
        self._seconds += time.perf_counter() - self._since

    def step(self, units: int) -> None:
        """Count a step of the whole job; at the end of a turn report the rate and wait for the answer.

        Raises:
            ProbeEnd: no further turn is wanted.
        """
        self._steps += 1
        self._units += units
        if self._steps_of_a_turn and self._steps == UNCOUNTED_STEPS:  # the turn itself begins
            synchronize(self._trial.device)
            self._seconds, self._units, self._since = 0.0, 0, time.perf_counter()
        if self._steps_of_a_turn and self._steps == UNCOUNTED_STEPS + self._steps_of_a_turn:
            self._report()
        elif not self._steps_of_a_turn and self._steps >= WARMUP_STEPS + PREFETCHED_BATCHES * self._loader_processes:
            self._warm_up()

    def _warm_up(self) -> None:
        """Choose the number of steps of a turn, the same on all ranks, once the loop is warm."""
        seconds = self._seconds + time.perf_counter() - self._since
        world_size, device = self._worker.world_size, self._trial.device
        (longest,) = ranks.reduced([seconds], "max", world_size, device)
        if longest >= WARMUP_SECONDS:
            self._steps_of_a_turn = steps_of_a_turn(self._steps / longest, self._loader_processes)
            self._begin()

    def _report(self) -> None:
        synchronize(self._trial.device)
        rate = self._units / (self._seconds + time.perf_counter() - self._since)
        self._rounds += 1
        self._loaders.pause()
        try:
            goes_on = self._worker.report(Measurement(self._rounds, {"rate_0": rate}))
            if not ranks.answer_of_rank_0(goes_on, self._worker.rank, self._worker.world_size):
                raise ProbeEnd
        finally:
            self._loaders.resume()
        self._begin()

    def _begin(self) -> None:
        self._steps, self._units, self._seconds, self._since = 0, 0, 0.0, time.perf_counter()
