"""Environment variables of the processes that train.

A Ray that is started for the run passes them on to all of its processes. Elsewhere each worker gets them by its runtime
environment, with which Ray takes 0.4 s of a core more to start a process, and cannot use one that it has ready.
"""

from __future__ import annotations

import os

from trainables.thread_waiting import thread_waiting

WORKER_ENVIRONMENT = {
    # Ray Train trains in a thread. The heap that glibc gives a thread cannot hold a block of 64 MB, so a large batch
    # would ask the system for its memory anew in each step, at 0.6 to 0.8 of the rate (results/LOG.md).
    "MALLOC_ARENA_MAX": "1",
    **thread_waiting(),
}


def runtime_environment(on_this_machine: bool) -> dict[str, dict[str, str]]:
    """Return Ray's runtime environment of a worker; `on_this_machine`: it starts where this process did."""
    inherited = os.environ if on_this_machine else {}
    missing = {name: value for name, value in WORKER_ENVIRONMENT.items() if inherited.get(name) != value}
    return {"env_vars": missing} if missing else {}
