# ruff: noqa: N802 - the fake has pynvml's own names
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from search.space.machine import (
    CoresOfOthers,
    Gpu,
    Machine,
    cpu_name,
    describe_machine,
    git_commit,
    package_versions,
    usable_cores,
    visible_devices,
    visible_gpus,
)
from trainables.process_limits import memory_bytes

UUIDS = ["GPU-aa11", "GPU-ab22", "GPU-cc33"]


def system(folder, files):
    """A /proc or a /sys/fs/cgroup with these files, as paths and texts."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


# ---- this machine


def test_this_machine_has_what_the_process_may_use():
    here = describe_machine()
    assert here.cpu_name
    assert 1 <= here.cores <= os.cpu_count()
    assert here.memory_gib > 0.1
    assert json.loads(json.dumps(here.to_mapping()))["cores"] == here.cores


def test_a_machine_is_one_line():
    gpus = (Gpu("NVIDIA H200", 139.8), Gpu("NVIDIA H200", 139.8), Gpu("NVIDIA T4", 15.0))
    machine = Machine("AMD EPYC", cores=16, memory_gib=127.6, shm_gib=64.0, gpus=gpus)
    assert str(machine) == "AMD EPYC, 16 cores, 128 GiB memory, 2 x NVIDIA H200 (140 GiB), 1 x NVIDIA T4 (15 GiB)"
    assert str(Machine("arm", cores=1, memory_gib=8.0, shm_gib=None)) == "arm, 1 core, 8 GiB memory, no GPU"


def test_a_machine_in_the_journal_is_plain():
    machine = Machine("arm", cores=1, memory_gib=8.0, shm_gib=None, gpus=(Gpu("T4", 15.0),))
    assert machine.to_mapping() == {
        "cpu_name": "arm",
        "cores": 1,
        "memory_gib": 8.0,
        "shm_gib": None,
        "gpus": [{"name": "T4", "memory_gib": 15.0}],
        "num_nodes": 1,
    }


# ---- cores and memory


def bound_to(monkeypatch, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)


def test_cores_are_those_that_the_process_is_bound_to(tmp_path, monkeypatch):
    bound_to(monkeypatch, 6)
    assert usable_cores(proc=tmp_path, cgroups=tmp_path) == 6


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 16), ("400000 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("9900000 100000", 16)],
)
def test_a_quota_of_the_control_group_bounds_the_cores(quota, cores, tmp_path, monkeypatch):
    bound_to(monkeypatch, 16)
    proc = system(tmp_path / "proc", {"self/cgroup": "0::/job\n"})
    groups = system(tmp_path / "cgroup", {"job/cpu.max": quota})
    assert usable_cores(proc, groups) == cores


def test_the_tightest_of_the_enclosing_groups_counts(tmp_path, monkeypatch):
    bound_to(monkeypatch, 16)
    proc = system(tmp_path / "proc", {"self/cgroup": "0::/user/job\n"})
    groups = system(tmp_path / "cgroup", {"user/job/cpu.max": "800000 100000", "user/cpu.max": "300000 100000"})
    assert usable_cores(proc, groups) == 3


def test_control_groups_of_version_1_bound_the_cores_too(tmp_path, monkeypatch):
    bound_to(monkeypatch, 16)
    proc = system(tmp_path / "proc", {"self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n"})
    groups = system(
        tmp_path / "cgroup", {"cpu/job/cpu.cfs_quota_us": "200000\n", "cpu/job/cpu.cfs_period_us": "100000\n"}
    )
    assert usable_cores(proc, groups) == 2
    system(groups, {"cpu/job/cpu.cfs_quota_us": "-1\n"})  # no quota
    assert usable_cores(proc, groups) == 16


def test_the_control_group_bounds_the_memory(tmp_path):
    proc = system(tmp_path / "proc", {"self/cgroup": "4:memory:/job\n0::/job\n"})
    assert memory_bytes(proc, tmp_path) == psutil.virtual_memory().total
    assert memory_bytes(proc, system(tmp_path, {"memory/job/memory.limit_in_bytes": "4096\n"})) == 4096
    assert memory_bytes(proc, system(tmp_path, {"job/memory.max": "1024\n"})) == 1024
    assert memory_bytes(proc, system(tmp_path, {"job/memory.max": "max\n"})) == 4096
    system(tmp_path, {"memory/job/memory.limit_in_bytes": f"{2**62}\n"})  # version 1 has no word for none
    assert memory_bytes(proc, tmp_path) == psutil.virtual_memory().total


def test_the_processor_is_named_as_the_kernel_names_it(tmp_path):
    proc = system(tmp_path, {"cpuinfo": "processor\t: 0\nmodel name\t: Intel(R)  Xeon(R)\nmodel name\t: other\n"})
    assert cpu_name(proc) == "Intel(R) Xeon(R)"


def test_where_the_kernel_names_no_processor_its_architecture_stands(tmp_path):
    assert cpu_name(tmp_path)
    assert cpu_name(system(tmp_path, {"cpuinfo": "processor\t: 0\n"})) == cpu_name(tmp_path / "nowhere")


# ---- GPUs


MIG = "MIG-12345678-9abc-def0-1234-56789abcdef0"  # a part of a GPU


class FakeNvml:
    """The few calls of pynvml that are needed; `broken` names one that fails."""

    def __init__(self, broken=None):
        self.open = 0
        if broken:
            setattr(self, broken, self._fail)

    def _fail(self, *arguments):
        raise RuntimeError("driver not loaded")

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return len(UUIDS)

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != MIG:
            raise RuntimeError("not found")
        return 8  # has a name and a memory of its own

    def nvmlDeviceGetUUID(self, handle):
        return UUIDS[handle].encode() if handle else UUIDS[handle]  # bytes from older releases

    def nvmlDeviceGetName(self, handle):
        return f"NVIDIA {handle}"

    def nvmlDeviceGetMemoryInfo(self, handle):
        class Info:
            total = (handle + 1) * 2**30

        return Info


@pytest.mark.parametrize(
    ("setting", "gpus"),
    [
        (None, (Gpu("NVIDIA 0", 1.0), Gpu("NVIDIA 1", 2.0), Gpu("NVIDIA 2", 3.0))),
        ("2,0", (Gpu("NVIDIA 2", 3.0), Gpu("NVIDIA 0", 1.0))),
        ("", ()),
        (MIG, (Gpu("NVIDIA 8", 9.0),)),
        (f"{MIG},MIG-other", (Gpu("NVIDIA 8", 9.0),)),
        ("MIG-other", ()),
    ],
)
def test_gpus_are_those_that_cuda_would_show(setting, gpus, monkeypatch):
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert visible_gpus() == gpus
    assert nvml.open == 0


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo"])
def test_whatever_fails_means_no_gpu(broken, monkeypatch):
    nvml = FakeNvml(broken)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus() == ()
    assert nvml.open == 0


def test_without_the_library_there_is_no_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)  # an import of it fails
    assert visible_gpus() == ()


@pytest.mark.parametrize(
    ("setting", "indices"),
    [
        (None, [0, 1, 2]),
        ("1", [1]),
        ("2, 0", [2, 0]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,7,1", [0]),  # what follows a bad one is not seen
        ("GPU-cc,GPU-aa11", [2, 0]),
        ("GPU-a", []),  # fits two
    ],
)
def test_visible_devices_follow_the_rules_of_cuda(setting, indices):
    assert visible_devices(UUIDS, setting) == indices


# ---- package_versions and commit


def test_versions_name_what_can_move_a_figure_and_leave_out_what_is_not_there(monkeypatch):
    found = package_versions()
    assert found["python"] == sys.version.split()[0]
    assert {"torch", "ray", "optuna", "training-search"} <= set(found)
    monkeypatch.setattr("search.space.machine.PACKAGES", ("no-such-package",))
    assert set(package_versions()) == {"python"}


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_commit_is_seven_digits_and_says_whether_files_have_changed_since(tmp_path):
    git(tmp_path, "init")
    assert git_commit(tmp_path) is None  # nothing committed yet
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-m", "one")
    git(tmp_path, "tag", "-a", "v1", "-m", "a name is no commit")
    commit = git(tmp_path, "rev-parse", "HEAD")[:7]
    assert git_commit(tmp_path) == commit
    (tmp_path / "a").write_text("2")
    assert git_commit(tmp_path) == f"{commit}-dirty"


def test_a_package_in_the_environment_of_another_project_has_no_commit(tmp_path):
    git(tmp_path, "init")
    (tmp_path / "theirs.py").write_text("1")
    git(tmp_path, "add", "theirs.py")
    git(tmp_path, "commit", "-m", "one")
    installed = tmp_path / ".venv" / "site-packages" / "search"
    installed.mkdir(parents=True)
    (installed / "run.py").write_text("1")
    assert git_commit(installed) is None
    assert git_commit(tmp_path) is not None


def test_where_there_is_no_repository_or_no_git_there_is_no_commit(tmp_path, monkeypatch):
    assert git_commit(tmp_path / "nowhere") is None
    monkeypatch.setenv("PATH", "")
    assert git_commit(tmp_path) is None


class Processes:
    """A `psutil` with four cores, and one process with one child."""

    Error = OSError

    def __init__(self):
        self.by_core, self.own, self.of_child = [0.0] * 4, 0.0, 0.0

    def cpu_times(self, percpu):
        assert percpu
        return [SimpleNamespace(user=used, nice=0.0, system=0.0, idle=1e6) for used in self.by_core]

    def Process(self):
        child = SimpleNamespace(cpu_times=lambda: (self.of_child, 0.0, 0.0, 0.0))
        return SimpleNamespace(
            cpu_times=lambda: (self.own, 0.0, 0.0, 0.0, 0.0),
            children=lambda recursive: [child],
        )


def test_what_other_processes_use_of_the_cores_is_what_this_one_and_its_children_do_not(monkeypatch):
    system, clock = Processes(), iter([0.0, 10.0, 10.0, 10.0])
    monkeypatch.setitem(sys.modules, "psutil", system)
    monkeypatch.setattr("search.space.machine.allowed_cores", lambda: {1, 2})
    monkeypatch.setattr("search.space.machine.time.perf_counter", lambda: next(clock))
    others = CoresOfOthers()
    system.by_core, system.own, system.of_child = [10.0, 9.0, 6.0, 10.0], 4.0, 3.0
    assert others() == pytest.approx(0.8)
    system.own = 20.0  # counted in ticks: more than the cores say
    assert others() == 0.0
