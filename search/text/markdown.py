"""Markdown that is also readable as plain text, in at most 80 columns where words and cells allow."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

WIDTH = 80  # columns of a terminal

Columns = Mapping[str, Sequence[str]]  # heading -> cells, all of the same number


def wrap(text: str, indent: str = "") -> str:
    """Wrap a paragraph, or a list item with `indent` for its further lines. Neither words nor `352 ± 4` are split.

    No line begins with `>99%`, which would be a quotation.
    """
    text = text.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}").replace(" >", "\N{NO-BREAK SPACE}>")
    lines = textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def format_table(columns: Columns) -> str:
    """Return a table; columns of numbers are aligned to the right. In cells, bars are escaped and lines are joined."""
    lines: list[list[str]] = [[] for _ in range(2 + len(next(iter(columns.values()))))]
    for name, *cells in (map(_cell, [heading, *below]) for heading, below in columns.items()):
        width = max(map(len, [name, *cells]))
        right = all(cell[:1].isdigit() or cell[:1] in "-–<>" for cell in cells)
        lines[0].append(name.rjust(width) if right else name.ljust(width))
        lines[1].append("-" * (width - 1) + (":" if right else "-"))
        for line, cell in zip(lines[2:], cells, strict=True):
            line.append(cell.rjust(width) if right else cell.ljust(width))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", r"\|").splitlines())


def fits(columns: Columns) -> bool:
    """Return whether the table of these columns is at most `WIDTH` wide."""
    return len(format_table(columns).split("\n")[0]) <= WIDTH


def format_tables(first: Columns, *groups: Columns) -> list[str]:
    """Return one table if it fits, else one or more tables per group; each starts with the columns `first`."""
    everything = {**first, **{name: cells for group in groups for name, cells in group.items()}}
    if fits(everything):
        return [format_table(everything)]
    made: list[Columns] = []
    for group in filter(None, groups):
        columns = dict(first)
        for name, cells in group.items():
            if len(columns) > len(first) and not fits({**columns, name: cells}):
                made.append(columns)
                columns = dict(first)
            columns[name] = cells
        made.append(columns)
    return [format_table(columns) for columns in made]
