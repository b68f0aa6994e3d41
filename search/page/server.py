"""HTTP server for the page of one run. It serves no other file, and only clients on this machine."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from search.page.document import FILE_NAME
from search.page.live import journal_size, seconds_to_wait
from search.page.page import write_page
from search.record.dataframes import load
from search.record.run_lock import is_locked

HOST = "127.0.0.1"
PATHS = ("/", f"/{FILE_NAME}")


class FreshPage:
    """The page of a run, rewritten on request if the run has changed and enough time has passed."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._shown: tuple[int, bool] | None = None  # size of the journal, and whether the run is running
        self._not_before = -float("inf")
        self._one_at_a_time = threading.Lock()

    def page(self) -> bytes:
        """Content of the file."""
        with self._one_at_a_time:
            now = journal_size(self._folder), is_locked(self._folder)
            if now != self._shown and self._clock() >= self._not_before:
                began = self._clock()
                write_page(load(self._folder), time.time() if now[1] else None)
                self._shown, self._not_before = now, self._clock() + seconds_to_wait(self._clock() - began)
            return (self._folder / FILE_NAME).read_bytes()


def server(folder: Path, port: int) -> ThreadingHTTPServer:
    """Return a server that listens on `port`; 0: any free port."""
    return _Server((HOST, port), partial(_Handler, FreshPage(folder)))


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a reader that has left, as a browser does when it reloads the page."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, fresh: FreshPage, *arguments: Any) -> None:
        self._fresh = fresh
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Send the page. A foreign host name is refused: by DNS rebinding another site could read the page."""
        name = self.headers.get("Host", "").partition(":")[0]
        if name not in (HOST, "localhost") or self.path.partition("?")[0] not in PATHS:
            self.send_error(404)
            return
        try:
            content = self._fresh.page()
        except (OSError, ValueError) as error:  # the run was moved or deleted
            self.send_error(503, explain=f"{error}")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: a page that reloads itself would fill the terminal."""
