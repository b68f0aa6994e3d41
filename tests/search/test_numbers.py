"""Numbers as text."""

import pytest

from search.text.markdown import format_table, wrap
from search.text.numbers import format_number, format_probability


@pytest.mark.parametrize(
    ("probability", "text"),
    [(1.0, "100%"), (0.997, ">99%"), (0.994, "99%"), (0.004, "<1%"), (0.006, "1%"), (0.0, "0%"), (float("nan"), "–")],
)
def test_what_is_not_certain_is_not_printed_as_certain(probability: float, text: str) -> None:
    assert format_probability(probability) == text


def test_a_probability_begins_no_line_as_a_quotation_would() -> None:
    for length in range(60, 90):
        assert not any(line.startswith(">") for line in wrap(f"{'x' * length} >99% of it").splitlines())


def test_probabilities_are_aligned_to_the_right() -> None:
    assert format_table({"on the front": ["100%", ">99%", "<1%"]}).splitlines()[1:] == [
        "| -----------: |",
        "|         100% |",
        "|         >99% |",
        "|          <1% |",
    ]


def test_a_number_of_any_size_is_short():
    assert format_number(138_357_544) == "138,357,544"
    assert format_number(-3.4e24) == "-3.4e+24"
