"""The instruments, by the trainable's own door: what a trial and a probe report, and that watching changes nothing."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.trainables.ranked import on_ranks
from trainables.contract import STAGES, Data, InfeasibleError, Measurement, Resources
from trainables.local_worker import LocalWorker
from trainables.machine.array_cache import default_folder
from trainables.measure import instruments, probe_end, telemetry, throughput
from trainables.measure.instruments import StepWork
from trainables.settings import Settings
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10

TINY = {"width": 0.01, "batch_size": 12, "learning_rate": 0.02, "conv_kernel": "library"}
STAGE_METRICS = {f"{stage}_seconds" for stage in STAGES}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_end, "PROBE_SECONDS", 0.5)
    monkeypatch.setattr(probe_end, "MAX_PROBE_SECONDS", 3.0)
    monkeypatch.setattr(instruments, "PROFILED_SECONDS", 0.1)


def probed(folder: Path, data: Data, **config: Any) -> Measurement:
    worker = LocalWorker(folder, data=data)
    vgg19_cifar10.probe({**TINY, **config}, worker)
    (measurement,) = worker.reported
    return measurement


def trained(folder: Path, data: Data, **config: Any) -> dict[str, float]:
    worker = LocalWorker(folder, epochs=2, data=data)
    vgg19_cifar10.train({**TINY, **config}, worker)
    return dict(worker.reported[-1].metrics)


@pytest.mark.slow
def test_a_probe_reports_what_a_probe_measures_and_leaves_nothing(folder: Path, few: Data) -> None:
    measurement = probed(folder, few)
    known = vgg19_cifar10.METRICS or {}
    assert measurement.epoch == 0
    assert all(known[name].probed for name in measurement.metrics)
    assert measurement.metrics["images_per_second"] > 0
    assert set(measurement.metrics) >= STAGE_METRICS
    assert all(math.isfinite(value) for value in measurement.metrics.values())
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_a_probe_of_a_batch_that_is_all_the_data_is_measured_too(folder: Path, few: Data) -> None:
    """A trial of one epoch of one step could not be."""
    assert probed(folder, few, batch_size=120).metrics["images_per_second"] > 0


def test_a_probe_of_a_batch_larger_than_the_data_is_infeasible(folder: Path, few: Data) -> None:
    with pytest.raises(InfeasibleError, match="batch_size 121: there are 120"):
        probed(folder, few, batch_size=121)


@pytest.mark.slow
def test_stages_add_up_to_the_step_and_none_is_of_another_device(folder: Path, few: Data) -> None:
    metrics = probed(folder, few, loader="workers", num_workers=1).metrics
    assert sum(metrics[name] for name in STAGE_METRICS) == pytest.approx(metrics["step_seconds"])
    assert metrics["transfer_seconds"] == metrics["communicate_seconds"] == 0
    assert min(metrics[f"{stage}_seconds"] for stage in ("load", "forward", "backward", "update")) > 0
    assert metrics["loader_processes"] == 1


def test_the_achieved_rate_is_counted_operations_and_a_part_of_the_ceiling(folder: Path, few: Data) -> None:
    metrics = probed(folder, few).metrics
    rate = metrics["teraflops_per_second"] * 1e12 / metrics["images_per_second"]
    assert rate == pytest.approx(round(rate))  # operations of one picture
    assert 0 < metrics["fraction_of_ceiling"] <= metrics["fraction_of_matrix_rate"] < 1
    assert metrics["memory_gib_per_second"] > metrics["fraction_of_bandwidth"] > 0  # memory copies more than 1 GiB/s


def test_a_trial_accounts_for_each_of_its_steps(folder: Path, few: Data) -> None:
    """Warm-up, profiled ones, measured ones; on a GPU one more, which fills the pipeline."""
    metrics = trained(folder, few)
    profiled = metrics["profiled_steps"]
    assert metrics["warmup_steps"] + profiled + metrics["throughput_images"] / int(str(TINY["batch_size"])) == 20
    assert metrics["warmup_steps"] <= 20 // 3
    assert 0 < profiled <= 20 // 5


def test_watching_does_not_change_what_is_learned(tmp_path: Path, few: Data) -> None:
    losses = []
    for name, trace_steps in (("plain", 0), ("traced", 2)):
        (tmp_path / name).mkdir()
        losses.append(trained(tmp_path / name, few, trace_steps=trace_steps)["val_loss"])
    assert losses[0] == losses[1]


def test_a_trace_is_written_where_it_is_asked_for(folder: Path, few: Data) -> None:
    trained(folder, few, trace_steps=2)
    events = json.loads((folder / instruments.TRACE_FILE).read_text())["traceEvents"]
    assert any("convolution" in event.get("name", "") for event in events)


def test_a_trace_that_an_epoch_ends_goes_on_in_a_second_file(folder: Path) -> None:
    trace, ended = instruments._Trace(folder, 3), list[bool]()
    for steps in (2, 0, 1):
        trace.resume()
        for _ in range(steps):
            torch.ones(1).erfinv()
            ended.append(trace.step())
        trace.pause()
    assert ended == [False, False, True]
    recorded = {file.name: file.read_text().count('"aten::erfinv"') for file in folder.iterdir()}
    assert recorded == {"trace.json": 2, "trace_2.json": 1}


@pytest.mark.slow
def test_each_probe_makes_the_machines_drift_better_known(
    folder: Path, few: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the reference step, and by its own rate, which another learning rate does not change, but other data do."""
    monkeypatch.setattr(throughput, "MAX_INTERFERENCE", math.inf)
    monkeypatch.setattr(throughput, "MAX_SLOWDOWN", math.inf)
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", str(folder))  # other tests measure with other numbers of threads
    others = replace(few, train_images=few.train_images - 1)
    for data, changes in ((few, {}), (few, {"learning_rate": 0.1}), (few, {"batch_size": 20}), (others, {})):
        probed(folder, data, **changes)
    (file,) = default_folder().glob("drift-*.json")
    names = [name for name, _, _ in json.loads(file.read_text())["figures"]["levels"]][-8:]
    assert names[1::2] == ["reference_step"] * 4
    assert names[0] == names[2]
    assert len({names[2], names[4], names[6]}) == 3


def test_a_captured_step_is_captured_during_warm_up() -> None:
    """DDP's first 11 steps are not captured."""
    on_gpu = [instruments.warmup_steps(Settings(strategy=name), "cuda")[0] for name in ("single", "ddp", "fsdp")]
    assert on_gpu == [throughput.MIN_WARMUP_STEPS, 12, throughput.MIN_WARMUP_STEPS]
    assert instruments.warmup_steps(Settings(strategy="ddp"), "cpu")[0] == throughput.MIN_WARMUP_STEPS


def test_without_sensors_the_columns_are_absent_and_the_rate_is_there(
    folder: Path, few: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container without rights, on a machine without a GPU."""
    from trainables.machine import peak_memory
    from trainables.measure import interference

    for module in (peak_memory, interference):
        monkeypatch.setattr(module, "PROC", folder / "nothing")
    metrics = trained(folder, few)
    assert metrics["images_per_second"] > 0
    assert metrics["peak_memory_gib"] > 0.1
    assert not {"machine_cpu_utilization", "gpu_utilization", "images_per_joule"} & set(metrics)


def samples_per_joule(rank: int, world_size: int, powercap: Path) -> float:
    """What two steps of ten samples measure while the package takes 40 J."""
    telemetry.POWERCAP = powercap
    worker, work = LocalWorker(powercap, rank=rank, world_size=world_size), StepWork("samples", 10, None, None, None)
    watch = instruments.Instruments(Settings(), worker, torch.device("cpu"), 2, work)
    watch.resume()
    watch.step()
    watch.step()
    dist.barrier()
    (powercap / "intel-rapl:0" / "energy_uj").write_text("40000000")
    dist.barrier()
    watch.pause()
    found = watch.metrics()["samples_per_joule"]
    watch.close()
    return found


def test_the_energy_of_the_processor_is_counted_once_for_all_ranks(tmp_path: Path) -> None:
    (package := tmp_path / "intel-rapl:0").mkdir()
    (package / "name").write_text("package-0\n")
    (package / "energy_uj").write_text("0")
    assert on_ranks(samples_per_joule, 2, tmp_path) == [0.5, 0.5]


def test_on_a_gpu_that_is_not_there_a_probe_is_infeasible(folder: Path, few: Data) -> None:
    worker = LocalWorker(folder, data=few, resources=Resources(cpus=1, gpus=1))
    with pytest.raises(InfeasibleError, match="no CUDA device"):
        vgg19_cifar10.probe(TINY, worker)
