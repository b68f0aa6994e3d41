"""Options of the command line of a search."""

from __future__ import annotations

import argparse
import math
import os
import re
from pathlib import Path

from search.exit_codes import InputError, Parser
from search.space.machine import Gpu, Machine
from search.space.space_file import shipped_spaces

MOST_MINUTES = 10_000  # to wait for nodes
MOST_NODES, MOST_GPUS = 1000, 64  # of a cluster, and of one node
MOST_BYTES = 255  # of the name of a folder
CORES_PER_GPU = 8  # assumed by --on, as clouds have them


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    known = Parser(
        prog="python -m search.run",
        description="Find the training configurations worth running on this machine.",
        allow_abbrev=False,
    )
    known.add_argument(
        "space",
        nargs="?",
        type=space_path,
        metavar="SPACE.yaml",
        help="what to search, and towards what; or a name: " + ", ".join(sorted(shipped_spaces())),
    )
    known.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="e.g. --set budget.hours=0.25")
    known.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    default = "the space file's name, the day and a number"
    known.add_argument("--name", type=run_name, help=f"name of the run's folder; default: {default}")
    known.add_argument("--resume", type=Path, metavar="RUN_DIR", help="go on with a run; --set budget.*=... extends it")
    known.add_argument(
        "--go-on",
        action="store_true",
        help="begin the run of this --name, continue it, or print its end again",
    )
    known.add_argument(
        "--warm-start",
        action="append",
        default=[],
        type=Path,
        metavar="RUN_DIR",
        help="learn from the measurements of this earlier run; what is worth it is trained again",
    )
    known.add_argument(
        "--mirror",
        metavar="URI",
        help="keep a copy of the run in a folder there, e.g. s3://BUCKET/runs; with --go-on, get it from there",
    )
    known.add_argument("--dry-run", action="store_true", help="print the plan, with short timings here; create no run")
    known.add_argument(
        "--on",
        metavar="MACHINE",
        type=stated_machine,
        help="with --dry-run: plan for another machine, e.g. 8xH100 or 2x8xH100 (two nodes); nothing is timed",
    )
    known.add_argument("--parameters", metavar="TRAINABLE", help="list what a space file of it may name; do no more")
    known.add_argument(
        "--on-end",
        metavar="COMMAND",
        help="run this when the search has ended or was interrupted; it finds the run's folder in $SEARCH_RUN and the"
        " exit code in $SEARCH_EXIT_CODE",
    )
    known.add_argument("--no-dashboard", action="store_true", help="do without the Ray dashboard")
    _add_cluster_options(known.add_argument_group("on a Ray cluster"))
    return known


def _add_cluster_options(known: argparse._ArgumentGroup) -> None:
    known.add_argument(
        "--address",
        default=os.environ.get("RAY_ADDRESS") or None,  # Ray sets it in the jobs that it runs
        help="run on the Ray cluster at this address (auto: the one of this machine); default: $RAY_ADDRESS, if set",
    )
    known.add_argument(
        "--nodes",
        action="append",
        default=[],
        metavar="LABEL=VALUE",
        help="use only cluster nodes with this Ray label, e.g. ray.io/accelerator-type=H100",
    )
    known.add_argument(
        "--wait-for-nodes",
        type=float,
        default=0.0,
        metavar="MINUTES",
        help="minutes to wait for the first such node (default 0)",
    )
    known.add_argument(
        "--ask-for-nodes",
        type=int,
        default=0,
        metavar="NUMBER",
        help="nodes to request from the cluster's autoscaler while trials run; more trials then run at a time",
    )


def run_name(text: str) -> str:
    """Return the name of a run, which is that of its folder.

    Raises:
        ArgumentTypeError: no folder can have it.
    """
    if Path(text).name != text or text in ("", ".", ".."):
        raise argparse.ArgumentTypeError(f"{text}: a name, not a path; --results DIR says where")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!a}: not UTF-8 text; choose another") from None
    if size > MOST_BYTES:
        raise argparse.ArgumentTypeError(f"{text[:20]}...: {size} bytes; a folder's name has at most {MOST_BYTES}")
    return text


def space_path(text: str) -> Path:
    """Return the path of a space file, which may be given by the name of one that comes with the package."""
    return Path(text) if Path(text).is_file() else shipped_spaces().get(text, Path(text))


def stated_machine(text: str) -> Machine:
    """Return one of the nodes that `--on` names as [NODES x] GPUS x TYPE; nothing else of it is known.

    Raises:
        ArgumentTypeError: it names none.
    """
    found = re.fullmatch(r"(?:(\d+)x)?(\d+)x([A-Za-z][\w.-]*)", text)
    nodes, gpus = (int(found[1] or 1), int(found[2])) if found else (0, 0)
    if not found or not (0 < nodes <= MOST_NODES and 0 < gpus <= MOST_GPUS):
        raise argparse.ArgumentTypeError(f'"{text}": expected e.g. 8xH100, or 2x8xH100 for two nodes')
    return Machine("", CORES_PER_GPU * gpus, math.inf, gpus=(Gpu(found[3], 0.0),) * gpus, num_nodes=nodes)


def wanted_nodes(options: argparse.Namespace) -> tuple[dict[str, list[str]], float]:
    """Return the wanted values of each label, and for how many seconds to wait for a node that has them."""
    labels: dict[str, list[str]] = {}
    for text in options.nodes:
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise InputError(f"--nodes {text}: expected LABEL=VALUE, e.g. ray.io/accelerator-type=H100")
        labels.setdefault(key, []).append(value)
    given = {"--nodes": labels, "--wait-for-nodes": options.wait_for_nodes, "--ask-for-nodes": options.ask_for_nodes}
    if not options.address and (option := next((name for name, value in given.items() if value), None)):
        raise InputError(f"{option}: only a cluster has nodes to choose from; give its --address, too")
    if not 0 <= options.wait_for_nodes <= MOST_MINUTES:
        raise InputError(f"--wait-for-nodes {options.wait_for_nodes:g}: expected 0 to {MOST_MINUTES:,} minutes")
    if not 0 <= options.ask_for_nodes <= MOST_NODES:
        raise InputError(f"--ask-for-nodes {options.ask_for_nodes}: expected 0 to {MOST_NODES:,}")
    return labels, 60 * options.wait_for_nodes
