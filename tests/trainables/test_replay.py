"""Replayed curves: what a search sees of them is what was recorded."""

import csv
import math
import os
import signal
import sys
from collections.abc import Mapping
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from tests import faulty_replay
from trainables import replay
from trainables.contract import Data, DataError, InfeasibleError, Layout, Measurement, Resources
from trainables.local_worker import LocalWorker

CURVES = """trial_id,epoch,seconds,config.batch_size,config.loader,config.num_workers,val_accuracy,note,val_loss
t0001,1,2.5,128,memory,,0.40,good,
t0001,2,5.0,128,memory,,0.55,good,1.2
t0002,1,3.5,64,workers,2,0.45,good,1.5
"""


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "curves.csv"
    path.write_text(CURVES)
    return str(path)


def epochs(worker: LocalWorker) -> list[int]:
    return [m.epoch for m in worker.reported]


def test_recorded_metrics_are_reported_epoch_by_epoch_without_text_and_empty_cells(tmp_path: Path, table: str) -> None:
    worker = LocalWorker(tmp_path, epochs=2)
    replay.train({"table": table, "batch_size": 128, "loader": "memory"}, worker)
    assert worker.reported == [
        Measurement(1, {"val_accuracy": 0.40}),
        Measurement(2, {"val_accuracy": 0.55, "val_loss": 1.2}),
    ]


def test_columns_of_earlier_versions_are_read_under_their_present_names(tmp_path: Path) -> None:
    table, worker = tmp_path / "curves.csv", LocalWorker(tmp_path, epochs=1)
    table.write_text("epoch,disturbed,disturbed_windows\n1,1,2\n")
    replay.train({"table": str(table)}, worker)
    assert worker.reported == [Measurement(1, {"contended": 1.0, "contended_windows": 2.0})]


def test_a_configuration_that_was_not_recorded_is_infeasible_and_named(tmp_path: Path, table: str) -> None:
    with pytest.raises(InfeasibleError, match="batch_size 256, loader memory"):
        replay.train({"table": table, "batch_size": 256, "loader": "memory"}, LocalWorker(tmp_path, epochs=2))


def test_an_empty_cell_is_a_parameter_that_was_not_active(tmp_path: Path, table: str) -> None:
    with pytest.raises(InfeasibleError, match="num_workers 2"):
        replay.train({"table": table, "batch_size": 128, "num_workers": 2}, LocalWorker(tmp_path, epochs=2))


def test_a_parameter_that_is_null_was_recorded_as_an_empty_cell(tmp_path: Path, table: str) -> None:
    worker = LocalWorker(tmp_path, epochs=1)
    replay.train({"table": table, "batch_size": 128, "num_workers": None}, worker)
    assert epochs(worker) == [1]


def test_an_epoch_that_was_not_recorded_is_infeasible(tmp_path: Path, table: str) -> None:
    with pytest.raises(InfeasibleError, match="no epoch 2"):
        replay.train({"table": table, "batch_size": 64}, LocalWorker(tmp_path, epochs=2))


def test_a_parameter_that_the_table_does_not_know_is_refused_with_the_nearest_name(tmp_path: Path, table: str) -> None:
    with pytest.raises(DataError, match=r'"config.batchsize"; did you mean "batch_size"'):
        replay.train({"table": table, "batchsize": 128}, LocalWorker(tmp_path, epochs=2))


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.csv: No such file"):
        replay.train({"table": str(tmp_path / "absent.csv")}, LocalWorker(tmp_path, epochs=2))


def test_replaying_what_was_replayed_gives_the_same_curves(tmp_path: Path) -> None:
    config = {"batch_size": 256, "learning_rate": 0.03}
    rows = [
        {"config.batch_size": 256, "config.learning_rate": 0.03, "epoch": e, **replay.curve(config, e)} for e in (1, 2)
    ]
    with (tmp_path / "curves.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    again = {**config, "table": str(tmp_path / "curves.csv")}
    assert [replay.curve(again, e) for e in (1, 2)] == [replay.curve(config, e) for e in (1, 2)]


def test_the_closed_form_has_an_optimal_learning_rate_and_trades_accuracy_for_rate() -> None:
    def accuracy(**parameters: Any) -> float:
        return replay.closed_form(parameters, 10)["val_accuracy"]

    def rate(**parameters: Any) -> float:
        return replay.closed_form(parameters, 10)["images_per_second"]

    assert max((0.01, 0.03, 0.1, 0.3, 1.0), key=lambda x: accuracy(batch_size=128, learning_rate=x)) == 0.1
    assert accuracy(batch_size=64) > accuracy(batch_size=512)
    assert rate(batch_size=64) < rate(batch_size=512)
    assert accuracy(depth=1) > accuracy(depth=5)
    assert rate(depth=1) < rate(depth=5)


def test_the_closed_form_rises_with_the_epochs_and_saturates() -> None:
    accuracy = [replay.closed_form({}, epoch)["val_accuracy"] for epoch in range(1, 40)]
    gains = [b - a for a, b in pairwise(accuracy)]
    assert min(gains) > 0
    assert gains == sorted(gains, reverse=True)
    assert accuracy[-1] == pytest.approx(0.93, abs=1e-4)


def test_a_trial_goes_on_behind_its_checkpoint_and_reports_that_epoch_again(tmp_path: Path) -> None:
    first, second = LocalWorker(tmp_path, epochs=4, listener=lambda m: m.epoch < 2), LocalWorker(tmp_path, epochs=4)
    replay.train({}, first)
    replay.train({}, second)
    assert epochs(first) == [1, 2]
    assert epochs(second) == [2, 3, 4]
    assert second.reported[0] == first.reported[-1]


def test_a_finished_trial_only_reports_its_last_epoch_again(tmp_path: Path) -> None:
    replay.train({}, LocalWorker(tmp_path, epochs=2))
    again = LocalWorker(tmp_path, epochs=2)
    replay.train({}, again)
    assert epochs(again) == [2]


def test_a_torn_checkpoint_is_named_and_the_trial_begins_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "checkpoint.json").write_text('{"epoch": 1, "met')
    worker = LocalWorker(tmp_path, epochs=2)
    replay.train({}, worker)
    assert epochs(worker) == [1, 2]
    assert "checkpoint.json" in caplog.text


@pytest.mark.parametrize(("kind", "error"), [("exception", RuntimeError), ("infeasible", InfeasibleError)])
def test_a_trial_can_be_made_to_fail_at_an_epoch(tmp_path: Path, kind: str, error: type[Exception]) -> None:
    worker = LocalWorker(tmp_path, epochs=2)
    with pytest.raises(error, match="epoch 2"):
        faulty_replay.train({"fail_at_epoch": 2, "fail_with": kind}, worker)
    assert epochs(worker) == [1]


def test_a_trial_can_be_made_to_report_nan(tmp_path: Path) -> None:
    worker = LocalWorker(tmp_path, epochs=2)
    faulty_replay.train({"fail_at_epoch": 1, "fail_with": "nan"}, worker)
    assert all(math.isnan(value) for value in worker.reported[0].metrics.values())
    assert all(math.isfinite(value) for value in worker.reported[1].metrics.values())


def test_a_process_can_be_made_to_die_once_and_the_retry_gets_through(tmp_path: Path) -> None:
    config = {"fail_at_epoch": 2, "fail_with": "kill", "fail_once": True}
    context: Any = get_context("fork" if sys.platform == "linux" else "spawn")
    process = context.Process(target=train_alone, args=(config, tmp_path))
    process.start()
    process.join()
    retry = LocalWorker(tmp_path, epochs=2)
    faulty_replay.train(config, retry)
    assert process.exitcode == -signal.SIGKILL
    assert epochs(retry) == [1, 2]


def train_alone(config: Mapping[str, Any], folder: Path) -> None:
    faulty_replay.train(config, LocalWorker(folder, epochs=2))


def test_only_the_first_process_of_a_trial_fails(tmp_path: Path) -> None:
    worker = LocalWorker(tmp_path, epochs=2, rank=1)
    faulty_replay.train({"fail_at_epoch": 1, "fail_with": "kill"}, worker)
    assert epochs(worker) == [1, 2]
    assert not list(tmp_path.iterdir())
    assert os.getpid()


def test_the_test_accuracy_is_near_the_last_validation_accuracy(tmp_path: Path) -> None:
    worker = LocalWorker(tmp_path, epochs=2)
    assert replay.test({}, worker) == {}
    replay.train({}, worker)
    assert replay.test({}, worker)["test_accuracy"] == pytest.approx(
        worker.reported[-1].metrics["val_accuracy"], rel=0.02
    )


def test_processes_are_a_setting_and_bounded_by_the_cores() -> None:
    assert replay.layout({}, Resources(cpus=2)) == Layout()
    assert replay.layout({"processes": 2}, Resources(cpus=2)) == Layout(processes=2)
    with pytest.raises(InfeasibleError, match="needs 3 cores, there are 2"):
        replay.layout({"processes": 3}, Resources(cpus=2))


def test_the_estimate_takes_as_long_as_the_epochs() -> None:
    cost = replay.estimate({"seconds_per_epoch": 0.5}, Data())
    assert cost.samples_per_epoch / cost.samples_per_second == pytest.approx(0.5, rel=0.01)


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, trainables.replay; sys.exit(bool({'torch', 'numpy', 'ray'} & set(sys.modules)))"
    assert os.spawnl(os.P_WAIT, sys.executable, sys.executable, "-c", code) == 0
