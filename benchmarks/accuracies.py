"""Interval of the difference of two accuracies: sample by sample, beside that of two independent intervals.

    python benchmarks/accuracies.py [--data folder --root pictures] [--epochs 8 10] [--seeds 3] [NAME=VALUE ...]

One network is trained for two numbers of epochs, with each seed. Both are measured on the same validation samples, and
their difference is told with the interval that search tables have. The last line is one JSON object.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from command_line import conditions, parse_settings, parser_of

from search.front.intervals import HALF_95, half_interval
from search.front.paired import correlations
from trainables.contract import Data, Measurement, Resources, Trainable, load_trainable
from trainables.local_worker import LocalWorker

METRIC = "val_accuracy"


def main() -> None:
    """Print a row for each seed, and the figures as JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="default: width=0.25 learning_rate=0.05")
    parser.add_argument("--data", default="auto", choices=("auto", "cifar10", "folder", "generated"))
    parser.add_argument("--root", help="folder of the images")
    parser.add_argument("--train-images", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, nargs=2, default=(8, 10), metavar="N")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_intermixed_args()

    trainable = load_trainable("vgg19_cifar10")
    data = trainable.locate_data(Data(options.data, options.root, train_images=options.train_images))
    config = {"width": 0.25, "learning_rate": 0.05, **parse_settings(options.settings)}
    print(f"{trainable.describe_data(data)}; {conditions()}")
    print("| seed | difference | half interval, paired | independent | ratio | correlation |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    rows = []
    for seed in range(options.seeds):
        one, other = (trained(trainable, {**config, "seed": seed}, data, epochs) for epochs in options.epochs)
        first, second = (half_interval(each.metrics, METRIC) or math.nan for each in (one, other))
        alike = correlations([one.samples[METRIC], other.samples[METRIC]])[0, 1]
        paired = math.sqrt(first**2 + second**2 - 2 * alike * first * second)
        independent = math.hypot(first, second)
        difference = other.metrics[METRIC] - one.metrics[METRIC]
        rows.append({"difference": difference, "paired": paired, "independent": independent, "correlation": alike})
        print(
            f"| {seed} | {difference:+.4f} | {paired:.4f} | {independent:.4f} | {paired / independent:.2f} | "
            f"{alike:.2f} |",
            flush=True,
        )
    ratio = statistics.median(row["paired"] / row["independent"] for row in rows)
    apart = sum(abs(row["difference"]) > row["paired"] * 2 / HALF_95 for row in rows)
    print(json.dumps({"accuracies": {"ratio": ratio, "told_apart": apart, "rows": rows}}))


def trained(trainable: Trainable, config: dict[str, Any], data: Data, epochs: int) -> Measurement:
    """Return the last measurement of a training in this process."""
    with tempfile.TemporaryDirectory() as folder:
        worker = LocalWorker(Path(folder), epochs, data, Resources(cpus=os.cpu_count() or 1))
        trainable.train(config, worker)
    return worker.reported[-1]


if __name__ == "__main__":
    main()
