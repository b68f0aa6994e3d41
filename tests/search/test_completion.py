"""Completion in the shell, as the function that `register-python-argcomplete` prints asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("typed", "completions"),
    [
        ("training-search p", {"pick", "page"}),
        ("training-search run --re", {"--results", "--resume"}),
        ("training-search memory --t", {"--trainable"}),
        ("training-search nothing --t", set()),
    ],
)
def test_commands_and_options_are_completed(typed: str, completions: set[str], tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "COMP_LINE": typed,
        "COMP_POINT": f"{len(typed)}",
        "_ARGCOMPLETE_STDOUT_FILENAME": f"{answer}",
    }
    command = [sys.executable, "-m", "search"]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert set(filter(None, map(str.strip, answer.read_text().split("\013")))) == completions
