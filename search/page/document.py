"""HTML document in one file that loads nothing: its style and script are allowed by their hashes, all else is not."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from search.page.render import render

FILE_NAME = "report.html"  # of the page, in the folder of a run


def document(template: str, styles: Sequence[str], scripts: Sequence[str], **values: Any) -> str:
    """Render a template with the files of `assets`, and with the Content Security Policy that allows only these."""
    style, script = _joined(styles), _joined(scripts)
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return render(template, policy=policy, style=style, script=script, **values)


def _joined(names: Sequence[str]) -> Markup:
    assets = files("search.page").joinpath("assets")
    return Markup("\n").join(Markup(assets.joinpath(name).read_text(encoding="utf-8")) for name in names)


def _hash(text: str) -> str:
    """Source expression of a Content Security Policy that allows exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
