"""Output that nobody may read any more."""

import os
import sys
from contextlib import redirect_stderr, suppress
from typing import Any, TextIO, cast


def unbreakable_errors() -> redirect_stderr[TextIO]:
    """Return a context in which no message on stderr fails: a log on a full disk must not change an exit code."""
    return redirect_stderr(cast(TextIO, Unbreakable(sys.stderr)))


class Unbreakable:
    """Text file whose writes never fail: a closed pipe, a full disk or an encoding must not end a run of hours."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write, with a replacement for characters that the encoding lacks."""
        try:
            self._file.write(text)
        except UnicodeEncodeError as error:
            self._file.write(text.encode(error.encoding, "replace").decode(error.encoding))
        except (OSError, ValueError) as error:  # ValueError: the file was closed
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Flush, if the file is still open."""
        try:
            self._file.flush()
        except (OSError, ValueError) as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Redirect the file, or the buffered rest would fail at exit (see "Note on SIGPIPE" in Python's docs)."""
        if isinstance(error, OSError):
            with suppress(OSError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._file.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
