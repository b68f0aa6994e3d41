"""Training processes of configurations with one layout, which take turns when they are asked to."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from search.train.child_process import end, message_of, start
from trainables.contract import ANSWERS


class TurnError(Exception):
    """Raised where configurations cannot take turns; `place`: of the one to blame, if it is known."""

    def __init__(self, reason: str, place: int | None = None) -> None:
        super().__init__(reason)
        self.place = place


class TurnGroup:
    """`python -m trainables.train --turns`; between two rounds its processes wait."""

    def __init__(self, arguments: Sequence[str], changes: Sequence[Mapping[str, Any]]) -> None:
        """Start the processes and wait for the first round, which counts for nothing.

        Raises:
            TurnError: a configuration cannot run here.
        """
        self._folder = tempfile.TemporaryDirectory()
        answers = Path(self._folder.name) / ANSWERS
        os.mkfifo(answers)
        # opened for both directions, so that opening does not wait for the other side
        self._answers: TextIO = os.fdopen(os.open(answers, os.O_RDWR), "w")
        self._process = start([*arguments, "--folder", self._folder.name, "--turns", json.dumps(list(changes))])
        try:
            self._next_rates()
        except BaseException:
            self.close()
            raise

    def round(self) -> list[float]:
        """Have each configuration take its turn; return their rates in units/s.

        Raises:
            TurnError: the processes have ended.
        """
        self._answers.write("go\n")
        self._answers.flush()
        return self._next_rates()

    def close(self) -> None:
        """End the processes."""
        self._answers.close()
        end(self._process)
        self._folder.cleanup()

    def _next_rates(self) -> list[float]:
        other = ""
        for line in self._process.stdout or ():
            match message_of(line):
                case {"error": str(reason), "alternative": int(place)}:
                    raise TurnError(reason, place)
                case {"error": str(reason)}:
                    raise TurnError(reason)
                case {"metrics": dict(rates)}:
                    return [rates[f"rate_{place}"] for place in range(len(rates))]
                case None:
                    other = line.strip() or other
        raise TurnError(other or f"ended with exit code {self._process.wait()}")
