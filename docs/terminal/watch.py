"""Watch a command in a terminal of 80x24 by tmux: what it showed, as text, and one moment as a picture.

    python docs/terminal/watch.py --text docs/terminal/quickstart.txt --picture docs/terminal/quickstart.svg \
        -- python -m search.run spaces/quickstart.yaml --name quickstart

A screen is kept when a number of trials, of probes or of points changes, or what is going on; the picture is of the
moment at which three quarters of the budget were spent.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

WIDTH, HEIGHT = 80, 24
SECONDS_BETWEEN = 0.2
STAGES = (
    r"starting Ray",
    r"starting$",
    r"time left: known",
    r"\d+ of \d+ trials",
    r"front of \d+ points?",
    r"measuring the front's rates again",
    r"reading the test set",
    r"ended after",
    r"Pareto front:",
)
SERVER = ["tmux", "-L", f"watched-{os.getpid()}"]  # one of our own, that meets no other


class Screen(NamedTuple):
    """What a terminal showed: as text, and with its colours."""

    seconds: float
    text: str
    ansi: str


def screens(command: list[str]) -> Iterator[Screen]:
    """The screen a few times a second, until the command is over."""
    shell = f"env -u NO_COLOR COLORTERM=truecolor {shlex.join(command)}; sleep 2"
    subprocess.run([*SERVER, "new-session", "-d", "-x", str(WIDTH), "-y", str(HEIGHT), shell], check=True)
    began = time.monotonic()
    while True:
        text, ansi = _captured(), _captured("-e")
        if text is None or ansi is None:
            return
        yield Screen(time.monotonic() - began, text, ansi)
        time.sleep(SECONDS_BETWEEN)


def _captured(*options: str) -> str | None:
    """None: there is no screen any more."""
    found = subprocess.run([*SERVER, "capture-pane", "-p", *options], capture_output=True, text=True)
    return found.stdout if found.returncode == 0 else None


def stage(screen: Screen) -> tuple[str, ...]:
    """What tells moments apart that are worth keeping."""
    return tuple(match[0] for pattern in STAGES if (match := re.search(pattern, screen.text, re.MULTILINE)))


def progress(screen: Screen) -> float:
    """Which part of the budget is spent, by the bar on the screen."""
    match = re.search(r"^(━+)(─*)  ", screen.text, re.MULTILINE)
    return len(match[1]) / len(match[1] + match[2]) if match else 0.0


def svg(screen: Screen, title: str) -> str:
    """The screen as a picture that asks for no font from elsewhere."""
    console = Console(record=True, width=WIDTH, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(Text.from_ansi(screen.ansi.rstrip("\n")), end="")
    return re.sub(r"\s*@font-face \{[^}]*\}", "", console.export_svg(title=title))


def main() -> int:
    """Run, watch, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--picture", type=Path, required=True)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    kept: list[Screen] = []
    for screen in screens(options.command):
        if screen.text.strip() and (not kept or stage(screen) != stage(kept[-1])):
            kept.append(screen)
        elif kept and stage(screen) == stage(kept[-1]):
            kept[-1] = screen  # the last one of each stage says most
    command = shlex.join(options.command)
    frames = [f"── {screen.seconds:.0f} s {'─' * 70}\n{screen.text.rstrip()}\n" for screen in kept]
    options.text.write_text("\n".join([f"$ {command}\n", *frames]))
    shown = max((s for s in kept if progress(s) <= 0.8), key=progress, default=kept[-1])
    options.picture.write_text(svg(shown, command))
    return 0


if __name__ == "__main__":
    sys.exit(main())
