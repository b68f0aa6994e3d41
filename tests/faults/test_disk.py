"""Disks: full at each place that writes, read-only, a folder that is deleted while a run writes to it."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from search.record.events import Event
from search.record.journal import FILE_NAME, Journal, read_journal
from search.results import load
from search.run import main
from search.study.shutdown import finish_run, write_results
from tests.faults.processes import SPACE, printed, running, wait_for
from tests.faults.simulation import a_space, simulate
from tests.search.test_study_on_ray import study
from trainables import checkpoint, replay
from trainables.checkpoint import Checkpoint
from trainables.contract import Measurement

Resize = Callable[[str], None]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Resize]]:
    """A disk of 256 KiB, and what gives it another size."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(*options: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", *options, "tmpfs", place], check=True, capture_output=True)

    try:
        mount("size=256k")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount a disk of its own")
    try:
        yield place, lambda options: mount(f"remount,{options}")
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(place: Path, leave: int = 0) -> None:
    """Until no more than so many bytes are free."""
    with open(place / "filling", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            file.truncate(max(0, file.tell() - leave))


def test_an_event_that_does_not_fit_is_not_there_by_half_and_the_next_one_is_whole(disk: tuple[Path, Resize]) -> None:
    place, resize = disk
    path = place / FILE_NAME
    with Journal(path) as journal:
        journal.append("resume", command=["x" * 3000])
        fill(place)
        with pytest.raises(OSError, match=r"No space left on device: 20\d\d bytes more are needed") as caught:
            journal.append("resume", command=["y" * 2000])
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
        assert path.read_bytes().count(b"\n") == 1
        assert path.read_bytes().endswith(b"\n")
        resize("size=512k")
        journal.append("end")
    assert path.read_bytes().count(b"\n") == 2


def test_a_full_disk_does_not_break_the_end_of_a_journal_too(disk: tuple[Path, Resize]) -> None:
    """What could not be written must not be tried again when the file is closed."""
    place, _ = disk
    fill(place)
    with Journal(place / FILE_NAME) as journal, pytest.raises(OSError, match="No space left"):
        journal.append("resume", command=["y" * 2000])
    assert (place / FILE_NAME).read_bytes() == b""


@pytest.mark.parametrize("name", ["torch", "replay"])
def test_a_checkpoint_that_does_not_fit_leaves_the_last_one_and_says_what_it_needs(
    disk: tuple[Path, Resize], name: str
) -> None:
    import torch

    place, _ = disk

    def save(epoch: int, size: int) -> None:
        measurement = Measurement(epoch, {"val_accuracy": 0.5})
        if name == "replay":
            replay._save_checkpoint(place, measurement, size)
        else:
            checkpoint.save(place, Checkpoint({"width": 1}, measurement, {"weight": torch.zeros(size // 4)}))

    save(1, 100_000)
    with pytest.raises(OSError, match=r"No space left on device: 2\d\d,\d\d\d bytes are needed") as caught:
        save(2, 200_000)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename.startswith(f"{place}/checkpoint")
    assert [path.suffix for path in place.iterdir()] in ([".pt"], [".json"]), "half a checkpoint would only fill it up"
    last = replay._load_checkpoint(place) if name == "replay" else checkpoint.load(place, {"width": 1})
    assert last is not None
    assert (last if isinstance(last, Measurement) else last.measurement).epoch == 1


@pytest.mark.parametrize("leave", [0, 4096, 12288])
def test_tables_and_summary_that_do_not_fit_are_exit_3_with_the_old_ones_whole(
    disk: tuple[Path, Resize], leave: int, capsys: pytest.CaptureFixture[str]
) -> None:
    place, resize = disk
    folder = place / "run"
    simulate(folder, a_space(budget={"trials": 2, "epochs": 1}))
    write_results(folder)
    old = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    resize("size=512k")
    with (folder / FILE_NAME).open("a") as file:  # a longer journal: other tables
        file.write('{"event":"test","time":1.0,"trial_id":"t0001","metrics":{"test_accuracy":0.5}}\n')
    old[FILE_NAME] = (folder / FILE_NAME).read_bytes()
    fill(place, leave)
    assert finish_run(folder, "the command") == 3
    err = capsys.readouterr().err
    assert f"{folder}/" in err.splitlines()[0]
    assert "No space left on device; " in err
    assert " bytes are free in " in err
    assert err.splitlines()[1:] == ["free some space, then:", "  the command"]
    now = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert now.keys() == old.keys(), "nothing half-written is left"
    (place / "filling").unlink()
    assert finish_run(folder, "the command") == 0
    assert "test_accuracy" in load(folder).trials


def test_results_that_cannot_be_written_for_a_fault_of_ours_are_told_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What follows the results, such as the last copy and `--on-end`, is done all the same."""

    def write(folder: Path) -> None:
        raise ValueError("no such column")

    monkeypatch.setattr("search.study.shutdown.write_results", write)
    assert finish_run(tmp_path, "the command") == 1
    told = f"the run broke off: ValueError: no such column (see {tmp_path / 'error.txt'})"
    assert capsys.readouterr().err.splitlines() == [told, "to go on:", "  the command"]


@pytest.mark.slow
def test_a_full_disk_stops_the_search_whose_trial_goes_on_when_there_is_space(
    pool: Any, disk: tuple[Path, Resize]
) -> None:
    """A checkpoint in a worker does not fit: no further trial is started, for none would get on."""
    place, resize = disk
    keys: dict[str, Any] = {
        "parameters": {"learning_rate": {"values": [0.1, 0.2, 0.3]}},
        "fixed": {"checkpoint_bytes": 200_000},
        "searcher": {"name": "grid"},
        "budget": {"epochs": 2},
    }
    with pytest.raises(
        OSError, match=r"checkpoint.json: No space left on device: 200,\d\d\d bytes are needed"
    ) as caught:
        study(pool, place / "run", **keys)
    assert caught.value.errno == errno.ENOSPC
    events = read_journal(place / "run" / FILE_NAME)
    assert [e.event for e in events if getattr(e, "trial_id", None)] == ["start", "measurement"]
    resize("size=4m")
    run = study(pool, place / "run", **keys)
    assert run.trials.state.tolist() == ["complete"] * 3
    assert run.trials.epochs.tolist() == [2] * 3
    assert sum(e.event == "start" for e in read_journal(place / "run" / FILE_NAME)) == 3


@pytest.mark.slow
def test_a_folder_deleted_while_a_run_writes_to_it_ends_the_run(pool: Any, tmp_path: Path) -> None:
    """It would otherwise go on for hours, into a file that no name leads to."""
    events: list[str] = []

    def delete(event: Event) -> None:
        events.append(event.event)
        if event.event == "measurement":
            shutil.rmtree(tmp_path / "run")

    keys = {"parameters": {"learning_rate": {"values": [0.1, 0.2]}}, "searcher": {"name": "grid"}}
    with pytest.raises(FileNotFoundError):
        study(pool, tmp_path / "run", [delete], **keys, budget={"epochs": 2})
    assert events == ["run", "start", "measurement"]
    assert not (tmp_path / "run").exists()


def test_a_disk_that_is_read_only_is_told_before_anything_is_started(
    disk: tuple[Path, Resize], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, resize = disk
    simulate(place / "run", a_space(budget={"trials": 2, "epochs": 1}))
    resize("ro")
    (tmp_path / "space.yaml").write_text(SPACE)
    assert main([str(tmp_path / "space.yaml"), "--results", str(place / "results")]) == 2
    assert "cannot be made" in capsys.readouterr().err
    assert main(["--resume", str(place / "run")]) == 1
    assert capsys.readouterr().err.endswith(": Read-only file system\n")


@pytest.mark.parametrize("below", ["", "/results"])
def test_results_in_what_is_no_folder_are_told_in_a_line(
    below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "file").touch()
    assert main([str(tmp_path / "space.yaml"), "--results", f"{tmp_path}/file{below}"]) == 2
    err = capsys.readouterr().err
    assert "not a folder" in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_a_run_out_of_disk_is_exit_3_with_path_and_bytes_and_goes_on_when_there_is_space(
    disk: tuple[Path, Resize], tmp_path: Path
) -> None:
    place, resize = disk
    resize("size=1m")
    with running("space.yaml", "--results", place, "--name", "run", cwd=tmp_path) as process:
        wait_for(place / "run" / FILE_NAME, '"measurement"', process)
        fill(place)
        assert process.wait(60) == 3, printed(tmp_path)
    lines = printed(tmp_path)
    assert lines[-2:] == ["free some space, then:", f"  python -m search.run --resume {place / 'run'} --no-dashboard"]
    assert "No space left on device: " in lines[-3]
    assert " are needed; 0 bytes are free in " in lines[-3]
    assert not any("Traceback" in line for line in lines)
    os.unlink(place / "filling")
    resize("size=16m")
    with running("--resume", place / "run", cwd=tmp_path) as process:
        assert process.wait(300) == 0, printed(tmp_path)
    assert load(place / "run").trials.state.tolist() == ["complete"] * 8


def test_a_message_that_cannot_be_written_changes_no_exit_code(tmp_path: Path) -> None:
    """As of `search.run ... > log 2>&1`, with the log on the disk that is full."""
    full_disk = "import errno; error = OSError(errno.ENOSPC, 'No space left on device')"
    modules = "from pathlib import Path; from search import run; from search.study.shutdown import report_failure"
    within = "run._run = lambda *arguments: report_failure(Path('run'), 'command', error)"
    code = "\n".join([full_disk, modules, within, "raise SystemExit(run.main([]))"])
    commands = [(["-c", code], 3), (["-m", "search.run", "missing.yaml"], 2), (["-m", "search.train", "missing"], 2)]
    with open("/dev/full", "w") as stderr:
        for command, expected in commands:
            ended = subprocess.run([sys.executable, *command], cwd=tmp_path, stderr=stderr, timeout=60, check=False)
            assert ended.returncode == expected
