"""The figures: what each draws of a run, and what it says where there is nothing to draw."""

import itertools
import random
import sys
from typing import Any, cast

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from search.figures import main
from search.plots import NothingToDrawError, plot_curves, plot_front, plot_fronts, plot_importance, plot_parallel
from search.report.importance import importance
from search.results import load
from tests.search.runs import INFO, Recorder, config, interval, story, write_run
from trainables.replay import closed_form


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture
def run(tmp_path):
    return load(write_run(tmp_path / "run", story()))


def many(trials=30):
    """A run with enough trials to judge settings by: the closed form of replayed trials, and stage times."""
    recorder, rng = Recorder(name="many"), random.Random(0)
    for n in range(1, trials + 1):
        settings = config(
            rng.choice([64, 128, 256, 512]), 10 ** rng.uniform(-3, -0.5), loader=rng.choice(["memory", "workers"])
        )
        recorder.start(f"t{n:04d}", **settings)
        for epoch in (1, 2, 3):
            metrics = closed_form({name: settings[name] for name in ("batch_size", "learning_rate")}, epoch)
            stages = {"load_seconds": 0.01, "forward_seconds": 0.02, "backward_seconds": 0.04}
            rate = interval(metrics["images_per_second"], 20.0)
            recorder.measure(f"t{n:04d}", epoch, val_accuracy=metrics["val_accuracy"], **rate, **stages)
        recorder.finish(f"t{n:04d}")
    return recorder.events


def texts(ax):
    return [text.get_text() for text in ax.texts]


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_the_front_is_drawn_among_all_trials_with_its_picks_named(run, ax):
    assert plot_front(run, ax) is ax
    assert texts(ax) == ["t0003: most accurate", "t0007: knee", "t0011: fastest"]
    assert legend(ax) == ["dominated", "not compared", "stopped early", "front (3)"]
    dominated, others, stopped = (cast(Any, collection) for collection in ax.collections[:3])
    assert len(dominated.get_offsets()) == 2  # t0001, t0006
    assert others.get_offsets().tolist() == [[402, 0.72]]  # t0010, the best of all, is beyond the constraint
    assert stopped.get_facecolor().size == 0  # hollow
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("images_per_second (↑)", "val_accuracy (↑)")


def test_intervals_are_drawn_as_long_as_they_are(run, ax):
    plot_front(run, ax)
    (bars,) = ax.containers
    widths = [path[1][0] - path[0][0] for path in bars[2][0].get_segments()]
    assert widths == pytest.approx([3.6, 8.0, 8.02])  # 180 ± 1.8, 352 ± 4, 401 ± 4.01


def run_of(tmp_path, objectives, points):
    """A run whose trials have these values of the objectives."""
    goals = dict(objectives)
    recorder = Recorder(objectives=[{"metric": metric, "goal": goal} for metric, goal in goals.items()], constraints=[])
    for number, values in enumerate(points, start=1):
        recorder.start(f"t{number:04d}", **config(64 * number))
        recorder.measure(f"t{number:04d}", 3, **dict(zip(goals, values, strict=True)))
        recorder.finish(f"t{number:04d}")
    return load(write_run(tmp_path, recorder.events))


@pytest.mark.parametrize(
    ("goals", "points", "boundary"),
    [
        (("maximize", "maximize"), [(0.5, 4.0), (0.7, 2.0)], (3.0, 0.5)),
        (("maximize", "minimize"), [(0.5, 2.0), (0.7, 4.0)], (3.0, 0.5)),
        (("minimize", "maximize"), [(0.5, 2.0), (0.7, 4.0)], (3.0, 0.7)),
        (("minimize", "minimize"), [(0.5, 4.0), (0.7, 2.0)], (3.0, 0.7)),
    ],
)
def test_the_boundary_passes_through_what_was_reached(tmp_path, ax, goals, points, boundary):
    """Between two points of a front, the worse of the two in y is what a trial with that x or a better one has."""
    run = run_of(tmp_path, zip(("quality", "cost"), goals, strict=True), points)
    plot_front(run, ax)
    line = cast(Any, ax.lines[0])
    index = int(np.searchsorted(line.get_xdata(), boundary[0]))  # of the right one of its neighbours
    assert line.get_ydata()[index - (line.get_drawstyle() == "steps-post")] == boundary[1]


def test_a_dollar_begins_no_formula(tmp_path, ax):
    recorder = Recorder(constraints=[], name="cost$a_{$")
    for number, value in enumerate(["$a_{$", "b"], start=1):
        recorder.complete(f"t{number:04d}", [0.1 * number], 300.0 - number, config(loader=value))
    run = load(write_run(tmp_path, recorder.events))
    plot_parallel(run, ax)
    plot_front(run, ax)
    plot_fronts({run.name: run}, ax)
    ax.figure.savefig(tmp_path / "figure.svg")


def test_one_objective_is_no_front(tmp_path, ax):
    with pytest.raises(NothingToDrawError, match="there is one"):
        plot_front(run_of(tmp_path / "run", [("quality", "maximize")], [(0.5,)]), ax)
    with pytest.raises(NothingToDrawError, match="there is one"):
        plot_fronts({"run": run_of(tmp_path / "again", [("quality", "maximize")], [(0.5,)])}, ax)


def test_a_front_of_three_objectives_has_no_boundary(tmp_path, ax):
    goals = [("quality", "maximize"), ("cost", "minimize"), ("memory", "minimize")]
    plot_front(run_of(tmp_path, goals, [(0.5, 2.0, 3.0), (0.7, 4.0, 2.0)]), ax)
    assert not any(line.get_drawstyle().startswith("steps") for line in ax.lines)


def test_runs_that_name_their_objectives_in_another_order_have_the_same_axes(tmp_path, ax):
    goals, points = [("quality", "maximize"), ("cost", "minimize")], [(0.5, 2.0), (0.7, 4.0)]
    first = run_of(tmp_path / "first", goals, points)
    second = run_of(tmp_path / "second", goals[::-1], [point[::-1] for point in points])
    plot_fronts({"A": first, "B": second}, ax)
    steps = [line for line in ax.lines if line.get_drawstyle().startswith("steps")]
    assert [list(line.get_xdata()) for line in steps] == [[2.0, 4.0]] * 2


def test_bars_reach_to_the_ends_that_were_measured(tmp_path, ax):
    recorder = Recorder()
    recorder.start("t0001", **config())
    ends = {"images_per_second": 200.0, "images_per_second_low": 190.0, "images_per_second_high": 240.0}
    recorder.measure("t0001", 3, val_accuracy=0.5, **ends)
    recorder.finish("t0001")
    plot_front(load(write_run(tmp_path, recorder.events)), ax)
    (bars,) = ax.containers
    assert bars[2][0].get_segments()[0][:, 0].tolist() == [190.0, 240.0]


def test_an_interval_that_reaches_zero_ends_there_unless_the_metric_may_be_below_it(tmp_path, ax):
    recorder = Recorder(objectives=[{"metric": "val_r2", "goal": "maximize"}, INFO["objectives"][1]], constraints=[])
    recorder.start("t0001", **config())
    recorder.measure("t0001", 3, val_r2=0.1, val_r2_low=-0.1, val_r2_high=0.3, **interval(100.0, 110.0))
    recorder.finish("t0001")
    plot_front(load(write_run(tmp_path, recorder.events)), ax)
    (bars,) = ax.containers
    across, upward = (lines.get_segments()[0].tolist() for lines in bars[2])
    assert across == [[0.0, 0.1], [210.0, 0.1]]
    assert upward == [[100.0, -0.1], [100.0, 0.3]]


def test_a_range_that_is_inactive_in_some_trials_is_still_by_size(tmp_path, ax):
    space = {"loader": {"values": ["memory", "workers"]}, "dropout": {"min": 0.5, "max": 0.99}}
    recorder = Recorder(space={**INFO["space"], "parameters": space}, constraints=[])
    for number, dropout in enumerate([None, 0.95, 0.6, 0.9], start=1):
        chosen = {"loader": "memory"} if dropout is None else {"loader": "workers", "dropout": dropout}
        recorder.complete(f"t{number:04d}", [0.1, 0.2, 0.3 + number / 100], 300.0 - number, chosen)
    run = load(write_run(tmp_path, recorder.events))
    plot_parallel(run, ax)
    heights = sorted(line.get_ydata()[1] for line in ax.lines if len(line.get_ydata()) > 2)
    assert heights[0] == 0.0
    assert [(height - heights[1]) / (heights[3] - heights[1]) for height in heights[1:]] == pytest.approx(
        [0, (0.9 - 0.6) / (0.95 - 0.6), 1]
    )


def test_fronts_of_two_runs_have_a_name_and_a_mark_each(tmp_path, run, ax):
    other = load(write_run(tmp_path / "other", many()))
    plot_fronts({"A: here": run, "B: there": other}, ax)
    assert legend(ax) == ["A: here", "B: there"]
    with pytest.raises(NothingToDrawError, match="no run has a front"):
        plot_fronts({"A": load(write_run(tmp_path / "empty", Recorder().events))}, ax)


def test_curves_are_of_all_trials_that_have_any_and_stopped_ones_are_dashed(run, ax):
    plot_curves(run, ax)
    styles = [line.get_linestyle() for line in ax.lines]
    assert len(styles) == 8  # without the two infeasible, the one that died, and the one whose accuracy was no number
    assert styles.count("--") == 1
    assert legend(ax) == ["t0003", "t0007", "t0011"]
    plot_curves(run, ax, metric="images_per_second")
    assert ax.get_ylabel() == "images_per_second"
    with pytest.raises(NothingToDrawError, match="no epoch of nonsense"):
        plot_curves(run, ax, metric="nonsense")


def test_parallel_coordinates_have_an_axis_for_each_setting_that_varies_and_each_objective(run, ax):
    plot_parallel(run, ax)
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels == [
        *("batch_size", "learning_rate", "loader", "num_workers", "precision"),
        *("val_accuracy (↑)", "images_per_second (↑)"),
    ]
    heights = [line.get_ydata() for line in ax.lines[:5]]  # the five compared
    assert all(0 <= height <= 1 for line in heights for height in line)
    assert {"64", "512", "0.004", "0.11", "memory", "–"} <= set(texts(ax))


def test_importance_has_a_bar_a_setting_and_objective(tmp_path, ax):
    run = load(write_run(tmp_path / "many", many()))
    plot_importance(run, ax)
    assert {label.get_text() for label in ax.get_yticklabels()} == {"batch_size", "learning_rate", "loader"}
    assert legend(ax) == ["val_accuracy", "images_per_second"]
    assert len(ax.patches) == 6


def test_a_setting_that_cannot_change_a_metric_is_not_said_to_decide_it(tmp_path):
    run = load(write_run(tmp_path / "many", many()))
    accuracy, rate = (cast(Any, importance(run.state, objective)).shares for objective in run.state.objectives)
    assert set(accuracy) == {"batch_size", "learning_rate"}  # not how the pictures are loaded
    assert set(rate) == {"batch_size", "loader"}  # not the learning rate


def test_what_cannot_be_drawn_says_what_is_missing(run, ax):
    with pytest.raises(NothingToDrawError, match="val_accuracy: Too few trials"):
        plot_importance(run, ax)
    with pytest.raises(ValueError, match="no trial profiled its steps"):
        run.plot_stages(ax)
    with pytest.raises(ValueError, match="no trial profiled its steps"):
        run.plot_stages()
    assert pyplot.get_fignums() == []  # a notebook would show the empty figure


def test_figures_without_matplotlib_say_what_to_install(tmp_path, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.ticker", None)
    with pytest.raises(ImportError, match=r"training-search\[plots\]"):
        run.plot_curves()


def test_each_figure_is_one_call_of_the_run(tmp_path, ax):
    run = load(write_run(tmp_path / "many", many()))
    for name in ("front", "curves", "parallel", "importance", "stages"):
        assert getattr(run, f"plot_{name}")(ax) is ax


def test_the_command_writes_png_and_svg_and_says_what_it_left_out(tmp_path, capsys):
    folder = write_run(tmp_path / "run", story())
    assert main([str(folder)]) == 0
    out = capsys.readouterr().out
    names = sorted(path.name for path in (folder / "figures").iterdir())
    assert names == [f"{name}.{suffix}" for name in ("curves", "front", "parallel") for suffix in ("png", "svg")]
    assert "left out: stages: no trial profiled its steps" in out
    assert "10 are needed; images_per_second: Too few trials" in out.replace("\n  ", " ")
    assert max(len(line) for line in out.splitlines() if str(folder) not in line) <= 80
    first = (folder / "figures" / "front.svg").read_bytes()
    assert main([str(folder), "--to", str(tmp_path / "again")]) == 0
    assert b"<svg" in first


def test_figures_into_a_file_are_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "notes").write_text("kept")
    assert main([str(write_run(tmp_path / "run", story())), "--to", str(tmp_path / "notes")]) == 2
    assert capsys.readouterr().err == (
        f"search.figures: --to {tmp_path / 'notes'}: is a file; expected a folder, or a new name\n"
    )


def test_names_do_not_cover_each_other(tmp_path, ax):
    recorder = Recorder()
    for number, (accuracy, rate) in enumerate(((0.9, 300.0), (0.8995, 300.4), (0.5, 301.0)), start=1):
        recorder.complete(f"t{number:04d}", [accuracy], rate, config(64 * number))
    plot_front(load(write_run(tmp_path / "run", recorder.events)), ax)
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) == 3
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_a_pick_beyond_the_axes_has_no_name(tmp_path, ax):
    recorder = Recorder()
    for number in (1, 2):
        recorder.complete(f"t{number:04d}", [0.9 / number], 300.0 * number, config(64 * number))
    ax.set_xlim(0, 350)
    plot_front(load(write_run(tmp_path / "run", recorder.events)), ax)  # ends
    assert len(ax.texts) == 2


def test_long_values_of_a_setting_are_shortened(tmp_path, ax):
    recorder = Recorder()
    for number, name in enumerate(("policy-number-7-with-crop-flip", "none"), start=1):
        recorder.complete(f"t{number:04d}", [0.1 * number], 91_234.0 - number, config(loader=name))
    plot_parallel(load(write_run(tmp_path / "run", recorder.events)), ax)
    texts = [text.get_text() for text in ax.texts]
    assert "policy-number-7…" in texts
    assert "91,233" in texts


def test_a_run_with_nothing_to_draw_is_exit_code_1_and_leaves_no_folder(tmp_path, capsys):
    folder = write_run(tmp_path / "run", Recorder().events)
    assert main([str(folder)]) == 1
    assert "nothing to draw: front: no complete or stopped trial has val_accuracy" in capsys.readouterr().err
    assert not (folder / "figures").exists()
