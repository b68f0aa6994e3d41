import io
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from search.record.run_state import RunState
from search.terminal import progress as progress_module
from search.terminal.progress import Progress, running_line
from tests.search.runs import INFO, STARTED_AT, Recorder, config, story, typed

GENERATED = {"name": "generated", "description": "generated: 2,000 pictures"}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def show(progress, run_state, events):
    """As the Journal does it."""
    for event in typed(events):
        run_state.apply(event)
        progress(event)


def printed(events, **settings):
    """The messages where output is no terminal, each on one line again."""
    out = io.StringIO()
    run_state = RunState()
    with Progress(run_state, Console(file=out, width=80, **settings)) as progress:
        show(progress, run_state, events)
    assert max(map(len, out.getvalue().splitlines())) <= 80
    return out.getvalue().replace("\n  ", " ").splitlines()


def test_a_wait_for_others_is_a_message_and_so_is_its_end():
    recorder = Recorder()
    recorder.start("t0001", **config(64))
    recorder.add("wait", 1.0, trial_id="t0001", reason="waits for 8 GPUs")
    recorder.add("wait", 9.0, trial_id="t0001", reason=None)
    assert printed(recorder.events)[-2:] == ["t0001 waits for 8 GPUs", "t0001 has its resources"]


def test_accuracies_on_generated_pictures_are_called_so():
    lines = printed(story(data=GENERATED))
    assert all("val_accuracy (generated)" in line for line in lines if "val_accuracy" in line)


def test_without_a_terminal_there_is_a_message_of_short_lines_for_each_event():
    lines = printed(story())
    assert lines[0] == f"throughput-2026-11-20-1: {INFO['data']['description']}"
    assert lines[1:5] == [
        "t0001 starts [batch=64 lr=0.0479 workers num_workers=0 single bf16]",
        "t0001 epoch 1/3: val_accuracy 0.3100, images_per_second 301",
        "t0001 epoch 2/3: val_accuracy 0.4400, images_per_second 301",
        "t0001 complete after 3 epochs, 1 min: val_accuracy 0.5200, images_per_second 301 "
        "[batch=64 lr=0.0479 workers num_workers=0 single bf16]",
    ]
    assert "t0002 infeasible after 0 epochs, 0.7 s: out of memory: 21.3 GiB asked for, 18.9 GiB free [" in lines[6]
    assert "t0005 epoch 1/3: val_accuracy –, images_per_second 350" not in lines
    assert "t0005 epoch 1/3: images_per_second 350" in lines
    assert "t0007 is retried: the workers died (signal 9)" in lines
    assert lines[-2] == "t0007 on the test set: test_accuracy 0.6940, test_loss 0.9400"
    assert lines[-1].startswith("ended: the budget of 1 hour is spent; 1 unfinished, 6 complete")
    assert lines[-1].endswith("front of 3 points from 6 complete trials")
    ended = [event for event in story() if event["event"] == "measurement" and event["epoch"] == 3]
    assert len(lines) == len(story()) - len(ended)  # a last epoch is told with the end of its trial


def test_a_test_that_failed_is_told_with_its_reason():
    recorder = Recorder()
    recorder.complete("t0001", [0.71], 100.0, config())
    recorder.add("test", 1.0, trial_id="t0001", metrics={}, reason="no pictures (flowers.py:12)")
    assert printed(recorder.events)[-1] == "t0001 on the test set failed: no pictures (flowers.py:12)"
    (trial,) = RunState(typed(recorder.events)).trials.values()
    assert trial.test_failure == "no pictures (flowers.py:12)"


def test_the_test_set_is_told_with_intervals_and_not_with_their_ends():
    metrics = {"test_accuracy": 0.7, "test_accuracy_low": 0.69, "test_accuracy_high": 0.71}
    recorder = Recorder()
    recorder.complete("t0001", [0.71], 100.0, config())
    recorder.add("test", 1.0, trial_id="t0001", metrics=metrics)
    assert printed(recorder.events)[-1] == "t0001 on the test set: test_accuracy 0.7000 ± 0.01"


def test_a_test_metric_near_zero_has_its_interval():
    recorder = Recorder()
    recorder.complete("t0001", [0.71], 100.0, config())
    recorder.add("test", 1.0, trial_id="t0001", metrics={"test_r2": 0.1, "test_r2_low": -0.1, "test_r2_high": 0.3})
    assert printed(recorder.events)[-1] == "t0001 on the test set: test_r2 0.1000 ± 0.2"


def test_a_probe_has_no_epochs_and_one_that_only_prepares_is_called_one():
    recorder = Recorder()
    recorder.start("p0001", "probe", **config())
    recorder.measure("p0001", 0, images_per_second=400.0)
    recorder.finish("p0001", seconds=8.0)
    recorder.add("repeat", trial_id="p0001", metrics={"images_per_second": 410.0})
    settings = "[batch=128 lr=0.05 memory single bf16]"
    told = f"complete, 8.0 s: images_per_second 400 {settings}"
    assert printed(recorder.events)[1:] == [f"probe p0001 {told}", "p0001 probed again: images_per_second 410"]
    recorder.events[0]["space"] = {**INFO["space"], "evaluation": "probe"}
    assert printed(recorder.events)[1:3] == [f"p0001 starts {settings}", f"p0001 {told}"]


def test_a_trial_that_ends_without_a_word_has_a_line_all_the_same():
    recorder = Recorder()
    recorder.start("t0001", **config())
    recorder.finish("t0001", "stopped", seconds=2.0)
    assert printed(recorder.events)[-1] == "t0001 stopped after 0 epochs, 2.0 s [batch=128 lr=0.05 memory single bf16]"


def test_without_a_terminal_lines_are_flushed_as_they_come():
    class Buffered(io.StringIO):
        flushed = ""

        def flush(self):
            self.flushed = self.getvalue()

    out = Buffered()
    run_state = RunState()
    show(Progress(run_state, Console(file=out)), run_state, story()[:1])
    assert out.flushed.startswith("throughput-2026-11-20-1")


def test_what_comes_after_the_last_words_is_not_printed_below_them():
    out = io.StringIO()
    run_state = RunState()
    progress = Progress(run_state, Console(file=out))
    progress.close()
    show(progress, run_state, story())
    assert out.getvalue() == ""


def test_what_happened_before_a_resume_is_taken_in_silently():
    events = story()
    at = next(n for n, event in enumerate(events) if event["event"] == "resume")
    out = io.StringIO()
    run_state = RunState(typed(events[:at]))
    progress = Progress(run_state, Console(file=out))
    assert out.getvalue() == ""
    show(progress, run_state, events[at : at + 1])
    assert out.getvalue() == "throughput-2026-11-20-1 continues: 7 trials so far; t0007 goes on after epoch 2\n"


def on_a_terminal(monkeypatch, environment):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out, events = Terminal(), story()
    run_state = RunState()
    with Progress(run_state, Console(file=out, width=80, height=24), clock=lambda: events[-1]["time"]) as progress:
        progress.announce("dashboard: here")
        show(progress, run_state, events[:10])
        time.sleep(0.7)  # the view is drawn meanwhile
        show(progress, run_state, events[10:])
    return out.getvalue()


def test_on_a_terminal_the_last_state_stays_on_the_screen(monkeypatch):
    text = on_a_terminal(monkeypatch, {"NO_COLOR": "1"})
    assert "dashboard: here" in text
    assert "front of 3 points from 6 complete trials" in text.rsplit("ended after", 1)[1]
    assert "\x1b[?25h" in text  # the cursor is given back
    assert "t0001 complete after" not in text


def test_a_view_that_cannot_be_drawn_does_not_end_the_run(monkeypatch):
    def broken(*arguments):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("search.terminal.progress.View.draw", broken)
    assert "the view cannot be drawn: ZeroDivisionError('ours')" in on_a_terminal(monkeypatch, {"NO_COLOR": "1"})


def test_announcements_are_broken_between_words_and_a_path_stays_whole(monkeypatch):
    out, text = Terminal(), "left out: " + "word " * 30
    monkeypatch.setenv("TERM", "xterm-256color")
    console = Console(file=out, width=40, height=24, force_terminal=True, color_system=None)
    with Progress(RunState(), console) as progress:
        progress.announce(text)
    lines = [line for line in out.getvalue().splitlines() if "word" in line]
    assert len(lines) > 3
    assert all(line.rstrip().endswith("word") for line in lines)
    log = io.StringIO()
    path = "/path" * 20
    Progress(RunState(), Console(file=log, width=40)).announce(f"{text}{path}")
    lines = log.getvalue().splitlines()
    assert [line[:6] for line in lines] == ["left o", "  word", "  word", "  /pat"]
    assert max(map(len, lines[:3])) <= 80
    assert lines[3] == f"  {path}"


def test_a_trial_that_violates_a_constraint_says_so_when_it_ends():
    recorder = Recorder(constraints=["images_per_second >= 200", "val_accuracy >= 0.1"])
    for number, rate in ((1, 150.0), (2, 250.0)):
        recorder.complete(f"t000{number}", [0.5], rate, config(64 * number))
    out, run_state = io.StringIO(), RunState()
    show(Progress(run_state, Console(file=out, width=200)), run_state, recorder.events)
    told = " ".join(out.getvalue().split())
    ends = [text.partition("[")[0] for text in told.split(" complete after")[1:]]
    assert [text.strip().endswith("; violates images_per_second >= 200: 150") for text in ends] == [True, False]


def test_no_color_means_no_color(monkeypatch):
    assert "\x1b[32m" in on_a_terminal(monkeypatch, {})
    assert "\x1b[32m" not in on_a_terminal(monkeypatch, {"NO_COLOR": "1"})


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch):
    assert "t0001 complete after" in on_a_terminal(monkeypatch, {"TERM": "dumb"})


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(5, "I/O error"), ValueError("I/O operation on closed file")]
)
@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_an_output_that_fails_does_not_end_the_run(error: Exception, kind: Any) -> None:
    class Failing(kind):  # type: ignore[misc]
        def write(self, text):
            raise error

    run_state = RunState()
    with Progress(run_state, Console(file=Failing(), width=80, height=24)) as progress:
        show(progress, run_state, story())


def test_an_output_that_knows_few_letters_gets_what_it_can_show():
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    run_state = RunState()
    show(Progress(run_state, Console(file=out)), run_state, [{**story()[0], "name": "größer"}])
    assert raw.getvalue().startswith(b"gr??er: cifar10")


def test_a_reader_who_goes_away_does_not_change_the_exit_code():
    program = """
import sys
import time
from search.record.run_state import RunState
from search.terminal.progress import Progress
from tests.search.runs import story, typed
with Progress(RunState(typed(story()))) as progress:
    for _ in range(1000):
        progress(next(event for event in typed(story()) if event.event == "finish"))
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


def test_a_log_says_what_runs_where_nothing_happens_for_a_while(monkeypatch):
    monkeypatch.setattr(progress_module, "QUIET_SECONDS", 0.1)
    out, events = io.StringIO(), story()
    at = next(n for n, event in enumerate(events) if event["event"] == "start" and event["trial_id"] == "t0007")
    run_state = RunState(typed(events[: at + 1]))
    now = itertools.count(STARTED_AT + 600.0)
    with Progress(run_state, Console(file=out, width=80), lambda: next(now)):
        deadline = time.monotonic() + 20
        while out.getvalue().count("\n") < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("running: t0007 epoch 1/3; about ")
    assert lines[0].endswith(" left")


def test_a_log_says_that_the_first_trial_is_being_chosen():
    assert running_line(RunState(), 0.0) == "the first trial is being chosen"


def test_a_log_says_what_goes_on_where_no_trial_runs():
    recorder = Recorder(budget={"trials": 1, "epochs": 1, "hours": None})
    recorder.start("t0001", **config())
    recorder.measure("t0001", 1, val_accuracy=0.5, images_per_second=400.0)
    recorder.finish("t0001")
    assert running_line(RunState(typed(recorder.events)), recorder.now).startswith("measuring the front")
    recorder.add("test", recorder.now, trial_id="t0001", metrics={"test_accuracy": 0.5})
    assert running_line(RunState(typed(recorder.events)), recorder.now).startswith("reading the test set")
    recorder.add("end", reason="budget.trials is spent")
    recorder.add("resume", budget={"trials": 5, "epochs": 1, "hours": None}, command=[])
    assert running_line(RunState(typed(recorder.events)), recorder.now).startswith("choosing what to try next")


def test_a_log_says_that_the_front_is_measured_as_soon_as_the_hours_are_spent():
    recorder = Recorder(budget={"trials": None, "epochs": 1, "hours": 0.001})
    recorder.complete("t0001", [0.5], 400.0, config())
    assert running_line(RunState(typed(recorder.events)), recorder.now) == "measuring the front"


def test_a_log_names_the_first_of_many_trials():
    recorder = Recorder(budget={"trials": 200, "epochs": 3, "hours": None})
    for number in range(1, 101):
        recorder.start(f"t{number:04d}", **config())
    line = running_line(RunState(typed(recorder.events)), recorder.now)
    assert line.startswith("running: t0001 epoch 1/3, t0002 epoch 1/3, ")
    assert line.endswith(", 92 more")


def test_probes_that_only_prepare_are_no_trials_of_a_run_that_continues():
    recorder = Recorder(space={**INFO["space"], "evaluation": "decoupled"})
    recorder.start("p0001", "probe", **config())
    recorder.measure("p0001", 0, images_per_second=400.0)
    recorder.finish("p0001", seconds=8.0)
    recorder.add("resume", 1.0)
    assert printed(recorder.events)[-1].endswith(" continues: 0 trials so far")
