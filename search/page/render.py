"""Jinja2 templates of the page. Autoescape is on, so that no text of a run can become markup."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from search.page.axes import tick_label
from search.text.numbers import format_number, format_percent, join_words, plural

ENVIRONMENT = Environment(
    loader=PackageLoader("search.page"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
ENVIRONMENT.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
ENVIRONMENT.filters |= {
    "format_number": format_number,
    "format_percent": format_percent,
    "join_words": join_words,
    "plural": plural,
    "short_number": lambda value: f"{value:.6g}",  # for attributes of HTML and SVG
    "svg_percent": lambda value: f"{value:.6g}%",
    "tick_label": tick_label,
}


def render(template: str, **values: Any) -> Markup:
    """Render a file of `templates`; values that are not Markup themselves are escaped."""
    return Markup(ENVIRONMENT.get_template(template).render(values))
