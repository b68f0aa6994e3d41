"""Asynchronous successive halving on all objectives at once: which running trials continue."""

import math

import numpy as np
from numpy.typing import NDArray

from search.front.pareto import pareto_rank, spread_order

Loss = NDArray[np.float64]  # (num_objectives,), lower is better


class Halving:
    """MO-ASHA (Schmucker et al. 2021, arXiv 2106.12639) in its stopping variant: no trial waits for another.

    The rungs are at `grace_epochs`, then at `reduction_factor` times the last rung, below `epochs`. At a rung a trial
    continues if it is in the best 1/`reduction_factor` (rounded up) of all trials that have reached the rung so far: by
    non-domination rank, and within the rank that the cut divides, by an even spread along it.
    """

    def __init__(self, grace_epochs: int, reduction_factor: int, epochs: int) -> None:
        self._reduction_factor = reduction_factor
        self._rungs: dict[int, dict[str, tuple[int, Loss]]] = {}  # epochs -> trial -> epoch of its record, losses
        rung = grace_epochs
        while rung < epochs:
            self._rungs[rung] = {}
            rung *= reduction_factor

    def should_continue(self, trial_id: str, epoch: int, losses: Loss | None) -> bool:
        """Return whether the trial continues. `losses` None: an objective has no finite value; it stops at a rung."""
        rung = max((rung for rung in self._rungs if rung <= epoch), default=None)
        if rung is None:
            return True
        arrived = self._rungs[rung]
        if trial_id in arrived and arrived[trial_id][0] != epoch:
            return True  # judged at an earlier epoch; the same epoch again is a restart from its checkpoint
        if losses is None:
            return False
        arrived[trial_id] = (epoch, losses)
        table = np.stack([losses for _, losses in arrived.values()])
        return list(arrived).index(trial_id) in select_best(table, math.ceil(len(table) / self._reduction_factor))


def select_best(losses: NDArray[np.float64], count: int) -> list[int]:
    """Return the indices of the `count` best rows: whole fronts as far as they fit, then an even spread of the next."""
    ranks = pareto_rank(losses)
    chosen: list[int] = []
    for rank in range(int(ranks.max()) + 1):
        front = np.flatnonzero(ranks == rank)
        room = count - len(chosen)
        if len(front) >= room:
            return chosen + [int(front[i]) for i in spread_order(losses[front], room)]
        chosen += front.tolist()
    return chosen
