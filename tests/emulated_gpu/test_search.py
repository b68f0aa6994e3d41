"""Whole searches by the command line on a machine with two emulated GPUs, through Ray. Rates are those of the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from search.record.events import Finish, Start
from search.record.journal import FILE_NAME, read_journal
from search.results import Run, load
from tests.emulated_gpu.processes import ROOT, environment, needs_emulation
from tests.faults.processes import running

pytestmark = [needs_emulation, pytest.mark.slow, pytest.mark.timeout(1200)]

TIMEOUT_SECONDS = 900  # of one search; it takes about one minute on two idle cores
WIDTH = 0.03125
FEW: dict[str, object] = {"data.name": "generated", "data.train_images": 192, "data.val_images": 32}
SMALL = {**FEW, "fixed.width": WIDTH}
FAULTS = """\
trainable: tests.emulated_gpu.faulty_training
evaluation: coupled
objectives:
  - {metric: val_accuracy, goal: maximize}
  - {metric: images_per_second, goal: maximize}
parameters:
  fault: {values: [killed, context, none]}
fixed: {strategy: ddp, world_size: 2, batch_size: 32, precision: fp32, loader: device, width: 0.03125}
data: {name: generated, train_images: 192, val_images: 32}
searcher: {name: grid}
budget: {epochs: 2, repeats: 0}
"""


def search(folder: Path, space: str, *options: str, settings: Mapping[str, object], sensors: bool = True) -> str:
    """Search in `folder`, where everything that is written lies; return what was printed."""
    folder.mkdir(exist_ok=True)
    (home := folder / "home").mkdir()
    places = {"HOME": f"{home}", "TRAINING_SEARCH_CACHE": f"{folder / 'cache'}"}
    arguments = [f"--set={key}={value}" for key, value in settings.items()]
    (folder / "space.yaml").write_text(space)
    variables = {**environment(2, sensors=sensors), **places}
    command = "space.yaml", "--name", "run", *options, *arguments
    with running(*command, cwd=folder, dashboard=False, **variables) as process:
        code = process.wait(TIMEOUT_SECONDS)
    printed = (folder / "printed").read_text()
    assert code == 0, printed
    assert not [path for path in home.rglob("*") if "training-search" in path.name]
    return printed


def space_file(name: str) -> str:
    return (ROOT / "spaces" / f"{name}.yaml").read_text()


def run_of(folder: Path) -> Run:
    return load(folder / "results" / "run")


def assert_trained_and_on_gpus(run: Run) -> None:
    """All values are there, the front has a point, and the record says that the GPUs are emulated."""
    assert run.trials.state.tolist() == ["complete"] * len(run.trials), run.trials[["state", "reason"]].to_string()
    trained = run.trials[run.trials.kind == "train"]
    assert trained.val_accuracy.between(0, 1).all()
    assert (run.trials.images_per_second > 0).all()
    assert (run.curves.peak_memory_gib > 0).all()
    assert len(run.front)
    assert set(run.front.trial_id) <= set(trained.trial_id)
    assert run.front.test_accuracy.between(0, 1).all()
    assert [gpu.name for gpu in run.state.info.machine.gpus] == ["Emulated GPU", "Emulated GPU"]


def test_a_dry_run_plans_for_both_gpus_and_writes_nothing(tmp_path: Path) -> None:
    few: dict[str, object] = {"batch_size": [32], "num_workers": [0], "compile": "[false]"}  # Triton is not emulated
    settings = {**SMALL, **{f"parameters.{name}.values": values for name, values in few.items()}}
    printed = search(tmp_path, space_file("throughput"), "--dry-run", settings=settings)
    assert "2 x Emulated GPU (80 GiB)" in printed
    assert "per trial    2 cores, 2 GPUs" in printed
    assert "images/s" in printed
    assert not (tmp_path / "results").exists()


def test_a_node_says_which_gpus_it_has_though_ray_hides_them_from_the_question() -> None:
    code = "from search.execution import nodes; print([gpu.name for gpu in nodes._describe().gpus])"
    variables = {**os.environ, **environment(2), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == "['Emulated GPU', 'Emulated GPU']\n"


def test_the_throughput_space_ends_with_a_front(tmp_path: Path) -> None:
    few: dict[str, object] = {
        "parameters.batch_size.values": [32],
        "parameters.loader.values": ["workers", "device"],
        "parameters.num_workers.values": [0],
        "parameters.precision.values": ["fp32"],
        "parameters.memory_format.values": ["channels_last"],
        "parameters.compile.values": "[false]",  # Triton is not emulated
        "budget.epochs": 1,
        "budget.trials": 2,
        "budget.hours": "null",
        "budget.least_gain": "null",
    }
    search(tmp_path, space_file("throughput"), settings=SMALL | few)
    run = run_of(tmp_path)
    assert_trained_and_on_gpus(run)
    assert {"probe", "train"} == set(run.trials.kind)
    assert (run.trials.gpu_power_watts > 0).all()


@pytest.fixture(scope="module")
def strategies(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The whole grid of strategies.yaml."""
    folder = tmp_path_factory.mktemp("strategies")
    search(folder, space_file("strategies"), settings={**SMALL, "fixed.batch_size": 32, "budget.epochs": 1})
    return run_of(folder)


def test_every_strategy_trains_on_two_gpus(strategies: Run) -> None:
    assert_trained_and_on_gpus(strategies)
    row = strategies.trials.groupby("config.strategy").size()
    assert row.to_dict() == {
        "single": 1,
        "data_parallel": 1,
        "ddp": 1,
        "ring_allreduce": 1,
        "parameter_server": 2,
        "fsdp": 1,
        "pipeline": 3,
    }


def test_ranks_by_nccl_and_one_process_with_both_gpus_use_two_devices(strategies: Run) -> None:
    by_strategy = strategies.trials.set_index("config.strategy")
    power = by_strategy.gpu_power_watts  # of all GPUs of the trial; one of them takes 500 W
    assert power["single"] == pytest.approx(500, rel=0.02)
    assert [power["ddp"], power["data_parallel"]] == pytest.approx([1000, 1000], rel=0.02)


@pytest.fixture(scope="module")
def two_at_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two concurrent trials of one GPU each, whose sensors are missing."""
    folder = tmp_path_factory.mktemp("two")
    two: dict[str, object] = {
        "concurrent_trials": 2,
        "data.train_images": 1024,  # an epoch in which sensors are read
        "parameters.batch_size.values": [32],
        "parameters.width.values": [WIDTH],
        "baseline.width": WIDTH,
        "budget.epochs": 1,
        "budget.trials": 2,
        "budget.hours": "null",
    }
    search(folder, space_file("quickstart"), settings=FEW | two, sensors=False)
    return folder


def test_two_trials_of_one_gpu_each_run_at_once(two_at_once: Path) -> None:
    run = run_of(two_at_once)
    assert_trained_and_on_gpus(run)
    events: list[Any] = [e for e in read_journal(run.folder / FILE_NAME) if isinstance(e, Start | Finish)]
    assert [type(event) for event in events[:2]] == [Start, Start]


def test_sensors_that_are_missing_are_empty_columns(two_at_once: Path) -> None:
    curves = run_of(two_at_once).curves
    for name in ("gpu_power_watts", "gpu_utilization", "gpu_clock_mhz", "gpu_throttled_fraction", "images_per_joule"):
        assert name not in curves or curves[name].isna().all(), name
    assert (curves.gpu_memory_gib > 0).all()


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """One trial with each fault, then one without, all of two ranks."""
    folder = tmp_path_factory.mktemp("faults")
    search(folder, FAULTS, settings={})
    return run_of(folder).trials.set_index("config.fault")


def test_a_trial_whose_rank_is_killed_again_and_again_fails_with_the_reason(faults: pd.DataFrame) -> None:
    row: Any = faults.loc["killed"]
    assert (row.state, row.retries) == ("failed", 1)
    assert "the worker of rank 1 died" in row.reason


def test_a_broken_context_fails_the_trial_with_the_error_of_the_device(faults: pd.DataFrame) -> None:
    row: Any = faults.loc["context"]
    assert row.state == "failed"
    assert row.reason.startswith("rank 1: ")
    assert "illegal memory access" in row.reason
    assert "can no longer use its GPU" in row.reason


def test_after_a_killed_rank_and_a_broken_context_the_next_trial_completes(faults: pd.DataFrame) -> None:
    row: Any = faults.loc["none"]
    assert (row.state, row.epochs) == ("complete", 2)
    assert row.setup_seconds > 1, "its processes are new"
