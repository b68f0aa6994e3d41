"""Memory of a CUDA device: the simulated allocator beside PyTorch's, and what is left after a trial."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainables.shapes import VGG_SHAPE
from trainables.contract import Data, Resources
from trainables.local_worker import LocalWorker
from trainables.machine.peak_memory import GIB
from trainables.prediction.caching_allocator import MIB, Block, CachingAllocator
from trainables.prediction.tensor_memory import TensorMemory, tensor_memory
from trainables.setting_check import checked
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("seed", range(5))
def test_the_simulated_allocator_reserves_what_pytorch_s_reserves(seed: int) -> None:
    """Blocks of 1 byte to 64 MiB, in two streams, in a random order."""
    rng = random.Random(seed)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    simulated = CachingAllocator()
    streams = {name: torch.cuda.Stream() for name in ("first", "second")}
    held: list[tuple[torch.Tensor, Block]] = []
    for number in range(400):
        if number % 100 == 99:
            torch.cuda.empty_cache()
            simulated.release_cached()
        elif held and rng.random() < 0.48:
            tensor, block = held.pop(rng.randrange(len(held)))
            del tensor
            simulated.free(block)
        else:
            size, name = int(2 ** rng.uniform(0, 26)), rng.choice(list(streams))
            with torch.cuda.stream(streams[name]):
                held.append((torch.empty(size, dtype=torch.uint8, device="cuda"), simulated.allocate(size, name)))
        assert simulated.reserved == torch.cuda.memory_reserved() - before
    held.clear()
    torch.cuda.empty_cache()


def counted(bucket_bytes: int = 0, **config: Any) -> TensorMemory:
    """Count chained layers of 36 MiB each, whose activations are small."""
    given = {"precision": "fp32", **config}
    settings = Vgg19Settings(**checked(given, vgg19_cifar10.PARAMETERS or {}))
    with torch.device("meta"):
        layers = [nn.Linear(3072, 3072) for _ in range(3)]
        network = nn.Sequential(nn.Flatten(), *layers, nn.Linear(3072, 10))
    return tensor_memory(network, settings, VGG_SHAPE, 64, 64, torch.device("cuda", 0), bucket_bytes=bucket_bytes)


def test_a_captured_graph_has_gradients_and_activations_of_its_own() -> None:
    eager, captured = counted(cuda_graphs=False), counted(cuda_graphs=True)
    assert eager.graph == 0
    assert captured.gradients < captured.graph < captured.gradients + 64 * MIB


def test_gradients_in_buckets_are_beside_the_one_that_is_computed() -> None:
    each, together = (counted(size, cuda_graphs=False) for size in (0, 10**9))
    assert together.gradients == each.gradients
    assert 0 < together.training - each.training <= 40 * MIB


@pytest.mark.parametrize("config", [{}, {"cuda_graphs": True, "conv_kernel": "gemm"}])
def test_after_a_trial_no_memory_is_allocated_or_reserved(config: dict[str, Any], tmp_path: Path) -> None:
    data, gpu = Data("generated", train_images=192, val_images=32), Resources(cpus=1, gpus=1)
    torch._C._cuda_clearCublasWorkspaces()  # of the tests before
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    total = torch.cuda.get_device_properties(0).total_memory
    for trial in range(2):
        worker = LocalWorker(tmp_path / str(trial), epochs=1, data=data, resources=gpu)
        worker.folder.mkdir()
        vgg19_cifar10.train({"batch_size": 16, "width": 0.03125, "precision": "fp32", **config}, worker)
        found = worker.reported[-1].metrics
        assert found["peak_reserved_gib"] >= found["peak_memory_gib"] > 0
        assert found["peak_memory_fraction"] * total / GIB == pytest.approx(found["peak_reserved_gib"])
        assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before
