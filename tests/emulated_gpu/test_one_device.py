"""One emulated GPU, in a process of its own: the most telling tests marked `gpu`, and errors of the device."""

from __future__ import annotations

import sys

import pytest

from tests.emulated_gpu.processes import assert_gpu_tests_pass, environment, needs_emulation, run

pytestmark = needs_emulation

LOST = """
import ctypes
import tempfile
from pathlib import Path

import torch

from trainables.contract import Data, DeviceLostError, Resources
from trainables.local_worker import LocalWorker
from trainables.vgg19_cifar10 import trainable

ILLEGAL_ACCESS = 700


def break_device(measurement):
    ctypes.CDLL(None).nullcuda_break(ILLEGAL_ACCESS)
    return True


data = Data("generated", train_images=64, val_images=16)
worker = LocalWorker(Path(tempfile.mkdtemp()), 2, data, Resources(1, 1), listener=break_device)
try:
    trainable.train({"batch_size": 16, "width": 0.03125, "precision": "fp32", "conv_kernel": "library"}, worker)
except DeviceLostError as error:
    print("lost:", error)
"""


def test_a_gpu_trains_captures_and_frees_as_it_should() -> None:
    """A captured step, its memory, and what must not make the host wait."""
    chosen = (
        "tests/trainables/test_gpu.py::test_a_configuration_trains_and_leaves_the_gpu_free[settings8]",
        "tests/trainables/test_gpu.py::test_a_step_does_not_wait_for_the_device",
        "tests/trainables/test_gpu_measuring.py::test_copied_batches_are_those_of_the_cpu",
        "tests/trainables/test_gpu_measuring.py::test_a_loader_does_not_wait_for_the_device",
    )
    assert_gpu_tests_pass(*chosen)


def test_after_an_illegal_access_the_device_is_lost_to_the_process() -> None:
    done = run([sys.executable, "-c", LOST], environment())
    assert "lost: CUDA error: an illegal memory access was encountered" in done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "file", ["test_gpu.py", "test_gpu_strategies.py", "test_gpu_measuring.py", "test_gpu_memory.py"]
)
def test_the_tests_of_a_gpu_pass_on_an_emulated_one(name: str) -> None:
    assert_gpu_tests_pass(f"tests/trainables/test_{name}.py", timeout_seconds=1100)
