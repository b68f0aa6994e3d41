"""The copy of a run on another file system: kept up, fetched, written by one process only, whatever is killed."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from search.record.journal import FILE_NAME, read_journal
from search.record.mirror import WRITER, Mirror, MirrorError, Mirroring, pid_namespace
from search.record.run_state import RunState
from search.run import main
from tests.faults.processes import SPACE, printed, running, wait_for
from tests.faults.simulation import Killed, a_space, facts, simulate
from tests.search.runs import story, write_run
from tests.waiting import wait_until

numbers = itertools.count()
STRANGER = {"host": "elsewhere", "process": 7, "token": "another", "time": 0.0}


@pytest.fixture(params=["file", "s3"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder on this disk, or a bucket of moto's S3 server."""
    if request.param == "file":
        yield (tmp_path / "bucket" / "runs").as_uri()
        return
    server = pytest.importorskip("moto.server", reason="no moto (pip install -e .[dev])")
    import boto3

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    moto = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    bucket = f"bucket-{next(numbers)}"  # its servers share what they hold
    boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1").create_bucket(Bucket=bucket)
    yield f"s3://{bucket}/runs?scheme=http&endpoint_override={host}:{port}&region=us-east-1"
    moto.stop()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = write_run(tmp_path / "results" / "run", story())
    checkpoint = folder / "trials" / "t0003" / "checkpoint.pt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(os.urandom(3_000_000))
    (folder / "report.html").write_text("a page")
    (folder / ".owner").write_text("process 1")
    return folder


def claimed(uri: str, name: str = "run") -> Mirror:
    mirror = Mirror(uri, name)
    mirror.claim(no_sleep)
    return mirror


def no_sleep(seconds: float) -> None:
    assert seconds > 0


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_copied_is_fetched_whole_and_follows_changes(uri: str, run: Path, tmp_path: Path) -> None:
    mirror = claimed(uri)
    mirror.copy(run)
    expected = {name: content for name, content in contents(run).items() if name != ".owner"}
    assert Mirror(uri, "run").fetch(tmp_path / "one")
    assert contents(tmp_path / "one") == expected
    (run / "trials" / "t0003" / "checkpoint.pt").unlink()
    (run / "report.html").write_text("another page")
    mirror.copy(run)
    assert Mirror(uri, "run").fetch(tmp_path / "two")
    assert set(contents(tmp_path / "two")) == {FILE_NAME, "report.html"}
    assert (tmp_path / "two" / "report.html").read_text() == "another page"
    assert not Mirror(uri, "run").fetch(run)  # it has everything
    assert not Mirror(uri, "new").has_run()


def test_files_of_trials_are_copied_when_these_have_finished(uri: str, run: Path, tmp_path: Path) -> None:
    mirror = claimed(uri)
    mirror.copy(run, {"t0003"})
    mirror.fetch(tmp_path / "one")
    assert not (tmp_path / "one" / "trials").exists()
    mirror.copy(run)
    mirror.fetch(tmp_path / "two")
    assert (tmp_path / "two" / "trials" / "t0003" / "checkpoint.pt").exists()


def test_what_an_earlier_process_copied_and_is_gone_since_is_deleted(uri: str, run: Path, tmp_path: Path) -> None:
    first = claimed(uri)
    first.copy(run)
    first.release()
    (run / "trials" / "t0003" / "checkpoint.pt").unlink()
    claimed(uri).copy(run)
    Mirror(uri, "run").fetch(tmp_path / "one")
    assert not (tmp_path / "one" / "trials").exists()


def test_a_training_with_another_seed_is_not_copied(uri: str, run: Path, tmp_path: Path) -> None:
    (run / "trials" / "t0003-seed-1").mkdir()
    (run / "trials" / "t0003-seed-1" / "checkpoint.pt").write_bytes(b"...")
    claimed(uri).copy(run)
    Mirror(uri, "run").fetch(tmp_path / "one")
    assert [path.name for path in (tmp_path / "one" / "trials").iterdir()] == ["t0003"]


def test_a_second_writer_is_refused_and_one_that_is_gone_is_replaced(uri: str) -> None:
    times = itertools.count()

    def busy(seconds: float) -> None:
        now = json.dumps({**STRANGER, "time": next(times)}).encode()
        first._put(WRITER, lambda stream: stream.write(now))

    first = Mirror(uri, "run")
    busy(1.0)
    with pytest.raises(MirrorError, match="process 7 on elsewhere is writing there: wait for it, or end it"):
        Mirror(uri, "run").claim(busy)
    waited: list[float] = []
    second = Mirror(uri, "run")
    second.claim(waited.append)
    assert sum(waited) >= 90
    second.release()
    waited.clear()
    Mirror(uri, "run").claim(waited.append)  # nobody to wait for
    assert sum(waited) < 5


def test_a_writer_of_this_machine_that_was_killed_is_not_waited_for(uri: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    here = {"host": socket.gethostname(), "pid_namespace": pid_namespace()}
    killed = json.dumps({**STRANGER, **here, "process": process.pid}).encode()
    mirror, waited = Mirror(uri, "run"), list[float]()
    mirror._put(WRITER, lambda stream: stream.write(killed))
    mirror.claim(waited.append)
    assert sum(waited) < 5


def test_a_writer_in_another_container_of_the_same_name_is_waited_for(uri: str) -> None:
    """Its process has a number that no process, or another one, has here."""
    there = {**STRANGER, "host": socket.gethostname(), "pid_namespace": "another", "process": os.getpid()}
    mirror, waited = Mirror(uri, "run"), list[float]()
    mirror._put(WRITER, lambda stream: stream.write(json.dumps(there).encode()))
    mirror.claim(waited.append)
    assert sum(waited) >= 90


def test_of_two_that_find_no_writer_at_once_only_the_last_to_sign_writes(uri: str) -> None:
    first, second = Mirror(uri, "run"), Mirror(uri, "run")
    with pytest.raises(MirrorError, match="another process began to write there at the same moment"):
        first.claim(lambda seconds: second._sign())
    assert second._is_ours()


def test_a_writer_that_was_replaced_writes_nothing_more(uri: str, run: Path) -> None:
    mirror = claimed(uri)
    mirror._put(WRITER, lambda stream: stream.write(json.dumps(STRANGER).encode()))
    with pytest.raises(MirrorError, match="another process writes there now"):
        mirror.copy(run)
    assert not mirror.has_run()
    mirror.release()
    assert mirror._writer() == STRANGER


def test_a_long_upload_shows_that_its_writer_is_there(uri: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror, signed = claimed(uri), list[float]()
    monkeypatch.setattr("search.record.mirror.SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(mirror, "_sign", lambda: signed.append(0.0))
    mirror.copy(run)
    assert len(signed) >= 1 + 3  # the checkpoint alone has three pieces

    def replaced() -> None:
        other = Mirror(uri, "run")
        other._sign()

    monkeypatch.setattr(mirror, "_sign", replaced)
    (run / "trials" / "t0003" / "checkpoint.pt").write_bytes(os.urandom(3_000_000))
    with pytest.raises(MirrorError, match="another process writes there now"):
        mirror.copy(run)


def test_a_claim_lasts_while_nothing_is_copied_and_ends_when_released(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a command waits for the nodes of its run, or downloads the data."""
    mirror = claimed(uri)
    first = mirror._writer()
    monkeypatch.setattr("search.record.mirror.SECONDS_BETWEEN", 0.03)
    mirror.keep_claim()
    wait_until(lambda: mirror._writer() not in (None, first))
    mirror.release()
    assert not mirror._renewal.is_alive()
    assert mirror._writer() is None


def test_a_claim_that_another_process_has_taken_is_not_renewed(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = claimed(uri)
    mirror._put(WRITER, lambda stream: stream.write(json.dumps(STRANGER).encode()))
    looked = list[None]()
    is_ours = mirror._is_ours
    monkeypatch.setattr(mirror, "_is_ours", lambda: looked.append(None) or is_ours())
    monkeypatch.setattr("search.record.mirror.SECONDS_BETWEEN", 0.0)
    mirror._signed_at = 0.0
    mirror.keep_claim()
    wait_until(lambda: len(looked) > 2)
    mirror.release()
    assert mirror._writer() == STRANGER


def test_another_run_of_the_same_name_is_not_overwritten(uri: str, run: Path, tmp_path: Path) -> None:
    claimed(uri).copy(run)
    other = write_run(tmp_path / "other", [{**story()[0], "name": "other"}])
    with pytest.raises(MirrorError, match="has another run of this name"):
        Mirror(uri, "run").fetch(other)


def test_a_run_that_went_on_elsewhere_is_told_what_to_do(uri: str, run: Path) -> None:
    claimed(uri).copy(run)
    with (run / FILE_NAME).open("a") as journal:
        journal.write('{"event": "end", "time": 2e9, "reason": "interrupted by SIGTERM"}\n')
    before = len((run / FILE_NAME).read_text().splitlines())
    lines = (run / FILE_NAME).read_text().splitlines(keepends=True)
    (run / FILE_NAME).write_text("".join([*lines[: before // 2], lines[-1]]))
    with pytest.raises(MirrorError, match="which went on elsewhere, lacks; rename it to go on from the copy"):
        Mirror(uri, "run").fetch(run)


def test_the_folder_of_the_run_is_no_place_for_its_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "results" / "run"
    simulate(run, a_space())
    before = contents(run)
    assert main(["--resume", str(run), "--mirror", str(tmp_path / "results")]) == 2
    assert "is the run's own folder; name another one" in capsys.readouterr().err
    assert contents(run) == before


@pytest.mark.parametrize("store", [".", "store/of/runs"])
def test_bad_input_leaves_nothing_in_the_store(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    words = [f"{tmp_path / 'space.yaml'}", "--name", "run", "--warm-start", "missing", "--mirror"]
    assert main([*words, f"{tmp_path / store}"]) == 2
    assert "missing: not the folder of a run" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["space.yaml"]


def test_a_signal_while_a_process_claims_the_copy_leaves_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def claim(mirror: Mirror) -> None:
        mirror._sign()
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Mirror, "claim", claim)
    (tmp_path / "space.yaml").write_text(SPACE)
    words = [f"{tmp_path / 'space.yaml'}", "--name", "run", "--mirror", f"{tmp_path / 'store'}"]
    assert main(words) == 143
    assert capsys.readouterr().err == "interrupted before the search began\n"
    assert os.listdir(tmp_path) == ["space.yaml"]


def test_a_full_disk_here_is_no_fault_of_the_copy(uri: str, run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    claimed(uri).copy(run)

    def full(self: Mirror, name: str, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Mirror, "_fetch", full)
    with pytest.raises(OSError, match="No space left") as caught:
        Mirror(uri, "run").fetch(tmp_path / "one")
    assert not isinstance(caught.value, MirrorError)


@pytest.mark.parametrize("content", ["[]", "null", "{"])
def test_a_damaged_signature_counts_as_that_of_another_writer(tmp_path: Path, content: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / WRITER).write_text(content)
    waited: list[float] = []
    Mirror(tmp_path.as_uri(), "run").claim(waited.append)
    assert sum(waited) >= 90


def test_a_resumed_run_overwrites_no_other_run_and_takes_what_its_copy_is_ahead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = tmp_path / "bucket"
    run = tmp_path / "results" / "run"
    events = len(simulate(run, a_space()))
    claimed(bucket.as_uri()).copy(run)
    journal = (run / FILE_NAME).read_bytes()
    (run / FILE_NAME).write_bytes(b"".join(journal.splitlines(keepends=True)[: events // 2]))
    words = ["--resume", str(run), "--mirror", bucket.as_uri()]
    assert main(words) == 0
    assert "copied from" in capsys.readouterr().err
    assert (run / FILE_NAME).read_bytes() == (bucket / "run" / FILE_NAME).read_bytes() == journal

    shutil.rmtree(run)
    write_run(run, story(seed=5))
    assert main(words) == 2
    assert "has another run of this name" in capsys.readouterr().err
    assert (bucket / "run" / FILE_NAME).read_bytes() == journal


@pytest.mark.parametrize("killed_after", range(1, 40, 3))
def test_a_kill_between_two_files_loses_no_trial_that_was_copied(
    tmp_path: Path, killed_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head is lost with its disk; another machine goes on from the copy, to the same search."""
    uri, space = (tmp_path / "bucket").as_uri(), a_space()
    whole = facts(simulate(tmp_path / "undisturbed" / "run", space))
    mirror, number = claimed(uri), itertools.count(1)
    put = Mirror._put

    def put_or_die(self: Mirror, name: str, write: Any) -> None:
        if next(number) == killed_after:
            raise Killed
        put(self, name, write)

    monkeypatch.setattr(Mirror, "_put", put_or_die)
    lost = tmp_path / "lost" / "run"
    with contextlib.suppress(Killed):
        simulate(lost, space, [lambda event: mirror.copy(lost)])
    monkeypatch.undo()
    found = tmp_path / "found" / "run"
    fetched = Mirror(uri, "run").fetch(found)
    assert fetched == (killed_after > 2)
    if fetched:
        before = facts(read_journal(found / FILE_NAME))
        assert before == facts(read_journal(lost / FILE_NAME))[: len(before)]
    assert facts(simulate(found, space)) == whole


def test_a_store_that_fails_is_told_once_and_tried_again(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = claimed((tmp_path / "bucket").as_uri())
    mirroring = Mirroring(mirror, run, RunState(read_journal(run / FILE_NAME)))

    def fail(self: Mirror, name: str, write: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Mirror, "_put", fail)
        mirroring.copy()
        mirroring.copy()
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "not copied: [Errno 28] No space left on device"
    ]
    mirroring.copy(everything=True)
    assert mirror.has_run()


def test_the_copy_keeps_the_checkpoint_of_a_trial_that_goes_on(run: Path, tmp_path: Path) -> None:
    mirror = claimed((tmp_path / "bucket").as_uri())
    mirror.copy(run)
    again = claimed((tmp_path / "bucket").as_uri())
    again.copy(run, unfinished={"t0003"})
    copied = tmp_path / "bucket" / "run" / "trials" / "t0003" / "checkpoint.pt"
    assert copied.is_file()
    shutil.rmtree(run / "trials" / "t0003")
    again.copy(run)
    assert not copied.exists()


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The end of the time in which a store hangs."""
    end = threading.Event()
    monkeypatch.setattr(Mirror, "copy", lambda *arguments: end.wait(20))
    yield end
    end.set()


def test_a_search_does_not_wait_for_a_store_that_hangs_before_its_results_are_written(
    run: Path, tmp_path: Path, over: threading.Event
) -> None:
    began = time.monotonic()
    with Mirroring(claimed((tmp_path / "bucket").as_uri()), run, RunState([])) as mirroring:
        mirroring._due.set()
    assert time.monotonic() - began < 10
    over.set()
    mirroring.finish()


def test_no_error_of_a_store_ends_the_copying(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = claimed((tmp_path / "bucket").as_uri())
    mirroring = Mirroring(mirror, run, RunState(read_journal(run / FILE_NAME)))
    with monkeypatch.context() as broken:
        broken.setattr(Mirror, "copy", lambda *arguments: "\udcff".encode())
        mirroring.copy()
    mirroring.copy()
    assert mirror.has_run()


@pytest.mark.usefixtures("over")
def test_a_store_that_hangs_is_left_after_a_signal(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    began = time.monotonic()
    with Mirroring(claimed((tmp_path / "bucket").as_uri()), run, RunState([])) as mirroring:
        mirroring._due.set()
        mirroring.timeout_seconds = 0.1
    mirroring.finish()
    assert time.monotonic() - began < 10
    assert "does not answer" in caplog.text


@pytest.mark.parametrize(
    ("mirror", "message"),
    [
        ("nowhere", "--mirror nowhere: "),
        ("s3://key:secret@bucket/runs", "keys belong into the environment"),
        ("ftp://host/runs", "--mirror ftp://host/runs: "),
    ],
)
def test_an_address_that_cannot_be_used_is_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mirror: str, message: str
) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    words = [str(tmp_path / "space.yaml"), "--results", str(tmp_path / "results"), "--mirror", mirror]
    assert main([*words, "--name", "run"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert main(words) == 2
    assert "--mirror: needs the run's --name" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_the_same_command_on_another_machine_goes_on_from_the_copy(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    words = ["space.yaml", "--name", "run", "--go-on", "--mirror", bucket.as_uri()]
    words += ["--on-end", 'echo "$SEARCH_EXIT_CODE $SEARCH_RUN" > ended']
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    with running(*words, cwd=one) as process:
        wait_for(bucket / "run" / FILE_NAME, r'(?s)("finish".*){3}', process)
    copied = facts(read_journal(bucket / "run" / FILE_NAME))
    with running(*words, cwd=other) as process:
        assert process.wait(150) == 0
    assert any("copied from" in line for line in printed(other))
    found = facts(read_journal(other / "results" / "run" / FILE_NAME))
    assert found[: len(copied)] == copied
    assert sum(fact[0] == "finish" for fact in found) == 8
    assert {path.name for path in (bucket / "run").iterdir()} >= {FILE_NAME, "report.html", "summary.md", "trials.csv"}
    assert not (bucket / "run" / WRITER).exists()
    assert (other / "ended").read_text() == f"0 {other}/results/run\n"
    assert main([*map(str, ["--resume", other / "results" / "run"])]) == 0
