"""Processes of a job on this machine, in one process group of PyTorch: start, end, and whose failure it was."""

import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from multiprocessing.process import BaseProcess

from trainables.contract import Layout, PeerLostError, group_timeout_seconds, timeout_seconds

INTERRUPTED = 130  # exit code of a rank, and of the command
LOST_ANOTHER = 75  # exit code of a rank that lost another rank
ABORTED = -signal.SIGABRT  # by NCCL's watchdog, which ends the ranks that wait for another one
GRACE_SECONDS = 5.0  # for the lost rank to end, too
Work = Callable[[int], int]  # what a process does, by its rank; returns its exit code, 0: done


def run_processes(work: Work, layout: Layout) -> tuple[int, str | None]:
    """Run `work` in each process; return the exit code of the job and the reason of a failure, see `attribute_failure`.

    `work` is pickled. All processes are ended when one has failed.
    """
    context, start_method = multiprocessing.get_context("spawn"), multiprocessing.get_start_method()
    with tempfile.TemporaryDirectory() as meeting_point:
        processes = [
            context.Process(target=_rank, args=(work, layout, rank, f"file://{meeting_point}/store", start_method))
            for rank in range(layout.processes)
        ]
        try:
            for process in processes:
                process.start()
            ended = _wait(processes)
        finally:
            for process in (each for each in processes if each.pid is not None):
                process.kill()  # a rank may wait for a failed one
                process.join()
    waited = group_timeout_seconds(layout.gpus_per_process > 0, timeout_seconds())
    return attribute_failure(ended, len(processes), waited)


def _wait(processes: Sequence[BaseProcess]) -> dict[int, int]:
    """Return the exit codes by rank, in the order of their ends; a rank that did not end in time is absent."""
    ended: dict[int, int] = {}
    deadline = math.inf
    while len(ended) < len(processes) and time.monotonic() < deadline:
        running = [process.sentinel for rank, process in enumerate(processes) if rank not in ended]
        timeout = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        multiprocessing.connection.wait(running, timeout)
        for rank, process in enumerate(processes):
            if rank not in ended and (code := process.exitcode) is not None:
                ended[rank] = code
                others_may_take = {0: timeout_seconds(), LOST_ANOTHER: GRACE_SECONDS, ABORTED: GRACE_SECONDS}
                seconds = others_may_take.get(code, 0.0)
                deadline = min(deadline, time.monotonic() + seconds)
    return ended


def attribute_failure(ended: Mapping[int, int], processes: int, timeout: float) -> tuple[int, str | None]:
    """Return the job's exit code and its reason; None if no rank failed. A rank that only lost another is not blamed.

    `ended` has exit codes by rank in order of ending, negative for a signal; an absent rank did not end.
    """
    aborted = [f"{rank}" for rank, code in ended.items() if code == ABORTED]
    for rank, code in ended.items():
        if code < 0 and code != ABORTED:
            return 1, f"rank {rank} was ended by {signal.Signals(-code).name}"
    for rank, code in ended.items():
        if code not in (0, LOST_ANOTHER, ABORTED):
            return code, f"rank {rank} failed"
    silent = [f"{rank}" for rank in range(processes) if rank not in ended]
    if silent:
        waiting = f" (rank {' and '.join(aborted)} was ended by SIGABRT)" if aborted else ""
        return 1, f"rank {' and '.join(silent)} did not answer the others for {timeout:.0f} s{waiting}"
    if aborted:
        return 1, f"rank {' and '.join(aborted)} was ended by SIGABRT"
    if LOST_ANOTHER in ended.values():
        return 1, f"the ranks waited for each other without an answer, up to {timeout:.0f} s"
    return 0, None


def _rank(work: Work, layout: Layout, rank: int, meeting_point: str, start_method: str) -> None:
    # as in a search: else loaders would be spawned like this rank, with 0.3 GiB of libraries of their own each
    multiprocessing.set_start_method(start_method, force=True)
    threading.Thread(target=_end_with_main, daemon=True).start()
    import torch
    import torch.distributed as dist

    backend = "nccl" if layout.gpus_per_process else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    timeout = timedelta(seconds=group_timeout_seconds(backend == "nccl", timeout_seconds()))
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"  # else a rank that ends at once breaks the connections of the others
    dist.init_process_group(backend, init_method=meeting_point, rank=rank, world_size=layout.processes, timeout=timeout)
    try:
        code = work(rank)
    except PeerLostError:
        code = LOST_ANOTHER  # the other rank reports the reason
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code:
        sys.exit(code)
    dist.destroy_process_group()


def _end_with_main() -> None:
    """End this rank when the process that started it has ended."""
    if (main_process := multiprocessing.parent_process()) is not None:
        main_process.join()
        os._exit(LOST_ANOTHER)
