"""Exit codes of the commands, and bad input reported as one line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any, NoReturn

DONE, FAILED, BAD_INPUT, OUT_OF_DISK, INTERRUPTED = 0, 1, 2, 3, 130

COMPLETING = "_ARGCOMPLETE"  # set by the shell; 1 plus the number of words between the program and its arguments


class InputError(Exception):
    """Invalid or impossible request; the message is one line and names a remedy."""


class Parser(argparse.ArgumentParser):
    """Argument parser that reports errors in one line; the usage is in `--help`.

    Where a shell asks for completions, it prints them instead of parsing, and exits.
    """

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse as `argparse` does."""
        self._complete()
        return super().parse_args(args, namespace)

    def parse_intermixed_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse as `argparse` does."""
        self._complete()
        return super().parse_intermixed_args(args, namespace)

    def _complete(self) -> None:
        if COMPLETING in os.environ:
            import argcomplete

            argcomplete.autocomplete(self)

    def error(self, message: str) -> NoReturn:
        """Raise the error instead of printing the usage and exiting."""
        raise InputError(f"{message} (see {self.prog} --help)")
