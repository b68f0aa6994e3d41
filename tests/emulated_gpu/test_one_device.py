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


OUT_OF_MEMORY = """
import tempfile
from pathlib import Path

import torch

from tests.emulated_gpu.emulation import emulated
from tests.emulated_gpu.setting import prepare
from trainables.contract import Data, InfeasibleError, Resources
from trainables.local_worker import LocalWorker
from trainables.prediction import memory_need
from trainables.vgg19_cifar10 import trainable

prepare()
data = Data("generated", train_images=8192, val_images=16)
for predicted in (True, False):
    if not predicted:
        memory_need.check = lambda settings, job: None
    worker = LocalWorker(Path(tempfile.mkdtemp()), 1, data, Resources(1, 1))
    try:
        with emulated(largest=4096):  # the sizes are real, the values of large tensors are not computed
            trainable.probe({"batch_size": 4096, "loader": "device"}, worker)
    except InfeasibleError as error:
        print("infeasible:", error, error.metrics["peak_memory_fraction"] > 1)
    assert torch.cuda.memory_allocated() == torch.cuda.memory_reserved() == 0
"""


@pytest.mark.slow
def test_a_batch_too_large_for_the_gpu_is_infeasible_predicted_or_not_and_leaves_nothing() -> None:
    """VGG19 at full width, batch 4096, on 2 GiB."""
    done = run([sys.executable, "-c", OUT_OF_MEMORY], environment(memory_gib=2))
    found = [line for line in done.stdout.splitlines() if line.startswith("infeasible: ")]
    assert len(found) == 2, done.stderr
    predicted, real = found
    assert "needs about" in predicted
    assert "batch_size at most" in predicted
    assert "out of memory" in real
    assert predicted.endswith("True")
    assert real.endswith("True")


@pytest.mark.slow
def test_a_gpu_trains_captures_and_frees_as_it_should() -> None:
    """Losses, captured steps, memory, sensors, and what must not make the host wait."""
    chosen = (
        "tests/emulated_gpu/test_trials.py",
        "tests/trainables/test_gpu.py::test_a_step_does_not_wait_for_the_device",
        "tests/trainables/test_gpu.py::test_synchronised_batch_normalisation_does_not_wait_for_the_device",
        "tests/trainables/test_gpu_memory.py::test_after_a_trial_no_memory_is_allocated_or_reserved[config0]",
        "tests/trainables/test_gpu_measuring.py::test_copied_batches_are_those_of_the_cpu",
        "tests/trainables/test_gpu_measuring.py::test_a_loader_does_not_wait_for_the_device",
    )
    assert_gpu_tests_pass(*chosen, "-m", "gpu and not slow")


@pytest.mark.slow
def test_after_an_illegal_access_the_device_is_lost_to_the_process() -> None:
    done = run([sys.executable, "-c", LOST], environment())
    assert "lost: CUDA error: an illegal memory access was encountered" in done.stdout, done.stderr


@pytest.mark.slow
def test_ceilings_are_measured_once_and_a_capture_leaves_no_memory() -> None:
    assert_gpu_tests_pass(
        "tests/trainables/test_gpu.py::test_the_ceilings_of_a_gpu_are_measured_once_for_all_numbers_of_threads",
        "tests/trainables/test_gpu_memory.py::test_after_a_trial_no_memory_is_allocated_or_reserved[config1]",
    )


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["gpu", "gpu_graphs", "gpu_strategies", "gpu_measuring", "gpu_memory"])
def test_the_tests_of_a_gpu_pass_on_an_emulated_one(name: str) -> None:
    assert_gpu_tests_pass(f"tests/trainables/test_{name}.py", timeout_seconds=1100)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_trials_of_every_kind_pass_on_an_emulated_gpu() -> None:
    assert_gpu_tests_pass("tests/emulated_gpu/test_trials.py", "-m", "gpu and slow", timeout_seconds=500)
