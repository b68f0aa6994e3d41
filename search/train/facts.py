"""`python -m trainables.facts` as a child process: facts of a user's file that take its code to find out."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from search.train.child_process import interrupt_with_parent, message_of


def facts_of(path: Path, root: str | None, *arguments: str, seconds: float | None = None) -> Mapping[str, Any]:
    """Return what `trainables.facts` prints, or its error; nothing if it takes longer."""
    data = ["--root", root] if root else []
    command = [sys.executable, "-m", "trainables.facts", str(path), *data, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, preexec_fn=interrupt_with_parent
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return {}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with loader processes of the file
    for line in reversed(out.splitlines()):  # the file may print, too
        if isinstance(found := message_of(line), dict):
            return found
    return {"error": (err.splitlines() or ["ended without a result"])[-1]}
