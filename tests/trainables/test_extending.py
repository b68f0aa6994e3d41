"""One row adds a strategy, one row a parameter: from outside, and everything that knows strategies works with them."""

from pathlib import Path
from typing import Any

import pytest

from search.front.affects import without_effect
from search.report.scaling import scaling_tables
from search.space.parsing import parse_space
from search.space.restriction import for_machine
from search.space.space import Space
from search.space.validation import SpaceError
from tests.search.test_scaling import flat, trial
from tests.trainables import quiet_steps
from tests.trainables.ranked import on_ranks
from trainables.contract import Data, Layout, Resources
from trainables.local_worker import LocalWorker
from trainables.settings import parameters_of
from trainables.strategy_table import STRATEGIES
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10

BUDGET = {"trials": 4}
TINY = {"width": 0.01, "batch_size": 24, "conv_kernel": "library"}


def add_strategy() -> None:
    STRATEGIES["quiet"] = quiet_steps.ROW


def add_parameter() -> None:
    vgg19_cifar10.settings = quiet_steps.ScaledSettings
    vgg19_cifar10.PARAMETERS = parameters_of(quiet_steps.ScaledSettings, STRATEGIES)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both rows, for one test."""
    monkeypatch.setitem(STRATEGIES, "quiet", quiet_steps.ROW)
    monkeypatch.setattr(vgg19_cifar10, "settings", quiet_steps.ScaledSettings)
    monkeypatch.setattr(vgg19_cifar10, "PARAMETERS", parameters_of(quiet_steps.ScaledSettings, STRATEGIES))


def space(**parameters: Any) -> Space:
    objectives = [{"metric": m, "goal": "maximize"} for m in ("val_accuracy", "images_per_second")]
    return parse_space(
        {"trainable": "vgg19_cifar10", "objectives": objectives, "parameters": parameters, "budget": BUDGET}
    )


def test_without_the_rows_both_are_refused() -> None:
    with pytest.raises(SpaceError, match=r"strategy.* found \"quiet\""):
        space(strategy={"values": ["single", "quiet"]})
    with pytest.raises(SpaceError, match='has no "gradient_scale"'):
        space(gradient_scale={"min": 0.5, "max": 1.0})


@pytest.mark.usefixtures("added")
def test_a_space_file_has_them() -> None:
    searched = space(strategy={"values": ["single", "quiet"]}, gradient_scale={"min": 0.5, "max": 1.0})
    assert searched.affecting("probed") == {"strategy"}
    _, lines = for_machine(searched, Resources(cpus=1))
    assert lines == ["strategy quiet: needs 2 cores, there is 1"]
    with pytest.raises(SpaceError, match="expected at least 0"):
        space(gradient_scale={"min": -1.0, "max": 1.0})


@pytest.mark.usefixtures("added")
def test_it_has_a_layout_and_a_prediction_of_memory(few: Data) -> None:
    config = {**TINY, "strategy": "quiet"}
    assert vgg19_cifar10.layout(config, Resources(cpus=4)) == Layout(2, 2)
    predicted = vgg19_cifar10.memory(config, few, Resources(cpus=4))
    ddp = vgg19_cifar10.memory({**config, "strategy": "ddp"}, few, Resources(cpus=4))
    assert predicted is not None
    assert ddp is not None
    assert predicted.parts["communication"] == pytest.approx(ddp.parts["communication"] / 4, rel=1e-3)


@pytest.mark.usefixtures("added")
def test_reports_compare_it_with_itself_alone_and_leave_out_what_changes_no_rate() -> None:
    ignored = without_effect("vgg19_cifar10", {}, "images_per_second")
    trials = [
        trial(100.0, strategy="quiet", world_size=1, gradient_scale=1.0),
        trial(150.0, strategy="quiet", world_size=2, gradient_scale=0.5),
    ]
    assert "Strategy `quiet`" in flat(scaling_tables(trials, [], 2, 0, STRATEGIES, ignored))
    assert scaling_tables(trials, [], 2, 0, STRATEGIES) == []


CONFIGS: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp"},
    "quiet": {"strategy": "quiet"},
    "still": {"strategy": "quiet", "gradient_scale": 0.0, "weight_decay": 0.0},
}


def losses_of(rank: int, world_size: int, folder: Path, data: Data) -> dict[str, float]:
    """Training loss of each configuration, one after the other in the same processes."""
    add_strategy()
    add_parameter()
    losses = {}
    for name, config in CONFIGS.items():
        worker = LocalWorker(folder / name, 1, data, Resources(1), rank, world_size)
        vgg19_cifar10.train({**TINY, **config}, worker)
        losses[name] = worker.reported[-1].metrics["train_loss"]
    return losses


@pytest.mark.slow
def test_it_trains_and_the_parameter_reaches_its_step(tmp_path: Path, few: Data) -> None:
    for name in CONFIGS:
        (tmp_path / name).mkdir()
    losses, others = on_ranks(losses_of, 2, tmp_path, few)
    assert losses == others
    assert losses["quiet"] == pytest.approx(losses["ddp"], rel=1e-3)
    assert losses["still"] != pytest.approx(losses["ddp"], rel=1e-3)
