"""Write the page of a run from its folder, or serve it.

    python -m search.page results/throughput-2026-11-20-1           # rewrite report.html
    python -m search.page results/throughput-2026-11-20-1 --serve   # and serve it, also during the run

Exit codes: 0 done, 1 the page cannot be written or served, 2 bad input.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from search.commandline import load_run, print_output, run_command, run_parser
from search.exit_codes import InputError
from search.page.page import write_page
from search.page.server import HOST, server
from search.record.run_lock import is_locked

PORT, MOST = 8080, 65535


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or serve the page, and return the exit code."""
    return run_command("search.page", lambda: _answer(arguments))


def _answer(arguments: Sequence[str] | None) -> str:
    parser = run_parser("search.page", __doc__)
    text = f"serve the page on this machine until Ctrl-C; default: {PORT}, 0: any free port"
    parser.add_argument("--serve", type=int, nargs="?", const=PORT, metavar="PORT", help=text)
    options = parser.parse_args(arguments)
    if options.serve is not None and not 0 <= options.serve <= MOST:
        raise InputError(f"--serve {options.serve}: expected a port from 0 to {MOST}")
    run = load_run(options.run)
    if options.serve is None:
        try:
            return str(write_page(run, time.time() if is_locked(options.run) else None))
        except ValueError as error:  # the journal lacks conditions
            raise InputError(str(error)) from error
    try:
        serving = server(options.run, options.serve)
    except OSError as error:
        what = f"--serve {options.serve}: {error.strerror}; --serve 0 takes any free port"
        raise OSError(error.errno, what) from error
    with serving:
        print_output(f"http://{HOST}:{serving.server_port}/ (Ctrl-C to stop)")
        with suppress(KeyboardInterrupt):
            serving.serve_forever()
    return ""


if __name__ == "__main__":
    sys.exit(main())
