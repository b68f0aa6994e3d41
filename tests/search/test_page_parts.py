import random
from html import escape
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from search.page.axes import Axis, axis, thinned, tick_label
from search.page.prose import prose
from search.page.render import ENVIRONMENT, render
from search.page.setting_axes import setting_axes
from search.record.run_state import RunState
from search.report.importance import Importance, importance
from search.results import load
from tests.search.runs import INFO, Recorder, config, story, typed

numbers = st.floats(-1e9, 1e9, allow_nan=False)
ranges = st.lists(numbers, min_size=1, max_size=5)


# --- markup -----------------------------------------------------------------------------------------------------------


def rendered(source, **values):
    return ENVIRONMENT.from_string(source).render(values)


@given(st.text())
def test_text_is_never_markup(text):
    content = rendered("<p>{{ text }}</p>", text=text)
    assert "<" not in content.removeprefix("<p>").removesuffix("</p>")
    attribute = rendered('<p title="{{ text }}"></p>', text=text)
    assert attribute.count('"') == 2
    assert attribute.count("<") == 2


def test_markup_is_not_escaped_twice():
    assert render("answer.html", trial=None, why="a & b", reasons=Markup("<b>a &amp; b</b>")).count("&amp;") == 2


@given(st.text())
def test_data_cannot_end_their_element(text):
    block = rendered("<script>{{ data|tojson }}</script>", data=[text])
    assert block.count("<") == 2


# --- axes -------------------------------------------------------------------------------------------------------------


@given(ranges, st.booleans())
def test_all_values_are_on_their_axis_in_their_order(values, log):
    along = axis(values, log)
    places = [along.position(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(0 <= place <= 100 for place in places)


@given(ranges, st.booleans(), st.integers(3, 8))
def test_ticks_are_few_and_on_the_axis(values, log, most):
    along = axis(values, log)
    ticks = along.ticks(most)
    assert len(ticks) <= most + 1
    assert all(along.low <= tick <= along.high or tick == pytest.approx(along.low) for tick in ticks)


def test_ticks_are_round():
    assert Axis(0.0, 1.0).ticks() == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert Axis(0.0, 12.0, whole=True).ticks() == [0, 2, 4, 6, 8, 10, 12]
    assert Axis(0.0, 3.2, whole=True).ticks() == [0, 1, 2, 3]
    assert Axis(4_000, 90_000, log=True).ticks() == [5_000, 10_000, 20_000, 50_000]
    assert Axis(0.8e-8, 0.13, log=True).ticks(5) == [1e-8, 1e-6, 1e-4, 1e-2]
    assert Axis(0.001, 0.5, log=True).ticks() == [0.001, 0.003, 0.01, 0.03, 0.1, 0.3]


def test_tick_labels_are_short():
    values = (0, 0.55, 0.1 + 0.2, 2000, 1e-5, 2e9, 1.5e7, -2.5e-5)
    assert [tick_label(v) for v in values] == ["0", "0.55", "0.3", "2,000", "1e-5", "2e9", "1.5e7", "-2.5e-5"]


def test_a_log_axis_is_straight_in_ratios():
    along = Axis(10.0, 1000.0, log=True)
    assert along.position(100.0) == 50.0


@given(st.integers(1, 200), st.integers(2, 50))
def test_thinning_keeps_both_ends(number, most):
    kept = thinned(range(number), most)
    assert len(kept) == min(number, most)
    assert (kept[0], kept[-1]) == (0, number - 1)


# --- prose ------------------------------------------------------------------------------------------------------------


def flat(*blocks):
    return prose(blocks).replace("\n", " ").strip()


def test_paragraphs_lists_and_code_become_elements():
    assert flat("one\ntwo **three** `four`") == "<p>one two <strong>three</strong> <code>four</code></p>"
    assert flat("- a\n  b\n- c") == "<ul> <li>a b</li> <li>c</li> </ul>"
    assert (
        prose(["```sh\na \\\n\n    b <c>\n```"]) == '<pre tabindex="0"><code>a \\\n\n    b &lt;c&gt;\n</code></pre>\n'
    )
    assert flat("> **Note.** a\n> b") == "<blockquote> <p><strong>Note.</strong> a b</p> </blockquote>"


@pytest.mark.parametrize("text", ["<img src=x>", "![x](http://x/y.png)", "[x](http://x)", "<http://x>", "&lt;b&gt;"])
def test_markdown_can_neither_load_nor_link_and_stands_as_it_is_written(text):
    assert prose([text]) == f"<p>{escape(text)}</p>\n"


def test_a_table_keeps_its_sides_and_its_empty_cells():
    text = flat("| name |  rate |\n| ---- | ----: |\n| a    |    12 |\n|      | <3    |")
    assert '<th scope="col" class="num">rate</th>' in text
    assert '<tr> <td>a</td> <td class="num">12</td>' in text
    assert '<tr> <td></td> <td class="num">&lt;3</td>' in text
    assert "style" not in text  # which the page's Content Security Policy forbids


def test_tables_that_begin_alike_become_one():
    left = "| n | x |\n| - | -: |\n| a | 1 |"
    right = "| n | y |\n| - | -: |\n| a | 2 |"
    other = "| n | y |\n| - | -: |\n| b | 2 |"
    assert prose([left, right]).count("<table>") == 1
    assert prose([left, right]).count("<td") == 3
    assert prose([left, other]).count("<table>") == 2
    assert prose([left, "words", right]).count("<table>") == 2


def test_a_table_with_a_separator_in_a_cell_is_left_as_it_is():
    odd = "| n | y |\n| - | -: |\n| a | b | 2 |"
    assert prose(["| n | x |\n| - | -: |\n| a | 1 |", odd]).count("<table>") == 2


# --- settings ---------------------------------------------------------------------------------------------------------


def test_settings_stand_in_the_space_files_order_and_ranges_are_axes():
    run_state = RunState(typed(story()))
    found = {s.name: s for s in setting_axes(run_state, list(run_state.trials.values()))}
    assert found["batch_size"].values == ("64", "128", "256", "512")
    assert found["loader"].values == ("workers", "memory")
    assert found["learning_rate"].range is not None
    assert found["learning_rate"].range.log
    assert found["num_workers"].position(run_state.trials["t0007"]) is None  # its loader has none
    assert "optimizer" not in found


# --- importance -------------------------------------------------------------------------------------------------------


def of_trials(number, rate, goal="maximize"):
    recorder = Recorder(objectives=[INFO["objectives"][0], {"metric": "images_per_second", "goal": goal}])
    draw = random.Random(0)
    for i in range(number):
        size, precision = draw.choice([64, 128, 256, 512]), draw.choice(["fp32", "bf16"])
        chosen = config(size, 10 ** draw.uniform(-3, -0.31), precision=precision)
        recorder.complete(f"t{i:04d}", [0.5, 0.6], rate(chosen) + draw.random(), chosen)
    return RunState(typed(recorder.events))


def test_the_setting_that_decides_is_told_from_chance_and_the_others_are_not():
    run_state = of_trials(60, lambda chosen: chosen["batch_size"])
    found = importance(run_state, run_state.objectives[1])
    assert isinstance(found, Importance)
    assert next(iter(found.shares)) == "batch_size"
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert found.shares["precision"] < found.chance < found.shares["batch_size"]


def test_what_decides_in_the_recorded_example_is_found():
    """40 trials of seven settings; the learning rate decides the accuracy, one process or two decide the rate."""
    state = load(Path(__file__).parents[2] / "docs" / "example").state
    first = [next(iter(cast(Importance, importance(state, objective)).shares)) for objective in state.objectives]
    assert first == ["learning_rate", "strategy"]


@pytest.mark.parametrize(("goal", "first"), [("minimize", "precision"), ("maximize", "batch_size")])
def test_the_best_are_the_lowest_of_what_is_to_be_low(goal, first):
    """The lowest rates have bf16 and any batch, the highest have the largest batch and any precision."""

    def rate(chosen):
        return 1000.0 * (chosen["batch_size"] == 512) + 10.0 * (chosen["precision"] == "fp32") + 10.0

    run_state = of_trials(60, rate, goal)
    found = importance(run_state, run_state.objectives[1])
    assert isinstance(found, Importance)
    assert next(iter(found.shares)) == first


def test_what_cannot_be_judged_is_said():
    few, alike = of_trials(9, lambda chosen: 100.0), of_trials(12, lambda chosen: 100.0)
    assert importance(few, few.objectives[1]) == "Too few trials: 9 measured it, 10 are needed."
    assert importance(alike, alike.objectives[0]) == "No importance: the trials hardly differ in this metric."
