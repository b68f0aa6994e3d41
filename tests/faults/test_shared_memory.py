"""A /dev/shm of 8 MB: said before the start; batches of loader processes go another way, and no bus error."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import default_collate

from search.run import main
from search.space.machine import describe_machine, shm_warnings
from tests.faults.processes import SPACE
from trainables.plan import Plan
from trainables.samples import loader_processes
from trainables.samples.loaders import training_batches
from trainables.samples.picture_source import Pictures
from trainables.samples.worker_batches import WorkerBatches
from trainables.stages import Timeline

SCRIPT = """
import numpy as np, torch
from trainables.samples.picture_source import Pictures
from trainables.plan import Plan
from trainables.samples.loaders import training_batches
from trainables.stages import Timeline
pictures = Pictures(np.zeros((4096, 32, 32, 3), dtype=np.uint8), np.zeros(4096, dtype=np.int64), 10)
plan = Plan(np.arange(4096), batch_size=1024, seed=0)
cpu = torch.device("cpu")
batches = training_batches("workers", pictures, plan, cpu, num_workers=2, pin_memory=False)
print(sum(len(labels) for _, labels in batches.epoch(1, Timeline(cpu))))
batches.close()
"""
SMALL = 'mount -t tmpfs -o size=8m tmpfs /dev/shm && exec "$@"'


def drawn(pictures: Pictures) -> list[tuple[torch.Tensor, torch.Tensor]]:
    cpu = torch.device("cpu")
    plan = Plan(np.arange(64), batch_size=16, seed=0)
    batches = training_batches("workers", pictures, plan, cpu, num_workers=1, pin_memory=False)
    found = list(batches.epoch(1, Timeline(cpu)))
    batches.close()
    return found


def test_samples_of_each_kind_come_through_pipes_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = {"bf16": torch.ones(2, dtype=torch.bfloat16), "numbers": [0.5, 1, True, np.float32(1)], "row": np.ones(2)}
    cpu, samples = torch.device("cpu"), [(inputs, 1)] * 2
    monkeypatch.setattr(loader_processes, "fits_in_shared_memory", lambda size: False)
    batches = WorkerBatches(
        samples,  # type: ignore[arg-type]
        lambda plan, epoch: [[0, 1]],
        Plan(np.arange(2), batch_size=2, seed=0),
        cpu,
        num_workers=1,
        pin_memory=False,
        bytes_per_sample=1,
    )
    (piped,) = batches.epoch(1, Timeline(cpu))
    batches.close()
    for one, other in zip(tree_leaves(tuple(default_collate(samples))), tree_leaves(piped), strict=True):
        assert (one.dtype, one.tolist()) == (other.dtype, other.tolist())


def test_batches_that_come_through_pipes_are_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (64, 32, 32, 3), dtype=np.uint8)
    pictures = Pictures(images, np.arange(64) % 10, 10)
    shared = drawn(pictures)
    assert not caplog.records
    monkeypatch.setattr(loader_processes, "fits_in_shared_memory", lambda size: False)
    piped = drawn(pictures)
    assert "batches come through pipes" in caplog.text
    for one, other in zip(shared, piped, strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
        assert other[0].dtype is torch.float32
        assert not other[0].is_shared()


def test_whether_batches_fit_is_read_from_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert loader_processes.fits_in_shared_memory(0)
    assert not loader_processes.fits_in_shared_memory(2**60)
    monkeypatch.setattr(loader_processes, "SHARED_MEMORY", tmp_path / "nothing")
    assert not loader_processes.fits_in_shared_memory(0)


@pytest.mark.parametrize(
    ("gib", "said"), [(8 / 1024, "/dev/shm has 8 MiB: "), (0.0625, "/dev/shm has 64 MiB: "), (None, "no /dev/shm")]
)
def test_a_small_one_is_said_before_the_start(gib: float | None, said: str) -> None:
    (line,) = shm_warnings(replace(describe_machine(), shm_gib=gib))
    assert said in line
    assert "--shm-size" in line
    assert shm_warnings(replace(describe_machine(), shm_gib=8.0)) == []


def test_the_plan_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    small = replace(describe_machine(), shm_gib=8 / 1024)
    monkeypatch.setattr("search.run.describe_machine", lambda: small)
    assert main([str(tmp_path / "space.yaml"), "--dry-run"]) == 0
    assert "/dev/shm has 8 MiB" in capsys.readouterr().out


@pytest.mark.slow
def test_with_8_mb_for_real_every_picture_arrives(tmp_path: Path) -> None:
    """In a mount namespace of its own, where loader processes would otherwise die of a bus error."""
    small = ["unshare", "--mount", "sh", "-c", SMALL, "sh"]
    try:
        subprocess.run([*small, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount a /dev/shm of its own")
    done = subprocess.run(
        [*small, sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "4096\n"), done.stderr
    assert "come through pipes" in done.stderr
