"""What every trainable does: VGG19, a network of torchvision, a GPT, a file, a loop of one's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

from tests.trainables.own_files import LINEAR, LOOP
from trainables.contract import Data, Resources, Trainable, load_trainable
from trainables.local_worker import LocalWorker

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Case:
    """A trainable with a small configuration and little data."""

    trainable: Trainable
    config: Mapping[str, Any]
    data: Data


def pictures(folder: Path) -> str:
    generator = np.random.default_rng(0)
    for number in range(32):
        place = folder / ("train" if number % 4 else "test") / ("a" if number % 8 < 4 else "b")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (40, 40, 3)).astype(np.uint8)).save(place / f"{number}.png")
    return str(folder)


def file(folder: Path, name: str, text: str) -> Trainable:
    (folder / name).write_text(text)
    return load_trainable(str(folder / name))


def case_of(name: str, folder: Path) -> Case:
    common = {"precision": "fp32", "threads": 1, "learning_rate": 0.01}
    match name:
        case "vgg19":
            config = {**common, "width": 0.01, "batch_size": 24, "conv_kernel": "library"}
            return Case(load_trainable("vgg19_cifar10"), config, Data("generated", train_images=120, val_images=24))
        case "resnet18":
            config = {**common, "image_size": 32, "batch_size": 4}
            return Case(load_trainable("image_folder"), config, Data(root=pictures(folder / "pictures")))
        case "gpt":
            config = {**common, "layers": 1, "embed": 16, "batch_size": 4, "optimizer": "adamw"}
            return Case(load_trainable(str(EXAMPLES / "gpt_on_text.py")), config, Data(train_images=24, val_images=8))
        case "file":
            return Case(file(folder, "conforming_file.py", LINEAR), {**common, "batch_size": 8}, Data())
    return Case(file(folder, "conforming_loop.py", LOOP), {"threads": 1, "learning_rate": 0.01}, Data())


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder for what is counted of a network, once for all tests."""
    return tmp_path_factory.mktemp("cache")


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("resnet18", "gpt")]


@pytest.fixture(params=["vgg19", *SLOW, "file", "loop"])
def case(
    request: pytest.FixtureRequest, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, short_probes: None
) -> Case:
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", str(cache))
    return case_of(request.param, tmp_path)


def worker_of(case: Case, folder: Path, epochs: int, **more: Any) -> LocalWorker:
    folder.mkdir(exist_ok=True)
    return LocalWorker(folder, epochs, case.trainable.locate_data(case.data), Resources(1), **more)


def learned(worker: LocalWorker) -> list[tuple[int, dict[str, float]]]:
    """Epochs with what was learned in them."""
    names = ("val_", "train_loss")
    return [(m.epoch, {n: v for n, v in m.metrics.items() if n.startswith(names)}) for m in worker.reported]


def test_a_training_ends_when_told_goes_on_from_its_checkpoint_and_is_tested(case: Case, tmp_path: Path) -> None:
    trainable, answers = case.trainable, iter([True, False])
    whole = worker_of(case, tmp_path / "whole", 3)
    trainable.train(case.config, whole)
    assert [m.epoch for m in whole.reported] == [1, 2, 3]
    known = trainable.METRICS or {}
    for measurement in whole.reported:
        assert set(measurement.metrics) <= set(known)
        assert all(math.isfinite(value) for value in measurement.metrics.values())
    ended = worker_of(case, tmp_path / "ended", 3, listener=lambda measurement: next(answers))
    trainable.train(case.config, ended)
    again = worker_of(case, tmp_path / "ended", 3)
    trainable.train(case.config, again)
    assert [epoch for epoch, _ in learned(ended)] == [1, 2]
    assert learned(again) in (learned(whole), learned(whole)[1:]), "from the checkpoint of epoch 1 or 2"
    tested = trainable.test(case.config, again)
    assert tested
    assert set(tested) <= {name for name in known if name.startswith("test_")}


def test_a_probe_reports_once_and_leaves_nothing(case: Case, tmp_path: Path) -> None:
    worker, before = worker_of(case, tmp_path / "probe", 1), len(psutil.Process().children(recursive=True))
    case.trainable.probe(case.config, worker)
    (measurement,) = worker.reported
    known = case.trainable.METRICS or {}
    assert measurement.epoch == 0
    assert {"step_seconds", "peak_memory_gib"} <= set(measurement.metrics)
    assert any(name.endswith("_per_second") and value > 0 for name, value in measurement.metrics.items())
    assert all(known[name].probed for name in measurement.metrics)
    verdict = case.trainable.explain(case.config, measurement.metrics, Resources(1))
    assert verdict is not None
    assert 0 < verdict.share <= 1
    assert len(psutil.Process().children(recursive=True)) == before
    assert not list((tmp_path / "probe").glob("checkpoint*"))


def test_cost_layout_and_description_are_known_before(case: Case) -> None:
    data = case.trainable.locate_data(case.data)
    cost = case.trainable.estimate(case.config, data)
    assert cost.samples_per_second > 0
    assert cost.samples_per_epoch > 0
    assert case.trainable.layout(case.config, Resources(1)).processes == 1
    assert len(case.trainable.describe_data(data).splitlines()) == 1


def test_a_parameter_that_it_has_not_is_named_with_the_nearest(case: Case) -> None:
    with pytest.raises(ValueError, match='no parameter "learning_rat"; did you mean "learning_rate"'):
        case.trainable.layout({"learning_rat": 1.0}, Resources(1))


def test_too_many_threads_are_refused_with_the_reason(case: Case) -> None:
    assert case.trainable.unavailable("threads", 2, Resources(1)) == "needs 2 cores, there is 1"
    assert case.trainable.unavailable("threads", 1, Resources(1)) is None
