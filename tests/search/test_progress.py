import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from search.history import History
from search.progress import Progress, spent, view
from tests.search.runs import INFO, STARTED_AT, Recorder, config, story

GENERATED = {"name": "generated", "description": "generated: 2,000 pictures"}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def drawn(events, width=80, height=24, after=4.0):
    """The view as lines of text."""
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(view(History(events), events[-1]["time"] + after, width, height))
    return console.file.getvalue().splitlines()


def printed(events, **settings):
    """What is printed where output is no terminal."""
    out = io.StringIO()
    with Progress(Console(file=out, width=80, **settings)) as progress:
        for event in events:
            progress(event)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("size", [*range(1, 12), 20, 40, None])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 24), (200, 60), (80, 11), (20, 5)])
def test_the_view_fits_the_terminal_at_any_moment(size, width, height):
    lines = drawn(story()[:size], width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) <= max(height, 11)


def test_the_view_shows_states_the_last_trials_and_the_front():
    text = "\n".join(drawn(story()[:40]))
    assert "1 running · 4 complete · 1 stopped · 2 infeasible · 2 failed" in text
    assert "t0010  running       1/3      0.5000      402 ± 4  batch=512 lr=0.1 memory sing…" in text
    assert "front of 2 points from 4 complete trials" in text
    assert text.count("t0003") == 1  # of the front, and no longer among the last trials


def test_settings_that_do_not_vary_take_no_room():
    recorder = Recorder()
    recorder.complete("t0001", [0.5], 100.0, config(64))
    recorder.complete("t0002", [0.6], 100.0, config(128))
    lines = drawn(recorder.events)
    assert any(line.rstrip().endswith("  batch=128") for line in lines)


def test_trials_that_run_are_shown_however_many_were_started_since():
    recorder = Recorder()
    recorder.start("t0001", **config())
    for number in range(2, 20):
        recorder.complete(f"t{number:04d}", [0.5], 100.0, config())
    assert any(line.startswith("t0001  running") for line in drawn(recorder.events))


def test_generated_pictures_are_called_so():
    assert "generated pictures: their accuracy says nothing of real ones" in drawn(story(data=GENERATED)[:40])[1]
    assert all("val_accuracy (generated)" in line for line in printed(story(data=GENERATED)) if "val_accuracy" in line)


def budget(**limits):
    return {"trials": None, "epochs": 3, "hours": None, "total_epochs": None, **limits}


def two_trials(**limits):
    """Two trials of three epochs and 62 s each, one after another."""
    recorder = Recorder(budget=budget(**limits))
    recorder.complete("t0001", [0.1, 0.2, 0.3], 100.0, config())
    recorder.complete("t0002", [0.1, 0.2, 0.3], 100.0, config())
    return recorder


@pytest.mark.parametrize(
    ("limits", "text", "seconds_left"),
    [
        ({"trials": 10}, "2 of 10 trials", 8 * 61.5),
        ({"total_epochs": 30}, "6 of 30 epochs", 8 * 61.5),
        ({"hours": 0.1}, "2 trials, 2 min 4 s of 6 min", 236.0),
        ({"trials": 10, "hours": 10.0}, "2 of 10 trials", 8 * 61.5),
        ({"trials": 10, "hours": 0.1}, "2 trials, 2 min 4 s of 6 min", 236.0),
        ({"trials": 2}, "2 of 2 trials", 0.0),
    ],
)
def test_time_left_is_that_of_the_budget_that_ends_first_at_the_pace_so_far(limits, text, seconds_left):
    recorder = two_trials(**limits)
    found = spent(History(recorder.events), recorder.now)
    assert (found.text, found.seconds_left) == (text, pytest.approx(seconds_left))


def test_a_trial_under_way_counts_by_its_epochs():
    recorder = Recorder(budget=budget(trials=10))
    recorder.start("t0001", **config())
    recorder.measure("t0001", 1, val_accuracy=0.1)
    found = spent(History(recorder.events), recorder.now)
    assert found.fraction == pytest.approx(1 / 30)
    assert found.seconds_left == pytest.approx(20.0 * 29)


def test_nothing_is_said_of_time_while_there_is_nothing_to_judge_by():
    assert spent(History(Recorder(budget=budget(trials=10)).events), STARTED_AT + 5) is None
    assert any("starting" in line for line in drawn(Recorder().events))


def test_a_resume_that_extends_the_budget_is_measured_by_the_new_one():
    recorder = two_trials(trials=2)
    recorder.add("resume", 1000.0, budget=budget(trials=4))
    assert spent(History(recorder.events), recorder.now).text == "2 of 4 trials"


def test_without_a_terminal_each_trial_that_ends_has_a_line():
    lines = printed(story())
    assert lines[0] == f"throughput-2026-11-20-1: {INFO['data']['description']}"
    assert lines[1] == (
        "t0001 complete after 3 epochs, 1 min: val_accuracy 0.5200, images_per_second 301 "
        "[batch=64 lr=0.0479 workers num_workers=0 single bf16]"
    )
    assert lines[2].startswith("t0002 infeasible after 0 epochs, 0.7 s: out of memory: 21.3 GiB asked for")
    assert "t0007 is tried again: the workers died (signal 9)" in lines
    assert lines[-1].startswith("ended: the budget of 1 hour is spent; 1 running, 6 complete")
    assert len(lines) == 1 + 11 + 2 + 1 + 1  # run, trials ended, retries, resume, end


def probing():
    space = {**INFO["space"], "evaluation": "probe"}
    recorder = Recorder(space=space, budget=budget(epochs=1), grid_points=8)
    recorder.start("t0001", "probe", **config())
    recorder.measure("t0001", 0, images_per_second=400.0)
    recorder.finish("t0001", seconds=8.0)
    return recorder


def test_probes_have_no_epochs_to_show():
    recorder = probing()
    assert printed(recorder.events)[1].startswith("t0001 complete, 8.0 s: images_per_second 400 [")
    assert not any("epoch" in line for line in drawn(recorder.events))


def test_a_grid_ends_when_it_is_through():
    recorder = probing()
    found = spent(History(recorder.events), recorder.now)
    assert (found.text, found.seconds_left) == ("1 of 8 trials", pytest.approx(7 * 21.0))


def test_a_trial_that_ends_without_a_word_has_a_line_all_the_same():
    recorder = Recorder()
    recorder.start("t0001", **config())
    recorder.finish("t0001", "stopped", seconds=2.0)
    assert printed(recorder.events)[1] == "t0001 stopped after 0 epochs, 2.0 s [batch=128 lr=0.05 memory single bf16]"


def test_the_front_is_that_of_the_moment():
    recorder, history, sizes = Recorder(), History(), []
    for number, accuracy in enumerate((0.5, 0.6, 0.7), start=1):
        recorder.complete(f"t{number:04d}", [accuracy], 100.0 - number, config())
    for event in recorder.events:
        history.apply(event)
        sizes.append(len(history.front()))
    assert sizes == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]


def test_without_a_terminal_lines_are_flushed_as_they_come():
    class Buffered(io.StringIO):
        flushed = ""

        def flush(self):
            self.flushed = self.getvalue()

    out = Buffered()
    progress = Progress(Console(file=out))
    progress(story()[0])
    assert out.flushed.startswith("throughput-2026-11-20-1")


def test_what_happened_before_a_resume_is_taken_in_silently():
    events = story()
    at = next(n for n, event in enumerate(events) if event["event"] == "resume")
    out = io.StringIO()
    progress = Progress(Console(file=out))
    progress.replay(events[:at])
    assert out.getvalue() == ""
    progress(events[at])
    assert out.getvalue() == "throughput-2026-11-20-1 goes on: 7 trials so far\n"


def on_a_terminal(monkeypatch, environment):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out, events = Terminal(), story()
    with Progress(Console(file=out, width=80, height=24), clock=lambda: events[-1]["time"]) as progress:
        progress.announce("dashboard: here")
        for event in events:
            progress(event)
    return out.getvalue()


def test_on_a_terminal_the_last_state_stays_on_the_screen(monkeypatch):
    text = on_a_terminal(monkeypatch, {"NO_COLOR": "1"})
    assert "dashboard: here" in text
    assert "front of 3 points from 6 complete trials" in text.rsplit("ended after", 1)[1]
    assert "\x1b[?25h" in text  # the cursor is given back
    assert "t0001 complete after" not in text


def test_no_color_means_no_color(monkeypatch):
    assert "\x1b[32m" in on_a_terminal(monkeypatch, {})
    assert "\x1b[32m" not in on_a_terminal(monkeypatch, {"NO_COLOR": "1"})


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch):
    assert "t0001 complete after" in on_a_terminal(monkeypatch, {"TERM": "dumb"})


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(5, "I/O error"), ValueError("I/O operation on closed file")]
)
@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_an_output_that_fails_does_not_end_the_run(error, kind):
    class Failing(kind):
        def write(self, text):
            raise error

    with Progress(Console(file=Failing(), width=80, height=24)) as progress:
        for event in story():
            progress(event)


def test_an_output_that_knows_few_letters_gets_what_it_can_show():
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    Progress(Console(file=out))({**story()[0], "name": "größer"})
    assert raw.getvalue().startswith(b"gr??er: cifar10")


def test_a_reader_who_goes_away_does_not_change_the_exit_code():
    program = """
import sys
from tests.search.runs import story
from search.progress import Progress
with Progress() as progress:
    progress.replay(story())
    for _ in range(1000):
        progress(next(event for event in story() if event["event"] == "finish"))
print("the last lines of the run")
sys.exit(7)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    run.stdout.readline()
    run.stdout.close()
    errors = run.stderr.read()
    run.stderr.close()
    assert (run.wait(), errors) == (7, b"")
