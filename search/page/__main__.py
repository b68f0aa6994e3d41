"""The page of a run, from its folder.

    python -m search.page results/throughput-2026-11-20-1           # write report.html anew
    python -m search.page results/throughput-2026-11-20-1 --serve   # and serve it, also while the run goes on

Exit codes: 0 done, 1 it cannot be written or served, 2 bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from search.commandline import answered, opened, say
from search.outcome import Parser
from search.page.page import write_page
from search.page.server import HOST, server

PORT = 8080


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or serve; the exit code."""
    return answered("search.page", lambda: _answer(_parser().parse_args(arguments)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m search.page", description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder, finished or not")
    parser.add_argument(
        "--serve",
        type=int,
        nargs="?",
        const=PORT,
        metavar="PORT",
        help=f"serve it on this machine until Ctrl-C; default: {PORT}, 0: any port that is free",
    )
    return parser


def _answer(options: argparse.Namespace) -> str:
    run = opened(options.run)
    if options.serve is None:
        return str(write_page(run))
    with server(options.run, options.serve) as serving:
        say(f"http://{HOST}:{serving.server_port}/ (Ctrl-C ends it)")
        with suppress(KeyboardInterrupt):
            serving.serve_forever()
    return ""


if __name__ == "__main__":
    sys.exit(main())
