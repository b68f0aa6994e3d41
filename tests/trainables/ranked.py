"""Runs a function in several processes that know each other by Gloo or NCCL, as the ranks of a trial do."""

import io
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from tests.forks import context
from trainables.prediction import memory_need

TIME_LIMIT_SECONDS = 60.0


def on_ranks(
    function: Callable[..., Any],
    world_size: int,
    *arguments: Any,
    timeout_seconds: float = TIME_LIMIT_SECONDS / 2,
    backend: str = "gloo",
) -> list[Any]:
    """What `function(rank, world_size, *arguments)`, of a module's top level, returns on each rank."""
    with tempfile.TemporaryDirectory() as folder:
        ends = [context.Pipe(duplex=False) for _ in range(world_size)]
        store = f"file://{folder}/store"
        processes = [
            context.Process(
                target=_rank, args=(function, rank, world_size, store, timeout_seconds, there, arguments, backend)
            )
            for rank, (_, there) in enumerate(ends)
        ]
        for process in processes:
            process.start()
        try:
            answers = []
            for rank, (here, there) in enumerate(ends):
                there.close()
                assert here.poll(TIME_LIMIT_SECONDS), f"rank {rank} did not answer"
                answers.append(here.recv())
        finally:
            for process in processes:
                process.kill()
                process.join()
    for rank, (_, error) in enumerate(answers):
        assert error is None, f"rank {rank}:\n{error}"
    return [torch.load(io.BytesIO(content), weights_only=False) for content, _ in answers]


def _rank(
    function: Callable[..., Any],
    rank: int,
    world_size: int,
    store: str,
    timeout_seconds: float,
    answer: Connection,
    arguments: tuple[Any, ...],
    backend: str,
) -> None:
    torch.set_num_threads(1)
    # as in conftest.py, which these processes do not know: measuring takes 10 s
    memory_need.machine_calibration = lambda device: memory_need.TYPICAL[device.type]  # type: ignore[assignment]
    limit = timedelta(seconds=timeout_seconds)
    dist.init_process_group(backend, init_method=store, rank=rank, world_size=world_size, timeout=limit)
    if backend == "gloo":
        dist.barrier()  # a rank that ends at once would leave another one that still connects to it
    try:
        content = io.BytesIO()
        torch.save(function(rank, world_size, *arguments), content)  # tensors in messages would end with this process
        answer.send((content.getvalue(), None))
    except BaseException:
        answer.send((None, traceback.format_exc()))
    dist.destroy_process_group()
