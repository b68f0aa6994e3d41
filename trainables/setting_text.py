"""Values of settings as a command line's text."""

from __future__ import annotations

from trainables.contract import Parameter, Scalar


def parsed(text: str, parameter: Parameter | None = None) -> Scalar | None:
    """Return the value that a command line's text stands for: 128, 0.1, true, null, or a word.

    A parameter that has words alone, such as `none`, takes the text as it is.
    """
    if parameter and parameter.type == "str" and parameter.default and all(type(x) is str for x in parameter.choices):
        return text
    words: dict[str, Scalar | None] = {"true": True, "false": False, "null": None, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
