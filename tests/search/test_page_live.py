import logging
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from functools import partial
from multiprocessing.pool import ThreadPool

import pytest

from search.page.__main__ import main
from search.page.live import MIN_SECONDS, LivePage, seconds_to_wait
from search.page.page import page, try_to_write
from search.page.server import FreshPage, server
from search.record.dataframes import Run
from search.record.run_lock import lock_run
from search.record.run_state import RunState
from search.results import load
from tests.search.page_runs import throughput
from tests.search.runs import story, typed, write_run
from tests.waiting import wait_until

SPACE = """
trainable: replay
objectives: [{metric: val_accuracy, goal: maximize}, {metric: images_per_second, goal: maximize}]
parameters: {learning_rate: {min: 0.001, max: 0.5, log: true}}
fixed: {seconds_per_epoch: 4}
budget: {trials: 3, epochs: 2}
"""


def at_once(took):
    return 0.01


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize("port", ["-1", "99999"])
def test_a_port_that_there_is_not_is_bad_input(port, tmp_path, capsys):
    folder = write_run(tmp_path / "run", story())
    assert main([str(folder), "--serve", port]) == 2
    assert f"--serve {port}: expected a port from 0 to 65535" in capsys.readouterr().err


def test_a_port_that_is_taken_is_named_with_another(tmp_path, capsys):
    folder = write_run(tmp_path / "run", story())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main([str(folder), "--serve", str(port)]) == 1
    expected = f"search.page: --serve {port}: Address already in use; --serve 0 takes any free port\n"
    assert capsys.readouterr().err == expected


# --- while a run goes on ----------------------------------------------------------------------------------------------


def test_pages_of_a_run_are_rarer_the_longer_they_take():
    assert seconds_to_wait(0.05) == MIN_SECONDS == 10.0
    assert seconds_to_wait(3.0) == 150.0  # 2% of the time


def test_the_page_follows_the_journal(tmp_path):
    folder = write_run(tmp_path / "run", story()[:20])
    page, run_state = folder / "report.html", RunState(typed(story()[:20]))
    with LivePage(folder, run_state, at_once):
        wait_until(page.is_file)
        assert "t0011" not in page.read_text()
        for event in typed(story()[20:]):
            run_state.apply(event)
        write_run(folder, story())
        wait_until(lambda: "t0011" in page.read_text())
        assert '"refreshSeconds":10' in page.read_text()


def test_the_page_of_a_running_run_has_the_times_of_the_clock_of_the_run(tmp_path):
    """Not those of the wall clock, which somebody may set."""
    events = throughput(6, finished=False).events
    folder, run_state = write_run(tmp_path / "run", events), RunState(typed(events))
    now = typed(events)[-1].time + 60.0
    with LivePage(folder, run_state, at_once, clock=lambda: now):
        wait_until((folder / "report.html").is_file)
    assert (folder / "report.html").read_text() == page(Run(folder, run_state), now)


def test_nothing_is_written_while_nothing_happens(tmp_path):
    folder = write_run(tmp_path / "run", story())
    with LivePage(folder, RunState(typed(story())), at_once):
        wait_until((folder / "report.html").is_file)
        written = (folder / "report.html").stat().st_mtime_ns
        time.sleep(0.3)
        assert (folder / "report.html").stat().st_mtime_ns == written


def test_a_run_that_has_no_journal_yet_is_waited_for_without_a_word(tmp_path, caplog):
    run_state = RunState()
    with LivePage(tmp_path, run_state, at_once):
        time.sleep(0.1)
        (tmp_path / "journal.jsonl").touch()
        time.sleep(0.1)
        write_run(tmp_path, story())
        for event in typed(story()):
            run_state.apply(event)
        wait_until((tmp_path / "report.html").is_file)
    assert caplog.records == []


def test_a_page_that_cannot_be_written_is_one_warning_and_no_more(tmp_path, caplog):
    folder = write_run(tmp_path / "run", story())
    (folder / "report.html").mkdir()  # a file cannot take its place
    with LivePage(folder, RunState(typed(story())), at_once):
        wait_until(lambda: caplog.records)
        write_run(folder, [*story(), story()[-1]])
        time.sleep(0.5)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "report.html cannot be written" in caplog.text
    assert "Traceback" not in caplog.text


def test_the_last_page_fails_no_run_either(tmp_path, caplog):
    assert not try_to_write(partial(load, tmp_path))
    assert len(caplog.records) == 1
    with caplog.at_level(logging.DEBUG):
        assert not try_to_write(partial(load, tmp_path), quietly=True)
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG"]


def test_the_results_of_a_run_have_its_page(tmp_path):
    from search.study.shutdown import write_results

    folder = write_run(tmp_path / "run", story())
    write_results(folder)
    assert '"refreshSeconds":null' in (folder / "report.html").read_text()


@pytest.mark.slow
def test_a_run_has_a_page_while_it_is_running_and_another_when_it_has_ended(tmp_path):
    (tmp_path / "space.yaml").write_text(SPACE)
    command = [sys.executable, "-m", "search.run", "space.yaml", "--name", "run", "--no-dashboard"]
    page = tmp_path / "results" / "run" / "report.html"
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until(page.is_file, 120)
        assert '"refreshSeconds":10' in page.read_text()
        assert process.wait(120) == 0
    assert '"refreshSeconds":null' in page.read_text()


# --- the server -------------------------------------------------------------------------------------------------------


@contextmanager
def served(folder):
    with server(folder, 0) as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_address[1]}"
        serving.shutdown()
        thread.join()


def got(address, **headers):
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=20) as answer:
        return answer.read().decode()


def test_the_server_has_the_page_and_nothing_else(tmp_path):
    folder = write_run(tmp_path / "run", story())
    with served(folder) as address:
        assert "throughput-2026-11-20-1" in got(f"{address}/")
        assert got(f"{address}/report.html?again").endswith("</html>\n")
        for path in ("/journal.jsonl", "/../run/journal.jsonl", "/favicon.ico"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                got(f"{address}{path}")


def test_a_page_elsewhere_cannot_read_it_under_a_name_of_its_own(tmp_path):
    folder = write_run(tmp_path / "run", story())
    with served(folder) as address, pytest.raises(urllib.error.HTTPError, match="404"):
        got(f"{address}/", Host="attacker.example")


def test_what_is_served_is_new_when_the_journal_has_grown_but_not_at_every_call(tmp_path):
    clock = Clock()
    events = throughput(6, finished=False).events
    folder = write_run(tmp_path / "run", events[:30])
    fresh = FreshPage(folder, clock)
    with lock_run(folder):
        first = fresh.page()
        assert b'"refreshSeconds":10' in first
        write_run(folder, throughput(6).events)
        clock.now += 9.0
        assert fresh.page() == first
        clock.now += 2.0
        assert b'"refreshSeconds":10' in fresh.page() != first
    clock.now += 11.0
    assert b'"refreshSeconds":null' in fresh.page()  # the process has ended, be it by a kill


def test_a_reader_that_leaves_and_a_run_that_is_gone_leave_no_trace_in_the_terminal(tmp_path, capfd):
    folder = write_run(tmp_path / "run", story())
    with served(folder) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset at the close
            reader.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert got(address).endswith("</html>\n")
        shutil.rmtree(folder)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            got(address)
    assert capfd.readouterr().err == ""


def test_many_readers_at_once_get_whole_pages(tmp_path):
    folder = write_run(tmp_path / "run", story())
    with served(folder) as address, ThreadPool(8) as readers:
        assert all(text.endswith("</html>\n") for text in readers.map(got, [f"{address}/"] * 16))


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_the_page_of_any_folder_and_says_where(tmp_path, capsys):
    folder = write_run(tmp_path / "run", story())
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"


def test_a_folder_that_is_no_run_is_one_line_and_exit_code_2(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "not the folder of a run" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_serves_until_it_is_interrupted(tmp_path):
    folder = write_run(tmp_path / "run", story())
    command = [sys.executable, "-m", "search.page", str(folder), "--serve", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[0]
        assert "throughput-2026-11-20-1" in got(address)
        process.send_signal(2)
        assert process.wait(10) == 0
