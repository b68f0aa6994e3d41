"""A server for one page on this machine: it has nothing else, and answers nobody else."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from search.page.live import journal_size, seconds_to_wait
from search.page.page import FILE_NAME, write_page
from search.results import load

HOST = "127.0.0.1"
PATHS = ("/", f"/{FILE_NAME}")


class Fresh:
    """The page of a run, written anew when it is asked for and the journal has grown, but not too often."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._size = -1
        self._not_before = -float("inf")

    def page(self) -> bytes:
        """The file's content."""
        size = journal_size(self._folder)
        if size != self._size and self._clock() >= self._not_before:
            began = self._clock()
            run = load(self._folder)
            write_page(run, going_on=run.history.end is None)
            self._size, self._not_before = size, self._clock() + seconds_to_wait(self._clock() - began)
        return (self._folder / FILE_NAME).read_bytes()


def server(folder: Path, port: int) -> ThreadingHTTPServer:
    """Ready to serve, on `port`; 0: any that is free."""
    return ThreadingHTTPServer((HOST, port), partial(_Handler, Fresh(folder)))


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, fresh: Fresh, *arguments: Any) -> None:
        self._fresh = fresh
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """The page, or nothing. A name that was made to lead here is not this machine's: Host tells."""
        name = self.headers.get("Host", "").partition(":")[0]
        if name not in (HOST, "localhost") or self.path.partition("?")[0] not in PATHS:
            self.send_error(404)
            return
        content = self._fresh.page()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """A page that refreshes itself would fill the terminal."""
