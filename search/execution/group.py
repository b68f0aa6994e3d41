"""One warm worker group: a Ray Train run that stays in its training function and asks the pool for work."""

from __future__ import annotations

import asyncio

import ray
import ray.actor
import ray.exceptions

from search.execution.serve import Died, Ended, Message, Place, Task, serve
from search.execution.shortage import kernel_kills
from trainables.contract import Layout

RESTING_CPUS = 0.001  # Ray Train wants its workers to ask for something
# Ray Train trains in a thread. Its heap would be of the kind of glibc's that cannot hold a block of 64 MB, so that
# a large batch asks the system for its memory anew in each step: 0.6 to 0.8 of the rate (results/LOG.md).
ENVIRONMENT = {"MALLOC_ARENA_MAX": "1"}


class Group:
    """One worker group as the pool sees it: what it is asked, what it answers, whether it lives."""

    def __init__(self, number: int, layout: Layout) -> None:
        self.number = number
        self.layout = layout
        self.leased_to: str | None = None
        self.workers: dict[int, ray.actor.ActorHandle] = {}  # by rank, as they report for work
        self.places: dict[int, Place] = {}  # likewise
        self.kills: dict[int, int] = {}  # by rank: the kernel's, when it last proved to be there
        self.task_number = 0
        self.task: Task | None = None
        self.closing = False
        self.lost: Ended | None = None  # what to tell of it, from when a rank was found silent
        self.dead: str | None = None  # why; nothing of it is left
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.changed = asyncio.Condition()
        self.ends: dict[int, Ended] = {}  # of the current task, by rank, in the order in which they came
        self.reports: dict[int, set[int]] = {}  # of the current task: the ranks that reported an epoch
        self.answers: dict[int, asyncio.Future[bool]] = {}  # to the reports of the current task, by epoch

    @property
    def ready(self) -> bool:
        """Whether all ranks have reported for work."""
        return len(self.workers) == self.layout.processes

    def submit(self, task: Task) -> None:
        """Begin a task; nothing of the one before is left."""
        self.task, self.task_number = task, self.task_number + 1
        self.ends, self.reports, self.answers, self.messages = {}, {}, {}, asyncio.Queue()

    def where(self, rank: int) -> str:
        """` on 10.0.0.2`, if the ranks are on several nodes."""
        several = len({place.node_id for place in self.places.values()}) > 1
        return f" on {self.places[rank].address}" if several and rank in self.places else ""

    def death(self, rank: int | None, error: BaseException) -> Ended | Died:
        """What to tell when a rank is gone by `error`, or the group as a whole.

        If it was for want of memory, its configuration cannot run here. On a cluster of others Ray itself may end it.
        """
        gone = type(error).__name__ if rank is None else f"the worker of rank {rank} died{self.where(rank)}"
        reason = f"{gone}: {_first_line(error)}"
        kills = kernel_kills()
        if isinstance(error, ray.exceptions.OutOfMemoryError) or kills > min(self.kills.values(), default=kills):
            return Ended("infeasible", f"out of host memory: {reason}")
        return Died(reason)

    def kill(self) -> None:
        """End its processes, without asking them."""
        self.closing = True
        for worker in self.workers.values():
            ray.kill(worker)


def fit(
    pool: ray.actor.ActorHandle, number: int, layout: Layout, cpus: float, storage: str, patience: float
) -> tuple[int | None, BaseException | None]:
    """Run a group until it ends; say which rank ended it and by which error. None: all, or none as it was asked to."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.exceptions import WorkerGroupError

    from search.execution.trainer import ProcessGroup, Trainer

    several = layout.processes > 1
    trainer = Trainer(
        serve,
        train_loop_config={"pool": pool, "group": number, "layout": layout, "patience": patience},
        # one process has nobody to talk to, and imports torch only if its trainable does
        backend_config=ProcessGroup("nccl" if layout.gpus_per_process else "gloo", patience) if several else None,
        scaling_config=ScalingConfig(
            num_workers=layout.processes,
            placement_strategy=layout.placement.upper(),
            use_gpu=layout.gpus_per_process > 0,
            resources_per_worker={
                "CPU": cpus,
                **({"GPU": layout.gpus_per_process} if layout.gpus_per_process else {}),
            },
        ),
        run_config=RunConfig(
            name=f"group-{number}",
            storage_path=storage,
            failure_config=FailureConfig(max_failures=0),
            worker_runtime_env={"env_vars": ENVIRONMENT},
        ),
    )
    try:
        trainer.fit()
    except WorkerGroupError as error:
        rank, cause = next(iter(error.worker_failures.items()), (0, error))
        # Ray Train wraps what happened to the process in "A worker health check failed."
        cause = getattr(cause, "health_check_failure", cause)
        return rank, cause
    except Exception as error:  # whatever it is, the trial that waits for this group must hear of it
        return None, error
    return None, None


def _first_line(error: BaseException) -> str:
    """What it says first, or else its name."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__).strip()
