"""Processes and devices of each strategy, and what a strategy refuses before anything is started."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainables.test_strategies import settings_of
from trainables.contract import Data, InfeasibleError, Layout, Resources
from trainables.local_worker import LocalWorker
from trainables.parallel.layouts import samples_at_a_time
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10

CORES = Resources(cpus=4)
GPUS = Resources(cpus=8, gpus=4)


def test_data_parallel_is_one_process_with_all_gpus() -> None:
    assert vgg19_cifar10.layout({"strategy": "data_parallel"}, GPUS) == Layout(1, 8, gpus_per_process=4)
    assert vgg19_cifar10.layout({"strategy": "ring_allreduce"}, GPUS) == Layout(4, 2, gpus_per_process=1)
    assert vgg19_cifar10.layout({}, GPUS) == Layout(1, 8, gpus_per_process=1)


def test_data_parallel_without_a_gpu_is_left_out_and_refused() -> None:
    assert vgg19_cifar10.unavailable("strategy", "data_parallel", CORES) == "needs a CUDA device"
    assert vgg19_cifar10.unavailable("strategy", "data_parallel", GPUS) is None
    for config in ({"strategy": "data_parallel"}, {"strategy": "data_parallel", "world_size": 2}):
        with pytest.raises(InfeasibleError, match="data_parallel: needs a CUDA device"):
            vgg19_cifar10.layout(config, CORES)


def test_data_parallel_in_a_process_without_a_gpu_is_refused(few: Data, folder: Path) -> None:
    worker = LocalWorker(folder, data=few, resources=CORES)
    with pytest.raises(InfeasibleError, match="data_parallel: needs a CUDA device"):
        vgg19_cifar10.train({"strategy": "data_parallel", "width": 0.03125, "batch_size": 8}, worker)


def test_a_parameter_server_alone_is_refused() -> None:
    assert vgg19_cifar10.layout({"strategy": "parameter_server"}, CORES) == Layout(2, 2)
    with pytest.raises(InfeasibleError, match="world_size 1: strategy parameter_server needs at least 2"):
        vgg19_cifar10.layout({"strategy": "parameter_server", "world_size": 1}, CORES)


@pytest.mark.parametrize(
    ("strategy", "config", "resources"),
    [
        ("parameter_server", {"precision": "fp16"}, GPUS),
        ("parameter_server", {"batch_norm": "synchronised"}, CORES),
        ("data_parallel", {"batch_norm": "synchronised"}, GPUS),
        ("ring_allreduce", {"cuda_graphs": True}, GPUS),
    ],
)
def test_what_a_strategy_does_not_have_is_refused_by_name(
    strategy: str, config: dict[str, Any], resources: Resources
) -> None:
    ((name, value),) = config.items()
    with pytest.raises(InfeasibleError, match=f"{name} {value}: not with strategy {strategy}"):
        vgg19_cifar10.layout({"strategy": strategy, **config}, resources)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"strategy": "pipeline"}, "strategy pipeline: needs num_microbatches in place of accumulation_steps"),
        ({"strategy": "ddp", "batch_size": 7}, "accumulation_steps 4: a process has 3 samples of a batch"),
    ],
)
def test_a_batch_that_cannot_be_cut_into_parts_is_refused(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(InfeasibleError, match=reason):
        vgg19_cifar10.layout({"accumulation_steps": 4, **config}, CORES)


@pytest.mark.parametrize(
    ("strategy", "processes", "pictures"),
    [("single", 1, 64), ("ddp", 3, 22), ("parameter_server", 2, 64), ("parameter_server", 3, 32), ("pipeline", 2, 8)],
)
def test_pictures_that_go_through_a_process_together(strategy: str, processes: int, pictures: int) -> None:
    settings = settings_of(strategy, batch_size=64, num_microbatches=8)
    assert samples_at_a_time(settings, processes) == pictures
    in_parts = settings_of(strategy, batch_size=64, num_microbatches=8, accumulation_steps=4)
    assert samples_at_a_time(in_parts, processes) == (pictures if strategy == "pipeline" else -(-pictures // 4))
