"""The summary's Markdown as HTML: its sections, paragraphs, lists, tables and code, and no more of the language."""

from __future__ import annotations

import re
from dataclasses import dataclass

from search.page.markup import Html, joined, tag

INLINE = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*")


def sections(markdown: str, level: int = 2) -> dict[str, str]:
    """Text by heading of that level; what stands before the first one has the key ''."""
    parts = re.split(rf"^{'#' * level} (.+)$", markdown, flags=re.MULTILINE)
    return {"": parts[0].strip(), **dict(zip(parts[1::2], map(str.strip, parts[2::2]), strict=True))}


def prose(markdown: str) -> Html:
    """HTML of paragraphs, lists, tables, quotes and code blocks."""
    made: list[Html | Table] = []
    for block in _blocks(markdown):
        if not block.startswith("|"):
            made.append(_block(block))
        elif made and isinstance(before := made[-1], Table) and (both := before.beside(_table(block))):
            made[-1] = both
        else:
            made.append(_table(block))
    return joined(*(each.html() if isinstance(each, Table) else each for each in made))


def _blocks(markdown: str) -> list[str]:
    """Cut at empty lines, but not within fences."""
    blocks: list[str] = []
    for part in re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL):
        blocks += [part] if part.startswith("```") else re.split(r"\n\s*\n", part)
    return [block.strip("\n") for block in blocks if block.strip()]


def _block(block: str) -> Html:
    if block.startswith("```"):
        return tag("pre", tag("code", _code(block)), tabindex="0")
    if block.startswith("- "):
        return tag("ul", *(tag("li", inline(item)) for item in re.split(r"^- ", block, flags=re.MULTILINE) if item))
    if block.startswith("> "):
        return tag("blockquote", inline(re.sub(r"^> ?", "", block, flags=re.MULTILINE)))
    return tag("p", inline(block))


def inline(text: str) -> Html:
    """Words with `code` and **strong** ones among them; lines run on."""
    parts: list[str] = []
    end = 0
    text = " ".join(text.split())
    for match in INLINE.finditer(text):
        word = tag("code", match[1]) if match[1] else tag("strong", match[2])
        parts += [text[end : match.start()], word]
        end = match.end()
    return joined(*parts, text[end:])


def _code(block: str) -> str:
    return "\n".join(block.splitlines()[1:-1])


@dataclass(frozen=True)
class Table:
    """Columns: heading, whether it stands to the right, cells."""

    columns: list[tuple[str, bool, list[str]]]

    def beside(self, other: Table) -> Table | None:
        """Both as one, where they begin alike: in 80 columns the summary has to cut what a page can show whole."""
        alike = [mine for mine, its in zip(self.columns, other.columns, strict=False) if mine == its]
        if not alike or alike != other.columns[: len(alike)]:
            return None
        return Table([*self.columns, *other.columns[len(alike) :]])

    def html(self) -> Html:
        """In a box that scrolls."""
        sides = ["num" if right else None for _, right, _ in self.columns]
        heads = zip((name for name, _, _ in self.columns), sides, strict=True)
        head = tag("tr", *(tag("th", inline(name), scope="col", class_=side) for name, side in heads))
        lines = zip(*(cells for _, _, cells in self.columns), strict=True)
        rows = [
            tag("tr", *(tag("td", inline(c), class_=side) for c, side in zip(line, sides, strict=True)))
            for line in lines
        ]
        return scrolling(tag("table", tag("thead", head), tag("tbody", *rows)), "table")


def _table(block: str) -> Table:
    header, rule, *lines = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in block.splitlines())
    cells = [[line[i] if i < len(line) else "" for line in lines] for i in range(len(header))]
    return Table([(name, side.endswith(":"), column) for name, side, column in zip(header, rule, cells, strict=True)])


def scrolling(content: Html, label: str) -> Html:
    """A box that scrolls sideways by itself, so that the page need not; keys reach it."""
    return tag("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)
