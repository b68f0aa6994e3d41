"""Commands for the shell, over lines of at most 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from search.text.markdown import WIDTH


def continued(words: Sequence[str]) -> str:
    """Join quoted words into lines of at most 80 columns that end in a backslash, which the shell reads as one."""
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) + len("  \\") <= WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(f"    {word}")
    return " \\\n".join(lines)
