"""Memory before a trial runs: the parts, what fits, and that a refusal says what would do."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.ranked import on_ranks
from tests.trainables.shapes import VGG_SHAPE
from trainables.contract import Data, InfeasibleError, Layout, MemoryNeed, Resources
from trainables.local_worker import LocalWorker
from trainables.machine.peak_memory import GIB
from trainables.prediction import memory_need
from trainables.prediction.memory_need import Calibration, Job, check, largest_batch
from trainables.prediction.memory_traffic import memory_traffic
from trainables.prediction.tensor_memory import TensorMemory
from trainables.setting_check import checked
from trainables.strategy_table import MemoryShare
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings

CPU = torch.device("cpu")
ALONE = Job(VGG_SHAPE, train_samples=1000, processes=1, device=CPU)
MANY = Job(VGG_SHAPE, train_samples=20_000, processes=1, device=CPU)  # more than fit into a batch
PROCESS = GIB // 2
TYPICAL = Calibration(process={"fp32": PROCESS, "bf16": PROCESS}, loader_process=10**8)


@pytest.fixture(autouse=True)
def _known_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_need, "machine_calibration", lambda device: TYPICAL)
    monkeypatch.setattr(memory_need, "available", lambda device: 2 * GIB)


def settings(**config: object) -> Vgg19Settings:
    plain = {"width": 0.1, "precision": "fp32", "conv_kernel": "library"}  # counted in a third of the time
    return Vgg19Settings(**checked({**plain, **config}, vgg19_cifar10.PARAMETERS or {}))


def of(processes: int = 1, **config: object) -> MemoryNeed:
    return memory_need.memory_need(settings(**config), Job(VGG_SHAPE, 1000, processes, CPU))


def test_the_parts_add_up_and_each_is_something() -> None:
    found = of(batch_size=256)
    assert all(size > 0 for size in found.parts.values())
    assert found.total == sum(found.parts.values()) > PROCESS
    assert found.fits


def test_no_part_is_negative_where_the_peak_comes_before_the_last_gradient() -> None:
    counted = TensorMemory(10, 10, 20, 50, training=75, training_and_evaluation=80, retained=0, graph=0, cached=0)
    parts = memory_need._of_process(counted, 0, MemoryShare())
    assert parts["activations"] == 35
    assert parts["workspace"] == 0
    assert sum(parts.values()) == 80


def test_a_larger_batch_takes_more_and_half_the_bits_take_less() -> None:
    assert of(batch_size=1024).total > of(batch_size=512).total
    assert of(batch_size=1024, precision="bf16").total < 0.8 * (of(batch_size=1024).total - PROCESS) + GIB // 2


def test_adamw_keeps_twice_the_state_of_sgd() -> None:
    assert of(optimizer="adamw").parts["optimizer"] == pytest.approx(2 * of().parts["optimizer"], rel=0.02)


def test_16_bits_of_a_kind_that_needs_a_gpu_take_what_the_others_take() -> None:
    assert of(precision="fp16").parts == of(precision="bf16").parts


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_on_a_cpu_auto_is_counted_as_what_it_mostly_takes(precision: str) -> None:
    """Few matrix products keep sums of pixels, which the library does not."""
    auto, gemm, library = (of(precision=precision, conv_kernel=kernel).total for kernel in ("auto", "gemm", "library"))
    assert auto == gemm > library


def test_pictures_count_where_they_are_read_from_an_array_and_processes_where_there_are_some() -> None:
    assert of(loader="memory").parts["samples"] == 1000 * 3072
    assert "samples" not in of(loader="workers").parts
    more = of(loader="workers", num_workers=2).total - of(loader="workers").total
    assert more == 2 * (TYPICAL.loader_process + 2 * 128 * (3072 * 4 + 8))


def test_a_gpu_holds_all_pictures_also_those_that_are_not_trained_on() -> None:
    data = Data("cifar10", train_images=2000)
    on_gpu, on_cpu = (memory_need.job_of(settings(), data, Layout(1, 1, gpus)) for gpus in (1, 0))
    assert (on_gpu.train_samples, on_gpu.kept_samples) == (2000, 50_000)
    assert on_cpu.kept_samples is None
    need = memory_need.memory_need(settings(loader="memory"), replace(ALONE, kept_samples=50_000))
    assert need.parts["samples"] == 50_000 * 3072


@pytest.mark.parametrize(("strategy", "processes", "readers"), [("parameter_server", 3, 2), ("pipeline", 2, 1)])
def test_loaders_count_where_samples_are_read(strategy: str, processes: int, readers: int) -> None:
    given: dict[str, Any] = {"strategy": strategy, "processes": processes, "batch_size": 128, "loader": "workers"}
    more = of(**given, num_workers=2).parts["loader"] - of(**given, num_workers=0).parts["loader"]
    assert more == readers * 2 * (TYPICAL.loader_process + 2 * (128 // readers) * (3072 * 4 + 8))


def test_on_a_cpu_each_process_of_a_trial_counts_with_its_share_of_the_batch() -> None:
    one, two = of(batch_size=128), of(processes=2, batch_size=256, strategy="ddp")
    assert two.parts["activations"] == 2 * one.parts["activations"]
    assert two.parts["process"] == 2 * one.parts["process"]
    assert two.parts["communication"] == 2 * 2 * one.parts["gradients"]
    assert "communication" not in one.parts


def test_what_a_strategy_shares_out_is_taken_once() -> None:
    """Pipeline and fsdp divide the optimizer and the gradients; a parameter server holds the only optimizer.

    With fsdp each process also holds all of it for a checkpoint.
    """
    one = of(batch_size=128)
    for strategy, times in {"pipeline": 1, "fsdp": 3, "parameter_server": 1}.items():
        two = of(processes=2, batch_size=128, strategy=strategy)
        assert two.parts["optimizer"] == pytest.approx(times * one.parts["optimizer"], rel=1e-3)
    assert of(processes=2, batch_size=128, strategy="parameter_server").parts["activations"] == pytest.approx(
        one.parts["activations"], rel=1e-3
    )
    copies = of(processes=2, batch_size=128, strategy="ring_allreduce")
    assert copies.parts["optimizer"] == 2 * one.parts["optimizer"]


def test_evaluation_has_the_place_of_gradients_that_travel() -> None:
    one, two = of(batch_size=32), of(processes=2, batch_size=64, strategy="ddp")
    assert two.parts["communication"] + two.parts["evaluation"] == 2 * one.parts["evaluation"]


def test_with_1f1b_fewer_micro_batches_wait_for_their_way_back() -> None:
    gpipe, one_each = (
        of(processes=2, batch_size=512, strategy="pipeline", num_microbatches=8, schedule=schedule).parts["activations"]
        for schedule in ("gpipe", "1f1b")
    )
    assert one_each == pytest.approx(gpipe / 4, rel=1e-3)


def test_parts_of_a_batch_take_the_activations_of_one_part() -> None:
    whole, parts = of(batch_size=256), of(batch_size=256, accumulation_steps=4)
    assert parts.parts["activations"] == pytest.approx(whole.parts["activations"] / 4, rel=0.05)
    assert parts.parts["gradients"] == whole.parts["gradients"]


def predicted_in_parts(rank: int, world_size: int) -> list[int]:
    """Bytes in all, and of the traffic of a step, as a rank of a trial predicts them, of one and of two parts."""
    found = []
    for parts in (1, 2):
        chosen = settings(batch_size=64, strategy="ddp", world_size=2, accumulation_steps=parts)
        need = memory_need.memory_need(chosen, Job(VGG_SHAPE, 1000, world_size, CPU), memory_need.TYPICAL["cpu"])
        traffic = memory_traffic(chosen, VGG_SHAPE, CPU)
        assert need is not None
        assert traffic is not None
        found += [need.total, traffic.of_step(64)]
    return found


def test_the_ranks_of_a_trial_predict_parts_too() -> None:
    found = on_ranks(predicted_in_parts, 2)
    assert found[0] == found[1]
    whole, whole_traffic, parts, parts_traffic = found[0]
    assert parts < whole
    assert parts_traffic > whole_traffic


@pytest.mark.slow
def test_the_largest_batch_in_parts_is_much_larger() -> None:
    whole, parts = (largest_batch(settings(accumulation_steps=count), MANY) for count in (1, 4))
    assert 2 * whole < parts < 4 * whole
    assert parts % 4 == 0


@pytest.mark.slow
def test_the_largest_batch_of_a_pipeline_has_equal_micro_batches() -> None:
    pipeline = settings(strategy="pipeline", num_microbatches=7)
    assert largest_batch(pipeline, Job(VGG_SHAPE, 1000, 2, CPU)) % 7 == 0


@pytest.mark.slow
def test_the_largest_batch_fits_and_one_a_little_larger_does_not() -> None:
    most = largest_batch(settings(), MANY)
    fits, fails = (memory_need.memory_need(settings(batch_size=n), MANY) for n in (most, most + most // 8))
    assert fits.total <= 2 * GIB < fails.total
    assert largest_batch(settings(), MANY, available_bytes=GIB) < most
    assert largest_batch(settings(), Job(VGG_SHAPE, 1000, 2, CPU)) % 2 == 0


@pytest.mark.slow
def test_the_largest_batch_has_at_most_the_training_samples() -> None:
    few = Job(VGG_SHAPE, 21, 1, CPU)
    assert largest_batch(settings(), few) == 21
    assert largest_batch(settings(accumulation_steps=4), few) == 20
    assert largest_batch(settings(accumulation_steps=32), few) == 0


@pytest.mark.slow
def test_what_surely_does_not_fit_is_refused_with_what_would() -> None:
    check(settings(batch_size=256), ALONE)
    with pytest.raises(InfeasibleError, match=r"needs about .* GiB are there: batch_size at most \d+$"):
        check(settings(batch_size=100_000), ALONE)  # the batch alone takes 1.1 GiB
    with pytest.raises(
        InfeasibleError, match=r"2\.0 GiB are there: batch_size at most \d+, or accumulation_steps \d+$"
    ):
        check(settings(batch_size=10_000), ALONE)


def test_what_may_fit_within_the_error_of_predictions_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    total = of(batch_size=256).total
    monkeypatch.setattr(memory_need, "available", lambda device: int(total / 1.1))
    check(settings(batch_size=256), ALONE)
    monkeypatch.setattr(memory_need, "available", lambda device: int(total / 1.2))
    with pytest.raises(InfeasibleError):
        check(settings(batch_size=256), ALONE)


def test_where_nothing_fits_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_need, "available", lambda device: GIB // 4)
    with pytest.raises(InfeasibleError, match="no batch_size fits"):
        check(settings(), ALONE)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_a_fresh_process_takes_what_was_predicted() -> None:
    """Within 15%, as `benchmarks/memory.py` shows for many configurations."""
    code = (
        "import sys; from trainables.prediction import memory_need; "
        "counted, measured, _ = memory_need._probed(0.25, 512, 'bf16', memory_need.CPU); "
        "typical = memory_need.machine_calibration(memory_need.CPU); "
        "error = (typical.process['bf16'] + counted) / measured - 1; "
        "sys.exit(abs(error) > 0.15)"
    )
    assert os.spawnl(os.P_WAIT, sys.executable, sys.executable, "-c", code) == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.skipif(
    not torch.backends.cudnn.enabled, reason="the workspaces of cuDNN are predicted, too; see test_reserved_memory.py"
)
@pytest.mark.parametrize("width", [0.25, 1.0])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("batch_size", [128, 1024])
def test_a_gpu_has_at_its_peak_what_was_predicted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, batch_size: int, precision: str, width: float
) -> None:
    """Within 15%, of what its allocator reserved."""
    monkeypatch.undo()
    config = {"batch_size": batch_size, "precision": precision, "width": width, "memory_format": "channels_last"}
    data = Data("generated", train_images=4 * batch_size, val_images=500)
    gpu = Resources(cpus=2, gpus=1)
    predicted = vgg19_cifar10.memory(config, data, gpu)
    worker = LocalWorker(tmp_path, epochs=1, data=data, resources=gpu)
    vgg19_cifar10.train(config, worker)
    assert predicted is not None
    assert predicted.total / GIB == pytest.approx(worker.reported[-1].metrics["peak_reserved_gib"], rel=0.15)
