"""Program: predicted and reserved memory of configurations that train on an emulated GPU, at their real sizes.

Each argument is a JSON object of parameters; `trainable` and `pictures` (a folder) may be among them. Each line of the
output is a JSON object of bytes: `predicted` without cuDNN, `reported` as predicted, `allocated` and `reserved`. Large
tensors have memory, but no values.
The argument `calibration` prints what `machine_calibration` would measure, by precision.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal, get_args
from unittest import mock

import torch

from tests.emulated_gpu.emulation import emulated
from tests.emulated_gpu.setting import prepare
from trainables.contract import Data, Resources, load_trainable
from trainables.local_worker import LocalWorker
from trainables.machine.peak_memory import GIB
from trainables.prediction import memory_need
from trainables.workloads import sample_values

LARGEST = 4096  # numbers of a tensor that is computed
STEPS = 12  # enough for warm-up, a captured graph, profiled and measured steps
VGG19 = "vgg19_cifar10"
WITHOUT_CUDNN = memory_need.Calibration(process={"fp32": 0, "bf16": 0}, loader_process=0)
CUDA, GPU = torch.device("cuda", 0), Resources(cpus=1, gpus=1)


def calibration() -> dict[str, int]:
    """Measure the memory beyond what is counted, in this process."""
    found = {}
    for precision in get_args(Literal["fp32", "bf16"]):
        counted, measured, _ = memory_need._probed(*memory_need.PROBES["cuda"], precision, CUDA)
        found[precision] = measured - counted
    return found


def trained(parameters: dict[str, Any], trainable: str, pictures: str | None) -> dict[str, int]:
    """Train one epoch; return the bytes."""
    training = load_trainable(trainable)
    config = {"precision": "bf16", **parameters}
    count = STEPS * int(config.get("batch_size", 128))
    kind: Literal["auto", "generated"] = "generated" if trainable == VGG19 else "auto"
    data = training.locate_data(Data(kind, pictures, train_images=count, val_images=min(1000, count // 2)))
    with tempfile.TemporaryDirectory() as folder:
        worker = LocalWorker(Path(folder), epochs=1, data=data, resources=GPU)
        training.train(config, worker)
    found, need = worker.reported[-1].metrics, training.memory(config, data, GPU)
    assert need is not None
    return {
        "predicted": need.total,
        "reported": round(found["predicted_memory_gib"] * GIB),
        "allocated": round(found["peak_memory_gib"] * GIB),
        "reserved": round(found["peak_reserved_gib"] * GIB),
    }


def main() -> None:
    """Train the configurations one after the other."""
    prepare()
    torch.backends.cuda.enable_cudnn_sdp(False)  # not emulated, like all of cuDNN
    with (
        emulated(LARGEST),
        mock.patch("math.isfinite", return_value=True),  # losses have no values
        mock.patch.object(sample_values, "_depends_on_others", return_value=False),  # nor have measures
        mock.patch.object(memory_need, "machine_calibration", return_value=WITHOUT_CUDNN),
    ):
        for text in sys.argv[1:]:
            if text == "calibration":
                found = calibration()
            else:
                config = json.loads(text)
                trainable, pictures = config.pop("trainable", VGG19), config.pop("pictures", None)
                found = trained(config, trainable, pictures)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
