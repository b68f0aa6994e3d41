"""Traversal of an exception's chain: frameworks wrap errors and raise further ones while they clean up."""

from __future__ import annotations

from collections.abc import Iterator


def exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error itself, then what it was raised from or while handling, and so on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
