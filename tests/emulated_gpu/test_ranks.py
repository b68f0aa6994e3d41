"""Several emulated GPUs, a rank each, joined by NCCL: what they learn, and what a lost rank leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.emulated_gpu.processes import ROOT, environment, needs_emulation

pytestmark = [needs_emulation, pytest.mark.slow, pytest.mark.timeout(600)]

TIMEOUT_SECONDS = 240
DATA = ["--data", "generated", "--train-images", "96", "--val-images", "32", "--json"]
SMALL = ["batch_size=16", "learning_rate=0.01", "width=0.03125", "precision=fp32", "conv_kernel=library"]


def command(folder: Path, *settings: str, epochs: int = 2) -> list[str]:
    program = [sys.executable, "-m", "trainables.train", "--epochs", f"{epochs}", "--folder", f"{folder}"]
    return [*program, *DATA, *SMALL, "threads=1", *settings]


def losses(folder: Path, *settings: str, devices: int = 0, epochs: int = 2) -> list[float]:
    """Return the training loss of each epoch, on emulated GPUs or, with 0 devices, on the CPU."""
    variables = environment(devices) if devices else None
    done = subprocess.run(
        command(folder, *settings, epochs=epochs),
        env=variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [line["metrics"]["train_loss"] for line in lines if "epoch" in line]


STRATEGIES = [
    ("ddp", "batch_norm=synchronised"),
    ("ring_allreduce", "batch_norm=synchronised"),
    ("fsdp", "batch_norm=synchronised"),
    ("parameter_server", "server=synchronous"),
    ("pipeline", "num_microbatches=2"),
]


@pytest.mark.parametrize(("strategy", "setting"), STRATEGIES)
def test_ranks_on_gpus_learn_what_ranks_on_a_cpu_learn(strategy: str, setting: str, tmp_path: Path) -> None:
    settings = [f"strategy={strategy}", "world_size=2", setting, "max_gradient_norm=0.5"]
    settings += ["accumulation_steps=2"] * (strategy != "pipeline")
    on_cpu, on_gpus = (losses(tmp_path / f"{n}", *settings, devices=n) for n in (0, 2))
    assert on_gpus == pytest.approx(on_cpu, abs=1e-3)


@pytest.mark.parametrize(("strategy", "devices"), [("ddp", 4), ("fsdp", 4), ("ddp", 8)])
def test_more_ranks_learn_what_a_single_process_learns(strategy: str, devices: int, tmp_path: Path) -> None:
    single = losses(tmp_path / "single", epochs=1)
    several = losses(
        tmp_path / "several",
        f"strategy={strategy}",
        f"world_size={devices}",
        "batch_norm=synchronised",
        devices=devices,
        epochs=1,
    )
    assert several == pytest.approx(single, abs=1e-3)


def test_a_checkpoint_of_one_strategy_goes_on_in_another(tmp_path: Path) -> None:
    """From DDP on two GPUs to FSDP on two, and to one process on the CPU."""
    ddp = ["strategy=ddp", "world_size=2", "batch_norm=synchronised"]
    expected = losses(tmp_path / "whole", *ddp, devices=2)
    for name, settings, devices in (
        ("fsdp", ["strategy=fsdp", "world_size=2", "batch_norm=synchronised"], 2),
        ("single", [], 0),
    ):
        losses(tmp_path / "first", *ddp, devices=2, epochs=1)
        (tmp_path / name).mkdir()
        for checkpoint in (tmp_path / "first").glob("checkpoint*"):
            (tmp_path / name / checkpoint.name).write_bytes(checkpoint.read_bytes())
        found = losses(tmp_path / name, *settings, devices=devices)
        assert len(found) == 2
        assert abs(found[1] - expected[1]) < 0.05, "the schedule of the first epoch was that of one epoch"


def test_a_killed_rank_is_named_and_the_others_end(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(tmp_path / "trial", "strategy=ddp", "world_size=2", epochs=500),
        env=environment(2),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        while '"epoch": 1' not in process.stdout.readline():
            assert process.poll() is None
        ranks = [p for p in psutil.Process(process.pid).children() if "spawn_main" in " ".join(p.cmdline())]
        assert len(ranks) == 2
        os.kill(ranks[1].pid, signal.SIGKILL)
        started = time.monotonic()
        rest = process.stdout.read()
        assert process.wait(60) == 1
        assert time.monotonic() - started < 60
        assert "was ended by SIGKILL" in rest
        assert not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks)
    finally:
        process.kill()
        process.communicate()  # closes the pipe
