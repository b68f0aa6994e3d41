"""Start of many trials at a time: until each has reported, beside as many processes of bare Ray actors.

    python benchmarks/ramp.py [--trials 40] [--repeats 3]

A Ray cluster of one node claims a core for each trial. A search of as many trials, whose epochs only wait, runs until
each of them has reported an epoch; the time counts from the first trial's start. Then Ray starts as many actors as the
search had, and the time counts until each has answered: once actors that do nothing, once such that import Ray Train,
as those of a search do. All are bound by how fast the machine starts processes. The last line is one JSON object.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from command_line import conditions, parser_of
from replayed import LEARNING_RATE, replay_space

from search.record.events import Measurement, Start
from search.record.journal import FILE_NAME, read_journal

EPOCH_SECONDS = 30.0  # trials that have started leave the cores to the others
MODULES = {"bare": "ray", "importing": "ray.train.v2.api.config"}  # that actors import
REPORTED = re.compile(r'"event":"measurement".*?"trial_id":"(\w+)"')


def search(address: str, trials: int, folder: Path) -> tuple[float, int]:
    """Run a search until each trial has reported; return the seconds since the first start and the number of actors."""
    space = replay_space(
        parameters={"learning_rate": LEARNING_RATE},
        fixed={"seconds_per_epoch": EPOCH_SECONDS},
        searcher={"name": "random"},
        stopping={"name": "none"},
        concurrent_trials=trials,
        budget={"trials": trials, "epochs": 10_000},
    )
    (folder / "space.yaml").write_text(json.dumps(space))
    before, journal = _actors(), folder / "results" / "run" / FILE_NAME
    command = [sys.executable, "-m", "search.run", "space.yaml", "--address", address, "--name", "run"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process:
        while not journal.exists() or len(set(REPORTED.findall(journal.read_text()))) < trials:
            assert process.poll() is None, "the search has ended before each trial has reported"
            time.sleep(0.5)
        number, events = _actors() - before, read_journal(journal)
        process.send_signal(signal.SIGINT)
    started = min(event.time for event in events if isinstance(event, Start))
    measured = [event for event in events if isinstance(event, Measurement)]
    first = {event.trial_id: event.time for event in reversed(measured)}
    return max(first.values()) - started - EPOCH_SECONDS, number


@contextmanager
def cluster(num_cpus: int) -> Iterator[str]:
    """Start a cluster of one node; yield its address."""
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": num_cpus})
    try:
        yield started.address
    finally:
        started.shutdown()


def start_actors(address: str, actors: int, module: str) -> float:
    """Return the seconds until so many actors that import a module have answered."""
    import ray

    @ray.remote(num_cpus=0)
    class Actor:
        def answer(self) -> int:
            importlib.import_module(module)
            return 0

    ray.init(address, log_to_driver=False, logging_level="ERROR")
    started = time.perf_counter()
    running = [Actor.remote() for _ in range(actors)]  # type: ignore[attr-defined]
    ray.get([actor.answer.remote() for actor in running])
    seconds = time.perf_counter() - started
    ray.shutdown()
    return seconds


def _actors() -> int:
    """Return the number of processes of actors."""
    titles = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    return sum(title.startswith("ray::") and not title.startswith("ray::IDLE") for title in titles)


def main() -> None:
    """Print a row for each repeat."""
    parser = parser_of(__doc__)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # of all processes of the cluster
    print(f"{options.trials} trials at a time; {conditions()}")
    print("| actors | all trials have reported after | bare actors | ratio | with Ray Train | ratio |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    rows = []
    for _ in range(options.repeats):
        with cluster(options.trials) as address, tempfile.TemporaryDirectory() as folder:
            ours, number = search(address, options.trials, Path(folder))
        row = {"actors": number, "ours": ours}
        for kind, module in MODULES.items():
            with cluster(options.trials) as address:
                row[kind] = start_actors(address, number, module)
        rows.append(row)
        cells = " | ".join(f"{row[kind]:.1f} s | {ours / row[kind]:.2f}" for kind in MODULES)
        print(f"| {number} | {ours:.1f} s | {cells} |", flush=True)
    ratios = {kind: round(statistics.median(row["ours"] / row[kind] for row in rows), 2) for kind in MODULES}
    print(json.dumps({"ratios": ratios, "seconds": rows}))


if __name__ == "__main__":
    main()
