"""Private interfaces of Ray: all of them, used only with the Ray versions that they were tested on.

With any other version a run uses Ray Train's own trainer, with all of its actors, and plain `ray.init`. The hooks:

| Private name in Ray | Effect of the hook | Without it |
| --- | --- | --- |
| `ray_constants.ENABLE_RAY_CLUSTER` | Ray listens on 127.0.0.1 only | Ray listens on all addresses |
| `Node.start_log_monitor` | no process that reads all logs | one more process, for output that nobody sees |
| `services.ConsolePopen` | terminal signals do not reach Ray | they end half of it, and the rest waits |
| `utils.set_sigterm_handler` | SIGTERM is ours while Ray starts | a SIGTERM then gives a stack trace |
| `DataParallelTrainer._create_default_callbacks` | two actors fewer | seconds per group |
| `DataParallelTrainer._initialize_and_run_controller` | the controller runs in the pool | seconds per group |
| `TrainController`, its `worker_group_cls` | takes the worker group of the next line | |
| `WorkerGroup._get_worker_runtime_env` | none where it is not needed: a ready process will do | seconds per group |
| `worker_group.SynchronizationActor` | one actor fewer | seconds per group |
| `state._shutdown_sync_actor` | there is none | |
| `FixedScalingPolicy.after_controller_start` | one actor fewer for all groups | seconds |
| `FixedScalingPolicy._maybe_send_resource_request` | likewise | |
| `RayActorManager._actor_task_failed` | a trial fails whose actor Ray ends when memory is out | the run ends |
| `worker._global_node` | folder of Ray's Grafana dashboards | no Grafana dashboard of the search |
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ray

from search.execution.ray_watchdog import in_own_process_group

TESTED_VERSIONS = ("2.60",)  # the range of pyproject.toml
# One distributes datasets, of which there are none; the other removes placement groups, which end with the pool.
UNNEEDED_CALLBACKS = ("DatasetsCallback", "PlacementGroupCleanerCallback")


def are_tested() -> bool:
    """Return whether the hooks were tested with the installed Ray."""
    return ".".join(ray.__version__.split(".")[:2]) in TESTED_VERSIONS


def notices() -> list[str]:
    """Describe in one line what is different where the hooks are off; empty: they are on."""
    if are_tested():
        return []
    return [
        f"Ray {ray.__version__} is not tested (tested: {', '.join(TESTED_VERSIONS)}): worker groups start seconds "
        "slower, by Ray Train's own scaling policy and callbacks; a Ray started here listens on all addresses"
    ]


def init_ray(**settings: Any) -> Any:
    """Start Ray on this machine with `ray.init`, for this run only. Ray has no options for what the hooks change."""
    with ExitStack() as hooks:
        if are_tested():
            private = ray._private
            popen = in_own_process_group(private.services.ConsolePopen)
            hooks.enter_context(patch.object(private.ray_constants, "ENABLE_RAY_CLUSTER", False))
            hooks.enter_context(patch.object(private.node.Node, "start_log_monitor", lambda node: None))
            hooks.enter_context(patch.object(private.services, "ConsolePopen", popen))
            hooks.enter_context(patch.object(private.utils, "set_sigterm_handler", lambda handler: None))
        return ray.init(**settings)


def trainer_class(hooks: bool) -> Any:
    """Return the trainer of worker groups: Ray Train's own, or with `hooks` one that starts the workers alone.

    Ray Train's own starts four more actors for each. Each takes seconds of a core, and 1% of one while idle.
    """
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    if not hooks:
        return DataParallelTrainer
    from ray.train.v2._internal.execution.controller import TrainController
    from ray.train.v2._internal.execution.scaling_policy import FixedScalingPolicy
    from ray.train.v2._internal.execution.worker_group import state, worker_group

    worker_group.SynchronizationActor = _NoSynchronization
    state._shutdown_sync_actor = lambda actor: None

    class ScalingPolicy(FixedScalingPolicy):  # type: ignore[misc]  # Ray has no types
        """Fixed size, without the actor of Ray Data that tells the autoscaler, which sees placement groups itself."""

        def after_controller_start(self, train_run_context: Any) -> None: ...

        def _maybe_send_resource_request(self) -> None: ...

    class Workers(worker_group.WorkerGroup):  # type: ignore[misc]
        @staticmethod
        def _get_worker_runtime_env(custom_runtime_env: Any) -> Any:
            """Add Ray Train's own settings, which a process that starts on this machine inherits."""
            add = worker_group.WorkerGroup._get_worker_runtime_env
            return add(custom_runtime_env) if custom_runtime_env else {}

    class Controller(TrainController):  # type: ignore[misc]
        worker_group_cls = Workers

    class Trainer(DataParallelTrainer):  # type: ignore[misc]
        def _create_default_callbacks(self) -> list[Any]:
            return [c for c in super()._create_default_callbacks() if type(c).__name__ not in UNNEEDED_CALLBACKS]

        def _initialize_and_run_controller(self, **settings: Any) -> Any:
            settings["scaling_policy"] = ScalingPolicy(self.scaling_config)
            controller = Controller(**settings)
            asyncio.run(controller.run())
            return controller.get_result()

    return Trainer


class _NoSynchronization:
    """Replacement of the actor where the ranks wait for each other when they report to Ray Train; ours never do."""

    @classmethod
    def options(cls, **options: Any) -> type[_NoSynchronization]:
        return cls

    @classmethod
    def remote(cls, **settings: Any) -> str:
        return cls.__name__


@contextmanager
def actors_may_run_out_of_memory() -> Iterator[None]:
    """Let Ray Tune take an actor that Ray ended for lack of memory for any other lost actor: it knows no such error."""
    from ray.air.execution._internal.actor_manager import RayActorManager

    original = RayActorManager._actor_task_failed

    def failed(manager: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, ray.exceptions.OutOfMemoryError):
            exception = ray.exceptions.RayActorError(error_msg=str(exception))
        original(manager, tracked_actor_task, exception)

    with patch.object(RayActorManager, "_actor_task_failed", failed if are_tested() else original):
        yield


def session_folder() -> Path | None:
    """Return the folder of the Ray session of this process; None: no Ray runs, or it is not a tested version."""
    node = ray._private.worker._global_node if are_tested() else None
    return None if node is None else Path(node.get_session_dir_path())
