"""Ax as a method of the race."""

from __future__ import annotations

import logging
import math
import warnings
from typing import Any

import numpy as np
from method import End, Setting
from problems import METRICS, Point, Problem

from search.advisor.proposal import Proposal


class AxQLogNEHVI:
    """Ax with its defaults: BoTorch's qLogNEHVI after Sobol points."""

    def __init__(self, problem: Problem, runs: int, seed: int, setting: Setting) -> None:
        from ax.api.client import Client
        from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        types = {bool: "bool", int: "int", float: "float", str: "str"}
        parameters: list[Any] = []
        for name, (kind, *details) in problem.space.items():
            if kind == "cat":
                values = [value.item() if isinstance(value, np.generic) else value for value in details[0]]
                of_type = types[type(values[0])]
                is_ordered = of_type in ("int", "float")
                parameters.append(ChoiceParameterConfig(name, values, of_type, is_ordered=is_ordered))
            else:
                low, high, log = details
                parameters.append(RangeParameterConfig(name, (low, high), kind, scaling="log" if log else "linear"))
        self._client = Client(random_seed=seed)
        self._client.configure_experiment(parameters=parameters)
        self._client.configure_optimization(objective=", ".join(METRICS))

    def propose(self) -> Proposal:
        """See `Method`."""
        ((number, config),) = self._client.get_next_trials(max_trials=1).items()
        return Proposal(f"{number}", config)

    def observe(self, trial_id: str, epoch: int, point: Point, half: float = 0.0) -> bool:
        """See `Method`."""
        return True

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        """See `Method`."""
        if end == "infeasible":
            self._client.mark_trial_failed(trial_index=int(trial_id))
        else:
            told = {METRICS[0]: point[0], METRICS[1]: math.log10(point[1])}
            self._client.complete_trial(trial_index=int(trial_id), raw_data=told)
