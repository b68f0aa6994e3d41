"""Start of many trials at a time: until each has reported, beside what Ray itself needs for the same.

    python benchmarks/ramp.py [--trials 10] [--repeats 3] [--rivals ray_alone importing]

A Ray cluster of one node claims a core for each trial. A search of as many trials, whose epochs only wait, runs until
each of them has reported an epoch; the time counts from the first trial's start. Beside it, on new clusters: Ray Tune
alone with as many trials, each of which runs a `TorchTrainer` of Ray Train with one worker that reports and waits
(seven processes of up to 0.4 GiB a trial, which import torch, as trials that only wait do not: 20 trials do not fit
into 24 GiB); and as many actors as the search had, of a job that brings the same packages, which import the modules of
a trial or of a worker, and answer. All are bound by how fast the machine starts processes. The last line is one JSON
object.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import textwrap
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
PATIENCE_SECONDS = 120.0  # for the next trial that reports
RIVALS = {"ray_alone": "Ray Tune and Train alone", "importing": "actors that import"}  # with their column
PACKAGES = [str(Path(__file__).parents[1] / package) for package in ("search", "trainables")]
MODULES = ("search.execution.trial_actor", "search.execution.worker_loop")  # that actors import, in turn
REPORTED = re.compile(r'"event":"measurement".*?"trial_id":"(\w+)"')
RAY_ALONE = '''
    """Trials of Ray Tune, each with a trainer of Ray Train: ADDRESS TRIALS FOLDER."""

    import sys
    import time
    from pathlib import Path

    import ray
    from ray import train, tune
    from ray.train.torch import TorchTrainer


    class Starts(tune.Callback):
        def on_trial_start(self, iteration, trials, trial, **info):
            (folder / f"start-{trial.trial_id}").touch()


    def work(config):
        Path(config["file"]).touch()
        train.report({"loss": 0.0})
        time.sleep(3600)


    def trial(config):
        name = f"report-{tune.get_context().get_trial_id()}"
        TorchTrainer(
            work,
            train_loop_config={"file": str(folder / name)},
            scaling_config=train.ScalingConfig(num_workers=1),
            run_config=train.RunConfig(name=name, storage_path=str(folder / "runs")),
        ).fit()


    address, trials, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    ray.init(address, log_to_driver=False)
    tune.Tuner(
        tune.with_resources(trial, tune.PlacementGroupFactory([{"memory": 1}])),  # the cores are for the workers
        tune_config=tune.TuneConfig(num_samples=trials, max_concurrent_trials=trials),
        run_config=tune.RunConfig(storage_path=str(folder), callbacks=[Starts()], verbose=0),
    ).fit()
'''


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
        process.terminate()
    started = min(event.time for event in events if isinstance(event, Start))
    measured = [event for event in events if isinstance(event, Measurement)]
    first = {event.trial_id: event.time for event in reversed(measured)}
    return max(first.values()) - started - EPOCH_SECONDS, number


def ray_alone(address: str, trials: int, folder: Path) -> float:
    """Run trials of Ray Tune with trainers of Ray Train until each worker has reported; return the seconds."""
    (folder / "trials.py").write_text(textwrap.dedent(RAY_ALONE))
    command = [sys.executable, "trials.py", address, str(trials), str(folder)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        reports, since = list[Path](), time.monotonic()
        while len(reports) < trials:
            before, reports = reports, list(folder.glob("report-*"))
            since = time.monotonic() if len(reports) > len(before) else since
            assert time.monotonic() < since + PATIENCE_SECONDS, "no further trial reports: is there too little memory?"
            time.sleep(0.5)
        process.kill()
    started = min(file.stat().st_mtime for file in folder.glob("start-*"))
    return max(file.stat().st_mtime for file in reports) - started


@contextmanager
def cluster(num_cpus: int) -> Iterator[str]:
    """Start a cluster of one node; yield its address."""
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": num_cpus})
    try:
        yield started.address
    finally:
        started.shutdown()


def start_actors(address: str, actors: int) -> float:
    """Return the seconds until so many actors have imported their module and answered."""
    import ray

    @ray.remote(num_cpus=0)
    class Actor:
        def answer(self, module: str) -> int:
            importlib.import_module(module)
            return 0

    ray.init(address, log_to_driver=False, logging_level="ERROR", runtime_env={"py_modules": PACKAGES})
    started = time.perf_counter()
    running = [Actor.remote() for _ in range(actors)]  # type: ignore[attr-defined]
    ray.get([actor.answer.remote(module) for actor, module in zip(running, itertools.cycle(MODULES), strict=False)])
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
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rivals", nargs="+", choices=RIVALS, default=list(RIVALS))
    options = parser.parse_args()
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # of all processes of the cluster
    print(f"{options.trials} trials at a time; {conditions()}")
    print("| actors | a search | " + " | ".join(f"{RIVALS[rival]} | ratio" for rival in options.rivals) + " |")
    print("| ---: " * (2 + 2 * len(options.rivals)) + "|")
    rows = []
    for _ in range(options.repeats):
        with cluster(options.trials) as address, tempfile.TemporaryDirectory() as folder:
            ours, number = search(address, options.trials, Path(folder))
        row = {"actors": number, "ours": ours}
        if "ray_alone" in options.rivals:
            with cluster(options.trials) as address, tempfile.TemporaryDirectory() as folder:
                row["ray_alone"] = ray_alone(address, options.trials, Path(folder))
        if "importing" in options.rivals:
            with cluster(options.trials) as address:
                row["importing"] = start_actors(address, number)
        rows.append(row)
        cells = " | ".join(f"{row[rival]:.1f} s | {ours / row[rival]:.2f}" for rival in options.rivals)
        print(f"| {number} | {ours:.1f} s | {cells} |", flush=True)
    ratios = {rival: round(statistics.median(row["ours"] / row[rival] for row in rows), 2) for rival in options.rivals}
    print(json.dumps({"ratios": ratios, "seconds": rows}))


if __name__ == "__main__":
    main()
