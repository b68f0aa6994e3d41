"""Paired rates: configurations train in short turns, in random order, in the same processes.

What slows the machine for a while slows all of them, so the ratio of two rates is measured more sharply than each rate.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence

import numpy as np

from trainables.contract import AlternativeError, InfeasibleError, Measurement, Worker
from trainables.loop import Training, open_probe
from trainables.machine.devices import synchronize
from trainables.machine.isolation import check_device, process_settings
from trainables.measure.instruments import MAX_WARMUP_STEPS, warmup_steps
from trainables.measure.throughput import MIN_WARMUP_STEPS
from trainables.parallel import peers, ranks
from trainables.plan import Batch
from trainables.samples.paused_loaders import PausedLoaders
from trainables.settings import Settings

TURN_SECONDS = 0.5  # of counted steps; on 2 virtual cores shorter turns spread more, longer ones let more drift in
WARMUP_SECONDS = 1.0  # of each configuration, before its first turn


def take_turns(alternatives: Sequence[Settings], worker: Worker) -> None:
    """Report the rates of each round, as epochs 1, 2, ..., until a report returns False.

    The metrics are `rate_0`, `rate_1`, ..., in units per second, in the order of the `alternatives`, which have one
    layout.

    Raises:
        AlternativeError: see `trainables.loop.probe`; the alternatives are in memory together.
    """
    # loaders go on before the trainings are closed: a stopped process obeys no signal
    with contextlib.ExitStack() as stack, contextlib.closing(PausedLoaders()) as loaders:
        runners = list[_Runner]()
        for place, settings in enumerate(alternatives):
            with _blamed_on(place), loaders.turn(place):
                runners.append(_Runner(*stack.enter_context(open_probe(settings, worker))))
                runners[-1].warm_up()
        rng = np.random.default_rng(0)  # equal on all ranks
        for number in itertools.count(1):
            rates = {}
            for i in rng.permutation(len(runners)).tolist():
                with _blamed_on(i), loaders.turn(i):
                    rates[i] = runners[i].turn()
            goes_on = worker.report(Measurement(number, {f"rate_{i}": rates[i] for i in sorted(rates)}))
            # outside of a search rank 0 alone waits for the answer; a rank that went on would take cores from others
            if not ranks.answer_of_rank_0(goes_on, worker.rank, worker.world_size):
                return


def steps_of_a_turn(steps_per_second: float, loader_processes: int) -> int:
    """Return the counted steps of a turn: at least one for each loader process, as they deliver together."""
    return max(1, loader_processes, round(TURN_SECONDS * steps_per_second))


@contextlib.contextmanager
def _blamed_on(place: int) -> Iterator[None]:
    """Name the alternative that cannot run.

    Raises:
        AlternativeError: it cannot.
        PeerLostError, DeviceLostError: another rank or the GPU is lost, which no configuration is blamed for.
    """
    try:
        with peers.reported():
            yield
    except (InfeasibleError, ValueError, RuntimeError, MemoryError) as error:
        check_device(error)
        raise AlternativeError(place, f"{error}".partition("\n")[0]) from error


class _Runner:
    """Training of one of the alternatives."""

    def __init__(self, training: Training, batches: Iterator[Batch]) -> None:
        self._training, self._batches = training, batches
        self._steps = 1  # counted, of a turn

    def warm_up(self) -> None:
        """Run until allocator, kernels and loader are warm, and a step is captured; choose the steps of a turn."""
        settings, device_type = self._training.settings, self._training.device.type
        loader_processes, (fewest, _) = settings.loader_processes, warmup_steps(settings, device_type)
        with self._set_up():
            self._seconds_of(fewest - MIN_WARMUP_STEPS)  # at least MIN_WARMUP_STEPS follow
            first = min(self._seconds_of(1) for _ in range(3))
            steps = self._agreed(min(WARMUP_SECONDS / first, MAX_WARMUP_STEPS))
            self._steps = self._agreed(steps_of_a_turn(steps / self._seconds_of(steps), loader_processes))

    def _agreed(self, steps: float) -> int:
        """Return the largest number of steps over the ranks, which all have to make as many; at least 1."""
        training = self._training
        return round(ranks.reduced([max(1.0, steps)], "max", training.worker.world_size, training.device)[0])

    def turn(self) -> float:
        """Return the rate of the whole job in a turn, in units/s."""
        with self._set_up():
            self._seconds_of(1)  # caches hold the data of another configuration
            return self._steps * self._training.instruments.units_per_step / self._seconds_of(self._steps)

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
