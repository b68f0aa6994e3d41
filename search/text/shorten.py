"""Texts that fit a number of columns."""


def shorten(text: str, most: int) -> str:
    """Return a text, or its beginning and an ellipsis: at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
