"""Callbacks for other libraries' trainers, with the real libraries: rates, reports, checkpoints, probes."""

from pathlib import Path
from typing import Any

import pytest

from trainables.contract import Data, OwnCodeError, Resources, load_trainable
from trainables.local_worker import LocalWorker

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.filterwarnings("ignore")  # of these libraries

FILES = {
    "lightning_module": {"channels": 8, "batch_size": 128},
    "hugging_face_trainer": {"embed": 16, "layers": 1, "batch_size": 64},
}
FILE_OF_EPOCH_2 = {"lightning_module": "epoch-2.ckpt", "hugging_face_trainer": "checkpoint-50"}


def worker_of(path: str, folder: Path, epochs: int, **more: Any) -> LocalWorker:
    return LocalWorker(folder, epochs, load_trainable(path).locate_data(Data()), Resources(2), **more)


@pytest.mark.parametrize("name", FILES)
def test_a_trainer_is_ended_and_goes_on_from_its_own_checkpoint(name: str, tmp_path: Path) -> None:
    path, answers = str(EXAMPLES / f"{name}.py"), iter([True, False])
    trainable = load_trainable(path)
    first = worker_of(path, tmp_path, 3, listener=lambda measurement: next(answers))
    trainable.train(FILES[name], first)
    assert [m.epoch for m in first.reported] == [1, 2]
    assert (tmp_path / FILE_OF_EPOCH_2[name]).exists()
    second = worker_of(path, tmp_path, 3)
    trainable.train(FILES[name], second)
    assert [m.epoch for m in second.reported] == [2, 3]
    metric = next(iter(trainable.METRICS or {}))
    assert second.reported[0].metrics[metric] == first.reported[1].metrics[metric]
    last = second.reported[-1].metrics
    assert all(last[f"{stage}_seconds"] > 0 for stage in ("load", "forward", "update"))
    assert last["throughput_seconds"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_probe_ends_a_trainer(name: str, tmp_path: Path) -> None:
    path = str(EXAMPLES / f"{name}.py")
    worker = worker_of(path, tmp_path, 1)
    load_trainable(path).probe(FILES[name], worker)
    (probed,) = worker.reported
    assert any(metric.endswith("_per_second_low") for metric in probed.metrics)
    assert probed.metrics["throughput_windows"] >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_metric_that_is_not_measured_is_named(name: str, tmp_path: Path) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    old = 'METRICS = {"val_accuracy"' if name.startswith("lightning") else 'METRICS = {"val_loss"'
    (tmp_path / f"{name}_2.py").write_text(text.replace(old, 'METRICS = {"val_other"'))
    path = str(tmp_path / f"{name}_2.py")
    with pytest.raises(OwnCodeError, match="val_other was not"):
        load_trainable(path).train(FILES[name], worker_of(path, tmp_path, 1))
