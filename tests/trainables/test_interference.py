"""What others take of a trial's cores, from a /proc of our own making and from the real one."""

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from trainables.measure import interference
from trainables.measure.interference import InterferenceClock, own_seconds

TICK = 0.01


class Machine:
    """Cores whose ticks are set by hand; this process takes none of them, unless told."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.own = folder, 0.0
        self.set()

    def set(self, core0: str = "0 0 0 0 0 0 0 0 0 0", core1: str = "0 0 0 0 0 0 0 0 0 0") -> None:
        lines = ["cpu  9 9 9 9 9 9 9 9 9 9", f"cpu0 {core0}", f"cpu1 {core1}", f"cpu10 {core1}", "intr 1 2"]
        (self.folder / "stat").write_text("\n".join(lines))

    def throttle(self, microseconds: int, group: str = "") -> None:
        (self.folder / group / "cpu.stat").write_text(f"usage_usec 5\nthrottled_usec {microseconds}\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setattr(interference, "PROC", tmp_path)
    monkeypatch.setattr(interference, "CGROUPS", tmp_path)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/job/step\n")
    (tmp_path / "job" / "step").mkdir(parents=True)
    monkeypatch.setattr(interference, "own_seconds", lambda: machine.own)
    return machine


def test_a_strangers_time_counts_on_the_watched_cores_only(machine: Machine) -> None:
    both, first = InterferenceClock([0, 1]), InterferenceClock([0])
    machine.set(core0="100 10 20 999 999 3 4 0 50 0", core1="200 0 0 0 0 0 0 0 0 0")
    assert first() == pytest.approx(1.37)  # neither idle, nor waiting, nor guests, which are in user already
    assert both() == pytest.approx(3.37)


def test_core_10_is_not_core_1(machine: Machine) -> None:
    load = InterferenceClock([1])
    machine.set(core1="100 0 0 0 0 0 0 0 0 0")
    assert load() == pytest.approx(1.0)


def test_the_trials_own_time_does_not_count(machine: Machine) -> None:
    load = InterferenceClock([0])
    machine.set(core0="100 0 0 0 0 0 0 0 0 0")
    machine.own = 0.75
    assert load() == pytest.approx(0.25)


def test_steal_counts_also_where_the_kernel_takes_it_for_our_own_time(machine: Machine) -> None:
    load = InterferenceClock([0])
    machine.set(core0="70 0 0 0 0 0 0 30 0 0")
    machine.own = 1.0
    assert load() == pytest.approx(0.3)


@pytest.mark.parametrize("group", ["", "job", "job/step"])
def test_a_quota_of_the_control_group_or_a_parent_counts(machine: Machine, group: str) -> None:
    machine.throttle(1_000_000, group)
    load = InterferenceClock([0])
    machine.throttle(1_250_000, group)
    assert load() == pytest.approx(0.25)


def test_a_quota_of_version_1_counts(machine: Machine) -> None:
    (machine.folder / "self" / "cgroup").write_text("3:cpu,cpuacct:/job\n0::/\n")
    load = InterferenceClock([0])
    (machine.folder / "cpu" / "job").mkdir(parents=True)
    (machine.folder / "cpu" / "job" / "cpu.stat").write_text("nr_periods 9\nthrottled_time 250000000\n")
    assert load() == pytest.approx(0.25)


def test_ticks_that_come_late_neither_turn_the_clock_back_nor_add_up(machine: Machine) -> None:
    load = InterferenceClock([0])
    readings = []
    for i in range(1, 200):
        machine.own = 0.005 * i  # a reading each 5 ms: every second one is half a tick behind
        machine.set(core0=f"{i // 2} 0 0 0 0 0 0 0 0 0")
        readings.append(load())
    assert readings == sorted(readings)
    assert readings[-1] <= TICK


def test_a_core_that_counts_too_little_hides_a_stranger_for_two_ticks_at_most(machine: Machine) -> None:
    load = InterferenceClock([0])
    machine.own = 10.0  # of which the core counts half
    machine.set(core0="500 0 0 0 0 0 0 0 0 0")
    assert load() == 0.0
    machine.set(core0="530 0 0 0 0 0 0 0 0 0")
    assert load() >= 0.3 - 2.001 * TICK


@pytest.mark.parametrize("text", [None, "", "cpu0 a b c", "nonsense"])
def test_where_nothing_can_be_read_the_clock_stands_still(machine: Machine, text: str | None) -> None:
    file = machine.folder / "stat"
    file.unlink() if text is None else file.write_text(text)
    load = InterferenceClock([0])
    machine.own = 5.0
    assert load() == 0.0


def test_without_cores_or_a_gpu_to_ask_the_clock_stands_still(machine: Machine) -> None:
    machine.throttle(0)
    nobody, gpu = InterferenceClock([]), InterferenceClock([0], torch.device("cuda", 7))
    machine.throttle(1_000_000)
    assert nobody() == 0.0
    assert gpu() == pytest.approx(1.0)


# --- the real machine -------------------------------------------------------------------------------------------------

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def burn(seconds: float) -> None:
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass


@linux
@pytest.mark.slow
def test_the_time_of_children_is_ours_while_they_live_and_afterwards() -> None:
    def of_children() -> float:
        return own_seconds() - time.process_time()

    before = of_children()
    child = multiprocessing.get_context("spawn").Process(target=burn, args=(0.5,))
    child.start()
    living = psutil.Process(child.pid)
    while living.cpu_times().user < 0.5:
        time.sleep(0.01)
    assert of_children() - before == pytest.approx(sum(living.cpu_times()[:2]), abs=0.1)
    assert child.is_alive()
    at_last = of_children()
    child.join()
    assert of_children() >= at_last


@linux
def test_a_stranger_is_seen() -> None:
    load = InterferenceClock(os.sched_getaffinity(0))
    stranger = subprocess.Popen([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"])
    os.waitid(os.P_PID, stranger.pid, os.WEXITED | os.WNOWAIT)  # not yet among our children that have ended
    assert load() >= 0.2
    stranger.wait()


@linux
def test_a_reading_takes_less_than_a_millisecond() -> None:
    load = InterferenceClock(os.sched_getaffinity(0))
    started = time.process_time()
    for _ in range(100):
        load()
    assert time.process_time() - started < 0.1
