"""Results folders that commit 3f106c3 wrote: they load, report, and resume."""

import json
import shutil
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from search.page.page import try_to_write
from search.record.journal import FILE_NAME, read_journal
from search.record.run_state import RunState
from search.results import load
from search.space.machine import describe_machine
from search.study.resumed import read_run, resume_space
from search.study.shutdown import write_results
from tests.faults.processes import running

RUNS = Path(__file__).parent.parent / "runs_of_3f106c3"
NAMES = ("quickstart", "interrupted")
RENAMED = {"disturbed": "contended", "disturbed_windows": "contended_windows"}


@pytest.fixture(params=NAMES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(RUNS / request.param, tmp_path / request.param))


@pytest.mark.parametrize("table", ["trials", "curves"])
def test_the_tables_have_the_values_that_the_earlier_version_wrote(folder: Path, table: str) -> None:
    """Except shared rates in `trials`, advice that was predicted, and lower ends of rates below zero."""
    before = pd.read_csv(folder / f"{table}.csv").rename(columns=RENAMED)
    now = pd.read_csv(StringIO(getattr(load(folder), table).to_csv(index=False)))
    shared = [name for name in before.columns if table == "trials" and name.startswith(("images_per_second", "advice"))]
    columns = before.columns.drop(shared)
    if "images_per_second_low" in columns:
        before["images_per_second_low"] = before["images_per_second_low"].clip(lower=0.0)
    pd.testing.assert_frame_equal(now[columns], before[columns])


def test_summary_and_page_are_written_again(folder: Path) -> None:
    """The picks stay, but for t0001 of the quickstart: its rate, 618, is that of t0003, 274 when measured again."""
    picks = [line for line in (folder / "summary.md").read_text().splitlines() if line.startswith("### ")]
    (folder / "summary.md").unlink()
    run = write_results(folder)
    now = [line for line in (folder / "summary.md").read_text().splitlines() if line.startswith("### ")]
    assert now == [pick.replace("t0001", "t0003") if run.name.startswith("quickstart") else pick for pick in picks]
    assert try_to_write(lambda: run)
    assert run.name in (folder / "report.html").read_text()


def test_contended_windows_are_read_under_their_old_name() -> None:
    run = load(RUNS / "quickstart")
    assert run.trials.set_index("trial_id").loc["t0001", "contended_windows"] == 24
    assert not any("disturbed" in name for name in run.trials.columns)


@pytest.mark.parametrize(("name", "now"), [("auto", "auto"), ("halving", "forecast")])
def test_a_run_with_settings_of_halving_goes_on_with_forecasts(folder: Path, name: str, now: str) -> None:
    first, *_ = (folder / FILE_NAME).read_text().splitlines()
    written = json.loads(first)
    written["space"]["stopping"]["name"] = name
    (folder / FILE_NAME).write_text(json.dumps(written) + "\n")
    assert resume_space(RunState(read_run(folder)), [], folder).stopping.name == now


@pytest.mark.slow
def test_an_interrupted_run_resumes_with_every_finished_trial(tmp_path: Path) -> None:
    """On another machine it would be refused, so the copy says that it was made on this one."""
    folder = Path(shutil.copytree(RUNS / "interrupted", tmp_path / "interrupted"))
    first, *others = (folder / FILE_NAME).read_text().splitlines(keepends=True)
    machine = {**describe_machine().to_mapping(), "num_nodes": 1}
    moved = json.dumps({**json.loads(first), "machine": machine}) + "\n"
    (folder / FILE_NAME).write_text(moved + "".join(others))
    before = load(folder).trials.set_index("trial_id")
    with running("--resume", folder, "--set", "budget.trials=6", cwd=tmp_path) as process:
        assert process.wait(200) == 0, (tmp_path / "printed").read_text()
    assert (folder / FILE_NAME).read_text().startswith(moved + "".join(others))
    after = load(folder).trials.set_index("trial_id")
    assert after["state"].tolist() == ["complete"] * 6
    done = before.index[before["state"] == "complete"]
    pd.testing.assert_frame_equal(
        after.loc[done, ["val_accuracy", "epochs"]], before.loc[done, ["val_accuracy", "epochs"]]
    )
    assert len(read_journal(folder / FILE_NAME)) > len(others) + 1
