"""Telemetry of this process; sensors that are not there; a GPU of our own making."""

import math
import mmap
import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import pytest
import torch

from trainables.machine import nvml
from trainables.machine.nvml import Gpu
from trainables.measure import interference, telemetry
from trainables.measure.telemetry import Telemetry

CPU = torch.device("cpu")
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "SAMPLE_SECONDS", 0.02)


def burn(seconds: float) -> None:
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass


@linux
@pytest.mark.parametrize("work", [burn, time.sleep])
def test_utilisation_is_cpu_time_by_time_and_cores(work: Callable[[float], None]) -> None:
    watch = Telemetry([CPU], [0, 1])
    clocks = time.process_time(), time.perf_counter()
    watch.start()
    work(0.3)
    watch.stop()
    cpu_seconds, seconds = time.process_time() - clocks[0], time.perf_counter() - clocks[1]
    means = watch.means(0)
    assert means["cpu_utilization"] == pytest.approx(cpu_seconds / seconds / 2, rel=0.1, abs=0.05)
    assert (0 if work is time.sleep else 0.001) <= means["machine_cpu_utilization"] <= 1
    assert means["resident_gib"] > 0.01


@linux
def test_what_happens_in_a_pause_is_not_in_the_means() -> None:
    watch = Telemetry([CPU], [0])
    watch.start()
    time.sleep(0.1)
    watch.pause()
    burn(0.2)
    watch.stop()
    burn(0.1)
    assert watch.means(0)["cpu_utilization"] < 0.2


@linux
def test_loader_processes_are_counted() -> None:
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    child.start()
    watch = Telemetry([CPU], [0])
    watch.start()
    time.sleep(0.3)
    watch.stop()
    means = watch.means(0)
    child.kill()
    child.join()
    assert means["loader_processes"] == 1.0


@linux
def test_the_cores_that_loader_processes_take_are_told_apart_from_the_trials_own() -> None:
    child = multiprocessing.get_context("spawn").Process(target=burn, args=(60,))
    child.start()
    while child.pid is None or interference._process_seconds(child.pid) < 0.2:
        time.sleep(0.05)  # until it burns
    watch = Telemetry([CPU], [0])
    before, started = interference._process_seconds(child.pid), time.perf_counter()
    watch.start()
    burn(0.3)
    watch.stop()
    taken, seconds = interference._process_seconds(child.pid) - before, time.perf_counter() - started
    child.kill()
    child.join()
    assert watch.means(0)["loader_cores"] == pytest.approx(taken / seconds, rel=0.2)


@linux
def test_the_time_that_the_system_takes_is_told() -> None:
    shares = []
    for work in (count, ask_for_memory):
        watch = Telemetry([CPU], [0])
        watch.start()
        work(0.3)
        watch.stop()
        shares.append(watch.means(0)["system_time_fraction"])
    assert 0 <= shares[0] < 0.3 < shares[1] <= 1


def count(seconds: float) -> None:
    """Without asking the system for anything but the time, and that seldom."""
    start = time.process_time()
    while time.process_time() - start < seconds:
        sum(range(100_000))


def ask_for_memory(seconds: float) -> None:
    """And give it back, again and again."""
    start = time.process_time()
    while time.process_time() - start < seconds:
        with mmap.mmap(-1, 2**26) as memory:
            for page in range(0, len(memory), mmap.PAGESIZE):
                memory[page] = 1


def test_without_sensors_the_means_are_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, folder in ((telemetry, "POWERCAP"), (interference, "PROC")):
        monkeypatch.setattr(module, folder, tmp_path / "none")
    watch = Telemetry([torch.device("cuda", 7)], [])
    watch.start()
    time.sleep(0.3)
    watch.stop()
    known = {"resident_gib": ANY, "loader_processes": 0.0, "loader_cores": 0.0, "system_time_fraction": ANY}
    assert watch.means(100) == known


def test_it_can_be_stopped_without_having_been_started() -> None:
    watch = Telemetry([CPU], [0])
    watch.stop()
    assert watch.means(100) == {}


def test_images_per_joule_are_of_all_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "POWERCAP", tmp_path)
    names = {"intel-rapl:0": "package-0", "intel-rapl:1": "package-1", "intel-rapl:2": "psys", "intel-rapl:0:0": "core"}
    for package, name in names.items():  # psys contains the packages, and package-0 contains core
        (tmp_path / package).mkdir()
        (tmp_path / package / "name").write_text(f"{name}\n")
        (tmp_path / package / "energy_uj").write_text("1000000")
    watch = Telemetry([CPU], [0])
    watch.resume()
    for package in ("intel-rapl:0", "intel-rapl:2", "intel-rapl:0:0"):
        (tmp_path / package / "energy_uj").write_text("6000000")
    watch.pause()
    watch.resume()
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("0")  # starts anew
    watch.pause()
    assert watch.means(100)["units_per_joule"] == 20.0


@linux
def test_sampling_takes_less_than_a_two_hundredth_of_a_core() -> None:
    watch = Telemetry([CPU], [0])
    watch.resume()
    started = time.process_time()
    for _ in range(50):
        watch._count()
        watch._sample()
    assert (time.process_time() - started) / 50 < 0.005 * 0.5


class Driver:
    """NVML with one device, some of whose sensors are missing."""

    NVML_CLOCK_SM, NVML_PERF_POLICY_THERMAL = 1, 1
    nvmlClocksThrottleReasonHwSlowdown = 8  # noqa: N815
    nvmlClocksThrottleReasonSwThermalSlowdown = 32  # noqa: N815
    nvmlClocksThrottleReasonHwThermalSlowdown = 64  # noqa: N815
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 128  # noqa: N815
    reasons = 4  # at the power limit

    def nvmlDeviceGetUtilizationRates(self, _: Any) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=75)

    def nvmlDeviceGetClockInfo(self, _: Any, kind: int) -> int:  # noqa: N802
        return 1980

    def nvmlDeviceGetPowerUsage(self, _: Any) -> int:  # noqa: N802
        raise OSError("Not Supported")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _: Any) -> int:  # noqa: N802
        return self.reasons

    def nvmlDeviceGetTotalEnergyConsumption(self, _: Any) -> int:  # noqa: N802
        return 5000


def test_a_slice_of_a_gpu_is_found_by_the_name_of_slices() -> None:
    class Slices:
        class NVMLError_NotFound(Exception):  # noqa: N801, N818
            pass

        def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
            if not uuid.startswith("MIG-"):
                raise self.NVMLError_NotFound
            return uuid

    assert nvml._handle(Slices(), "12ab") == "MIG-12ab"


def test_each_sensor_of_a_gpu_is_optional_and_units_are_as_named(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(nvml, "_opened", lambda device: (driver, "gpu"))
    gpu = Gpu(torch.device("cuda", 0))
    assert gpu.joules() == 5.0
    assert gpu.hot_seconds() is None
    assert gpu.sample() == {
        "gpu_utilization": 0.75,
        "gpu_memory_gib": None,
        "gpu_power_watts": None,
        "gpu_clock_mhz": 1980.0,
        "gpu_throttled_fraction": 0.0,
    }
    driver.reasons = 4 | 64
    assert gpu.sample()["gpu_throttled_fraction"] == 1.0


class Measured:
    """A GPU that has been busy for so much of the time, and has so much memory in use."""

    def __init__(self, utilization: float, memory_gib: float) -> None:
        self.utilization, self.memory_gib = utilization, memory_gib

    def sample(self) -> dict[str, float | None]:
        return {"gpu_utilization": self.utilization, "gpu_memory_gib": self.memory_gib, "gpu_power_watts": 100.0}

    def joules(self) -> float:
        return 300 * time.perf_counter()


def test_several_gpus_are_one_figure_each_and_each_ones_utilisation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of memory the fullest counts, of power the sum: here 600 W by the energy, though the sensors say 200 W."""
    monkeypatch.setattr(telemetry, "LAG_SECONDS", 0.0)
    gpus = iter([Measured(0.9, 30.0), Measured(0.3, 10.0)])
    monkeypatch.setattr(telemetry, "Gpu", lambda device: next(gpus))
    watch = Telemetry([torch.device("cuda", 0), torch.device("cuda", 1)], [0])
    watch.start()
    time.sleep(0.2)
    watch.stop()
    means = watch.means(600)
    assert means["gpu_utilization"] == pytest.approx(0.6)
    assert means["gpu_memory_gib"] == 30.0
    assert means["gpu_power_watts"] == pytest.approx(600.0, rel=0.02)
    assert 1 / means["units_per_joule"] == pytest.approx(0.2, rel=0.5)  # 600 W for 0.2 s or somewhat longer
    assert watch.utilizations() == [pytest.approx(0.9), pytest.approx(0.3)]
    assert "gpu_clock_mhz" not in means


def test_what_nvml_says_of_the_second_before_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "SAMPLE_SECONDS", 0.02)
    monkeypatch.setattr(telemetry, "LAG_SECONDS", 0.2)
    gpu = Measured(0.1, 10.0)
    monkeypatch.setattr(telemetry, "Gpu", lambda device: gpu)
    watch = Telemetry([torch.device("cuda", 0)], [0])
    watch.start()
    time.sleep(0.1)
    assert "gpu_utilization" not in watch.means(1)
    gpu.utilization = 0.9
    watch.pause()
    watch.resume()
    time.sleep(0.2)
    watch.stop()
    assert watch.means(1)["gpu_utilization"] == pytest.approx(0.9)
    assert watch.means(1)["gpu_memory_gib"] == 10.0


@linux
def test_without_a_gpu_the_process_is_what_is_utilised() -> None:
    watch = Telemetry([CPU], [0])
    watch.start()
    burn(0.1)
    watch.stop()
    assert watch.utilizations() == [pytest.approx(watch.means(0)["cpu_utilization"])]


@pytest.mark.gpu
def test_the_gpu_in_use_is_the_one_that_is_watched() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    watch = Telemetry([device], [0])
    watch.start()
    matrix = torch.randn(2048, 2048, device=device)
    end = time.monotonic() + 2.0
    while time.monotonic() < end:
        matrix = torch.nn.functional.normalize(matrix @ matrix)
        torch.cuda.synchronize()
    watch.stop()
    means = watch.means(1000)
    assert means["gpu_memory_gib"] * 2**30 >= matrix.nbytes
    assert math.isfinite(means["gpu_utilization"])
