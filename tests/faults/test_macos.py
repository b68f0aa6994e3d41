"""Training and searching where there is no fork and nothing else that only Linux has, see `macos/sitecustomize.py`."""

from __future__ import annotations

import csv
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from search.results import load
from tests.faults.processes import printed, running

pytestmark = pytest.mark.slow

ROWS = """\
import torch

UNIT = "rows"
METRICS = {"val_accuracy": "fraction"}


class Rows(torch.utils.data.Dataset):
    def __init__(self, count):
        self.inputs = torch.randn(count, 16, generator=torch.Generator().manual_seed(count))
        self.changed = CHANGED

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, number):
        row = self.changed(self.inputs[number])
        return row, int(row.sum() > 0)


def same(row):
    return row


def network():
    return torch.nn.Linear(16, 2)


def dataset(part, root):
    return Rows(2000 if part == "train" else 500)


def loss(outputs, targets):
    return torch.nn.functional.cross_entropy(outputs, targets)


def measures(outputs, targets):
    return {"val_accuracy": (outputs.argmax(1) == targets).float()}
"""
SPACE = """\
trainable: rows.py
objectives:
  - {metric: val_accuracy, goal: maximize}
  - {metric: rows_per_second, goal: maximize}
  - {metric: peak_memory_gib, goal: minimize}
constraints:
  - peak_memory_fraction <= 0.9
parameters:
  num_workers: {values: [0, 1]}
  strategy: {values: [single, ddp]}
searcher: {name: grid}
budget: {epochs: 2}
"""
MACOS = f"{Path(__file__).parent / 'macos'}"


def path() -> str:
    return os.pathsep.join(filter(None, (MACOS, os.environ.get("PYTHONPATH"))))


def train(folder: Path, changed: str) -> subprocess.CompletedProcess[str]:
    (folder / "rows.py").write_text(ROWS.replace("CHANGED", changed))
    command = [
        sys.executable,
        "-m",
        "trainables.train",
        "--trainable",
        "rows.py",
        "--folder",
        "trained",
        "num_workers=1",
    ]
    environment = {**os.environ, "PYTHONPATH": path()}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_batches_come_from_loader_processes_and_the_peak_memory_is_known(tmp_path: Path) -> None:
    done = train(tmp_path, "same")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "trained" / "curves.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["val_accuracy"]) > 0.6
    assert float(row["loader_cores"]) > 0
    assert 0 < float(row["peak_memory_fraction"]) < float(row["peak_memory_gib"]) < 4


def test_a_dataset_that_cannot_go_to_loader_processes_is_said(tmp_path: Path) -> None:
    done = train(tmp_path, "lambda row: row")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("train: Can't pickle"), done.stderr
    assert last.endswith("; with num_workers 0 there are none")


def test_a_search_is_complete(tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(ROWS.replace("CHANGED", "same"))
    (tmp_path / "space.yaml").write_text(SPACE)
    with running("space.yaml", "--name", "run", cwd=tmp_path, PYTHONPATH=path()) as process:
        assert process.wait(300) == 0, printed(tmp_path)
    rows: Any = load(tmp_path / "results" / "run").trials
    assert list(rows.state) == ["complete"] * 4
    assert all(math.isfinite(peak) for peak in rows.peak_memory_gib)
