"""List of the parameters that a space file may name, printed by `--parameters TRAINABLE`."""

from __future__ import annotations

import textwrap

from search.text.configurations import format_setting
from search.text.markdown import WIDTH
from trainables.contract import Affects, Parameter, load_trainable

INDENT = 23  # columns, one more than the longest name
AFFECTS: dict[Affects, str] = {"all": "all metrics", "probed": "the rate alone", "trained": "what is learned alone"}


def parameter_list(trainable: str) -> str:
    """Return each parameter with its type, default, values, what it affects, and its meaning.

    Raises:
        LookupError: there is no such trainable, or its declaration has a mistake.
    """
    known = load_trainable(trainable).PARAMETERS
    if known is None:
        return f"{trainable} accepts any parameter"
    return "\n".join(_entry(name, parameter) for name, parameter in known.items())


def _entry(name: str, parameter: Parameter) -> str:
    default = "null" if parameter.default is None else format_setting(parameter.default)
    text = f"{_values(parameter)}; default {default}; affects {AFFECTS[parameter.affects]}"
    described = f"{text}: {parameter.help}" if parameter.help else text
    return textwrap.fill(
        described,
        WIDTH,
        initial_indent=f"{name:<{INDENT - 1}} ",
        subsequent_indent=" " * INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _values(parameter: Parameter) -> str:
    if parameter.choices:
        return "one of " + ", ".join(map(format_setting, parameter.choices))
    low = f" from {parameter.low:g}" if parameter.low is not None else ""
    high = f" up to {parameter.high:g}" if parameter.high is not None else ""
    return f"{parameter.type}{low}{high}"
