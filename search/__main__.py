"""The command `training-search`: `training-search check FILE`, or a search as `python -m search.run` does it.

training-search spaces/throughput.yaml
training-search check flowers.py
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

COMMANDS = {
    "training-search SPACE.yaml": "search; its options are below",
    "training-search check FILE": "check a training file before a search, in a minute or two",
    "python -m search.memory": "predict the memory of one configuration, and the largest batch",
    "python -m search.pick": "choose a configuration of a run by requirements",
    "python -m search.advise": "measure which change of one setting makes one faster",
    "python -m search.train": "train one configuration of a run in full",
    "python -m search.compare": "compare two or more runs",
    "python -m search.page": "write the page of a run, or serve it",
    "python -m search.figures": "write the figures of a run as PNG and SVG",
    "python -m search.export": "export a run for optuna-dashboard or TensorBoard",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["check"]:
        from search import check

        return check.main(words[1:])
    from search import run

    if words[:1] in (["-h"], ["--help"]):
        print("commands, each with its own --help:")
        print("\n".join(f"  {command:<28}{meaning}" for command, meaning in COMMANDS.items()), end="\n\n")
    return run.main(words)


if __name__ == "__main__":
    sys.exit(main())
