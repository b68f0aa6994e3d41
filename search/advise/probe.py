"""Probe of a configuration in a process of its own: what bounds its steps, and its memory."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence

from search.advise.side import TurnError
from search.train.child_process import Epoch, Reports, train


def probed(arguments: Sequence[str]) -> Mapping[str, float]:
    """Return the metrics of a probe with these arguments of `trainables.train`.

    Raises:
        TurnError: the configuration cannot run here.
    """
    epochs: list[Epoch] = []
    reports = Reports(on_epoch=epochs.append, on_data=lambda text: None, on_other=lambda text: None)
    with tempfile.TemporaryDirectory() as folder:
        code = train([*arguments, "--folder", folder, "--probe"], reports)
    if code or not epochs:
        raise TurnError((reports.errors or [f"ended with exit code {code}"])[0])
    return epochs[-1].metrics
