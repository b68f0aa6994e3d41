"""The trainable `vgg19_cifar10` on GPUs, with trials that go wrong: `trainable: tests.emulated_gpu.faulty_training`.

`fault` happens in the last process, each time it reports its first epoch: `killed` (SIGKILL), `context` (illegal memory
access, after which the process can no longer use its device) or `none`.
"""

from __future__ import annotations

import ctypes
import os
import signal
from dataclasses import replace
from typing import Any

from trainables.contract import Config, Cost, Data, Layout, Measurement, MemoryNeed, Parameter, Resources, Scalar
from trainables.vgg19_cifar10 import trainable as vgg19

ILLEGAL_ACCESS = 700
STRATEGIES, METRICS = vgg19.STRATEGIES, vgg19.METRICS
PARAMETERS = {
    **(vgg19.PARAMETERS or {}),
    "fault": Parameter("str", "none", "fault of the last process", choices=("none", "killed", "context")),
}
locate_data, describe_data = vgg19.locate_data, vgg19.describe_data


def train(config: Config, worker: Any) -> None:
    def send(measurement: Measurement) -> bool:
        if worker.rank == worker.world_size - 1 and measurement.epoch == 1:
            _go_wrong(str(config["fault"]))
        return bool(worker.send(measurement))

    vgg19.train(_plain(config), replace(worker, send=send))


def test(config: Config, worker: Any) -> object:
    return vgg19.test(_plain(config), worker)


def unavailable(parameter: str, value: Scalar, resources: Resources) -> str | None:
    return None if parameter == "fault" else vgg19.unavailable(parameter, value, resources)


def layout(config: Config, resources: Resources) -> Layout:
    return vgg19.layout(_plain(config), resources)


def estimate(config: Config, data: Data) -> Cost:
    return vgg19.estimate(_plain(config), data)


def explain(config: Config, metrics: object, resources: Resources) -> None:
    return None


def memory(config: Config, data: Data, resources: Resources) -> MemoryNeed | None:
    return None


def largest_batch(config: Config, data: Data, resources: Resources, available: int) -> int | None:
    return None


def _plain(config: Config) -> Config:
    return {name: value for name, value in config.items() if name != "fault"}


def _go_wrong(fault: str) -> None:
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "context":
        ctypes.CDLL(None).nullcuda_break(ILLEGAL_ACCESS)
