"""How a command can end: its exit codes, and bad input as one line."""

from __future__ import annotations

import argparse
from typing import NoReturn

DONE, FAILED, BAD_INPUT, OUT_OF_DISK = 0, 1, 2, 3


class InputError(Exception):
    """Something that was asked for makes no sense or cannot be done; one line, with what would do."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; the usage is in `--help`."""

    def error(self, message: str) -> NoReturn:
        """Raise it."""
        raise InputError(f"{message} (see {self.prog} --help)")
