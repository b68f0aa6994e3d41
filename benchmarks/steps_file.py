"""Append-only file of a benchmark's steps, a JSON object per line: a run that is cut off keeps what it measured.

    {"part": "batch sizes", "planned": ["batch_size 128", "batch_size 256"]}
    {"part": "batch sizes", "step": "batch_size 128", "seconds": 6.1, "values": {"images_per_second": 41000.0}}
    {"part": "batch sizes", "step": "batch_size 256", "seconds": 0.3, "error": "out of memory: ..."}
    {"part": "batch sizes", "stopped": "time limit"}

A step with an error has ended, too. It is measured again once its line is deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Values = dict[str, Any]  # plain data


@dataclass
class PartState:
    """Steps of one part as far as they are known."""

    planned: list[str] | None = None  # None: the part was never started
    measured: dict[str, Values] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    stopped: str | None = None  # why steps are missing, if they are

    @property
    def missing(self) -> list[str]:
        """Planned steps that have not ended."""
        return [step for step in self.planned or [] if step not in self.measured and step not in self.errors]

    @property
    def complete(self) -> bool:
        """True if all steps have ended."""
        return self.planned is not None and not self.missing


class StepsFile:
    """The file at `path`; several processes may append to it, one after another."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def plan(self, part: str, steps: Sequence[str]) -> None:
        """Write the steps that a part has."""
        self._append({"part": part, "planned": list(steps)})

    def add(self, part: str, step: str, values: Mapping[str, Any], seconds: float = 0.0) -> None:
        """Write what a step measured."""
        self._append({"part": part, "step": step, "seconds": round(seconds, 2), "values": values})

    def fail(self, part: str, step: str, error: str, seconds: float = 0.0) -> None:
        """Write why a step measured nothing."""
        self._append({"part": part, "step": step, "seconds": round(seconds, 2), "error": error})

    def stop(self, part: str, reason: str) -> None:
        """Write why a part ended before its last step."""
        self._append({"part": part, "stopped": reason})

    def read(self, part: str) -> PartState:
        """Return the state of a part; a later line replaces an earlier one."""
        state = PartState()
        for line in self._lines():
            if line["part"] != part:
                continue
            if "planned" in line:
                state.planned = line["planned"]
            elif "stopped" in line:
                state.stopped = line["stopped"]
            elif "error" in line:
                state.errors[line["step"]] = line["error"]
                state.measured.pop(line["step"], None)
            else:
                state.measured[line["step"]] = line["values"]
                state.errors.pop(line["step"], None)
        return state

    def run(
        self, part: str, steps: Mapping[str, Callable[[], Values]], describe: Callable[[Exception], str]
    ) -> Iterator[Exception | None]:
        """Measure the steps that have not ended; yield each one's error, or None, after it was written."""
        self.plan(part, list(steps))
        for step in self.read(part).missing:
            started = time.perf_counter()
            try:
                values = steps[step]()
            except Exception as error:  # each library fails in its own way, and the next step may succeed
                self.fail(part, step, describe(error), time.perf_counter() - started)
                yield error
            else:
                self.add(part, step, values, time.perf_counter() - started)
                yield None

    def _append(self, line: Mapping[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            if file.tell() and not self._ends_a_line(file):
                file.write(b"\n")  # the line before was cut off
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    @staticmethod
    def _ends_a_line(file: Any) -> bool:
        file.seek(-1, os.SEEK_END)
        return bool(file.read(1) == b"\n")

    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        for line in self.path.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # cut off
                yield json.loads(line)
