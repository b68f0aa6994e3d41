"""Exit codes of the commands, and bad input reported as one line."""

from __future__ import annotations

import argparse
from typing import NoReturn

DONE, FAILED, BAD_INPUT, OUT_OF_DISK, INTERRUPTED = 0, 1, 2, 3, 130


class InputError(Exception):
    """Invalid or impossible request; the message is one line and names a remedy."""


class Parser(argparse.ArgumentParser):
    """Argument parser that reports errors in one line; the usage is in `--help`."""

    def error(self, message: str) -> NoReturn:
        """Raise the error instead of printing the usage and exiting."""
        raise InputError(f"{message} (see {self.prog} --help)")
