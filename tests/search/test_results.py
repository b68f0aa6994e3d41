import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from search.results import COLUMNS, load, write_tables
from tests.search.runs import INFO, Recorder, config, interval, story, write_run

OBJECTIVES = ["val_accuracy", "images_per_second"]


@pytest.fixture
def run(tmp_path):
    return load(write_run(tmp_path / "run", story()))


def row(run, trial_id):
    return run.trials.set_index("trial_id").loc[trial_id]


def load_events(tmp_path, recorder):
    return load(write_run(tmp_path / "run", recorder.events))


def test_a_run_is_printed_in_one_line(run, tmp_path):
    expected = "<Run throughput-2026-11-20-1 of spaces/throughput.yaml; ended: the budget of 1 hour is spent; "
    assert f"{run}" == repr(run) == f"{expected}12 trials, 6 complete; front of 3 points; in {tmp_path}/run>"
    cut_off = load(write_run(tmp_path / "begun", story()[:1]))
    assert "; not ended; 0 trials, 0 complete; front of 0 points; " in f"{cut_off}"


def test_every_trial_started_has_one_row_whatever_became_of_it(run):
    assert run.trials["trial_id"].tolist() == [f"t{n:04d}" for n in range(1, 13)]
    assert run.trials["state"].value_counts().to_dict() == {
        "complete": 6,
        "infeasible": 2,
        "failed": 2,
        "stopped": 1,
        "running": 1,
    }


def test_a_trial_that_never_reported_has_no_metrics_and_no_epochs(run):
    trial = row(run, "t0002")
    assert (trial["epochs"], trial["state"]) == (0, "infeasible")
    assert trial[OBJECTIVES].isna().all()
    assert "out of memory" in trial["reason"]


def test_metrics_are_those_of_the_last_measurement_and_of_the_test_set(run):
    trial = row(run, "t0003")
    assert (trial["val_accuracy"], trial["test_accuracy"], trial["epochs"]) == (0.71, 0.703, 3)
    assert "test_accuracy" not in run.curves


def test_a_measurement_that_could_not_be_made_is_nan(run):
    assert np.isnan(row(run, "t0005")["val_accuracy"])
    assert row(run, "t0005")["images_per_second"] == 350.0


def test_of_an_epoch_that_was_measured_again_the_later_measurement_stands(run):
    curve = run.curves[run.curves["trial_id"] == "t0007"]
    assert curve["epoch"].tolist() == [1, 2, 3]
    assert curve["val_accuracy"].tolist() == [0.4, 0.6, 0.7]
    assert row(run, "t0007")["retries"] == 1


def test_settings_keep_their_types_and_absent_ones_are_missing(run):
    types = run.trials.dtypes.astype(str)
    assert types["config.batch_size"] == types["config.num_workers"] == "Int64"
    assert (types["config.learning_rate"], types["config.pin_memory"]) == ("Float64", "boolean")
    assert types["config.loader"] == "string"
    assert row(run, "t0001")["config.num_workers"] == 0
    assert row(run, "t0003")["config.num_workers"] is pd.NA


def test_a_column_has_a_unit_in_its_name_or_is_documented(run):
    for name in [*run.trials.columns, *run.curves.columns]:
        known = name in COLUMNS or name in run.info.metrics or name.startswith("config.")
        assert known or name in ("test_accuracy", "test_loss"), name


def test_the_front_is_complete_within_constraints_and_sorted_by_the_first_objective(run):
    assert run.front["trial_id"].tolist() == ["t0003", "t0007", "t0011"]  # t0010 beats two, with too much memory
    assert list(run.front.columns) == [*run.trials.columns, "front_probability", "alternatives", "place_probability"]
    assert run.front.front_probability.between(0, 1).all()


def beside(parameter, old, value, ratio, again, rounds=8):
    """Events of rounds in which a change had turns."""
    changed = {"event": "neighbour", "trial_id": "t0001", "parameter": parameter, "old": old, "value": value}
    return [
        {**changed, "rates": [100.0 * ratio * (1 + n / 1000), 100.0], "again": again, "time": 1795200000.0}
        for n in range(rounds)
    ]


def test_what_bound_a_trial_and_the_best_measured_change_are_columns(tmp_path):
    recorder = Recorder()
    recorder.complete("t0001", [0.4], 100.0, config())
    old = [{"parameter": "num_workers", "old": 0, "new": 2, "gain": 1.8, "why": "a core is idle"}]  # of early runs
    recorder.events[-1]["verdict"] = {"bound_by": "input", "share": 0.62, "why": "it waits", "advice": old}
    recorder.complete("t0002", [0.4], 100.0, config())
    recorder.events += beside("num_workers", 0, 2, 2.0, again=False)
    recorder.events += beside("num_workers", 0, 2, 1.8, again=True)
    recorder.events += beside("threads", None, 1, 1.5, again=False)  # measured once: perhaps by luck
    trials = load_events(tmp_path, recorder).trials
    assert trials[["bound_by", "bound_share", "advice"]].to_numpy().tolist()[0] == ["input", 0.62, "num_workers=2"]
    assert trials["advice_gain"][0] == pytest.approx(1.8, rel=0.01)
    names = ["bound_by", "bound_share", "advice", "advice_gain"]
    assert trials[names].isna().to_numpy().tolist()[1] == [True] * 4


def test_the_front_is_at_best_fidelity(tmp_path):
    recorder = Recorder()
    recorder.complete("t0001", [0.4, 0.5, 0.6], 100.0, config())
    recorder.complete("t0002", [0.9, 0.95], 900.0, config())  # better, but two epochs only
    assert load_events(tmp_path, recorder).front["trial_id"].tolist() == ["t0001"]


def test_only_complete_trials_are_on_the_front_even_if_others_came_as_far(tmp_path):
    recorder = Recorder()
    recorder.complete("t0001", [0.4], 100.0, config())
    recorder.start("t0002", **config())
    recorder.epochs("t0002", [0.9], 900.0)
    recorder.finish("t0002", "stopped")
    recorder.start("t0003", **config())
    recorder.epochs("t0003", [0.8], 950.0)
    assert load_events(tmp_path, recorder).front["trial_id"].tolist() == ["t0001"]


@pytest.mark.parametrize(("evaluation", "front"), [("decoupled", []), ("coupled", []), ("probe", ["p0001"])])
def test_a_probe_is_on_the_front_only_where_trials_are_probes(tmp_path, evaluation, front):
    recorder = Recorder(space={**INFO["space"], "evaluation": evaluation})
    recorder.start("p0001", kind="probe", **config())
    recorder.measure("p0001", 0, val_accuracy=0.9, **interval(900.0, 4.0))
    recorder.finish("p0001")
    run = load_events(tmp_path, recorder)
    assert run.front["trial_id"].tolist() == list(run.front_probabilities) == front


def test_a_constraint_may_be_in_parts_of_the_baseline(tmp_path):
    usual = {**INFO["space"], "baseline": config()}
    recorder = Recorder(space=usual, constraints=["images_per_second >= 0.95 * baseline"])
    recorder.complete("t0001", [0.4], 100.0, config())
    recorder.complete("t0002", [0.9], 94.0, config(64))
    recorder.complete("t0003", [0.8], 96.0, config(256))
    assert load_events(tmp_path, recorder).front["trial_id"].tolist() == [
        "t0003",
        "t0001",
    ]  # t0002 is more accurate, and too slow


def test_a_constraint_on_what_was_not_measured_is_not_judged(tmp_path):
    recorder = Recorder()
    recorder.start("t0001", **config())
    recorder.measure("t0001", 1, val_accuracy=0.4, images_per_second=100.0)
    recorder.finish("t0001")
    assert len(load_events(tmp_path, recorder).front) == 1


def test_a_minimized_objective_is_best_when_low(tmp_path):
    recorder = Recorder(objectives=[{"metric": "train_loss", "goal": "minimize"}, INFO["objectives"][1]])
    for trial_id, size, loss, rate in (("t0001", 64, 2.0, 100.0), ("t0002", 128, 1.0, 50.0), ("t0003", 256, 3.0, 90.0)):
        recorder.start(trial_id, **config(size))
        recorder.measure(trial_id, 1, train_loss=loss, images_per_second=rate)
        recorder.finish(trial_id)
    assert load_events(tmp_path, recorder).front["trial_id"].tolist() == ["t0002", "t0001"]


def test_a_trial_taken_up_again_after_a_resume_is_the_same_trial(tmp_path):
    recorder = Recorder()
    recorder.start("t0001", **config())
    recorder.measure("t0001", 1, val_accuracy=0.4, images_per_second=100.0)
    recorder.add("resume", 100.0)
    recorder.start("t0001", **config())
    run = load_events(tmp_path, recorder)
    assert run.trials[["trial_id", "epochs"]].to_numpy().tolist() == [["t0001", 1]]


def test_a_trial_whose_end_nobody_timed_keeps_the_time_of_its_last_measurement(tmp_path):
    recorder = Recorder()
    recorder.start("t0001", **config())
    recorder.measure("t0001", 2, val_accuracy=0.4, images_per_second=100.0)
    recorder.add("finish", trial_id="t0001", state="failed", reason="its actor died", seconds=None, setup_seconds=None)
    assert row(load_events(tmp_path, recorder), "t0001")["seconds"] == 40.0


def test_a_run_without_trials_has_empty_tables_with_columns(tmp_path):
    run = load_events(tmp_path, Recorder())
    assert (len(run.trials), len(run.curves), len(run.front)) == (0, 0, 0)
    assert {"trial_id", "state", "config.batch_size", *OBJECTIVES} <= set(run.trials.columns)
    write_tables(load(tmp_path / "run"))


def test_time_between_the_processes_of_a_run_is_not_its_wall_time(run):
    events = story()
    assert run.state.clock.active_seconds() == events[-1]["time"] - events[0]["time"] - 3600.0


def test_csv_and_parquet_hold_what_load_gives(tmp_path, run):
    folder = tmp_path / "run"
    write_tables(load(folder))
    for name, table in run.tables.items():
        pd.testing.assert_frame_equal(pd.read_parquet(folder / f"{name}.parquet"), table)
        assert list(pd.read_csv(folder / f"{name}.csv").columns) == list(table.columns)
    assert len(list(folder.iterdir())) == 10  # with the journal and columns.md; no unfinished file stays


def test_every_column_of_the_tables_is_explained_beside_them(tmp_path, run):
    write_tables(load(tmp_path / "run"))
    lines = (tmp_path / "run" / "columns.md").read_text().splitlines()
    rows = dict(line.strip("| ").split(" | ", 1) for line in lines if line.startswith("| `"))
    assert set(rows) == {f"`{name}`" for table in run.tables.values() for name in table.columns}
    assert rows["`images_per_second`"].startswith("images/s | ")
    assert rows["`config.batch_size`"].strip(" |") != ""
    assert rows["`seconds`"].startswith("s | ")
    assert all(not row.endswith("| ") and not row.endswith("|") for row in rows.values())


def test_a_setting_that_is_now_a_word_now_a_number_is_text_in_parquet(tmp_path):
    recorder = Recorder()
    for trial_id, placement in (("t0001", "spread"), ("t0002", 2), ("t0003", None)):
        recorder.start(trial_id, **(config() if placement is None else config(placement=placement)))
    run = load_events(tmp_path, recorder)
    write_tables(load(tmp_path / "run"))
    assert run.trials["config.placement"].tolist() == ["spread", 2, pd.NA]
    read = pd.read_parquet(tmp_path / "run" / "trials.parquet")
    assert read["config.placement"].tolist() == ["spread", "2", pd.NA]


def test_a_folder_that_is_not_a_run_is_refused_in_one_line(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"not the folder of a run \(no journal.jsonl in it\)"):
        load(tmp_path)
    (tmp_path / "journal.jsonl").write_text("shopping list\n")
    with pytest.raises(ValueError, match="not the journal of a run"):
        load(tmp_path)


def test_a_copied_folder_loads_where_the_run_could_not_have_been_made(tmp_path):
    """With neither Ray nor torch nor the rest of what a search needs."""
    folder = write_run(tmp_path / "elsewhere", story())
    program = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("ray", "torch", "torchvision", "optuna", "rich", "psutil", "ruamel"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from search.results import load, write_tables
print(load(sys.argv[1]).front.trial_id.tolist())
"""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['t0003', 't0007', 't0011']\n"


def test_the_lower_end_of_a_rate_is_not_below_zero(tmp_path):
    recorder = Recorder()
    recorder.start("t0001", **config())
    recorder.measure("t0001", 1, val_accuracy=0.4, **interval(100.0, 130.0))
    recorder.finish("t0001")
    write_run(tmp_path, recorder.events)
    run = load(tmp_path)
    for table in (run.trials, run.curves):
        assert table["images_per_second_low"].tolist() == [0.0]
        assert table["images_per_second_high"].tolist() == [230.0]
