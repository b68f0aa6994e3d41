"""Facts of a training that take its code to find out, as one line of JSON, for `search.check`.

    python -m trainables.facts flowers.py [--root DIR] hidden=64 ...
    python -m trainables.facts flowers.py [--root DIR] --twice batch_size=32 ...
    python -m trainables.facts flowers.py [--root DIR] --ruled-out batch_size=32 ...
    python -m trainables.facts loop.py [--root DIR] --first-report 8 batch_size=32 ...

With `--twice` it trains some steps in this process, first with another seed and then with the given settings, and
prints the metrics of the second training: those differ from the metrics of a training in a new process where the file
keeps something from the first. With `--ruled-out` it prints, for `search.advise`, settings that change nothing for this
network or with which it cannot be trained. With `--first-report` it prints the metrics of a loop's first report, after
so many steps where the loop takes its batches from `trial.steps`. Without any of these:

`samples`: numbers by part; `input` and `target`: shapes and types of one sample; `parameters`: weights of the network;
`flops`: of a training step per sample, null where they cannot be counted; `flops_error` and `memory_error`: why FLOPs
and memory cannot be counted, else null.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from trainables.build import network
from trainables.contract import Data, DataError, InfeasibleError, OwnCodeError, Scalar, load_trainable
from trainables.local_worker import LocalWorker, machine
from trainables.loop import evaluate
from trainables.machine.exception_chain import described
from trainables.own_loop import OwnLoop
from trainables.own_trainable import OwnTrainable
from trainables.prediction.flops import training_flops_per_sample
from trainables.prediction.memory_need import TYPICAL, job_of, memory_need
from trainables.sample_shape import SampleShape
from trainables.setting_check import checked
from trainables.setting_text import parsed
from trainables.settings import Settings
from trainables.strategies import pipeline
from trainables.workload import workload_of

OTHER_SEED = 20090408


def facts(trainable: OwnTrainable, data: Data, config: Mapping[str, Scalar | None]) -> dict[str, Any]:
    """Return the facts by name."""
    settings, shape, model = _built(trainable, data, config)
    workload = workload_of(settings)
    # a mistake in the file's `measures` is found before anything is trained
    evaluate(model, [workload.example(settings, data, 1)], settings, torch.device("cpu"), rank=0, world_size=1)
    job = job_of(settings, data, trainable.layout(config, machine()))
    of_flops, of_memory = list[str](), list[str]()
    memory_need(settings, job, TYPICAL[job.device.type], of_memory.append)
    return {
        "samples": workload.training_count(data),
        "input": tree_map(_text, shape.inputs),
        "target": tree_map(_text, shape.targets),
        "units": workload.units_per_sample(data),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "flops": training_flops_per_sample(settings, shape, of_flops.append),
        "flops_error": next(iter(of_flops), None),
        "memory_error": next(iter(of_memory), None),
    }


def ruled_out(trainable: OwnTrainable, data: Data, config: Mapping[str, Scalar | None]) -> dict[str, list[str]]:
    """Return settings that change nothing or cannot be used: `memory_format`, `strategy=pipeline`."""
    _, shape, model = _built(trainable, data, config)
    axes = {weight.ndim for weight in itertools.chain(model.parameters(), model.buffers())}
    axes |= {1 + part.ndim for part in tree_leaves(shape.inputs)}  # one more in a batch
    found = {"memory_format": 4 not in axes, "strategy=pipeline": pipeline.reason_against(model, shape) is not None}
    return {"ruled_out": [name for name, is_ruled_out in found.items() if is_ruled_out]}


def _built(
    trainable: OwnTrainable, data: Data, config: Mapping[str, Scalar | None]
) -> tuple[Settings, SampleShape, nn.Module]:
    settings = trainable.settings(**checked(config, trainable.PARAMETERS or {}))
    shape = workload_of(settings).sample_shape(settings, data)
    return settings, shape, network(settings, shape, torch.device("cpu"))


def _text(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def second_training(trainable: OwnTrainable, data: Data, config: Mapping[str, Scalar | None]) -> dict[str, float]:
    """Return the metrics of an epoch of `config`, trained after an epoch with another seed in this process."""
    metrics: Mapping[str, float] = {}
    for other in ({"seed": OTHER_SEED}, {}):
        with tempfile.TemporaryDirectory() as folder:
            worker = LocalWorker(Path(folder), data=data, resources=machine())
            trainable.train({**config, **other}, worker)
        metrics = worker.reported[-1].metrics
    return dict(metrics)


def first_report(trainable: OwnLoop, data: Data, config: Mapping[str, Scalar | None], steps: int) -> dict[str, float]:
    """Return what a loop reports after a few steps.

    Raises:
        OwnCodeError: it reports other metrics than it declares.
    """
    with tempfile.TemporaryDirectory() as folder:
        worker = LocalWorker(Path(folder), data=data, resources=machine())
        trainable.first_report(config, worker, steps)
    return dict(worker.reported[-1].metrics)


def main(arguments: Sequence[str]) -> int:
    """Print the facts; return the exit code: 1 where the user's code raised."""
    parser = argparse.ArgumentParser(prog="python -m trainables.facts", allow_abbrev=False)
    parser.add_argument("file", type=Path)
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    parser.add_argument("--root")
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--ruled-out", action="store_true")
    parser.add_argument("--first-report", type=int, metavar="STEPS")
    parser.add_argument("--train-samples", type=int)
    parser.add_argument("--val-samples", type=int, default=Data.val_images)
    options = parser.parse_intermixed_args(arguments)
    path, pairs = options.file.absolute(), (setting.partition("=") for setting in options.settings)
    try:
        trainable = load_trainable(str(path))
        config = {name: parsed(value, (trainable.PARAMETERS or {}).get(name)) for name, _, value in pairs}
        limits = {"train_images": options.train_samples, "val_images": options.val_samples}
        data = trainable.locate_data(Data(root=options.root, **limits))
        if isinstance(trainable, OwnLoop):
            found: Mapping[str, Any] = first_report(trainable, data, config, options.first_report)
        else:
            assert isinstance(trainable, OwnTrainable)
            with trainable.errors(config):
                asked = second_training if options.twice else ruled_out if options.ruled_out else facts
                found = asked(trainable, data, config)
        print(json.dumps(found))
    except (LookupError, DataError, InfeasibleError, OwnCodeError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    except (Exception, SystemExit) as error:
        print(json.dumps({"error": described(error, path.parent)}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
