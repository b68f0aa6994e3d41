"""Environment variables that say how long the threads of PyTorch wait for each other, on a CPU."""

from __future__ import annotations

import os

# By themselves they wait in a loop of 300,000 turns. With 1,000 the rate beside one busy process is 1.6 times as high,
# and without one it is the same (results/LOG.md).
DEFAULT = {"GOMP_SPINCOUNT": "1000"}


def thread_waiting() -> dict[str, str]:
    """Return the environment variables of a process that trains: the user's, or else `DEFAULT`.

    They count where they are set before torch is imported.
    """
    chosen = {name: os.environ[name] for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY") if name in os.environ}
    return chosen or DEFAULT
