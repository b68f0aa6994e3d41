"""A user's training file in a search that is killed, resumed, or whose file changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from search.results import load
from tests.faults.processes import measured, running, wait_for
from tests.trainables.own_files import written

SPACE = """\
trainable: rows.py
objectives: [{metric: val_loss, goal: minimize}, {metric: val_sign, goal: maximize}]
parameters:
  learning_rate: {min: 0.001, max: 0.1, log: true}
  hidden: {values: [4, 8, 16]}
fixed: {batch_size: 8, precision: fp32}
searcher: {name: random}
budget: {trials: TRIALS, epochs: 3}
"""
RUN = Path("results/run")


def space(folder: Path, trials: int) -> None:
    (folder / "space.yaml").write_text(SPACE.replace("TRIALS", f"{trials}"))


def resume(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "search.run", "--resume", str(RUN), "--no-dashboard"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)


@pytest.mark.slow
def test_a_killed_search_goes_on_with_the_same_file_and_refuses_another(tmp_path: Path) -> None:
    """Kill -9 loses no trial; a changed file is named; a changed file beside it does not matter."""
    path = Path(written(tmp_path, "rows.py"))
    space(tmp_path, 8)
    with running("space.yaml", "--name", "run", cwd=tmp_path) as process:
        wait_for(tmp_path / RUN / "journal.jsonl", '"t0003".*complete|complete.*"t0003"', process)
        process.kill()
        process.wait()
    before, text = measured(tmp_path / RUN), path.read_text()
    path.write_text(text.replace("nn.Tanh()", "nn.ReLU()"))
    refused = resume(tmp_path)
    assert refused.returncode == 2
    assert f"{path}: has changed since the run began" in refused.stderr
    assert measured(tmp_path / RUN) == before
    path.write_text(text)
    (tmp_path / "unrelated.py").write_text("# a comment\n")
    ended = resume(tmp_path)
    assert ended.returncode == 0, ended.stderr
    after = measured(tmp_path / RUN)
    assert all(after[key] == value for key, value in before.items())
    run = load(tmp_path / RUN)
    assert (run.trials["state"] == "complete").sum() == 8
    assert run.trials["test_loss"].notna().any()


@pytest.mark.slow
def test_an_error_in_the_file_fails_its_trials_with_file_and_line_and_the_run_goes_on(tmp_path: Path) -> None:
    old = "return nn.functional.mse_loss(outputs, targets)"
    written(
        tmp_path,
        "rows.py",
        ("def network(hidden):", "def network(hidden):\n    assert hidden != 8, 'eight'"),
        (old, old),
    )
    space(tmp_path, 6)
    with running("space.yaml", "--name", "run", cwd=tmp_path) as process:
        assert process.wait(200) == 0
    trials = load(tmp_path / RUN).trials
    failed = trials[trials["config.hidden"] == 8]
    assert (failed["state"] == "failed").all()
    assert failed["reason"].str.fullmatch(r"AssertionError: eight \(rows\.py:\d+\)").all()
    assert (trials[trials["config.hidden"] != 8]["state"] == "complete").all()


@pytest.mark.slow
def test_a_file_that_changes_while_the_search_runs_changes_nothing(tmp_path: Path) -> None:
    path = Path(written(tmp_path, "rows.py"))
    space(tmp_path, 4)
    with running("space.yaml", "--name", "run", cwd=tmp_path) as process:
        wait_for(tmp_path / RUN / "journal.jsonl", '"event":"start"', process)
        path.write_text("this is no Python")
        assert process.wait(200) == 0
    assert (load(tmp_path / RUN).trials["state"] == "complete").all()
