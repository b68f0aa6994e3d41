"""Callbacks for other libraries' trainers: rates, reports, checkpoints, probes.

The real libraries drive them, and transformers' also a file that makes the calls of its Trainer: importing transformers
can take a minute.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.trainables.own_files import written
from trainables.contract import Data, OwnCodeError, Resources, load_trainable
from trainables.local_worker import LocalWorker

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.filterwarnings("ignore")  # of these libraries

FILES = {
    "lightning_module": {"channels": 8, "batch_size": 128},
    "hugging_face_trainer": {"embed": 16, "layers": 1, "batch_size": 64},
}
CALLS = """\
from types import SimpleNamespace

from trainables.adapters.hugging_face import SearchCallback

UNIT = "rows"
PARAMETERS = {"batch_size": 8}
METRICS = {"val_loss": "nats"}
STEPS = 20


def train(config, trial):
    callback = SearchCallback(trial, units=config["batch_size"])
    first = int(callback.checkpoint.rpartition("-")[2]) // STEPS if callback.checkpoint else 0
    for epoch in range(first + 1, trial.num_epochs + 1):
        control = SimpleNamespace(should_training_stop=False)
        state = SimpleNamespace(max_steps=STEPS * trial.num_epochs, num_train_epochs=trial.num_epochs)
        state.epoch, state.global_step = epoch, epoch * STEPS
        callback.on_epoch_begin(None, state, control)
        for _ in range(STEPS):
            callback.on_step_begin(None, state, control)
            callback.on_pre_optimizer_step(None, state, control)
            callback.on_step_end(None, state, control)
        callback.on_epoch_end(None, state, control)
        callback.on_evaluate(None, state, control, metrics={"eval_loss": 1 / epoch, "eval_runtime": 0.1})
        callback.on_save(None, state, control)
        if control.should_training_stop:
            return
"""
BEGIN = "    first = int("
FILE_OF_EPOCH_2 = {"lightning_module": "epoch-2.ckpt", "hugging_face_trainer": "checkpoint-50"}


def worker_of(path: str, folder: Path, epochs: int, **more: Any) -> LocalWorker:
    return LocalWorker(folder, epochs, load_trainable(path).locate_data(Data()), Resources(2), **more)


@pytest.fixture
def names_of_transformers_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module with the names that the callback imports."""
    adapter, transformers = "trainables.adapters.hugging_face", ModuleType("transformers")
    for name in ("TrainerCallback", "TrainerControl", "TrainerState", "TrainingArguments"):
        setattr(transformers, name, type(name, (), {}))
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    sys.modules.pop(adapter, None)
    yield
    sys.modules.pop(adapter, None)


@pytest.mark.usefixtures("names_of_transformers_alone")
def test_the_calls_of_a_trainer_are_steps_epochs_and_a_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    path, answers = written(tmp_path, "calls.py", text=CALLS), iter([True, False])
    trainable = load_trainable(path)
    first = worker_of(path, tmp_path, 3, listener=lambda measurement: next(answers))
    trainable.train({}, first)
    second = worker_of(path, tmp_path, 3)
    trainable.train({}, second)
    assert [(m.epoch, m.metrics["val_loss"]) for m in first.reported] == [(1, 1.0), (2, 0.5)]
    assert [m.epoch for m in second.reported] == [2, 3]
    last = first.reported[-1].metrics
    assert last["throughput_rows"] % 8 == 0
    assert all(last[f"{stage}_seconds"] > 0 for stage in ("load", "forward", "update"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lightning_module", "hugging_face_trainer"])
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
    assert any(metric.endswith("_per_second") and value > 0 for metric, value in probed.metrics.items())
    assert probed.metrics["throughput_windows"] >= 1  # of a busy machine


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_metric_that_is_not_measured_is_named(name: str, tmp_path: Path) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    old = 'METRICS = {"val_accuracy"' if name.startswith("lightning") else 'METRICS = {"val_loss"'
    (tmp_path / f"{name}_2.py").write_text(text.replace(old, 'METRICS = {"val_other"'))
    path = str(tmp_path / f"{name}_2.py")
    with pytest.raises(OwnCodeError, match="val_other was not"):
        load_trainable(path).train(FILES[name], worker_of(path, tmp_path, 1))


BEGINS = """\
    callback.on_train_begin(SimpleNamespace(output_dir=OUTPUT), SimpleNamespace(global_step=STEP), None)
    first = int("""


@pytest.mark.parametrize(
    ("output", "step", "message"),
    [
        ("trial.folder", "20 if trial.checkpoint else 0", None),
        ("'out'", "0", 'output_dir is "out"; expected trial.folder, where a restart goes on'),
        ("trial.folder", "0", r"it began anew; call trainer.train(resume_from_checkpoint=callback.checkpoint)"),
    ],
)
def test_a_trainer_that_could_not_go_on_is_told_before_it_trains(
    output: str, step: str, message: str | None, tmp_path: Path
) -> None:
    begins = BEGINS.replace("OUTPUT", output).replace("STEP", step)
    path = written(tmp_path, "calls.py", (BEGIN, begins), text=CALLS)
    trainable = load_trainable(path)
    (tmp_path / "trial").mkdir()

    def train_twice() -> None:
        for epochs in (1, 2):
            trainable.train({}, worker_of(path, tmp_path / "trial", epochs))

    if message is None:
        train_twice()
        return
    with pytest.raises(OwnCodeError) as raised:
        train_twice()
    assert message in str(raised.value)
