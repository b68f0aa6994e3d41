"""Searches started from Python: the command in a process of its own, its messages here, its results as objects."""

from __future__ import annotations

import datetime
import json
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from search.exit_codes import BAD_INPUT
from search.results import Run, load

NOT_OPTIONS = {
    "--name": "is the argument `name`",
    "--results": "is the argument `results`",
    "--resume": 'is `name` and options=["--go-on"]',
    "--dry-run": "is for the command line: python -m search.run SPACE --dry-run",
    "--parameters": "is for the command line: python -m search.run --parameters TRAINABLE",
}
MOST_LINES = 100  # of what a command printed that are kept


def run_search(
    space: str | Path | Mapping[str, Any],
    *,
    name: str | None = None,
    results: str | Path = "results",
    settings: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
) -> Run:
    """Run a search to its end, print its messages, and return what `search.results.load` returns.

    Args:
        space: a space file, or its content; paths in a content are relative to the working directory
        name: of the run's folder within `results`; default: the space's name and the time
        results: folder of runs
        settings: values for keys of the space file, such as `{"budget.trials": 8}`
        options: further words of the command line, such as `["--go-on"]`

    Raises:
        ValueError: the space file, a setting or an option is wrong; the message says where, and nothing was created.
        TypeError: an argument has another type.
        RuntimeError: the search failed, or no trial came to its end; finished trials are kept. The message is the last
            line that was printed: the command to resume, where the search can go on.
        KeyboardInterrupt: the search was interrupted, likewise.
    """
    if not isinstance(space, str | Path | Mapping):
        raise TypeError(f"space: found {space!r}; expected a path or a mapping")
    if isinstance(options, str):
        raise TypeError(f'options: found "{options}"; expected a list of words, such as ["--go-on"]')
    if given := next((word for word in options if word.partition("=")[0] in NOT_OPTIONS), None):
        raise ValueError(f"options: {given}: {NOT_OPTIONS[given.partition('=')[0]]}")
    with TemporaryDirectory() as folder:
        file = Path(space) if isinstance(space, str | Path) else _written(space, Path(folder))
        name = name or f"{file.stem}-{datetime.datetime.now():%Y-%m-%d-%H%M%S}"
        words = [f"{file}", "--name", name, "--results", f"{results}", *options]
        for key, value in (settings or {}).items():
            words += ["--set", f"{key}={json.dumps(value, ensure_ascii=False)}"]
        place = f"{file}:1: " if isinstance(space, Mapping) else ""
        code, lines = _printed([sys.executable, "-m", "search.run", *words], place)
    if code == BAD_INPUT:
        raise ValueError("\n".join(lines))
    if code:
        raise RuntimeError(*lines[-1:])
    return load(Path(results) / name)


def _written(space: Mapping[str, Any], folder: Path) -> Path:
    """Write a space as a file; JSON is YAML."""
    trainable = space.get("trainable")
    if isinstance(trainable, str) and Path(trainable).is_file():
        space = {**space, "trainable": f"{Path(trainable).absolute()}"}
    file = folder / "space.yaml"
    file.write_text(json.dumps(space, ensure_ascii=False), encoding="utf-8")
    return file


def _printed(command: Sequence[str], place: str = "") -> tuple[int, list[str]]:
    """Print what a command prints, as it does; return its exit code and its last lines. Ctrl-C is passed on to it.

    `place`: what lines begin with that tell of a file which the caller does not know, and is left out.
    """
    lines, interrupted = deque[str](maxlen=MOST_LINES), False
    # a session of its own: Ctrl-C in a terminal would reach it as well, and a second signal ends it without waiting
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
    ) as child:
        assert child.stdout is not None
        while True:
            try:
                for line in child.stdout:
                    line = line.removeprefix(place)
                    print(line, end="", flush=True)
                    if line.strip():
                        lines.append(line.strip())
                break
            except KeyboardInterrupt:
                interrupted = True
                child.send_signal(signal.SIGINT)
    if interrupted:
        raise KeyboardInterrupt(*list(lines)[-1:])
    return child.returncode, list(lines)
