"""A user's training file in a search that is killed, resumed, or whose file changes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from search.results import load
from tests.faults.processes import measured, running, wait_for
from tests.trainables.own_files import LOOP, written

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


@pytest.mark.slow
def test_a_killed_search_of_an_own_loop_goes_on_from_its_checkpoints(tmp_path: Path) -> None:
    slow = ("        for x, y in trial.steps", "        time.sleep(0.3)\n        for x, y in trial.steps")
    written(tmp_path, "rows.py", slow, ("import torch\n", "import time\n\nimport torch\n"), text=LOOP)
    space = SPACE.replace("{metric: val_sign, goal: maximize}", "{metric: rows_per_second, goal: maximize}")
    space = space.replace("batch_size: 8, precision: fp32", "batch_size: 4").replace("epochs: 3", "epochs: 6")
    (tmp_path / "space.yaml").write_text(space.replace("TRIALS", "4, repeats: 0"))
    with running("space.yaml", "--name", "run", cwd=tmp_path) as process:
        wait_for(tmp_path / RUN / "journal.jsonl", '"trial_id":"t0002","epoch":3', process)
        process.kill()
        process.wait()
    before = measured(tmp_path / RUN)
    ended = resume(tmp_path)
    assert ended.returncode == 0, ended.stderr
    after = measured(tmp_path / RUN)
    assert all(after[key] == value for key, value in before.items())
    run = load(tmp_path / RUN)
    assert run.trials["state"].tolist() == ["complete"] * 4, run.trials["reason"].tolist()
    assert (run.curves.groupby("trial_id").size() == 6).all()
    assert run.front["test_loss"].notna().all()


WAYS = ["fine", "prints", "thread", "process", "exits", "missing", "nan", "memory", "allocates", "endless"]
NETWORK = """def network(hidden, way):
    if way == "prints":
        print("x" * 100_000)
    if way == "thread":
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    if way == "process":
        subprocess.Popen(["sleep", "1000"])
    if way == "exits":
        sys.exit(3)
    if way == "missing":
        import not_installed
    global CHOSEN
    CHOSEN = way
"""
LOSS = """def loss(outputs, targets):
    if CHOSEN == "endless":
        while True:
            time.sleep(1)
    if CHOSEN == "memory":
        torch.empty(2**60)
    if CHOSEN == "allocates" and type(outputs) is torch.Tensor:  # not while memory is predicted
        torch.empty(2**60)
    if CHOSEN == "nan":
        return outputs.sum() * float("nan")
"""
REASONS = {
    "exits": r"called sys\.exit\(3\) \(rows\.py:\d+\); what the file does .* belongs under if __name__ == \"__main__\"",
    "missing": r"ModuleNotFoundError: No module named 'not_installed' \(rows\.py:\d+\)",
    "nan": r".*the training loss is nan in epoch 1 from step 1 of \d+ on.*",
    "memory": r"needs about .* no batch_size fits",
    "allocates": r"out of memory: .*can't allocate memory.*",
    "endless": r"rank 0 did nothing for 15 s",
}


@pytest.mark.slow
def test_what_a_file_does_wrong_fails_its_own_trials_alone(tmp_path: Path) -> None:
    written(
        tmp_path,
        "rows.py",
        ("import torch\n", "import subprocess\nimport sys\nimport threading\nimport time\n\nimport torch\n"),
        ('{"hidden": 8}', f'{{"hidden": 8, "way": {{"default": "fine", "choices": {WAYS}}}}}'),
        ("def network(hidden):\n", NETWORK),
        ("def loss(outputs, targets):\n", LOSS),
    )
    space = SPACE.replace("learning_rate: {min: 0.001, max: 0.1, log: true}", f"way: {{values: {WAYS}}}")
    space = space.replace("hidden: {values: [4, 8, 16]}", "hidden: {values: [8]}").replace("random", "grid")
    (tmp_path / "space.yaml").write_text(space.replace("trials: TRIALS, epochs: 3", "epochs: 1"))
    variables: dict[str, Any] = {"TRAINING_SEARCH_TIMEOUT_SECONDS": "15"}
    with running("space.yaml", "--name", "run", cwd=tmp_path, **variables) as process:
        assert process.wait(300) == 0
    trials = load(tmp_path / RUN).trials.set_index("config.way")
    ended = {way: (trials["state"][way], trials["reason"][way]) for way in WAYS}
    for way in ("fine", "prints", "thread", "process"):
        assert ended[way][0] == "complete", ended
    for way, reason in REASONS.items():
        assert ended[way][0] == ("infeasible" if way in ("memory", "allocates") else "failed"), ended
        assert re.fullmatch(reason, ended[way][1]), ended
