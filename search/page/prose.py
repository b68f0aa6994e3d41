"""The summary's Markdown as HTML, by markdown-it: without raw HTML, links and images, which could load something."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from markdown_it import MarkdownIt
from markupsafe import Markup

MARKDOWN = MarkdownIt("zero").enable(["backticks", "blockquote", "emphasis", "fence", "list", "table"])
SCROLL_BOX = (
    '<div class="scroll" tabindex="0" role="region" aria-label="table">'  # the page itself never scrolls sideways
)
MARKDOWN.add_render_rule("table_open", lambda *_: f"{SCROLL_BOX}<table>")
MARKDOWN.add_render_rule("table_close", lambda *_: "</table></div>")

Columns = list[tuple[str, ...]]


def prose(blocks: Sequence[str]) -> Markup:
    """Render blocks of Markdown: paragraphs, lists, tables, quotes and code."""
    tokens = MARKDOWN.parse("\n\n".join(join_tables(blocks)))
    for token in tokens:
        if token.type == "fence":
            token.type, token.attrs = "code_block", {"tabindex": "0"}  # so that keys can scroll it
        elif token.type in ("th_open", "td_open"):
            scope = {"scope": "col"} if token.type == "th_open" else {}
            # a class, for the page's Content Security Policy forbids the style attributes of markdown-it
            token.attrs = {**scope, "class": "num"} if "style" in token.attrs else {**scope}
    return Markup(MARKDOWN.renderer.render(tokens, MARKDOWN.options, {}))


def join_tables(blocks: Sequence[str]) -> list[str]:
    """Join consecutive tables that begin with the same columns: the summary splits them at 80 columns of text."""
    joined: list[str | Columns] = []
    for block in blocks:
        columns = _columns(block)
        before = joined[-1] if joined else ""
        if columns and isinstance(before, list) and before[0] == columns[0]:
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, columns, strict=False)))
            before += columns[shared:]
        else:
            joined.append(columns or block)
    tables = (zip(*each, strict=True) if isinstance(each, list) else each for each in joined)
    return [t if isinstance(t, str) else "\n".join(f"| {' | '.join(line)} |" for line in t) for t in tables]


def _columns(block: str) -> Columns:
    """Cells of a Markdown table by column; empty: the block is no table, or a cell contains a separator."""
    lines = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in block.splitlines()]
    same_length = len({len(line) for line in lines}) == 1
    return list(zip(*lines, strict=True)) if block.startswith("|") and same_length else []
