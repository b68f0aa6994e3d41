"""Errors as people read them."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """Return the first line of an error, or its kind if it has no text."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
