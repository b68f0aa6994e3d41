"""Process of a worker group: it takes one task after another, calls the trainable, and cleans up after it."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.util

from search.execution.hang_detector import hang_detector
from search.execution.oom import kernel_oom_kills
from search.execution.protocol import Ended, Place, Task
from search.execution.ray_watchdog import END_TIMEOUT_SECONDS, end_children
from search.record.disk import describe_os_error, is_out_of_space
from trainables.contract import (
    Data,
    DataError,
    DeviceLostError,
    HelperLostError,
    InfeasibleError,
    Measurement,
    OwnCodeError,
    PeerLostError,
    Resources,
    load_trainable,
    waiting,
)


@dataclass(frozen=True)
class RayWorker:
    """Worker of a trainable that reports to the pool."""

    rank: int
    world_size: int
    resources: Resources
    data: Data
    folder: Path
    epochs: int
    send: Callable[[Measurement], bool]

    def report(self, measurement: Measurement) -> bool:
        """Report a measurement, and wait for the answer."""
        with waiting():
            return self.send(measurement)


def run_worker_loop(settings: Mapping[str, Any]) -> None:
    """Run one task after another, until there is none: the training function of a group."""
    layout = settings["layout"]
    rank, world_size = ray.train.get_context().get_world_rank(), ray.train.get_context().get_world_size()
    resources = Resources(cpus=layout.cpus_per_process, gpus=layout.gpus_per_process)
    context = ray.get_runtime_context()
    place = Place(context.get_node_id(), ray.util.get_node_ip_address(), os.getpid())
    number = 0

    def call(method: str, *arguments: Any) -> Any:
        return ray.get(settings["pool"].call_group.remote(settings["group"], method, *arguments))

    while True:
        number, task = call("next_task", rank, context.current_actor, place, number)
        if task is None:
            return
        send = partial(call, "report", number, rank)
        worker = RayWorker(rank, world_size, resources, task.data, Path(task.folder), task.epochs, send)
        with hang_detector(settings["timeout_seconds"], partial(call, "report_hang", number, rank)):
            ended = _run_task(task, worker)
        end_children(END_TIMEOUT_SECONDS)  # they would slow the next task down
        call("report_end", number, rank, ended)


def _run_task(task: Task, worker: RayWorker) -> Ended:
    kills = kernel_oom_kills()
    try:
        function = getattr(load_trainable(task.trainable_here), task.function)
        config = [task.config, *task.rivals] if task.rivals else task.config
        return Ended("complete", metrics=function(config, worker) or {})
    except InfeasibleError as error:
        return Ended("infeasible", str(error), error.metrics)
    except (OwnCodeError, DataError, FloatingPointError) as error:
        _save_traceback(worker)
        return Ended("failed", str(error))
    except DeviceLostError as error:
        _save_traceback(worker)
        return Ended("failed", f"{error}; this process can no longer use its GPU and is ended", process_lost=True)
    except PeerLostError as error:
        return Ended("failed", str(error), peer_lost=True)
    except HelperLostError as error:
        if kernel_oom_kills() > kills:
            return Ended("infeasible", f"out of host memory: {error}")
        return Ended("failed", str(error), retry=True)
    except MemoryError as error:
        return Ended("infeasible", f"out of host memory{f': {error}' if str(error) else ''}")
    except Exception as error:
        if isinstance(error, OSError) and is_out_of_space(error):
            return Ended("failed", describe_os_error(error), disk_full=True)
        _save_traceback(worker)
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Ended("failed", f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})")


def _save_traceback(worker: RayWorker) -> None:
    with contextlib.suppress(OSError):
        path = worker.folder / f"error-rank{worker.rank}.txt"
        path.write_text(traceback.format_exc(), encoding="utf-8", errors="backslashreplace")
