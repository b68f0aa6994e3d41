"""Markdown that is straight as plain text too, in at most 80 columns where words and cells allow."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

WIDTH = 80  # columns of a terminal

Columns = Mapping[str, Sequence[str]]  # heading -> cells, all of the same number


def wrapped(text: str, indent: str = "") -> str:
    """A paragraph, or with an indent for its further lines an item of a list. No word is broken, nor `352 ± 4`."""
    text = text.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")
    lines = textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def table(columns: Columns) -> str:
    """A table; columns of figures to the right."""
    lines: list[list[str]] = [[] for _ in range(2 + len(next(iter(columns.values()))))]
    for name, cells in columns.items():
        width = max(map(len, [name, *cells]))
        right = all(cell[:1].isdigit() or cell[:1] in "-–" for cell in cells)
        lines[0].append(name.rjust(width) if right else name.ljust(width))
        lines[1].append("-" * (width - 1) + (":" if right else "-"))
        for line, cell in zip(lines[2:], cells, strict=True):
            line.append(cell.rjust(width) if right else cell.ljust(width))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fits(columns: Columns) -> bool:
    """Whether the table of these columns is no wider than `WIDTH`."""
    return len(table(columns).split("\n")[0]) <= WIDTH


def tables(first: Columns, *groups: Columns) -> list[str]:
    """All in one table where that fits; else a table for each group, or several; `first` begins each."""
    everything = {**first, **{name: cells for group in groups for name, cells in group.items()}}
    if fits(everything):
        return [table(everything)]
    made: list[Columns] = []
    for group in filter(None, groups):
        columns = dict(first)
        for name, cells in group.items():
            if len(columns) > len(first) and not fits({**columns, name: cells}):
                made.append(columns)
                columns = dict(first)
            columns[name] = cells
        made.append(columns)
    return [table(columns) for columns in made]
