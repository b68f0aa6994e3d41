"""Gain in accuracy of each change of the training recipe, with paired seeds.

    python benchmarks/recipe.py CHANGE [CHANGE ...] [--data folder --root pictures] [--epochs 8] [--seeds 6]
        [--set NAME=VALUE ...] [--test] [--records FILE]

A CHANGE is one or more settings, such as `initialization=he` or `momentum=0.8,epochs=4`. For each seed VGG19 is trained
with the settings of --set and with each change of them, all on the same pictures. The accuracies are on the validation
pictures, with --test on the test pictures, by which nothing is chosen. FILE keeps each training as a line of JSON, so
that the same command goes on where it was interrupted. The last line is one JSON object: the table's columns by change.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from command_line import RESOURCES, conditions, parse_settings, parser_of
from gpu_conditions import commit
from records import Records

from trainables.contract import Data, Trainable, load_trainable
from trainables.local_worker import LocalWorker


class Result(NamedTuple):
    """End of a training."""

    accuracy: float  # fraction
    seconds: float  # of training, without evaluation


@dataclass(frozen=True)
class Trainer:
    """Trains VGG19; what the records have of this commit of the code is not trained again."""

    trainable: Trainable
    data: Data
    metric: str  # val_accuracy or test_accuracy
    records: Records
    commit: str

    def train(self, config: Mapping[str, Any]) -> Result:
        """Return what a training with these settings reaches."""
        data = {"data": self.data.name, "train_images": self.data.train_images}
        key = {"commit": self.commit, "metric": self.metric, **data, **config}
        if (known := self.records.get(key)) is None:
            with tempfile.TemporaryDirectory() as folder:
                worker = LocalWorker(Path(folder), config["epochs"], self.data, RESOURCES)
                worker.evaluate_every = worker.epochs
                self.trainable.train(config, worker)
                metrics = dict(worker.reported[-1].metrics)
                if self.metric == "test_accuracy":
                    metrics |= self.trainable.test(config, worker)
            known = metrics[self.metric], metrics["training_seconds"]
            self.records.add(key, known)
        return Result(*known)


def main(words: Sequence[str] | None = None) -> None:
    """Print a row for each change."""
    parser = parser_of(__doc__)
    parser.add_argument("changes", nargs="+", metavar="CHANGE", help="NAME=VALUE[,NAME=VALUE ...]")
    parser.add_argument("--data", default="auto", choices=("auto", "cifar10", "folder", "generated"))
    parser.add_argument("--root", help="folder of the pictures")
    parser.add_argument("--train-images", type=int, help="default: all")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings of all trainings")
    parser.add_argument("--test", action="store_true", help="accuracy on the test pictures")
    parser.add_argument("--records", type=Path, help="file that keeps the trainings")
    options = parser.parse_intermixed_args(words)
    trainable, metric = load_trainable("vgg19_cifar10"), "test_accuracy" if options.test else "val_accuracy"
    data = trainable.locate_data(Data(options.data, options.root, train_images=options.train_images))
    trainer = Trainer(trainable, data, metric, Records(options.records), commit())
    base = {"width": 0.25, **parse_settings(options.set), "epochs": options.epochs}
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    configs = {"none": base, **{change: {**base, **parse_settings(change.split(","))} for change in options.changes}}
    print(f"{trainable.describe_data(data)}; {conditions()}; {base}")
    found: dict[str, list[Result]] = {change: [] for change in configs}
    for seed in seeds:
        for change, config in configs.items():
            found[change].append(result := trainer.train({**config, "seed": seed}))
            print(f"seed {seed}, {change}: {result.accuracy:.4f} in {result.seconds:,.0f} s", flush=True)
    print(f"| change | {metric} | difference, points (standard error) | training time, ratio | n |")
    print("| --- | ---: | ---: | ---: | ---: |")
    rows = {change: row(found["none"], results) for change, results in found.items()}
    for change, (accuracy, difference, error, ratio) in rows.items():
        told = "" if change == "none" else f"{difference:+.2f} ({error:.2f})"
        print(f"| {change} | {accuracy:.4f} | {told} | {ratio:.2f} | {len(seeds)} |")
    print(json.dumps({"recipe": rows}))


def row(base: Sequence[Result], changed: Sequence[Result]) -> tuple[float, float, float, float]:
    """Return mean accuracy, mean paired difference in points with its standard error, and the median ratio of times."""
    points = [100 * (b.accuracy - a.accuracy) for a, b in zip(base, changed, strict=True)]
    error = statistics.stdev(points) / math.sqrt(len(points)) if len(points) > 1 else math.nan
    ratios = [b.seconds / a.seconds for a, b in zip(base, changed, strict=True)]
    accuracy = statistics.fmean(each.accuracy for each in changed)
    return accuracy, statistics.fmean(points), error, statistics.median(ratios)


if __name__ == "__main__":
    main()
