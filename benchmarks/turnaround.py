"""Overhead of a trial beyond its training: a TorchTrainer in each Tune trial (as documented) beside warm workers.

    python benchmarks/turnaround.py [--trials 4 20] [--seconds-per-epoch 0.2] [--epochs 3]

Both run the same training, which only waits, under Ray Tune with an Optuna searcher, one trial at a time, each in its
own process with its own Ray, in turn. The cost of a trial is the time from the end of the previous trial to its own
end, minus the waiting of its training. It excludes the start of Ray and of the first workers, which is reported
separately. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from command_line import conditions, parser_of
from replayed import BATCH_SIZE, LEARNING_RATE, replay_space

from search.record.events import Finish
from search.record.journal import FILE_NAME, read_journal


def ours(trials: int, epochs: int, seconds_per_epoch: float, folder: Path) -> list[float]:
    """Run our search; return the seconds from the start to the end of each trial."""
    space = folder / "turnaround.yaml"
    parameters, fixed = (
        {"batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE},
        {"seconds_per_epoch": seconds_per_epoch},
    )
    budget = {"trials": trials, "epochs": epochs}
    space.write_text(json.dumps(replay_space(parameters=parameters, fixed=fixed, budget=budget)))
    started_at = time.time()
    command = [sys.executable, "-m", "search.run", str(space), "--results", str(folder), "--name", "run"]
    subprocess.run([*command, "--no-dashboard"], check=True, stdout=subprocess.DEVNULL)
    events = read_journal(folder / "run" / FILE_NAME)
    return [event.time - started_at for event in events if isinstance(event, Finish)]


def nested(trials: int, epochs: int, seconds_per_epoch: float, folder: Path) -> list[float]:
    """Run the documented way (this file with --nested); return the seconds from the start to the end of each trial."""
    log = folder / "ends"
    started_at = time.time()
    command = [sys.executable, __file__, "--nested", str(log), "--trials", str(trials), "--epochs", str(epochs)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*command, "--seconds-per-epoch", str(seconds_per_epoch)], check=True, **quiet)  # type: ignore[call-overload]
    return [float(line) - started_at for line in log.read_text().splitlines()]


def run_nested(trials: int, epochs: int, seconds_per_epoch: float, log: Path) -> None:
    """Run the example of "Hyperparameter Tuning with Ray Tune" in Ray Train's user guide."""
    import ray
    from ray import tune
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback
    from ray.tune.search.optuna import OptunaSearch

    def train_fn(config: dict[str, Any]) -> None:
        import ray.train

        for epoch in range(epochs):
            time.sleep(seconds_per_epoch)
            ray.train.report({"val_accuracy": 0.1 * epoch, "images_per_second": float(config["batch_size"])})

    def driver_fn(config: dict[str, Any]) -> None:
        TorchTrainer(
            train_fn,
            train_loop_config=config,
            scaling_config=ScalingConfig(num_workers=1),
            run_config=RunConfig(
                name=f"train-{tune.get_context().get_trial_id()}",
                storage_path=str(log.parent / "train"),
                callbacks=[TuneReportCallback()],
            ),
        ).fit()
        with open(log, "a") as file:
            file.write(f"{time.time()}\n")

    ray.init(include_dashboard=False, log_to_driver=False)
    tune.Tuner(
        tune.with_resources(driver_fn, {"CPU": 0.1}),
        param_space={"batch_size": tune.choice([64, 128, 256, 512]), "learning_rate": tune.loguniform(0.001, 0.5)},
        tune_config=tune.TuneConfig(
            search_alg=OptunaSearch(metric=["val_accuracy", "images_per_second"], mode=["max", "max"]),
            num_samples=trials,
            max_concurrent_trials=1,
        ),
        run_config=tune.RunConfig(name="nested", storage_path=str(log.parent / "tune"), verbose=0),
    ).fit()


def compare(counts: list[int], epochs: int, seconds_per_epoch: float) -> None:
    """Run both in turn for each number of trials."""
    training_seconds = epochs * seconds_per_epoch
    print(f"{conditions()}; a trial trains for {training_seconds:g} s")
    print("| way | trials | first trial ended after | cost of each further trial: median (min to max) |")
    print("| --- | --- | --- | --- |")
    costs: dict[str, list[float]] = {"nested": [], "ours": []}
    first: dict[str, list[float]] = {"nested": [], "ours": []}
    for trials in counts:
        for name, way in (("ours", ours), ("nested", nested)):
            with tempfile.TemporaryDirectory() as folder:
                ends = way(trials, epochs, seconds_per_epoch, Path(folder))
            assert len(ends) == trials, f"{name}: {len(ends)} of {trials} trials ended"
            new = [after - before - training_seconds for before, after in itertools.pairwise(ends)]
            costs[name] += new
            first[name].append(ends[0])
            spread = f"{statistics.median(new):.3f} s ({min(new):.3f} to {max(new):.3f})"
            print(f"| {name} | {trials} | {ends[0]:.1f} s | {spread} |", flush=True)
    overhead = {name: statistics.median(values) for name, values in costs.items()}
    figures = {
        "overhead_seconds_per_trial": round(overhead["ours"], 4),
        "overhead_seconds_per_trial_nested": round(overhead["nested"], 3),
        "ratio": round(overhead["nested"] / overhead["ours"], 1),
        "first_trial_seconds": round(statistics.median(first["ours"]), 1),
        "first_trial_seconds_nested": round(statistics.median(first["nested"]), 1),
        "num_costs": {name: len(values) for name, values in costs.items()},
    }
    print(json.dumps(figures))


def main() -> None:
    """Compare both, or with --nested run the documented way."""
    parser = parser_of(__doc__)
    parser.add_argument("--trials", type=int, nargs="+", default=[4, 20])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seconds-per-epoch", type=float, default=0.2)
    parser.add_argument("--nested", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.nested:
        run_nested(options.trials[0], options.epochs, options.seconds_per_epoch, options.nested)
    else:
        compare(options.trials, options.epochs, options.seconds_per_epoch)


if __name__ == "__main__":
    main()
