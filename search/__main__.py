"""The command `training-search`: `training-search check FILE`, or a search as `python -m search.run` does it.

training-search spaces/throughput.yaml
training-search check flowers.py
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["check"]:
        from search import check

        return check.main(words[1:])
    from search import run

    if words[:1] in (["-h"], ["--help"]):
        print("training-search check FILE: check a training file before a search; training-search check --help\n")
    return run.main(words)


if __name__ == "__main__":
    sys.exit(main())
