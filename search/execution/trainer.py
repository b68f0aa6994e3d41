"""Ray Train's trainer for a group of workers that talk by `torch.distributed`, and what it starts beside them: little.

As its `TorchTrainer`, but torch is imported by the workers alone, who need it: with `TorchConfig` the worker pool and
Ray Train's controller import it too, one after the other, before the first worker is started.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import ray
from ray.exceptions import GetTimeoutError
from ray.train.backend import Backend, BackendConfig
from ray.train.v2._internal.execution.scaling_policy import FixedScalingPolicy
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

CLOSE_TIMEOUT_SECONDS = 10.0


# Handing out datasets, of which there are none; removing placement groups, which go with the process that made them.
NOT_NEEDED = ("DatasetsCallback", "PlacementGroupCleanerCallback")


class Trainer(DataParallelTrainer):  # type: ignore[misc]  # Ray has no types
    """Without processes for what nobody needs: each takes seconds of a core to start, and 1% of one while it idles."""

    def _create_default_callbacks(self) -> list[Any]:
        return [each for each in super()._create_default_callbacks() if type(each).__name__ not in NOT_NEEDED]

    def _initialize_and_run_controller(self, *, scaling_policy: Any, **settings: Any) -> Any:
        return super()._initialize_and_run_controller(scaling_policy=_OneSize(self.scaling_config), **settings)


class _OneSize(FixedScalingPolicy):  # type: ignore[misc]
    """As Ray Train's, which has a process of Ray Data's tell the autoscaler; that sees placement groups by itself."""

    def after_controller_start(self, train_run_context: Any) -> None:
        pass

    def _maybe_send_resource_request(self) -> None:
        pass


@dataclass(frozen=True)
class ProcessGroup(BackendConfig):  # type: ignore[misc]  # Ray has no types
    """Which library carries the messages, and how long one may take."""

    backend: str  # nccl or gloo
    timeout_seconds: float

    @property
    def backend_cls(self) -> type[Backend]:
        """What Ray Train calls when a group starts and ends."""
        return _OnWorkers


class _OnWorkers(Backend):  # type: ignore[misc]
    share_cuda_visible_devices = True  # of a node; which one is whose, LOCAL_RANK says

    def on_start(self, worker_group: Any, backend_config: ProcessGroup) -> None:
        address, port = worker_group.execute_single(0, _address)
        size = len(worker_group)
        joining = [
            worker_group.execute_single_async(
                rank,
                _join,
                backend=backend_config.backend,
                timeout_seconds=backend_config.timeout_seconds,
                environment={
                    "MASTER_ADDR": address,
                    "MASTER_PORT": str(port),
                    "RANK": str(rank),
                    "WORLD_SIZE": str(size),
                },
            )
            for rank in range(size)
        ]
        ray.get(joining)

    def on_shutdown(self, worker_group: Any, backend_config: ProcessGroup) -> None:
        with contextlib.suppress(GetTimeoutError):  # the processes end all the same
            ray.get(worker_group.execute_async(_leave), timeout=CLOSE_TIMEOUT_SECONDS)


def _address() -> tuple[str, int]:
    """Of this node, with a port that is free."""
    from ray.train._internal.utils import get_address_and_port

    address, port = get_address_and_port()
    return address, port


def _join(backend: str, timeout_seconds: float, environment: dict[str, str]) -> None:
    import ray.train
    from torch import distributed

    context = ray.train.get_context()
    os.environ |= environment
    os.environ["LOCAL_RANK"] = str(context.get_local_rank())
    os.environ["LOCAL_WORLD_SIZE"] = str(context.get_local_world_size())
    os.environ["NODE_RANK"] = str(context.get_node_rank())
    distributed.init_process_group(backend, timeout=timedelta(seconds=timeout_seconds))


def _leave() -> None:
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()
