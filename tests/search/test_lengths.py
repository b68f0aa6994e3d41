"""A run in which the number of epochs is searched, too."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from search.advisor.advisor import Advisor
from search.advisor.proposal import Decision
from search.pick.__main__ import main as pick
from search.record.activity import activity
from search.record.run_state import RunState
from search.results import load
from search.space.parsing import parse_space
from search.terminal.progress import event_line
from tests.search.runs import INFO, Recorder, config, typed, write_run


@pytest.fixture
def recorder() -> Recorder:
    """Trials of 2 and of 3 epochs, the short ones with higher rates; one has begun."""
    parameters: Any = {**INFO["space"]["parameters"], "epochs": {"values": [2, 3]}}
    recorder = Recorder(space={**INFO["space"], "parameters": parameters})
    recorder.complete("t0001", [0.3, 0.5], 300.0, config(512, epochs=2))
    recorder.complete("t0002", [0.3, 0.4, 0.7], 200.0, config(64, epochs=3))
    recorder.complete("t0003", [0.3, 0.45], 100.0, config(128, epochs=2))
    recorder.start("t0004", **config(256, epochs=2))
    recorder.measure("t0004", 1, val_accuracy=0.2, images_per_second=50.0)
    return recorder


def test_complete_trials_of_all_lengths_are_compared(recorder: Recorder, tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "run", recorder.events))
    assert [trial.trial_id for trial in run.state.candidates()] == ["t0001", "t0002", "t0003"]
    assert run.front["trial_id"].tolist() == ["t0002", "t0001"]


def test_progress_is_told_by_the_trials_own_length(recorder: Recorder) -> None:
    run_state = RunState(typed(recorder.events))
    line = event_line(run_state, typed(recorder.events)[-1])
    assert line is not None
    assert line.startswith("t0004 epoch 1/2: ")
    assert activity(run_state, run_state.trials["t0004"]) == "epoch 2/2"


def test_the_printed_commands_train_for_the_length_that_was_chosen(
    recorder: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "run", recorder.events)
    assert pick([str(folder), "--at-least", "images_per_second=250"]) == 0
    shown = capsys.readouterr().out
    assert "--epochs 2" in shown
    assert "epochs=2" not in shown.partition("To train it")[2]


def test_trials_of_all_lengths_are_completed_where_longer_ones_learn_more_and_take_longer() -> None:
    objectives = [{"metric": "val_accuracy", "goal": "maximize"}, {"metric": "training_seconds", "goal": "minimize"}]
    ranges = {name: {"min": 0.0, "max": 1.0} for name in ("x", "y", "z")}
    parameters = {**ranges, "epochs": {"values": [2, 4, 6, 8, 12]}}
    budget = {"hours": 1.0, "epochs": 12}
    advisor = Advisor(parse_space({"objectives": objectives, "parameters": parameters, "budget": budget}), seed=0)
    noise, completed = np.random.default_rng(0), set()
    for _ in range(60):
        proposal = advisor.propose()
        assert proposal is not None
        x, y, z, length = (float(proposal.config[name]) for name in (*ranges, "epochs"))
        lost = (x - 0.3) ** 2 / 2 + (y - 0.6) ** 2 / 4 + (z - 0.5) ** 2 / 4
        final = 0.9 - 0.5 * length**-0.5 - lost + 0.01 * noise.normal()
        for epoch in range(1, round(length) + 1):
            metrics = {"val_accuracy": final * (0.5 + 0.5 * epoch / length), "training_seconds": 5.0 * length}
            decision = advisor.observe(proposal.trial_id, epoch, metrics)
            if decision is Decision.STOP:
                break
        advisor.finish(proposal.trial_id, "complete" if epoch == length else "stopped")
        completed |= {length} if epoch == length else set()
    assert completed == {2, 4, 6, 8, 12}
