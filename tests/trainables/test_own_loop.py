"""A training loop of a user's own: epochs, rates, checkpoints, and the user's mistakes."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.own_files import LOOP, written
from tests.trainables.ranked import on_ranks
from trainables import own_loop, own_turns, turns
from trainables.contract import Data, DataError, InfeasibleError, Layout, OwnCodeError, Resources, load_trainable
from trainables.declared import DeclarationError
from trainables.kept_samples import from_text
from trainables.local_worker import LocalWorker

REPORT = "trial.report(epoch, checkpoint=model.state_dict(), val_loss=tested(model, 1))"
ENDLESS = (  # one iterator goes through several epochs
    "for epoch in trial.epochs():\n        for x, y in trial.steps(loader):\n            loss",
    "batches = trial.steps(batch for _ in range(9) for batch in loader)\n"
    "    for epoch in trial.epochs():\n        for _ in range(len(loader)):\n"
    "            x, y = next(batches)\n            loss",
)
numbers = itertools.count(1)


@pytest.fixture
def name() -> str:
    """A module name that no other test has imported."""
    return f"loop_{next(numbers)}.py"


def worker_of(path: str, folder: Path, epochs: int = 3, **more: Any) -> LocalWorker:
    folder.mkdir(exist_ok=True)
    return LocalWorker(folder, epochs, load_trainable(path).locate_data(Data()), Resources(1), **more)


def trained(path: str, folder: Path, epochs: int = 3, **config: Any) -> LocalWorker:
    worker = worker_of(path, folder, epochs)
    load_trainable(path).train({"threads": 1, **config}, worker)
    return worker


def test_it_trains_and_tests(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, text=LOOP)
    worker, trainable = trained(path, tmp_path / "trial"), load_trainable(path)
    assert [m.epoch for m in worker.reported] == [1, 2, 3]
    losses = [m.metrics["val_loss"] for m in worker.reported]
    assert losses[0] > losses[-1] > 0
    assert set(trainable.test({}, worker)) == {"test_loss"}
    assert {"val_loss", "test_loss", "rows_per_second"} <= set(trainable.METRICS or {})
    last = worker.reported[-1].metrics
    assert last["throughput_rows"] % 8 == 0
    assert set(last) <= set(trainable.METRICS or {})


def test_the_same_seed_gives_the_same_weights(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, text=LOOP)
    one, other = (trained(path, tmp_path / f"{n}").reported[-1].metrics["val_loss"] for n in range(2))
    assert one == other


def test_a_restarted_loop_goes_on_after_its_checkpoint(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, text=LOOP)
    whole = trained(path, tmp_path / "whole", epochs=4)
    answers = iter([True, False])
    first = worker_of(path, tmp_path / "trial", 4, listener=lambda measurement: next(answers))
    load_trainable(path).train({"threads": 1}, first)
    assert [m.epoch for m in first.reported] == [1, 2]
    second = trained(path, tmp_path / "trial", epochs=4)
    assert [m.epoch for m in second.reported] == [2, 3, 4]
    seconds = [m.metrics["epoch_seconds"] for m in [first.reported[0], *second.reported]]
    assert second.reported[-1].metrics["training_seconds"] == pytest.approx(sum(seconds))
    assert second.reported[-1].metrics["val_loss"] == whole.reported[-1].metrics["val_loss"]
    assert [m.epoch for m in trained(path, tmp_path / "trial", epochs=4).reported] == [4]


def test_a_loop_without_checkpoints_starts_again(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, ("checkpoint=model.state_dict(), ", ""), text=LOOP)
    for _ in range(2):
        assert [m.epoch for m in trained(path, tmp_path / "trial", epochs=2).reported] == [1, 2]


def test_a_checkpoint_may_have_numbers_and_arrays_of_numpy(tmp_path: Path, name: str) -> None:
    kept = "{'best': np.float64(0.5), 'curve': [np.arange(3.0)], 'random': np.random.get_state()}"
    seen = "    if trial.checkpoint:\n        assert trial.checkpoint['best'] == 0.5\n"
    seen += "        assert (trial.checkpoint['curve'][0] == np.arange(3.0)).all()\n"
    seen += "        np.random.set_state(trial.checkpoint['random'])\n"
    changes = (
        ("import torch\n", "import numpy as np\nimport torch\n"),
        ("checkpoint=model.state_dict()", f"checkpoint={kept}"),
        ("    if trial.checkpoint:\n        model.load_state_dict(trial.checkpoint)\n", seen),
    )
    path = written(tmp_path, name, *changes, text=LOOP)
    first = worker_of(path, tmp_path / "trial", 2, listener=lambda measurement: False)
    load_trainable(path).train({"threads": 1}, first)
    assert [m.epoch for m in trained(path, tmp_path / "trial", epochs=2).reported] == [1, 2]
    assert [m.epoch for m in trained(path, tmp_path / "trial", epochs=2).reported] == [2]


def test_a_loader_without_a_length_gives_steps(tmp_path: Path, name: str) -> None:
    stream = "class Rows(torch.utils.data.IterableDataset):\n    def __iter__(self):\n        return iter(rows(128, 0))"
    loader = ("DataLoader(rows(128, 0), ", "DataLoader(Rows(), ")
    path = written(tmp_path, name, loader, ("def network(", f"{stream}\n\n\ndef network("), text=LOOP)
    assert [m.epoch for m in trained(path, tmp_path / "trial", epochs=2).reported] == [1, 2]


def test_one_iterator_may_go_through_several_epochs(tmp_path: Path, name: str) -> None:
    worker = trained(written(tmp_path, name, ENDLESS, text=LOOP), tmp_path / "trial")
    assert [m.epoch for m in worker.reported] == [1, 2, 3]
    usual = trained(written(tmp_path, f"usual_{name}", text=LOOP), tmp_path / "usual")
    assert worker.reported[-1].metrics["val_loss"] == usual.reported[-1].metrics["val_loss"]


def test_a_pause_before_a_validation_counts_the_step_and_ends_its_time(tmp_path: Path, name: str) -> None:
    """The end of one iterator for several epochs does not say where the steps of an epoch end."""
    paused = (REPORT, f"trial.pause()\n        import time; time.sleep(0.5)\n        {REPORT}")
    *_, last = trained(written(tmp_path, name, ENDLESS, paused, text=LOOP), tmp_path / "trial").reported
    assert last.metrics["epoch_seconds"] < 0.5


@pytest.mark.parametrize("is_probe", [False, True])
def test_batches_that_were_used_up_in_an_earlier_epoch_are_an_error(tmp_path: Path, name: str, is_probe: bool) -> None:
    once = ("for epoch in trial.epochs():\n", "batches = iter(loader)\n    for epoch in trial.epochs():\n")
    path = written(tmp_path, name, once, ("trial.steps(loader)", "trial.steps(batches)"), text=LOOP)
    trainable, worker = load_trainable(path), worker_of(path, tmp_path / "trial")
    work = trainable.probe if is_probe else trainable.train
    with pytest.raises(OwnCodeError, match=r"trial.report\(2\) without a step; its batches were used up before"):
        work({"threads": 1}, worker)


def test_a_row_for_each_sample_gives_interval_and_samples(tmp_path: Path, name: str) -> None:
    of_each = ("val_loss=tested(model, 1)", "val_loss=(tested(model, 1) + torch.arange(100.0))[:, None]")
    one, last = trained(written(tmp_path, name, of_each, text=LOOP), tmp_path / "trial", epochs=2).reported
    assert last.metrics["val_loss_low"] < last.metrics["val_loss"] < last.metrics["val_loss_high"]
    assert not one.samples
    values = from_text(last.samples["val_loss"])
    assert values[99] - values[0] == pytest.approx(99, rel=0.01)


def test_the_test_may_return_a_row_for_each_sample(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, ('{"test_loss": tested', '{"test_loss": torch.arange(100.0) + tested'), text=LOOP)
    found = load_trainable(path).test({}, trained(path, tmp_path / "trial"))
    assert found["test_loss_low"] < found["test_loss"] < found["test_loss_high"]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("'good'", "NAME: test: test_loss is 'good'; expected a number"),
        ("None", "NAME: test: test_loss is None; expected"),
    ],
)
def test_what_the_test_returns_wrong_is_one_line(tmp_path: Path, name: str, returned: str, message: str) -> None:
    path = written(tmp_path, name, ("tested(model, 2)}", f"{returned}}}"), text=LOOP)
    with pytest.raises(OwnCodeError, match=message.replace("NAME", name)):
        load_trainable(path).test({}, trained(path, tmp_path / "trial"))


def test_turns_of_a_loop_report_rates_without_the_time_between_epochs_until_they_are_told_to_end(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each validation takes 0.2 s, an epoch of 16 steps some milliseconds."""
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.05)
    monkeypatch.setattr(own_turns, "WARMUP_SECONDS", 0.05)
    seen = "    x, y = rows(19, seed).tensors"
    slow = (seen, f"    import time\n    time.sleep(0.2)\n{seen}")
    answers = iter([True, True, False])
    worker = worker_of(written(tmp_path, name, slow, text=LOOP), tmp_path, listener=lambda measurement: next(answers))
    load_trainable(str(tmp_path / name)).turns_alone({"threads": 1}, worker)  # type: ignore[attr-defined]
    assert [m.epoch for m in worker.reported] == [1, 2, 3]
    assert all(set(m.metrics) == {"rate_0"} for m in worker.reported)
    assert min(m.metrics["rate_0"] for m in worker.reported) > 128 / 0.2


def test_a_probe_that_comes_to_a_report_looks_at_its_names(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, ("val_loss=tested", "val_los=tested"), text=LOOP)
    with pytest.raises(OwnCodeError, match="report was given val_los; METRICS declares val_loss"):
        load_trainable(path).probe({"threads": 1}, worker_of(path, tmp_path))


@pytest.mark.usefixtures("short_probes")
def test_a_probe_ends_the_loop_and_measures_rate_and_stages(tmp_path: Path, name: str) -> None:
    call = "one_epoch(model, optimizer, loader, trial)"
    caught = f"        try:\n            {call}\n        except Exception:\n            pass\n"
    inner = "".join(
        line[4:] + "\n" for line in LOOP.split("epochs():\n")[1].split("        trial.report")[0].splitlines()
    )
    loop = LOOP.split("epochs():\n")[1].split("        trial.report")[0]
    text = LOOP.replace(loop, caught) + f"\n\ndef one_epoch(model, optimizer, loader, trial):\n{inner}"
    path = written(tmp_path, name, text=text)
    worker, trainable = worker_of(path, tmp_path), load_trainable(path)
    trainable.probe({"threads": 1}, worker)
    (probed,) = worker.reported
    assert probed.epoch == 0
    assert probed.metrics["rows_per_second"] > 0
    assert probed.metrics["load_seconds"] > 0
    assert probed.metrics["forward_seconds"] > 0
    assert "val_loss" not in probed.metrics
    verdict = trainable.explain({}, probed.metrics, Resources(1))
    assert verdict is not None
    assert list(tmp_path.glob("*.pt")) == []


def test_marked_stages_are_measured(tmp_path: Path, name: str) -> None:
    marks = (
        ("            optimizer.zero_grad()", "            trial.mark('forward')\n            optimizer.zero_grad()"),
        ("            optimizer.step()", "            trial.mark('backward')\n            optimizer.step()"),
    )
    path = written(tmp_path, name, *marks, text=LOOP)
    metrics = trained(path, tmp_path / "trial", epochs=4).reported[-1].metrics
    assert all(metrics[f"{stage}_seconds"] > 0 for stage in ("load", "forward", "backward", "update"))


def test_an_estimate_has_rate_and_length_of_an_epoch(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_loop, "ESTIMATE_SECONDS", 0.2)
    path = written(tmp_path, name, text=LOOP)
    trainable = load_trainable(path)
    cost = trainable.estimate({"batch_size": 16}, trainable.locate_data(Data()))
    assert cost.samples_per_epoch == 128
    assert cost.samples_per_second > 0
    assert cost.checkpoint_bytes is None
    endless = written(
        tmp_path, f"no_length_{name}", ("trial.steps(loader)", "trial.steps(b for b in loader)"), text=LOOP
    )
    with pytest.raises(InfeasibleError, match="length of an epoch is not known"):
        load_trainable(endless).estimate({}, trainable.locate_data(Data()))


def of_rank(rank: int, world_size: int, path: str, folder: Path) -> dict[str, float]:
    worker = worker_of(path, folder, rank=rank, world_size=world_size)
    load_trainable(path).train({"threads": 1, "world_size": world_size}, worker)
    return dict(worker.reported[-1].metrics)


def test_several_processes_train_together(tmp_path: Path, name: str) -> None:
    """The loop averages the gradients; the rate counts the rows of all."""
    ddp = (
        'network(config["hidden"])\n    optimizer',
        'network(config["hidden"])\n    model = nn.parallel.DistributedDataParallel(model)\n    optimizer',
    )
    path = written(tmp_path, name, ddp, text=LOOP)
    (tmp_path / "trial").mkdir()
    one, two = on_ranks(of_rank, 2, path, tmp_path / "trial")
    assert one["val_loss"] == two["val_loss"]
    assert one["throughput_rows"] % 16 == 0
    assert load_trainable(path).layout({"world_size": 2}, Resources(4)) == Layout(2, 2, 0, "pack")
    with pytest.raises(InfeasibleError, match="world_size 3: needs 3 cores, there are 2"):
        load_trainable(path).layout({"world_size": 3}, Resources(2))


@pytest.mark.parametrize(
    ("config", "resources", "layout"),
    [
        ({"world_size": 2}, Resources(12, gpus=6, nodes=3), Layout(2, 2, 1, "pack")),
        ({"world_size": 2, "placement": "spread"}, Resources(12, gpus=6, nodes=3), Layout(2, 4, 2, "spread")),
        ({"world_size": 1, "placement": "spread"}, Resources(12, gpus=6, nodes=3), Layout(1, 4, 2, "pack")),
    ],
)
def test_a_process_has_at_most_what_one_node_has(
    tmp_path: Path, name: str, config: dict[str, Any], resources: Resources, layout: Layout
) -> None:
    assert load_trainable(written(tmp_path, name, text=LOOP)).layout(config, resources) == layout


def test_more_threads_than_a_process_has_cores_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InfeasibleError, match="threads 3: each of 2 processes has 2"):
        load_trainable(written(tmp_path, name, text=LOOP)).layout({"world_size": 2, "threads": 3}, Resources(4))


MISTAKES = [
    ((REPORT, "trial.report(epoch, loss=1.0)"), "trial.report was given loss; METRICS declares val_loss"),
    ((REPORT, "trial.report(epoch + 1, val_loss=1.0)"), "trial.report(2, ...) where epoch 1 is expected"),
    (
        (REPORT, "trial.report(epoch, val_loss='good')"),
        "trial.report(1, ...): val_loss is 'good'; expected a number, or a tensor with a row for each sample",
    ),
    ((REPORT, "pass"), "epoch 1 ended without trial.report(1, ...)"),
    (
        (REPORT, REPORT + "\n        return"),
        "train returned after epoch 1 of 3; go through all of trial.epochs(), without early stopping",
    ),
    (
        ("trial.steps(loader)", "loader"),
        "trial.report(1) without a step; go through the batches by trial.steps(loader)",
    ),
    ((REPORT, "trial.report(epoch, checkpoint=lambda: 0, val_loss=1.0)"), "the checkpoint cannot be written"),
    (
        (REPORT, "trial.report(epoch, checkpoint={'a': [0, Path('x')]}, val_loss=1.0)\n\n\nfrom pathlib import Path"),
        "the checkpoint cannot be written: checkpoint['a'][1] is a PosixPath, which is not read again",
    ),
    (
        ("for x, y in trial.steps(loader)", "for _, (x, y) in zip(trial.steps(['a']), loader)"),
        "a batch without tensors or arrays; say its size",
    ),
    (("trial.epochs()", "iter(lambda: trial._epoch + 1, 0)"), "trial.report(4, ...) after the trial has ended"),
    (("trial.epochs()", "range(0)"), "train returned after epoch 0 of 3"),
    (("            loss.backward()", "            1 / 0"), "ZeroDivisionError: division by zero (NAME:28)"),
    (("def test(config", "import not_installed\n\n\ndef test(config"), "No module named 'not_installed' (NAME:"),
    (("    model = network", "    import sys; sys.exit(3)\n    model = network"), "called sys.exit(3)"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_a_mistake_is_one_line(change: tuple[str, str], message: str, tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, change, text=LOOP)
    with pytest.raises(OwnCodeError) as raised:
        trained(path, tmp_path / "trial")
    assert message.replace("NAME", name) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_metric_that_is_not_finite_fails_the_trial(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, ("val_loss=tested(model, 1)", "val_loss=float('nan')"), text=LOOP)
    with pytest.raises(FloatingPointError, match="val_loss is nan after epoch 1"):
        trained(path, tmp_path / "trial")


def test_memory_that_is_not_there_is_a_result(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, ("    model = network", "    torch.empty(2**60)\n    model = network"), text=LOOP)
    with pytest.raises(InfeasibleError, match="out of memory"):
        trained(path, tmp_path / "trial")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("def train(config, trial)", "def train(config)"), ":18: train must take config, trial"),
        (("def test(config, trial)", "def test(trial)"), ":39: test must take config, trial"),
        (('"hidden": 8', '"threads": 8'), 'PARAMETERS: every training has "threads" already'),
        (('"val_loss"', '"epoch_seconds"'), 'METRICS: every training has "epoch_seconds" already'),
        (
            ("def train(", "def trained("),
            "no function dataset; a training file has network, dataset, loss, measures; or train",
        ),
    ],
)
def test_a_mistake_in_the_declaration_is_said_before_anything_runs(
    change: tuple[str, str], message: str, tmp_path: Path, name: str
) -> None:
    with pytest.raises(DeclarationError) as raised:
        load_trainable(written(tmp_path, name, change, text=LOOP))
    assert message in str(raised.value)


def test_the_number_of_samples_is_the_loops_own(tmp_path: Path, name: str) -> None:
    trainable = load_trainable(written(tmp_path, name, text=LOOP))
    with pytest.raises(DataError, match=r"data\.train_images: .* has its own loop, which chooses its data"):
        trainable.locate_data(Data(train_images=10))


def test_a_loop_that_marks_nothing_leaves_no_random_state_behind(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, text=LOOP)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    trained(path, tmp_path / "trial", epochs=1)
    assert torch.equal(before, torch.get_rng_state())


def test_steps_are_told_by_their_epoch(tmp_path: Path, name: str) -> None:
    path, heard = written(tmp_path, name, text=LOOP), list[tuple[int, int, int]]()
    worker = worker_of(path, tmp_path / "trial", 2, on_step=lambda *step: heard.append(step))
    load_trainable(path).train({"threads": 1}, worker)
    steps = heard[-1][2]
    assert heard == [(epoch, step, steps) for epoch in (1, 2) for step in range(1, steps + 1)]
