"""Errors that are only another process's end, told apart from those that are this one's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from trainables.contract import PeerLostError
from trainables.machine.causes import causes

# What Gloo says, which has no type for it, of a connection that broke and of one on which nothing came.
LOST = re.compile(r"gloo/|gloo::|connection (closed|reset) by peer|broken pipe|timed out waiting|socket timeout", re.I)


@contextmanager
def reported() -> Iterator[None]:
    """What is raised within because another rank is gone or silent is raised as what it is.

    Raises:
        PeerLostError: the other rank's end; look there for the reason.
    """
    try:
        yield
    except RuntimeError as error:
        if (text := _lost(error)) is None:
            raise
        raise PeerLostError(f"lost another rank: {text}") from error


def _lost(error: BaseException) -> str | None:
    """The line that says so; None: the error is another. What raised it, as pipelines do, may be wrapped."""
    for cause in causes(error):
        text = str(cause)
        if isinstance(cause, dist.DistError) or (isinstance(cause, RuntimeError) and LOST.search(text)):
            lines = text.splitlines() or ["no reason given"]
            line = next((line for line in lines if LOST.search(line)), lines[0])
            return re.sub(r"^\[\S*/(\S+)\]\s*", "", line.strip())
    return None
