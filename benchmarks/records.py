"""Results by key in a file of JSON lines, so that a benchmark goes on where it was interrupted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Records:
    """Results by key, both as JSON has them, in memory and, with a path, in the file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, Any] = {}
        if path is not None and path.is_file():
            for line in path.read_text().splitlines():
                key, result = json.loads(line)
                self._known[json.dumps(key)] = result

    def get(self, key: Any) -> Any:
        """Return the result; None: there is none."""
        return self._known.get(json.dumps(key))

    def add(self, key: Any, result: Any) -> None:
        """Store a result and append it to the file."""
        line = json.dumps([key, result])
        self._known[json.dumps(key)] = json.loads(line)[1]
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(f"{line}\n")
