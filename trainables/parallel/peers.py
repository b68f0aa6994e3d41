"""Detection of errors that are caused by the loss of another process of the trial."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from trainables.contract import PeerLostError
from trainables.machine.exception_chain import exception_chain

# Gloo's messages for a broken connection and a timeout, for which it has no exception type
LOST = re.compile(r"gloo/|gloo::|connection (closed|reset) by peer|broken pipe|timed out waiting|socket timeout", re.I)


@contextmanager
def reported() -> Iterator[None]:
    """Convert errors that a lost or silent rank causes.

    Raises:
        PeerLostError: another rank is lost; its own error is the reason.
    """
    try:
        yield
    except RuntimeError as error:
        for cause in exception_chain(error):
            text = str(cause)
            if isinstance(cause, dist.DistError) or (isinstance(cause, RuntimeError) and LOST.search(text)):
                lines = text.splitlines() or ["no reason given"]
                line = next((line for line in lines if LOST.search(line)), lines[0])
                reason = re.sub(r"^\[\S*/(\S+)\]\s*", "", line.strip())
                raise PeerLostError(f"lost another rank: {reason}") from error
        raise
