import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.text.scatter_plot import DOT, Axis, Point, scatter_plot

X, Y = Axis("rate"), Axis("accuracy")


def drawn(points, width=24, height=7, x=X, y=Y, **settings):
    return scatter_plot([Point(*point) for point in points], x, y, width, height, **settings)


def test_two_letters_stand_in_opposite_corners_with_the_ends_of_both_axes_beside_them():
    assert drawn([(100, 0.25, "a"), (400, 0.75, "b")]) == [
        "accuracy",
        "0.7500 │               b",
        "       │",
        "       │",
        "0.2500 │a",
        "       └────────────────",
        "        100   rate   400",
    ]


def test_eight_dots_share_a_place_and_the_upper_left_one_is_the_upper_left_one():
    lines = drawn([(0, 1, DOT), (1, 0, DOT)], width=16, height=5)
    assert lines[1:3] == ["1.00 │⠁", "   0 │         ⢀"]


def test_letters_hide_dots_and_later_letters_earlier_ones():
    text = "\n".join(drawn([(1, 1, "a"), (1, 1, "b"), (1, 1, DOT)]))
    assert "b" in text
    assert "│a" not in text
    assert "⠁" not in text


def test_on_a_logarithm_equal_ratios_are_equal_distances():
    lines = drawn([(1, 0, "1"), (10, 0, "2"), (100, 0, "3")], width=30, x=Axis("rate", log=True))
    line = next(line.partition("│")[2] for line in lines if line.endswith("3"))
    assert abs((line.index("2") - line.index("1")) - (line.index("3") - line.index("2"))) <= 1


def test_a_logarithm_of_zero_is_not_taken():
    assert drawn([(0, 0, "a"), (1, 1, "b")], x=Axis("rate", log=True)) == drawn([(0, 0, "a"), (1, 1, "b")])


def test_what_is_beyond_the_ends_is_left_out():
    x = Axis("rate", ends=(0.0, 1.0))
    assert drawn([(0.5, 0, "a"), (2, 0, "b"), (0.5, 1, "c")], x=x) == drawn([(0.5, 0, "a"), (0.5, 1, "c")], x=x)


def test_a_point_alone_has_something_around_it():
    lines = drawn([(100, 0.5, "a")])
    assert "0.5500" in lines[1]
    assert "90.0" in lines[-1]
    assert lines[2][8:].strip() == "a" or lines[3][8:].strip() == "a"


@pytest.mark.parametrize("log", [False, True])
def test_values_that_differ_by_a_rounding_error_are_one_place(log):
    assert "a" in "\n".join(drawn([(100.0, 1, "a"), (math.nextafter(100.0, 200.0), 1, "a")], x=Axis("rate", log)))


def test_a_terminal_that_knows_ascii_alone_gets_ascii_alone():
    text = "\n".join(drawn([(100, 0.25, DOT), (400, 0.75, "*")], ascii_only=True))
    assert text.isascii()
    assert ".-" not in text
    assert text.count("*") == 1


@pytest.mark.parametrize("points", [[], [(math.nan, 1.0, "a")], [(1.0, math.inf, "a")]])
def test_without_points_there_is_nothing(points):
    assert drawn(points) == []


@pytest.mark.parametrize(("width", "height"), [(10, 7), (24, 4), (0, 0), (-1, -1)])
def test_without_room_there_is_nothing(width, height):
    assert drawn([(100, 0.25, "a"), (400, 0.75, "b")], width, height) == []


def test_a_name_too_long_for_its_axis_is_cut_off():
    lines = drawn([(100, 0.25, "a"), (400, 0.75, "b")], x=Axis("x" * 50), y=Axis("y" * 50))
    assert max(map(len, lines)) == 24
    assert lines[0] == "y" * 24
    assert lines[-2:] == ["       └ xxxxxxxxxxxxxxx", "        100          400"]


values = st.floats(allow_nan=True, allow_infinity=True) | st.floats(1e-6, 1e6)
points = st.lists(st.tuples(values, values, st.sampled_from([DOT, "a"])), max_size=20)
axes = st.builds(Axis, st.text(st.characters(categories=["L", "P"], max_codepoint=0x7F), max_size=40), st.booleans())


@settings(deadline=None)
@given(points, axes, axes, st.integers(0, 100), st.integers(0, 30))
def test_no_line_is_wider_and_there_are_no_more_lines_than_asked_for(points, x, y, width, height):
    lines = drawn(points, width, height, x, y)
    assert len(lines) <= height
    assert max(map(len, lines), default=0) <= width


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=1, max_size=20), st.booleans())
def test_every_point_has_a_place_in_the_frame(places, log):
    lines = drawn([(x, y, "#") for x, y in places], 100, 20, Axis("x", log), Axis("y", log))
    assert 1 <= "".join(lines).count("#") <= len(places)
    for x, y in places:
        assert "#" in "".join(drawn([(x, y, "#")], 100, 20, Axis("x", log), Axis("y", log)))
