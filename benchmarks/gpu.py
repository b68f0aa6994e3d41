"""Benchmark of one GPU in less than nine minutes: `make gpu`, with PyTorch 2.11 or newer, without Ray and Optuna.

    make gpu [ARGS="--root PICTURES --commit ABC123 --small"]

Parts, each in a process of its own and with a time limit: the conditions and the measured ceilings; the rate and the
memory by batch size; the effect of `compile` and `cuda_graphs`; a textbook loop, a loop that an expert writes by hand
and ours, in turn; the stage times by number of loader processes; three trainings and what they reach; the tests marked
`gpu`. Time that a part leaves is given to those after it.

Each step is written to steps.jsonl in --folder as it ends, and the record in --published is written after each part:
what a run measured before it was cut off stays, and the same command goes on after it. The pictures are those of --root
or TRAINING_SEARCH_DATA; without either they are generated. Exit codes: 0 done, 2 no GPU or other conditions than those
of the steps in the folder.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gpu_record import record_name, record_of
from steps_file import StepsFile

ROOT = Path(__file__).parents[1]
LIMITS_SECONDS = {
    "conditions": 45,
    "batch sizes": 45,
    "settings": 105,
    "comparison": 130,
    "loader processes": 50,
    "training": 120,
    "tests": 45,
}
SMALL_LIMIT_SECONDS = 200  # of each part: an emulated GPU is slow
BAD_CONDITIONS = 2  # exit code of the first part
DEVICE_LOST = 75  # exit code of a part whose GPU answers no more; a new process continues after that step


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one part in this process, or all of them in others; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(words)
    file = StepsFile(options.folder / "steps.jsonl")
    signal.signal(signal.SIGTERM, lambda *received: sys.exit(128 + signal.SIGTERM))  # the part ends, too
    if options.part:
        import gpu_parts

        return gpu_parts.measure(options.part, options, file)
    return measure_all(words, options, file)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "results" / "gpu", help="for steps.jsonl")
    parser.add_argument("--published", type=Path, default=ROOT / "results" / "published", help="for the record")
    parser.add_argument("--root", help="folder of the pictures")
    parser.add_argument("--commit", help="of these sources, where there is no git")
    parser.add_argument("--only", nargs="+", choices=LIMITS_SECONDS, default=list(LIMITS_SECONDS), metavar="PART")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="test files; default: all that need a GPU, not Ray")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to test this benchmark")
    parser.add_argument("--part", choices=LIMITS_SECONDS, help=argparse.SUPPRESS)
    parser.add_argument("--command", help=argparse.SUPPRESS)
    return parser


def measure_all(words: Sequence[str], options: argparse.Namespace, file: StepsFile) -> int:
    """Run the parts that are not complete, and write the record after each."""
    command = f'make gpu ARGS="{shlex.join(words)}"' if words else "make gpu"
    deadline = time.monotonic()
    for part, limit in LIMITS_SECONDS.items():
        deadline += SMALL_LIMIT_SECONDS if options.small else limit
        if part not in options.only and part != "conditions":
            continue
        if file.read(part).complete and part != "conditions":  # conditions are compared each time
            continue
        started = time.monotonic()
        code = run_part([*words, "--part", part, "--command", command], part, deadline, file)
        state = file.read(part)
        if part == "conditions" and (code == BAD_CONDITIONS or "conditions" not in state.measured):
            return BAD_CONDITIONS
        ended, planned = len(state.measured) + len(state.errors), len(state.planned or [])
        print(f"{part}: {ended} of {planned or '?'} steps, {time.monotonic() - started:.0f} s", flush=True)
        path = options.published / record_name(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(record_of(file, list(LIMITS_SECONDS)))
    print(f"record: {path}")
    return 0


def run_part(words: Sequence[str], part: str, deadline: float, file: StepsFile) -> int:
    """Run a part in a process of its own until the deadline; return its exit code, negative for a signal."""
    while True:
        # a session of its own, so that loader processes and compilers end with it
        child = subprocess.Popen([sys.executable, __file__, *words], start_new_session=True)
        try:
            code = child.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            file.stop(part, "time limit")
            return -signal.SIGKILL
        finally:
            end(child)
        if code != DEVICE_LOST:
            break
    if code:
        file.stop(part, f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}")
    return code


def end(child: subprocess.Popen[bytes]) -> None:
    """End a process with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


if __name__ == "__main__":
    sys.exit(main())
