"""The loop, by the trainable's own door: it learns, goes on where it stopped, and says what went wrong."""

import gc
import math
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainables.ranked import on_ranks
from trainables import checkpoint, loop
from trainables.contract import Data, InfeasibleError, Measurement, Resources
from trainables.local_worker import LocalWorker
from trainables.machine.steps_in_flight import MAX_STEPS, StepsInFlight
from trainables.samples import loaders, picture_source
from trainables.settings import Settings
from trainables.step import learning_rate
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings
from trainables.workloads import vgg19

# Small enough for a step in milliseconds; dropout in the head, so that the random stream matters.
TINY = {"width": 0.01, "head": "fully_connected", "batch_size": 24, "learning_rate": 0.02, "conv_kernel": "library"}


def trained(folder: Path, data: Data, config: dict[str, Any] | None = None, **worker: Any) -> list[Measurement]:
    local = LocalWorker(folder, **{"epochs": 3, "data": data, **worker})
    vgg19_cifar10.train({**TINY, **(config or {})}, local)
    return local.reported


def losses(measurements: list[Measurement]) -> list[tuple[float, float]]:
    return [(m.metrics["train_loss"], m.metrics["val_loss"]) for m in measurements]


def test_every_epoch_reports_the_metrics_that_the_trainable_names(folder: Path, few: Data) -> None:
    measurements = trained(folder, few)
    assert [m.epoch for m in measurements] == [1, 2, 3]
    assert vgg19_cifar10.METRICS is not None
    for m in measurements:
        assert set(m.metrics) <= set(vgg19_cifar10.METRICS)
        assert all(math.isfinite(value) for value in m.metrics.values())
    last = measurements[-1].metrics
    assert last["images_per_second"] == pytest.approx(last["throughput_images"] / last["throughput_seconds"])
    assert last["throughput_images"] % 24 == 0
    assert 0 < last["peak_memory_fraction"] < 1


@pytest.mark.slow
def test_a_strategy_of_several_processes_also_runs_in_one(folder: Path, few: Data) -> None:
    """The same loss as `single`, to compare rates with; no process group is left behind."""
    for name in ("single", "ddp"):
        (folder / name).mkdir()
    alone = trained(folder / "single", few)
    one = trained(folder / "ddp", few, {"strategy": "ddp", "world_size": 1})
    assert losses(one) == [pytest.approx(pair, rel=1e-3) for pair in losses(alone)]
    assert not torch.distributed.is_initialized()


TIMEOUT_SECONDS = 3.0


def with_a_late_rank(rank: int, world_size: int, folder: Path, data: Data) -> dict[str, float]:
    """Rank 1 reads pictures and times kernels, as on a node of its own, for longer than messages are waited for."""
    for module, name in (
        (picture_source, "training_pictures"),
        (vgg19, "choose_kernels"),
        (picture_source, "test_pictures"),
    ):
        setattr(module, name, partial(late, getattr(module, name), 1.5 * TIMEOUT_SECONDS if rank == 1 else 0.0))
    config = {**TINY, "strategy": "ddp"}
    worker = LocalWorker(folder, 1, data, Resources(1), rank, world_size)
    vgg19_cifar10.train(config, worker)
    return dict(vgg19_cifar10.test(config, worker))


def late(function: Callable[..., Any], seconds: float, *arguments: Any, **named: Any) -> Any:
    time.sleep(seconds)
    return function(*arguments, **named)


@pytest.mark.slow
def test_ranks_wait_longer_for_one_that_is_not_ready_than_for_messages(folder: Path, few: Data) -> None:
    first, second = on_ranks(with_a_late_rank, 2, folder, few, timeout_seconds=TIMEOUT_SECONDS)
    assert first == second


def with_a_slow_disk(rank: int, world_size: int, folder: Path, data: Data) -> dict[str, float]:
    """Rank 0 writes its checkpoint when rank 1 has long begun to test."""
    checkpoint.save = partial(late, checkpoint.save, 1.0)
    config = {**TINY, "strategy": "ddp"}
    worker = LocalWorker(folder, 1, data, Resources(1), rank, world_size)
    vgg19_cifar10.train(config, worker)
    return dict(vgg19_cifar10.test(config, worker))


@pytest.mark.slow
def test_ranks_test_the_checkpoint_that_rank_0_is_still_writing(folder: Path, few: Data) -> None:
    first, second = on_ranks(with_a_slow_disk, 2, folder, few)
    assert first == second


def test_it_learns(folder: Path) -> None:
    """Pictures of one class are bright above, those of the other below: nothing is easier."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    for part, count in (("train", 60), ("test", 10)):
        for name, brighter in (("above", 60), ("below", -60)):
            (folder / part / name).mkdir(parents=True)
            for i in range(count):
                halves = brighter * np.where(np.arange(32) < 16, 1, -1)[:, None, None]
                pixels = (rng.normal(130, 20, (32, 32, 3)) + halves).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{i}.png")
    data = Data(name="folder", root=str(folder), val_images=20)
    worker = LocalWorker(folder, epochs=4, data=data)
    config = {"width": 0.125, "batch_size": 10, "learning_rate": 0.02}
    vgg19_cifar10.train(config, worker)
    assert worker.reported[-1].metrics["val_accuracy"] > 0.8
    assert vgg19_cifar10.test(config, worker)["test_accuracy"] > 0.8


@pytest.mark.slow
def test_a_class_without_test_pictures_is_a_class_all_the_same(folder: Path) -> None:
    from PIL import Image

    for place in ("train/a", "train/b", "test/a"):
        (folder / place).mkdir(parents=True)
        for i in range(20):
            Image.new("RGB", (32, 32), (i, i, i)).save(folder / place / f"{i}.png")
    worker = LocalWorker(folder, data=Data(name="folder", root=str(folder), val_images=4))
    vgg19_cifar10.train({**TINY, "batch_size": 8}, worker)
    assert "test_accuracy" in vgg19_cifar10.test({**TINY, "batch_size": 8}, worker)


@pytest.mark.parametrize("optimizer", ["sgd", pytest.param("adamw", marks=pytest.mark.slow)])
def test_a_trial_that_goes_on_gives_the_losses_of_one_that_was_not_interrupted(
    tmp_path: Path, few: Data, optimizer: str
) -> None:
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    config = {"optimizer": optimizer}
    whole = trained(tmp_path / "whole", few, config)
    first = trained(tmp_path / "parts", few, config, listener=lambda m: False)
    rest = trained(tmp_path / "parts", few, config)
    assert [m.epoch for m in first] == [1]
    assert [m.epoch for m in rest] == [1, 2, 3]
    assert losses(rest) == losses(whole)
    assert rest[-1].metrics["training_seconds"] == pytest.approx(sum(m.metrics["epoch_seconds"] for m in rest))
    assert first[0].metrics["training_seconds"] == pytest.approx(3 * first[0].metrics["epoch_seconds"])


def test_epochs_after_the_checkpoint_are_trained_again_with_the_same_losses(
    folder: Path, few: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that ends after epoch 3, with a checkpoint of epoch 1 alone."""
    monkeypatch.setattr(checkpoint, "WRITING_SHARE", 1e-6)
    first = trained(folder, few, epochs=5, listener=lambda m: m.epoch < 3)
    rest = trained(folder, few, epochs=5)
    assert [m.epoch for m in rest] == [1, 2, 3, 4, 5]
    assert losses(rest)[:3] == losses(first)


def test_a_finished_trial_reports_its_last_epoch_again_and_builds_nothing(
    folder: Path, few: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = trained(folder, few)
    monkeypatch.setattr(loop, "build", lambda *arguments: pytest.fail("built"))
    again = trained(folder, few)
    assert [m.epoch for m in again] == [3]
    assert losses(again) == losses(before[-1:])


def test_a_trial_stopped_at_the_epoch_that_is_reported_again_stays_stopped(folder: Path, few: Data) -> None:
    trained(folder, few, listener=lambda m: False)
    assert [m.epoch for m in trained(folder, few, listener=lambda m: False)] == [1]


def test_a_damaged_checkpoint_is_named_and_the_trial_begins_anew(
    folder: Path, few: Data, caplog: pytest.LogCaptureFixture
) -> None:
    whole = trained(folder, few)
    path = folder / checkpoint.FILE_NAME
    path.write_bytes(path.read_bytes()[:5000])
    assert losses(trained(folder, few)) == losses(whole)
    assert "checkpoint.pt cannot be read" in caplog.text


def test_a_checkpoint_of_another_network_is_named_and_the_trial_begins_anew(
    folder: Path, few: Data, caplog: pytest.LogCaptureFixture
) -> None:
    trained(folder, few, {"head": "average_pooling"})
    assert [m.epoch for m in trained(folder, few)] == [1, 2, 3]
    assert "of another network" in caplog.text


def test_the_first_and_the_last_epoch_are_on_the_disk_before_they_are_reported(
    folder: Path, few: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "WRITING_SHARE", 1e-6)
    on_disk: list[int] = []

    def look(measurement: Measurement) -> bool:
        on_disk.append(torch.load(folder / checkpoint.FILE_NAME)["epoch"])
        return True

    trained(folder, few, listener=look)
    assert on_disk == [1, 1, 3]


def with_clocks_that_differ(rank: int, world_size: int, folder: Path, data: Data) -> int:
    """Rank 1 alone takes a checkpoint to be due."""
    checkpoint.Schedule.is_due = lambda self: rank == 1  # type: ignore[method-assign]
    vgg19_cifar10.train(
        {**TINY, "strategy": "fsdp"},
        LocalWorker(folder, 2, data, Resources(1), rank, world_size, listener=lambda measurement: False),
    )
    return int(torch.load(folder / checkpoint.FILE_NAME)["epoch"]) if rank == 0 else 1


@pytest.mark.slow
def test_all_ranks_put_a_state_together_where_one_takes_it_to_be_due(folder: Path, few: Data) -> None:
    assert on_ranks(with_clocks_that_differ, 2, folder, few, timeout_seconds=20.0) == [1, 1]


def test_writing_takes_a_fiftieth_of_the_time_after_the_first_checkpoint() -> None:
    now = 100.0
    schedule = checkpoint.Schedule(lambda: now)
    written: list[float] = []
    for _ in range(1000):
        now += 0.5
        if schedule.is_due():
            written.append(now)
            with schedule.writing():
                now += 0.3
    assert written[0] == 100.5
    assert 0.3 * len(written) / (now - 100.0) == pytest.approx(0.02, abs=0.001)


def test_only_rank_0_writes_checkpoints(folder: Path, few: Data) -> None:
    trained(folder, few, rank=1)
    assert not list(folder.iterdir())


def test_a_loss_that_is_no_number_is_an_error_with_epoch_and_step(folder: Path, few: Data) -> None:
    with pytest.raises(FloatingPointError, match=r"training loss is (nan|inf) in epoch 1 from step \d of 5 on"):
        trained(folder, few, {"learning_rate": 1e20})


def test_a_validation_loss_that_is_no_number_is_an_error_with_epoch(
    folder: Path, few: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "evaluate", lambda *arguments: {"val_loss": np.full((4, 2), math.nan)})
    with pytest.raises(FloatingPointError, match="val_loss is nan after epoch 1"):
        trained(folder, few)


def test_a_batch_larger_than_the_data_and_a_single_step_are_infeasible(folder: Path, few: Data) -> None:
    with pytest.raises(InfeasibleError, match="batch_size 121: there are 120 training samples"):
        trained(folder, few, {"batch_size": 121})
    with pytest.raises(InfeasibleError, match="one step"):
        trained(folder, few, {"batch_size": 120}, epochs=1)
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ..."),
        RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8589934592 bytes."
        ),
        MemoryError("Unable to allocate 2.00 GiB for an array"),
    ],
)
def test_running_out_of_memory_is_infeasible_and_the_figure_is_kept(
    folder: Path, few: Data, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise error

    monkeypatch.setattr(loop, "_train_epoch", fail)
    figures = r"out of memory: .*(2\.00 GiB|8589934592 bytes).*; predicted were \d\.\d of \d+\.\d GiB"
    with pytest.raises(InfeasibleError, match=figures) as raised:
        trained(folder, few)
    assert raised.value.__context__ is None  # it would keep the memory alive


def test_what_is_raised_while_a_shortage_is_dealt_with_is_the_shortage(
    folder: Path, few: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")
        finally:  # as at the end of a graph's capture
            raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(loop, "_train_epoch", fail)
    with pytest.raises(InfeasibleError, match=r"out of memory: .*2\.00 GiB"):
        trained(folder, few)


def test_other_errors_stay_what_they_are(folder: Path, few: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(loop, "_train_epoch", fail)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        trained(folder, few)


def test_a_gpu_that_was_promised_and_is_not_there_is_infeasible(folder: Path, few: Data) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(InfeasibleError, match="finds no CUDA device"):
        trained(folder, few, resources=Resources(cpus=1, gpus=1))


def state() -> tuple[Any, ...]:
    frozen = gc.get_freeze_count()
    return torch.get_num_threads(), torch.is_grad_enabled(), multiprocessing.active_children(), frozen


@pytest.fixture
def traces() -> Iterator[None]:
    """The process is after the test as it was before it: two threads, while the trial has one."""
    torch.set_num_threads(2)
    before, random = state(), torch.get_rng_state()
    yield
    assert state() == before
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize("learning_rate", [0.02, 1e20])
def test_a_trial_leaves_its_process_as_it_was_also_when_it_fails(folder: Path, few: Data, learning_rate: float) -> None:
    config = {"loader": "workers", "num_workers": 1, "learning_rate": learning_rate, "threads": 1}
    try:
        trained(folder, few, config, epochs=1, resources=Resources(cpus=2))
    except FloatingPointError:
        assert learning_rate == 1e20


def test_the_seed_decides_what_is_learned_and_the_loader_does_not(tmp_path: Path, few: Data) -> None:
    def result(**config: Any) -> Any:
        (tmp_path / str(config)).mkdir()
        return losses(trained(tmp_path / str(config), few, config, epochs=1))[0]

    assert result(seed=1) != result(seed=2)
    assert result(seed=3, loader="workers") == result(seed=3, loader="memory")


def test_the_test_pictures_are_read_by_test_alone(folder: Path, few: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Data] = []
    read = picture_source.test_pictures
    monkeypatch.setattr(picture_source, "test_pictures", lambda data: asked.append(data) or read(data))
    worker = LocalWorker(folder, epochs=1, data=few)
    vgg19_cifar10.train(TINY, worker)
    assert asked == []
    assert 0 <= vgg19_cifar10.test(TINY, worker)["test_accuracy"] <= 1
    assert asked == [few]


def test_a_full_training_is_also_tested_with_averages_over_views(folder: Path, few: Data) -> None:
    worker = LocalWorker(folder, epochs=1, data=few)
    vgg19_cifar10.train(TINY, worker)
    plain = vgg19_cifar10.test(TINY, worker)
    worker.all_views = True
    found = vgg19_cifar10.test(TINY, worker)
    names = ["test_accuracy", "test_accuracy_flip", "test_accuracy_six_views"]
    assert set(found) == {f"{name}{end}" for name in names for end in ("", "_low", "_high")}
    assert {name: found[name] for name in plain} == plain
    assert all(0 <= found[name] <= 1 for name in names)


def test_outputs_of_views_are_averaged_with_their_weights(few: Data) -> None:
    class Column(torch.nn.Module):
        """Logits of two classes: the brightness of the left columns, and twice that of the right ones."""

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            left, right = images[..., :16].mean((1, 2, 3)), images[..., 16:].mean((1, 2, 3))
            return torch.stack([left, 2 * right], dim=1)

    images, model = torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0)), Column()
    batches = [(images, torch.zeros(6, dtype=torch.int64))]
    settings = Vgg19Settings(precision="fp32")
    found = loop.evaluate(model, batches, settings, torch.device("cpu"), rank=0, world_size=1, views=vgg19.VIEWS)
    mean = (model(images) + model(images.flip(3))) / 2
    expected = torch.nn.functional.cross_entropy(mean, batches[0][1], reduction="none")
    assert np.allclose(found["val_loss_flip"][:, 0], expected.numpy())
    assert not np.allclose(found["val_loss"][:, 0], expected.numpy())


def test_evaluation_leaves_each_module_in_its_mode() -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(3072).eval(), torch.nn.Dropout())
    batches = [(torch.rand(2, 3, 32, 32), torch.zeros(2, dtype=torch.int64))]
    loop.evaluate(model, batches, Vgg19Settings(precision="fp32"), torch.device("cpu"), rank=0, world_size=1)
    assert [module.training for module in model.modules()] == [True, True, False, True]


def test_a_gpu_has_no_more_batches_of_an_evaluation_queued_than_of_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    class Waiting:
        def synchronize(self) -> None:
            waits.append(len(waits))

    waits = list[int]()
    monkeypatch.setattr(loop, "StepsInFlight", partial(StepsInFlight, edge=Waiting))
    batches = [(torch.rand(1, 3, 32, 32), torch.zeros(1, dtype=torch.int64))] * (MAX_STEPS + 2)
    model = torch.nn.Flatten()
    loop.evaluate(model, batches, Vgg19Settings(precision="fp32"), torch.device("cpu"), rank=0, world_size=1)
    assert len(waits) == 2


def test_views_are_moved_by_a_pixel_and_mirrored() -> None:
    images = torch.arange(2 * 3 * 32 * 32, dtype=torch.float32).reshape(2, 3, 32, 32)
    versions = vgg19.VIEWS.of(images)
    assert torch.equal(versions[0], images)
    assert torch.equal(versions[1][..., 1:, 1:], images[..., :-1, :-1])
    assert torch.equal(versions[2][..., :-1, :-1], images[..., 1:, 1:])
    assert all(torch.equal(a.flip(3), b) for a, b in zip(versions[:3], versions[3:], strict=True))
    assert all(sum(weights) == 1 and len(weights) == 6 for weights in vgg19.VIEWS.weights.values())


def test_without_validation_pictures_all_are_trained_on_and_tested_as_ever(folder: Path, few: Data) -> None:
    worker = LocalWorker(folder, epochs=2, data=replace(few, val_images=0))
    vgg19_cifar10.train(TINY, worker)
    assert [m.epoch for m in worker.reported] == [1, 2]
    for measurement in worker.reported:
        assert not [name for name in measurement.metrics if name.startswith("val_")]
        assert measurement.samples == {}
    assert 0 <= vgg19_cifar10.test(TINY, worker)["test_accuracy"] <= 1


def test_validation_samples_are_measured_after_every_nth_epoch_and_the_last(folder: Path, few: Data) -> None:
    every_epoch = trained(folder, few)
    (folder / "seldom").mkdir()
    seldom = trained(folder / "seldom", few, evaluate_every=2)
    assert ["val_accuracy" in m.metrics for m in seldom] == [False, True, True]
    assert seldom[0].metrics["evaluation_seconds"] < every_epoch[0].metrics["evaluation_seconds"]
    assert losses(seldom[1:]) == losses(every_epoch[1:])
    assert seldom[2].samples == every_epoch[2].samples


def test_without_a_checkpoint_there_is_nothing_to_test(folder: Path, few: Data) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        vgg19_cifar10.test(TINY, LocalWorker(folder, data=few))


def learning_rates(total_steps: int = 100, **config: Any) -> list[float]:
    settings = Settings(**{"learning_rate": 0.5, **config})
    return [learning_rate(step, total_steps, settings) for step in range(total_steps)]


def test_the_learning_rate_rises_for_a_fifth_of_the_steps_and_falls_to_nothing() -> None:
    rates = learning_rates()
    assert max(rates) == rates[19] == rates[20] == 0.5
    assert rates[:20] == sorted(rates[:20])
    assert rates[20:] == sorted(rates[20:], reverse=True)
    assert rates[0] == pytest.approx(0.5 / 20)
    assert rates[-1] == pytest.approx(0.5 / 80)


def test_the_shortest_trial_has_a_learning_rate_in_each_step() -> None:
    assert all(learning_rates(total_steps=2))


@pytest.mark.parametrize("warmup_fraction", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
def test_the_highest_learning_rate_ends_the_warm_up(schedule: str, warmup_fraction: float) -> None:
    rates = learning_rates(learning_rate_schedule=schedule, warmup_fraction=warmup_fraction)
    assert max(rates) == rates[max(0, round(100 * warmup_fraction) - 1)] == 0.5
    assert all(rates)


def test_after_the_warm_up_the_learning_rate_follows_its_schedule() -> None:
    """Half-way of what is left, a line and a cosine are at a half; three quarters on, the cosine is lower."""
    of_schedule = {name: learning_rates(learning_rate_schedule=name) for name in ("linear", "cosine", "constant")}
    assert [rates[60] for rates in of_schedule.values()] == pytest.approx([0.25, 0.25, 0.5])
    assert [rates[80] for rates in of_schedule.values()] == pytest.approx([0.125, 0.25 * (1 - 2**-0.5), 0.5])


def test_validation_does_not_depend_on_the_seed(folder: Path, few: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    read = loaders.evaluation_batches
    monkeypatch.setattr(
        loaders,
        "evaluation_batches",
        lambda p, indices, *a: seen.append(indices.tolist()) or read(p, indices, *a),
    )
    for seed in (0, 1):
        (folder / str(seed)).mkdir()
        trained(folder / str(seed), replace(few), {"seed": seed}, epochs=1)
    assert seen[0] == seen[1]
    assert len(seen[0]) == 40


def test_steps_are_told_by_their_epoch(folder: Path, few: Data) -> None:
    heard = list[tuple[int, int, int]]()
    trained(folder, few, epochs=2, on_step=lambda *step: heard.append(step))
    steps = heard[-1][2]
    assert heard == [(epoch, step, steps) for epoch in (1, 2) for step in range(1, steps + 1)]


def test_a_trial_whose_loader_cannot_start_leaves_no_thread(
    folder: Path, few: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **more: Any) -> None:
        raise InfeasibleError("no room for its processes")

    monkeypatch.setattr(vgg19, "training_batches", refuse)
    before = threading.active_count()
    with pytest.raises(InfeasibleError, match="no room for its processes"):
        trained(folder, few)
    assert threading.active_count() == before
