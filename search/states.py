"""Kinds of trials, and the states in which a trial may be."""

from typing import Literal, get_args

Kind = Literal["train", "probe"]
State = Literal["complete", "stopped", "infeasible", "failed"]  # of a trial that has ended
STATES: tuple[str, ...] = ("running", *get_args(State))
