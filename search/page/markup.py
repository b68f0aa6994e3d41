"""HTML and SVG written so that text can never become markup."""

from __future__ import annotations

import html
import json
from typing import Any


class Html(str):
    """Text that is markup already. Any other string is escaped where it is put into a tag."""

    __slots__ = ()


VOID = frozenset({"br", "col", "hr", "img", "input", "link", "meta"})
Child = str | None  # `Html`, or text; None: nothing


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """An element. `class_` and `aria_label` are written `class` and `aria-label`; None and False are left out."""
    written = "".join(
        _attribute(key, value) for key, value in attributes.items() if value is not None and value is not False
    )
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: Child) -> Html:
    """One after another, without a tag around them."""
    return Html("".join(child if isinstance(child, Html) else html.escape(child) for child in children if child))


def data_block(element_id: str, value: Any) -> Html:
    """A value for scripts to read. `<` is written so that nothing in it can end the element or begin a comment."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="{html.escape(element_id)}">{text}</script>')


def _attribute(key: str, value: str | float | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f' {name}="{html.escape(text)}"'
