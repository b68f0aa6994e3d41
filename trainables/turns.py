"""Paired rates: configurations train in short turns, in random order, in the same processes.

What slows the machine for a while slows all of them, so the ratio of two rates is measured more sharply than each rate.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import time
from collections.abc import Iterator, Sequence

import numpy as np

from trainables.contract import AlternativeError, InfeasibleError, Measurement, Worker
from trainables.loop import Training, open_probe
from trainables.machine.devices import synchronize
from trainables.machine.isolation import process_settings
from trainables.measure.instruments import MAX_WARMUP_STEPS
from trainables.measure.interference import children_seconds
from trainables.parallel import ranks
from trainables.plan import Batch
from trainables.samples.worker_batches import PREFETCHED_BATCHES
from trainables.settings import Settings

TURN_SECONDS = 0.5  # of counted steps; on 2 virtual cores shorter turns spread more, longer ones let more drift in
IDLE_SECONDS, LONGEST_FILLING_SECONDS = 0.03, 3.0  # of loader processes
WARMUP_SECONDS = 1.0  # of each configuration, before its first turn


def take_turns(alternatives: Sequence[Settings], worker: Worker) -> None:
    """Report the rates of each round, as epochs 1, 2, ..., until a report returns False.

    The metrics are `rate_0`, `rate_1`, ..., in units per second, in the order of the `alternatives`, which have one
    layout.

    Raises:
        AlternativeError: see `trainables.loop.probe`; the alternatives are in memory together.
    """
    with contextlib.ExitStack() as stack:
        runners = []
        for place, settings in enumerate(alternatives):
            with _blamed_on(place):
                runners.append(_Runner(*stack.enter_context(open_probe(settings, worker))))
                runners[-1].warm_up()
                wait_for_loaders()
        rng = np.random.default_rng(0)  # equal on all ranks
        for number in itertools.count(1):
            rates = {i: runners[i].turn() for i in rng.permutation(len(runners)).tolist()}
            goes_on = worker.report(Measurement(number, {f"rate_{i}": rates[i] for i in sorted(rates)}))
            # outside of a search rank 0 alone waits for the answer; a rank that went on would take cores from others
            if not ranks.answer_of_rank_0(goes_on, number, worker.rank, worker.world_size):
                return


def wait_for_loaders() -> None:
    """Wait until loader processes have filled their buffers: they would take cores from the next turn."""
    end = time.monotonic() + LONGEST_FILLING_SECONDS
    while multiprocessing.active_children() and time.monotonic() < end:
        before = children_seconds()
        time.sleep(IDLE_SECONDS)
        if children_seconds() - before < IDLE_SECONDS / 10:
            return


@contextlib.contextmanager
def _blamed_on(place: int) -> Iterator[None]:
    """Name the alternative that cannot run."""
    try:
        yield
    except (InfeasibleError, ValueError, RuntimeError) as error:
        raise AlternativeError(place, f"{error}".partition("\n")[0]) from error


class _Runner:
    """Training of one of the alternatives."""

    def __init__(self, training: Training, batches: Iterator[Batch]) -> None:
        self._training, self._batches = training, batches
        self._steps = 1  # counted, of a turn
        # After a turn of another one, caches hold its data, and loader processes have filled their buffers.
        self._uncounted = 1 + PREFETCHED_BATCHES * training.settings.loader_processes

    def warm_up(self) -> None:
        """Run until the allocator, the kernels and the loader are warm; choose the number of steps of a turn."""
        with self._set_up():
            first = min(self._seconds_of(1) for _ in range(3))
            steps = self._agreed(min(WARMUP_SECONDS / first, MAX_WARMUP_STEPS))
            self._steps = self._agreed(TURN_SECONDS * steps / self._seconds_of(steps))

    def _agreed(self, steps: float) -> int:
        """Return the largest number of steps over the ranks, which all have to make as many; at least 1."""
        training = self._training
        return round(ranks.reduced([max(1.0, steps)], "max", training.worker.world_size, training.device)[0])

    def turn(self) -> float:
        """Return the rate of the whole job in a turn, in units/s."""
        with self._set_up():
            self._seconds_of(self._uncounted)
            rate = self._steps * self._training.instruments.units_per_step / self._seconds_of(self._steps)
        wait_for_loaders()
        return rate

    @contextlib.contextmanager
    def _set_up(self) -> Iterator[None]:
        """Give the process the settings of this alternative that hold for a whole process."""
        settings, worker = self._training.settings, self._training.worker
        threads = settings.threads or worker.resources.cpus
        with process_settings(threads, settings.allocator, settings.flush_denormals):
            yield

    def _seconds_of(self, steps: int) -> float:
        synchronize(self._training.device)
        started = time.perf_counter()
        for inputs, targets in itertools.islice(self._batches, steps):
            self._training.step(inputs, targets, self._training.instruments.timeline)
        synchronize(self._training.device)
        return time.perf_counter() - started
