"""SMAC3 as a method of the race: a random forest on ParEGO's scalarization."""

from __future__ import annotations

import math
import tempfile
import warnings
from typing import Any

import numpy as np
from method import End, Setting
from problems import METRICS, Point, Problem

from search.advisor.proposal import Proposal


class SmacParEgo:
    """SMAC's facade for hyperparameters, with its defaults for several objectives.

    It is told the logarithm of the throughput, and of what cannot run the worst values so far.
    """

    def __init__(self, problem: Problem, runs: int, seed: int, setting: Setting) -> None:
        from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer, OrdinalHyperparameter
        from smac import HyperparameterOptimizationFacade, Scenario

        warnings.simplefilter("ignore")
        space = ConfigurationSpace(seed=seed)
        for name, (kind, *details) in problem.space.items():
            if kind == "cat":
                values = [value.item() if isinstance(value, np.generic) else value for value in details[0]]
                is_ordered = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
                space.add(OrdinalHyperparameter(name, values) if is_ordered else Categorical(name, values))
            else:
                low, high, log = details
                space.add({"int": Integer, "float": Float}[kind](name, (low, high), log=log))
        self._folder = tempfile.TemporaryDirectory()
        scenario = Scenario(
            space,
            objectives=list(METRICS),
            n_trials=runs,
            seed=seed,
            deterministic=True,
            output_directory=self._folder.name,
        )
        algorithm = HyperparameterOptimizationFacade.get_multi_objective_algorithm(scenario)
        self._smac = HyperparameterOptimizationFacade(
            scenario, lambda config, seed: 0.0, multi_objective_algorithm=algorithm, logging_level=False
        )
        self._asked: list[Any] = []
        self._worst: list[float] | None = None  # costs so far

    def propose(self) -> Proposal:
        """See `Method`."""
        self._asked.append(self._smac.ask())
        return Proposal(f"{len(self._asked) - 1}", dict(self._asked[-1].config))

    def observe(self, trial_id: str, epoch: int, point: Point, half: float = 0.0) -> bool:
        """See `Method`."""
        return True

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        """See `Method`."""
        from smac.runhistory.dataclasses import TrialValue

        if end == "infeasible":
            costs = self._worst or [0.0, 0.0]
        else:
            costs = [-point[0], -math.log10(point[1])]
            self._worst = [max(pair) for pair in zip(self._worst or costs, costs, strict=True)]
        self._smac.tell(self._asked[int(trial_id)], TrialValue(cost=costs))
