"""Reasons of failures, told apart by what went wrong."""

import re


def without_rank(reason: str) -> str:
    """Return a reason without the rank that met it."""
    return re.sub(r"^rank \d+: ", "", reason)


def without_numbers(reason: str) -> str:
    """Return a reason without its rank and its numbers, which may be those of a configuration."""
    return re.sub(r"\d+(\.\d+)?", "#", without_rank(reason))
