"""The live view, as lines of text: what a person reads without colours."""

import io
import re

import pytest
from rich.console import Console
from rich.text import Text

from search.record.run_state import RunState
from search.terminal.trial_rows import running_lines
from search.terminal.view import View
from tests.search.runs import INFO, STARTED_AT, Recorder, config, interval, story, typed

GENERATED = {"name": "generated", "description": "generated: 2,000 pictures"}


def drawn(events, width=80, height=24, after=4.0, ascii_only=False, color=None):
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=True, color_system=color)
    console.print(View(RunState(typed(events))).draw(events[-1]["time"] + after, width, height, ascii_only))
    return out.getvalue().splitlines()


def finished():
    """A run in which each trial ended, that has not said so yet."""
    return [event for event in story() if event.get("trial_id") != "t0012" and event["event"] not in ("test", "end")]


def decoupled():
    """Two probes, of which one found nothing, a trial, and a probe under way."""
    recorder = Recorder(space={**INFO["space"], "evaluation": "decoupled"})
    recorder.start("p0001", "probe", **config(64))
    recorder.measure("p0001", 0, **interval(300.0, 3.0))
    recorder.finish("p0001", seconds=8.0)
    recorder.start("p0002", "probe", **config(512))
    recorder.finish("p0002", "infeasible", "out of memory")
    recorder.complete("t0001", [0.3, 0.4, 0.5], 300.0, config(64))
    recorder.start("p0003", "probe", **config(256))
    return recorder.events


def test_at_80x24_there_is_the_front_as_a_sketch_and_as_a_table_and_what_runs_with_its_epoch_and_rate():
    assert (
        drawn(story()[:40])
        == """\
throughput-2026-11-20-1
cifar10: 45,000 pictures to train on, 5,000 to validate, 10,000 to test
━━━━━━━━━━━━━━━━━━━━━━━─────────────────  9 of 16 trials · about 4 min left
6 min 7 s so far · 1 running · 4 complete · 1 stopped · 2 infeasible · 2 failed

val_accuracy ↑                            ◆ t0010  epoch 2/3
0.7100 │●                                   val_accuracy 0.5000 ± 0.014
       │                                    images_per_second 402 ± 4
       │                          ●         batch=512 lr=0.1 memory single fp32
       │
       │
0.6900 │                               ◆
       └────────────────────────────────
        180     images/s ↑ (log)     402  ● front  ◆ now  ⠂ other (3 outside)

                              val_ images_per_
  trial state           accuracy ↑    second ↑  settings
front of 2 points from 4 complete trials
● t0003 complete    0.7100 ± 0.013   180 ± 1.8  batch=64 lr=0.02 memory single
● t0007 complete    0.7000 ± 0.013     352 ± 4  batch=128 lr=0.06 memory single
last trials
  t0008 failed                                  batch=512 lr=0.2 memory ddp bf16
  t0009 infeasible
        batch=512 lr=0.21 memory single fp32
""".splitlines()
    )


def test_at_40_columns_there_is_no_sketch_and_every_trial_has_its_rate():
    assert (
        drawn(story()[:40], width=40)[2:12]
        == """\
9 of 16 trials · about 4 min left
6 min 7 s so far · 1 running · 4 comple…

                        val_ images_per_
trial state       accuracy ↑    second ↑
front of 2 points from 4 complete trials
t0003 complete        0.7100         180
t0007 complete        0.7000         352
last trials
t0001 complete        0.5200         301
""".splitlines()
    )


SIZES = [(80, 24), (40, 24), (200, 60), (80, 20), (80, 11), (72, 20), (61, 24), (20, 5)]


@pytest.mark.parametrize("size", [*range(1, 12), 20, 40, None])
@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("events", [story(), story(data=GENERATED), decoupled()])
def test_the_view_fits_the_terminal_at_any_moment(events, size, width, height):
    lines = drawn(events[:size], width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) <= max(height, 11)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_long_settings_and_many_trials_fit_too_and_nothing_is_cut_off_where_there_is_room(width, height):
    recorder = Recorder(budget={**INFO["budget"], "epochs": 100})
    for i in range(40):
        many = {f"a_rather_long_name_{k}": (i + k) % 3 for k in range(2)}
        recorder.start(f"t{i:04d}", **config(64 + i, 10.0**-i, **many))
        recorder.epochs(f"t{i:04d}", [0.5 + i / 100] * 2, 100000.0 - i)
        recorder.finish(f"t{i:04d}", "stopped" if i % 3 else "complete")
    lines = drawn(recorder.events, width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) <= max(height, 11)
    assert "…" not in "".join(lines) or width < 80 or height < 24


def test_settings_that_do_not_vary_take_no_room():
    recorder = Recorder()
    recorder.complete("t0001", [0.5], 100.0, config(64))
    recorder.complete("t0002", [0.6], 100.0, config(128))
    assert any(line.endswith("  batch=128") for line in drawn(recorder.events))


def test_settings_too_long_for_their_column_have_a_line_of_their_own():
    recorder = Recorder()
    recorder.complete("t0001", [0.5], 100.0, config(64))
    recorder.complete("t0002", [0.6], 100.0, config(128, 0.06, loader="workers", num_workers=2, precision="fp32"))
    lines = drawn(recorder.events)
    (at,) = (i for i, line in enumerate(lines) if line.startswith("● t0002"))
    assert lines[at].endswith("100 ± 1")
    assert lines[at + 1] == "        batch=128 lr=0.06 workers num_workers=2 fp32"


def test_probes_are_shown_as_what_they_are():
    lines = drawn(decoupled())
    assert lines[3].endswith(" so far · 1 complete · 3 probes")
    assert lines[5].endswith("◆ p0003  probing")
    assert lines[6].endswith("nothing measured yet")
    assert any(line.startswith("  p0001 probed                       300 ± 2.1") for line in lines)
    assert any(line.startswith("  p0002 infeasible") for line in lines)
    assert "front of 1 point from 1 complete trial" in lines


def test_a_run_of_probes_has_trials_without_epochs():
    recorder = Recorder(space={**INFO["space"], "evaluation": "probe"}, budget={**INFO["budget"], "epochs": 1})
    recorder.start("t0001", "probe", **config())
    assert any("◆ t0001  running" in line for line in drawn(recorder.events))
    recorder.measure("t0001", 0, images_per_second=400.0)
    recorder.finish("t0001", seconds=8.0)
    assert not any("epoch" in line or "probed" in line for line in drawn(recorder.events))


def test_of_many_that_run_each_has_a_line():
    recorder = Recorder()
    for i in range(1, 5):
        recorder.start(f"t{i:04d}", **config(64 * i))
        recorder.measure(f"t{i:04d}", 1, val_accuracy=0.1 * i, **interval(100.0 * i, 1.0))
    beside = [line[42:] for line in drawn(recorder.events)[5:10]]
    assert beside[:4] == [f"◆ t000{i}  epoch 2/3  {i}00 ± 1 images/s" for i in range(1, 5)]
    assert drawn(recorder.events, width=60)[-1].startswith("◆ t0004 epoch 2/3")


def test_of_too_many_that_run_the_last_ones_have_a_line_and_the_others_are_counted():
    recorder = Recorder()
    for i in range(1, 31):
        recorder.start(f"t{i:04d}", **config(64 * i))
    beside = [line[42:] for line in drawn(recorder.events)[5:12]]
    assert "◆ t0030  epoch 1/3" in beside
    assert re.fullmatch(r"and \d+ more", beside[-1])


def test_a_single_line_counts_all_that_run():
    recorder = Recorder()
    for number in range(1, 6):
        recorder.start(f"t{number:04d}", **config())
    run_state = RunState(typed(recorder.events))
    assert [line.plain for line in running_lines(run_state, 40, 1, "*")] == ["and 5 more"]


def test_trials_that_run_are_shown_however_many_were_started_since():
    recorder = Recorder()
    recorder.start("t0001", **config())
    for number in range(2, 20):
        recorder.complete(f"t{number:04d}", [0.5], 100.0, config())
    assert any("◆ t0001  epoch 1/3" in line for line in drawn(recorder.events))
    assert any(line.startswith("◆ t0001 epoch 1/3") for line in drawn(recorder.events, height=11))


def test_the_last_trials_are_those_that_ended_last():
    recorder = Recorder()
    for i in range(1, 10):
        recorder.start(f"t{i:04d}", **config(64 * i))
    for i in range(9, 0, -1):
        recorder.finish(f"t{i:04d}", "failed", "a reason")
    assert re.findall(r"^  (t\d+)", "\n".join(drawn(recorder.events)), re.MULTILINE)[-2:] == ["t0002", "t0001"]


def test_a_rate_is_on_a_logarithm_also_where_no_unit_is_known():
    recorder = Recorder(metrics={})
    recorder.complete("t0001", [0.5], 100.0, config(64))
    assert any("images_per_second ↑ (log)" in line for line in drawn(recorder.events, width=100))


def test_a_trial_tried_again_says_so():
    events = story()[: next(i for i, event in enumerate(story()) if event["event"] == "retry") + 1]
    assert any("retried 1 time" in line for line in drawn(events))


def test_a_trial_that_waits_for_others_says_what_for_until_it_is_placed():
    recorder = Recorder()
    recorder.start("t0001", **config(64))
    recorder.add("wait", 1.0, trial_id="t0001", reason="waits for 8 GPUs")
    lines = drawn(recorder.events)
    assert any("t0001  waits" in line for line in lines)
    assert any(line.strip().endswith("waits for 8 GPUs") for line in lines)
    recorder.add("wait", 9.0, trial_id="t0001", reason=None)
    assert any("t0001  epoch 1/3" in line for line in drawn(recorder.events))


def test_what_is_done_after_the_last_trial_is_said():
    events = finished()
    now = events[-1]["time"]
    assert "choosing what to try next" in drawn(events)[5]
    all_of_them = [{**events[0], "budget": {**INFO["budget"], "trials": 11}}, *events[1:]]
    assert "measuring the front" in drawn(all_of_them)[5]
    repeats = [{"event": "repeat", "time": now, "trial_id": "t0007", "metrics": interval(350.0, 4.0)}]
    assert "measuring the front's rates again: 1" in drawn([*events, *repeats])[5]
    turn = {"event": "turn", "time": now, "trial_id": "t0007", "other": "t0011", "rates": [350.0, 400.0]}
    assert "measuring the front's rates in turns" in drawn([*events, *repeats, turn])[5]
    again = {"event": "again", "time": now, "trial_id": "t0007", "seed": 1, "metrics": {"val_accuracy": 0.7}}
    assert "training the front with other seeds" in drawn([*events, *repeats, turn, again])[5]
    test = {"event": "test", "time": now, "trial_id": "t0003", "metrics": {"test_accuracy": 0.7}}
    lines = drawn([*events, *repeats, test])
    assert "reading the test set for the front: 1" in lines[5]
    assert lines[6].endswith("of 3 done")


def test_marks_say_without_colours_what_is_on_the_front_and_what_runs():
    text = "\n".join(drawn(story()))
    sketch, table = text.split("images/s ↑")
    assert sketch.count("●") == 3
    assert sketch.count("◆") == 1
    assert re.findall(r"^● (t\d+)", table, re.MULTILINE) == ["t0003", "t0007", "t0011"]


def test_what_is_far_worse_does_not_push_the_front_into_a_corner():
    recorder = Recorder()
    recorder.complete("t0001", [0.1] * 3, 100.0, config(64))
    recorder.complete("t0002", [0.70] * 3, 200.0, config(128))
    recorder.complete("t0003", [0.72] * 3, 190.0, config(256))
    lines = drawn(recorder.events)
    assert lines[6].startswith("0.7200 │")
    assert any(line.startswith("0.6800 │") for line in lines)
    assert any("(1 outside)" in line for line in lines)


def test_a_minimised_objective_is_not_turned_round():
    objectives = [
        {"metric": "val_accuracy", "goal": "maximize"},
        {"metric": "peak_memory_fraction", "goal": "minimize"},
    ]
    recorder = Recorder(objectives=objectives)
    recorder.complete("t0001", [0.7] * 3, 200.0, config())
    assert any("peak_memory_fraction ↓" in line and "log" not in line for line in drawn(recorder.events))


def test_a_terminal_that_knows_ascii_alone_gets_marks_that_it_knows():
    text = "\n".join(drawn(story(), ascii_only=True))
    assert "* front  @ now  . other" in text
    assert "* t0003 complete" in text
    assert "======" in "\n".join(drawn(story()[:40], ascii_only=True))
    assert not re.search("[●◆━│└─⠁-⣿]", text)


def test_the_front_stands_out_and_what_it_dominates_is_dim():
    text = "\n".join(drawn(story(), color="standard"))
    assert "\x1b[1;32m●" in text
    assert "\x1b[1;36m◆" in text
    assert re.search("\x1b\\[2m[⠁-⣿]", text)


def test_generated_pictures_are_called_so():
    lines = drawn(story(data=GENERATED)[:40])
    assert lines[1] == "generated pictures: their accuracy says nothing about real ones"
    assert any("val_accuracy (generated) ↑" in line for line in lines)


def test_before_the_first_trial_there_is_a_word():
    assert any("starting" in line for line in drawn(Recorder().events))
    assert View(RunState()).draw(STARTED_AT, 80, 24) == Text("starting")


def test_before_the_first_epoch_it_says_when_the_time_left_will_be_known():
    recorder = Recorder(budget={**INFO["budget"], "hours": None})
    recorder.start("t0001", **config())
    assert drawn(recorder.events)[2].endswith("─  time left: known after the first epoch")


def test_a_thousand_trials_are_drawn_in_a_moment():
    recorder = Recorder()
    for i in range(1000):
        recorder.complete(f"t{i:04d}", [0.5 + i / 10000] * 3, 500 - i / 10, config(64 + i, 0.1 / (i + 1)))
    run_state = RunState(typed(recorder.events))
    run_state.front()
    events = drawn(recorder.events)
    assert "front of 1,000 points from 1,000 complete trials, " in "\n".join(events)


def test_what_is_kept_between_redraws_is_forgotten_with_an_event_and_where_the_terminal_changes_its_size():
    run_state = RunState(typed(story()[:40]))
    view = View(run_state)

    def text(width=80, after=0.0):
        out = io.StringIO()
        console = Console(file=out, width=width)
        console.print(view.draw(story()[39]["time"] + after, width, 24))
        return out.getvalue()

    first = text()
    assert text() == first
    assert text(after=60.0) != first  # of the clock nothing is kept
    assert "images/s ↑" not in text(width=60)  # where there is no sketch
    text()
    failed = {"event": "finish", "time": story()[39]["time"], "trial_id": "t0010", "state": "failed"}
    run_state.apply(typed([failed])[0])
    assert "t0010  epoch 2/3" in text()
    view.forget()
    assert "t0010  epoch 2/3" not in text()


def test_the_front_is_that_of_the_moment():
    recorder, run_state, sizes = Recorder(), RunState(), []
    for number, accuracy in enumerate((0.5, 0.6, 0.7), start=1):
        recorder.complete(f"t{number:04d}", [accuracy], 100.0 - number, config())
    for event in recorder.events:
        run_state.apply(typed([event])[0])
        sizes.append(len(run_state.front()))
    assert sizes == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]


def test_of_a_front_that_is_too_long_both_ends_are_shown_and_something_between():
    recorder = Recorder()
    for i in range(40):
        recorder.complete(f"t{i + 1:04d}", [0.3, 0.9 - 0.01 * i], 300.0 + 10 * i, config(64))
    lines = drawn(recorder.events)
    rows = [line.split()[1] for line in lines if "● t0" in line]
    assert (rows[0], rows[-1]) == ("t0001", "t0040")
    assert 3 <= len(rows) < 40
    assert f"front of 40 points from 40 complete trials, {len(rows)} shown" in lines


def test_where_settings_would_push_points_of_the_front_out_of_sight_they_are_cut_to_what_fits():
    recorder = Recorder()
    for i in range(5):
        chosen = config(64 * 2**i, 0.1 + 0.01 * i, a_setting_with_a_long_name=i, another_with_a_long_name=i)
        recorder.complete(f"t{i + 1:04d}", [0.3, 0.9 - 0.01 * i], 300.0 + 10 * i, chosen)
    lines = drawn(recorder.events)
    rows = [line for line in lines if "● t0" in line]
    assert [row.split()[1] for row in rows] == ["t0001", "t0002", "t0003", "t0004", "t0005"]
    assert all("batch=" in row and "…" not in row for row in rows)
