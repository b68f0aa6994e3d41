"""A user's training file, trained: strategies, loader processes, checkpoints, and the user's mistakes."""

import contextlib
import io
import itertools
import json
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.own_files import written
from tests.trainables.ranked import on_ranks
from trainables import build, checkpoint, train
from trainables.contract import Data, DataError, InfeasibleError, OwnCodeError, Parameter, Resources, load_trainable
from trainables.kept_samples import from_text
from trainables.local_worker import LocalWorker
from trainables.own_trainable import OwnTrainable
from trainables.prediction.training_cost import training_cost
from trainables.setting_check import mistake_in
from trainables.workload import workload_of
from trainables.workloads import own_file
from trainables.workloads.own_file import OwnFile

CONFIG = {"batch_size": 8, "precision": "fp32", "threads": 1, "learning_rate": 0.01}
numbers = itertools.count(1)


@pytest.fixture
def name() -> str:
    """A module name that no other test has imported."""
    return f"own_{next(numbers)}.py"


def trained(path: str, folder: Path, rank: int = 0, world_size: int = 1, epochs: int = 2, **config: Any) -> LocalWorker:
    trainable = load_trainable(path)
    folder.mkdir(exist_ok=True, parents=True)
    worker = LocalWorker(folder, epochs, trainable.locate_data(Data()), Resources(2), rank, world_size)
    trainable.train({**CONFIG, **config}, worker)
    return worker


def samples_of_ranks(rank: int, world_size: int, path: str, folder: Path) -> list[float]:
    worker = trained(path, folder, rank, world_size, strategy="ddp")
    assert [bool(measurement.samples) for measurement in worker.reported] == [False, True]  # after the last epoch
    values: list[float] = from_text(worker.reported[-1].samples["val_loss"]).tolist()
    return values


def metrics_of_ranks(
    rank: int, world_size: int, path: str, folder: Path, configs: list[dict[str, Any]]
) -> list[dict[str, float]]:
    """Metrics of trainings one after the other in the same processes."""
    return [
        dict(trained(path, folder / f"{number}", rank, world_size, **config).reported[-1].metrics)
        for number, config in enumerate(configs)
    ]


def test_it_trains_validates_and_tests_with_the_metrics_that_it_declares(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name)
    trainable, worker = load_trainable(path), trained(path, tmp_path / "trial")
    last = worker.reported[-1].metrics
    assert worker.reported[0].metrics["val_loss"] > last["val_loss"] > 0
    assert 0 <= last["val_sign"] <= 1
    tested = trainable.test(CONFIG, worker)
    assert set(tested) == {f"test_{name}{end}" for name in ("loss", "sign") for end in ("", "_low", "_high")}
    assert tested["test_loss_low"] < tested["test_loss"] < tested["test_loss_high"]
    assert {"rows_per_second", "val_loss", "val_sign", "test_loss", "test_sign"} <= set(trainable.METRICS or {})
    assert (trainable.METRICS or {})["rows_per_second"].unit == "rows/s"


@pytest.mark.usefixtures("short_probes")
def test_a_probe_has_rate_flops_and_memory(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, ("return Rows(part)", "return torch.utils.data.ConcatDataset([Rows(part)] * 20)"))
    trainable = load_trainable(path)
    worker = LocalWorker(tmp_path, 1, trainable.locate_data(Data()), Resources(1))
    trainable.probe(CONFIG, worker)
    found = worker.reported[0].metrics
    assert found["rows_per_second"] > 0
    assert found["predicted_memory_gib"] > 0
    assert found["teraflops_per_second"] > 0
    assert trainable.explain(CONFIG, found, Resources(1)) is not None


def test_units_count_in_the_rate(tmp_path: Path, name: str) -> None:
    path = written(
        tmp_path, name, ("def loss(", "def units(inputs, targets):\n    return inputs.numel()\n\n\ndef loss(")
    )
    worker = trained(path, tmp_path / "trial", epochs=12)
    last = worker.reported[-1].metrics
    assert last["throughput_rows"] % (8 * 4) == 0


def test_the_units_of_a_sample_are_the_mean_over_samples(tmp_path: Path, name: str) -> None:
    units = ("def loss(", "def units(inputs, targets):\n    return int(inputs[0])\n\n\ndef loss(")
    of_sample = (ITEM, "return torch.full((4,), i % 2 + 1.0), self.y[i]")
    settings = OwnTrainable(Path(written(tmp_path, name, units, of_sample))).settings()
    assert workload_of(settings).units_per_sample(Data()) == pytest.approx(1.5, abs=0.1)
    assert workload_of(settings).units_per_sample(Data(train_images=1)) in (1, 2)


def test_a_step_may_have_a_fraction_of_a_unit(tmp_path: Path, name: str) -> None:
    units = ("def loss(", "def units(inputs, targets):\n    return int(inputs[0])\n\n\ndef loss(")
    of_sample = (ITEM, "return torch.full((4,), 1.0 * (i % 24 == 0)), self.y[i]")
    worker = trained(written(tmp_path, name, units, of_sample), tmp_path / "trial", epochs=12, batch_size=6)
    last = worker.reported[-1].metrics
    assert last["rows_per_second"] > 0
    assert last["throughput_rows"] == pytest.approx(round(4 * last["throughput_rows"]) / 4)


def test_the_units_of_a_sample_are_averaged_over_the_same_samples_in_each_process(tmp_path: Path, name: str) -> None:
    units = ("def loss(", "def units(inputs, targets):\n    return int(inputs[0])\n\n\ndef loss(")
    many, of_sample = ("48 if part", "900 if part"), (ITEM, "return torch.full((4,), i), self.y[i]")
    settings = OwnTrainable(Path(written(tmp_path, name, units, many, of_sample))).settings()
    found = workload_of(settings).units_per_sample(Data())
    assert found == pytest.approx(449.5, abs=1.0)
    assert round(found * own_file.UNITS_OF_SAMPLES, 6).is_integer()


def test_choices_may_be_numbers(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, ('{"hidden": 8}', '{"hidden": {"default": 8, "choices": [4, 8]}}'))
    assert trained(path, tmp_path / "trial", epochs=1, hidden=4).reported
    part = Parameter(type="float", default=0.5, help="", choices=(0.5, 1.0))
    assert (mistake_in(1, part), mistake_in(1.0, part)) == (None, None)
    assert mistake_in(2, part) == "found 2; expected 0.5, 1.0"
    with pytest.raises(ValueError, match="hidden: found 5; expected 4, 8"):
        load_trainable(path).layout({"hidden": 5}, Resources(1))


def test_the_memory_of_a_dataset_is_predicted(tmp_path: Path, name: str) -> None:
    kept = "        self.kept = torch.ones(64 * 2**20)\n        self.y ="
    path = written(tmp_path, name, ("        self.y =", kept))
    need = load_trainable(path).memory(CONFIG, load_trainable(path).locate_data(Data()), Resources(1))
    assert need is not None
    assert 250 * 2**20 < need.parts["samples"] < 600 * 2**20


@pytest.mark.parametrize(
    ("metric", "role"),
    [
        *[(f"val_{word}", "loss") for word in ("rmse", "loss", "distance", "perplexity", "mae", "RMSE", "mean_error")],
        *[(f"val_{word}", "quality") for word in ("dice", "closse", "accuracy", "f1")],
    ],
)
def test_what_is_better_is_guessed_from_words(tmp_path: Path, name: str, metric: str, role: str) -> None:
    path = written(tmp_path, name, ('"val_sign": "fraction"', f'"{metric}": ""'), ('"val_loss": "1", ', ""))
    known = (load_trainable(path).METRICS or {})[metric]
    assert (known.role, known.role_is_guess) == (role, True)


@pytest.mark.parametrize("parameter", ["loader_processes", "that_affect_rates"])
def test_names_that_the_settings_have_are_no_parameters(tmp_path: Path, name: str, parameter: str) -> None:
    path = written(tmp_path, name, ('PARAMETERS = {"hidden": 8}', f'PARAMETERS = {{"hidden": 8, "{parameter}": 1}}'))
    with pytest.raises(LookupError, match=f'every training has "{parameter}" already'):
        load_trainable(path)


def test_a_declared_goal_is_no_guess(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, ('"val_loss": "1"', '"val_loss": {"unit": "points", "goal": "maximize"}'))
    known = (load_trainable(path).METRICS or {})["val_loss"]
    assert (known.unit, known.role, known.role_is_guess) == ("points", "quality", False)


def test_loader_processes_do_not_change_what_is_learned(tmp_path: Path, name: str) -> None:
    """Also not the random noise that the dataset adds."""
    path = written(tmp_path, name)
    alone, loaded = (trained(path, tmp_path / f"{n}", num_workers=n).reported[-1].metrics for n in (0, 2))
    assert alone["val_loss"] == loaded["val_loss"]
    assert alone["train_loss"] == loaded["train_loss"]


FROZEN = ("nn.Linear(4, hidden)", "nn.Linear(4, hidden).requires_grad_(False)")


@pytest.mark.parametrize("changes", [(), (FROZEN,)], ids=["all trained", "frozen"])
def test_every_strategy_learns_the_same(tmp_path: Path, name: str, changes: tuple[tuple[str, str], ...]) -> None:
    path = written(tmp_path, name, ("nn.Dropout(0.1)", "nn.Identity()"), *changes)
    single = trained(path, tmp_path / "single", weight_decay=0.1).reported[-1].metrics
    strategies = ["ddp", "fsdp", "ring_allreduce", "pipeline", "parameter_server"]
    configs = [{"strategy": strategy, "num_microbatches": 2, "weight_decay": 0.1} for strategy in strategies]
    found, _ = on_ranks(metrics_of_ranks, 2, path, tmp_path, configs)
    for strategy, several in zip(strategies, found, strict=True):
        assert several["train_loss"] == pytest.approx(single["train_loss"], rel=1e-5), strategy
        assert several["val_loss"] == pytest.approx(single["val_loss"], rel=1e-5), strategy


def test_the_values_of_single_samples_are_in_order_whatever_the_number_of_ranks(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, ("nn.Dropout(0.1)", "nn.Identity()"))
    alone = trained(path, tmp_path / "single").reported[-1]
    values = from_text(alone.samples["val_loss"])
    assert values.std() > 0
    assert values.mean() == pytest.approx(alone.metrics["val_loss"], rel=1e-3)
    for found in on_ranks(samples_of_ranks, 2, path, tmp_path / "ddp"):
        assert found == pytest.approx(values.tolist(), rel=1e-2, abs=1e-4)


def of_rank(rank: int, world_size: int, path: str, folder: Path, config: dict[str, Any], error: str) -> bool:
    """Whether the training fails with this error on this rank."""
    os.environ["OWN_RANK"] = str(rank)
    with pytest.raises((DataError, InfeasibleError), match=error):
        trained(path, folder, rank, world_size, **config)
    return True


SLICED = """
class Sliced(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        whole = torch.randn(sizes[1], 2 * sizes[0])
        self.weight = nn.Parameter(whole[:, : sizes[0]])
        self.register_buffer("scale", torch.ones(1).expand(sizes[1]))


class Rows"""


def test_weights_that_are_a_part_of_other_memory_are_trained_as_any_others(tmp_path: Path, name: str) -> None:
    changes = (
        ("nn.Dropout(0.1)", "nn.Identity()"),
        ("nn.Linear(4, hidden)", "Sliced(4, hidden)"),
        ("class Rows", SLICED),
    )
    path = written(tmp_path, name, *changes)
    single, unfused = (
        trained(path, tmp_path / f"{fused}", fused_optimizer=fused).reported[-1].metrics for fused in (True, False)
    )
    assert single["train_loss"] == pytest.approx(unfused["train_loss"], rel=1e-5)
    strategies = ["ddp", "fsdp", "ring_allreduce", "pipeline", "parameter_server"]
    configs = [{"strategy": strategy, "num_microbatches": 2} for strategy in strategies]
    found, _ = on_ranks(metrics_of_ranks, 2, path, tmp_path, configs)
    for strategy, several in zip(strategies, found, strict=True):
        assert several["train_loss"] == pytest.approx(single["train_loss"], rel=1e-5), strategy


def test_a_pipeline_whose_targets_are_of_another_type_than_the_samples_is_refused(tmp_path: Path, name: str) -> None:
    augment = "\n\ndef augment(batch):\n    return batch[0], batch[1].double()\n\n\ndef loss("
    path = written(tmp_path, name, ("\n\ndef loss(", augment))
    error = r"targets are torch.float64 of shape \(8, 1\), expected torch.float32"
    config = {"strategy": "pipeline", "num_microbatches": 2}
    found = on_ranks(of_rank_0, 2, path, tmp_path / "trial", config, error)
    assert found[0]


def of_rank_0(rank: int, world_size: int, path: str, folder: Path, config: dict[str, Any], error: str) -> bool:
    """Whether the training fails with this error on rank 0; the others fail because it is gone."""
    if rank == 0:
        return of_rank(rank, world_size, path, folder, config, error)
    with contextlib.suppress(Exception):
        trained(path, folder, rank, world_size, **config)
    return False


def test_ranks_that_see_different_lengths_are_an_error_at_once(tmp_path: Path, name: str) -> None:
    lengths = "torch.randn(48 + int(__import__('os').environ['OWN_RANK']) if"
    path = written(tmp_path, name, ("torch.randn(48 if", lengths))
    error = "the ranks have different numbers of training samples, 48 to 49"
    assert all(on_ranks(of_rank, 2, path, tmp_path / "trial", {"strategy": "ddp"}, error))


def test_a_parameter_without_gradient_is_an_error_where_the_ring_would_leave_it_different(
    tmp_path: Path, name: str
) -> None:
    unused = (
        "class Unused(nn.Sequential):\n    def forward(self, x):\n        return self[3](self[0](x))\n\n\nclass Rows"
    )
    changes = (
        ("class Rows", unused),
        ("return nn.Sequential(", "return Unused("),
        ("nn.Tanh()", "nn.Linear(hidden, 2)"),
    )
    path = written(tmp_path, name, *changes)
    error = "2 parameters have no gradient; all must take part in the loss"
    assert all(on_ranks(of_rank, 2, path, tmp_path / "trial", {"strategy": "ring_allreduce"}, error))


def test_a_parameter_server_learns_the_same(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, ("nn.Dropout(0.1)", "nn.Identity()"))
    single = trained(path, tmp_path / "single").reported[-1].metrics
    (several,), *_ = on_ranks(metrics_of_ranks, 3, path, tmp_path / "server", [{"strategy": "parameter_server"}])
    assert several["train_loss"] == pytest.approx(single["train_loss"], rel=1e-5)


UNUSED = """\
class Tanh(nn.Tanh):
    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(2, 2)


class Rows"""


@pytest.mark.parametrize(
    "changes",
    [(), (FROZEN,), (("nn.Tanh()", "Tanh()"), ("class Rows", UNUSED))],
    ids=["all trained", "frozen", "unused"],
)
def test_it_goes_on_from_its_checkpoint_as_if_it_had_not_stopped(
    tmp_path: Path, name: str, changes: tuple[tuple[str, str], ...]
) -> None:
    path = written(tmp_path, name, *changes)
    whole = trained(path, tmp_path / "whole", epochs=2)
    trainable = load_trainable(path)
    data, answers = trainable.locate_data(Data()), iter([False])
    (tmp_path / "part").mkdir()
    trainable.train(CONFIG, LocalWorker(tmp_path / "part", 2, data, listener=lambda m: next(answers)))
    rest = trained(path, tmp_path / "part", epochs=2)
    assert rest.reported[-1].metrics["val_loss"] == whole.reported[-1].metrics["val_loss"]


def test_what_augment_draws_with_numpy_or_python_goes_on_as_if_it_had_not_stopped(tmp_path: Path, name: str) -> None:
    drawn = "batch[0] * np.random.beta(1, 1) + random.random(), batch[1]"
    augment = f"\n\ndef augment(batch):\n    return {drawn}\n\n\ndef loss("
    path = written(
        tmp_path,
        name,
        ("\n\ndef loss(", augment),
        ("import torch\n", "import random\n\nimport numpy as np\nimport torch\n"),
    )
    whole = trained(path, tmp_path / "whole", epochs=3)
    trainable, answers = load_trainable(path), iter([False])
    (tmp_path / "part").mkdir()
    data = trainable.locate_data(Data())
    trainable.train(CONFIG, LocalWorker(tmp_path / "part", 3, data, listener=lambda m: next(answers)))
    rest = trained(path, tmp_path / "part", epochs=3)
    assert rest.reported[-1].metrics["val_loss"] == whole.reported[-1].metrics["val_loss"]


def test_settings_of_the_files_top_level_hold_for_all_of_its_trials(tmp_path: Path, name: str) -> None:
    seen = "print(torch.get_float32_matmul_precision()); return nn.Sequential("
    path = written(
        tmp_path, name, ("UNIT", 'torch.set_float32_matmul_precision("high")\n\nUNIT'), ("return nn.Sequential(", seen)
    )
    before = torch.get_float32_matmul_precision()
    try:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            for number in range(2):
                trained(path, tmp_path / f"{number}", epochs=1)
        assert set(printed.getvalue().split()) == {"high"}
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_network_without_shapes_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, ("nn.Linear(4, hidden)", "nn.LazyLinear(hidden)"))
    with pytest.raises(OwnCodeError, match=r"0\.weight has no shape yet"):
        trained(path, tmp_path / "trial")


def test_a_batch_that_is_no_pair_is_refused(tmp_path: Path, name: str) -> None:
    collate = '\n\ndef collate(samples):\n    return {"x": torch.zeros(8, 4), "y": torch.zeros(8, 1)}\n\n\ndef loss('
    path = written(tmp_path, name, ("\n\ndef loss(", collate))
    with pytest.raises((DataError, OwnCodeError), match="a batch is a dict, expected a pair of inputs and targets"):
        trained(path, tmp_path / "trial")


def test_a_checkpoint_of_another_version_of_the_file_is_not_continued(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "trial"
    before = trained(written(tmp_path, name), folder, epochs=1).reported[0]
    other = written(tmp_path, f"other_{name}", ("nn.Tanh()", "nn.ReLU()"))
    again = trained(other, folder, epochs=2).reported
    assert [m.epoch for m in again] == [1, 2]
    assert again[0].metrics["val_loss"] != before.metrics["val_loss"]  # trained, not reported again
    assert (folder / checkpoint.FILE_NAME).exists()


def test_blocks_make_a_chain_of_a_network(tmp_path: Path, name: str) -> None:
    chain = "class Two(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    chain += "        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)\n    def forward(self, x):\n"
    chain += "        return self.b(self.a(x))\n\n\ndef blocks(network):\n"
    chain += "    return [network.a, network.b]\n\n\ndef network("
    body = "return nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Dropout(0.1), nn.Linear(hidden, 1))"
    path = written(tmp_path, name, ("def network(", chain), (body, "return Two()"))
    (several,), *_ = on_ranks(metrics_of_ranks, 2, path, tmp_path / "trial", [{"strategy": "pipeline"}])
    assert math.isfinite(several["val_loss"])


@pytest.mark.parametrize(
    ("module", "changed", "modes"),
    [
        ("nn.Linear(hidden, 1))", "nn.Linear(hidden, 1)).eval()", [True] * 5),  # as a library's from_pretrained
        ("nn.Dropout(0.1)", "nn.Dropout(0.1).eval()", [True, True, True, False, True]),
    ],
)
def test_a_network_trains_in_training_mode_but_for_modules_that_it_froze(
    tmp_path: Path, name: str, module: str, changed: str, modes: list[bool]
) -> None:
    workload = OwnFile(written(tmp_path, name, (module, changed)))
    settings = OwnTrainable(tmp_path / name).settings()
    model = workload.network(settings, workload.sample_shape(settings, Data()))
    assert [module.training for module in model.modules()] == modes


def test_an_example_has_the_values_of_a_sample_which_invented_numbers_may_not_have(tmp_path: Path, name: str) -> None:
    large = ("self.x = torch.randn(", "self.x = 5 + torch.rand(")
    layer = "class Above(nn.Module):\n    def forward(self, x):\n        assert x.min() > 4\n        return x\n\n\n"
    only_above = (NETWORK, NETWORK.replace("nn.Linear(4, hidden)", "Above(), nn.Linear(4, hidden)"))
    path = written(tmp_path, name, large, ("def network", layer + "def network"), only_above)
    assert training_cost(OwnTrainable(Path(path)).settings(batch_size=8), Data()).samples_per_second > 0


CONSTANTS = {
    "of the loss": (
        "return nn.functional.mse_loss(outputs, targets)",
        "return nn.functional.mse_loss(outputs * ONE, targets)",
    ),
    "of the network": (
        "nn.Sequential(nn.Linear(4, hidden)",
        "nn.Sequential(Times(lambda: ONE), nn.Linear(4, hidden)",
    ),
    "in an lru_cache": ("nn.Sequential(nn.Linear(4, hidden)", "nn.Sequential(Times(cached), nn.Linear(4, hidden)"),
    "in a dictionary": ("nn.Sequential(nn.Linear(4, hidden)", "nn.Sequential(Times(kept), nn.Linear(4, hidden)"),
}
HELPERS = """
import functools
ONE = torch.ones(1)
KEPT = {}


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor()


@functools.lru_cache
def cached():
    return torch.linspace(1, 2, 4)


def kept():
    if 4 not in KEPT:
        KEPT[4] = torch.linspace(1, 2, 4)
    return KEPT[4]


def network("""


@pytest.mark.parametrize("constant", CONSTANTS)
def test_tensors_that_a_file_keeps_beside_its_network_do_not_disturb_the_training(
    tmp_path: Path, name: str, constant: str
) -> None:
    path = written(tmp_path, name, CONSTANTS[constant], ("\n\ndef network(", HELPERS))
    words = ["--trainable", path, "--folder", f"{tmp_path / 'trial'}", "batch_size=8", "threads=1"]
    assert train.main(words) == 0


def test_the_test_is_of_the_network_that_was_trained(tmp_path: Path, name: str) -> None:
    """Also where a file draws more than what its weights are."""
    drawn = ("return nn.Sequential(", "order = torch.randperm(4).tolist()\n    return nn.Sequential(Order(order), ")
    layer = """class Order(nn.Module):
    def __init__(self, order):
        super().__init__()
        self.order = order

    def forward(self, x):
        return x[:, self.order]


def network("""
    same = ('"validation": 1, "test": 2', '"validation": 1, "test": 1')
    uneven = ("self.x.sum(1, keepdim=True)", "self.x[:, :1] * 3 - self.x[:, 1:2]")
    exact = (" + 0.1 * torch.randn(4)", "")
    path = written(tmp_path, name, drawn, ("def network(", layer), same, uneven, exact)
    worker = trained(path, tmp_path / "trial", epochs=3)
    found = load_trainable(path).test({**CONFIG}, worker)
    assert found["test_loss"] == pytest.approx(worker.reported[-1].metrics["val_loss"], rel=1e-5)


def test_weights_of_four_axes_alone_have_the_memory_format(tmp_path: Path, name: str) -> None:
    convolutions = "return nn.Sequential(nn.Conv2d(2, 2, 3), nn.Conv3d(2, 2, 3))"
    settings = OwnTrainable(Path(written(tmp_path, name, (NETWORK, convolutions)))).settings()
    shape = workload_of(settings).sample_shape(settings, Data())
    weights = dict(build.network(settings, shape, torch.device("cpu")).named_parameters())
    assert weights["0.weight"].is_contiguous(memory_format=torch.channels_last)
    assert weights["1.weight"].is_contiguous()


def test_augment_changes_training_batches_alone(tmp_path: Path, name: str) -> None:
    augment = "def augment(batch):\n    x, y = batch\n    return x * 0, y\n\n\ndef loss("
    quiet = (" + 0.1 * torch.randn(4)", "")
    plain = trained(written(tmp_path, f"plain_{name}", quiet), tmp_path / "plain", epochs=6).reported[-1].metrics
    blind = trained(written(tmp_path, name, quiet, ("def loss(", augment)), tmp_path / "blind", epochs=6)
    assert blind.reported[-1].metrics["train_loss"] > 1.5 * plain["train_loss"]


def test_inputs_may_be_nested_and_put_together_by_the_file(tmp_path: Path, name: str) -> None:
    nested = ("return self.x[i] + 0.1 * torch.randn(4), self.y[i]", 'return {"x": self.x[i], "n": i}, self.y[i]')
    network = ("def network(hidden):\n    return nn.Sequential(", "def network(hidden):\n    return Nested(")
    module = (
        'class Nested(nn.Sequential):\n    def forward(self, batch):\n        return super().forward(batch["x"])\n\n\n'
    )
    still = ("nn.Dropout(0.1)", "nn.Identity()")
    path = written(tmp_path, name, nested, network, still, ("class Rows", f"{module}class Rows"))
    whole = trained(path, tmp_path / "whole", num_workers=1).reported[-1].metrics
    assert math.isfinite(whole["val_loss"])
    parts = trained(path, tmp_path / "parts", accumulation_steps=3).reported[-1].metrics
    assert [parts[key] for key in ("train_loss", "val_loss")] == pytest.approx(
        [whole[key] for key in ("train_loss", "val_loss")], rel=1e-5
    )


BOXES = """\
def collate(samples):  # two targets for each sample, one after the other, as boxes of pictures
    x, y = torch.utils.data.default_collate(samples)
    return {"rows": x}, torch.cat([y, y])


class Rows"""


@pytest.mark.usefixtures("short_probes")
def test_the_number_of_targets_changes_neither_the_loss_nor_what_is_measured(tmp_path: Path, name: str) -> None:
    network = ("return nn.Sequential(", "return Named(")
    named = (
        'class Named(nn.Sequential):\n    def forward(self, batch):\n        return super().forward(batch["rows"])\n'
    )
    one = (LOSS, "return (outputs * 0 + 1).mean()")
    measures = (MEASURES, 'return {"val_loss": outputs * 0 + 1, "val_sign": outputs * 0 + len(targets) / len(outputs)}')
    path = written(tmp_path, name, network, one, measures, ("class Rows", f"{named}\n\n{BOXES}"))
    found = trained(path, tmp_path / "trial").reported[-1].metrics
    assert (found["train_loss"], found["val_loss"], found["val_sign"]) == (1, 1, 2)
    (found,), _ = on_ranks(metrics_of_ranks, 2, path, tmp_path / "ranks", [{"strategy": "ddp"}])
    assert (found["train_loss"], found["val_loss"]) == (1, 1)
    trainable = load_trainable(path)
    trainable.probe(CONFIG, worker := LocalWorker(tmp_path, 1, trainable.locate_data(Data()), Resources(1)))
    assert worker.reported[0].metrics["rows_per_second"] > 0
    with pytest.raises(InfeasibleError, match=r"a row for each of its 8 samples; it has \(8, 4\), \(16, 1\)"):
        trained(path, tmp_path / "parts", accumulation_steps=2)


def test_train_images_limits_the_training_samples(tmp_path: Path, name: str) -> None:
    trainable = load_trainable(written(tmp_path, name))
    need = trainable.estimate(CONFIG, trainable.locate_data(Data(train_images=16)))
    assert need.samples_per_epoch == 16


def test_a_network_that_branches_on_numbers_trains_without_flops_and_memory(tmp_path: Path, name: str) -> None:
    module = "class Branch(nn.Sequential):\n    def forward(self, x):\n"
    module += "        return super().forward(x if x.sum().item() > 0 else -x)\n\n\nclass Rows"
    path = written(tmp_path, name, ("class Rows", module), ("return nn.Sequential(", "return Branch("))
    worker = trained(path, tmp_path / "trial", epochs=12)
    assert "predicted_memory_gib" not in worker.reported[-1].metrics
    assert "teraflops_per_second" not in worker.reported[-1].metrics
    assert load_trainable(path).memory(CONFIG, worker.data, Resources(1)) is None
    assert load_trainable(path).largest_batch(CONFIG, worker.data, Resources(1), 2**30) is None


ITEM = "return self.x[i] + 0.1 * torch.randn(4), self.y[i]"
LOSS = "return nn.functional.mse_loss(outputs, targets)"
MEASURES = 'return {"val_loss": (outputs - targets) ** 2, "val_sign": (outputs * targets > 0).float()}'
NETWORK = "return nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Dropout(0.1), nn.Linear(hidden, 1))"
COMPARED = "val_loss of a sample changes with the other samples of its batch, so that another batch_size gives another"
MISTAKES = {
    "import fails": (
        "import torch\n",
        "import torch, no_such_package\n",
        r"No module named .no_such_package. \(own.*:1\)",
    ),
    "name missing": (
        "return Rows(part)",
        "return Row(part)",
        r"name 'Row' is not defined.* \(own.*\.py:27\)",
    ),
    "no dataset": ("return Rows(part)", "return 5", "returned int, expected samples with a length and an index"),
    "empty": ("return Rows(part)", "return []", r'dataset\("train"\) is empty'),
    "item raises": (ITEM, f"assert i != 7, 'broken'; {ITEM}", r"train sample 7: AssertionError: broken \(own.*:19\)"),
    "no pair": (ITEM, "return self.x[i]", "train sample 0 is a Tensor, expected a pair of input and target"),
    "three": (ITEM, "return 1, 2, 3", "train sample 0 is a tuple of 3, expected a pair"),
    "shapes differ": (
        ITEM,
        "return self.x[i][: 4 - (i == 7)], self.y[i]",
        r"cannot be put together: .* got .*\[3\] at train sample 7",
    ),
    "no tensor": (ITEM, 'return "text", self.y[i]', "expected tensors and numbers"),
    "no module": (NETWORK, "return 5", "network returned int, expected an nn.Module"),
    "wrong width": (NETWORK, "return nn.Linear(5, 1)", "RuntimeError: .*mat1 and mat2 shapes cannot be multiplied"),
    "sparse": (
        NETWORK,
        NETWORK.replace("nn.Tanh()", "nn.Embedding(2, 3, sparse=True)"),
        r"1 has sparse gradients, .*loop",
    ),
    "network raises": (NETWORK, "raise ValueError('no')", r"ValueError: no \(own.*:23\)"),
    "loss no number": (LOSS, "return (outputs - targets) ** 2", r"loss returned shape \(8, 1\), expected a tensor"),
    "loss a float": (LOSS, "return 0.5", "loss returned float, expected a tensor with one number"),
    "loss raises": (LOSS, "return 1 / 0", r"ZeroDivisionError: division by zero \(own.*:31\)"),
    "measure missing": (
        MEASURES,
        'return {"val_loss": outputs}',
        "returned val_loss; METRICS declares val_loss",
    ),
    "measure added": (MEASURES, MEASURES[:-1] + ', "val_x": outputs}', "METRICS declares val_loss, val_sign"),
    "no measures": (MEASURES, "return outputs", "measures returned Tensor; METRICS declares"),
    "measures broadcast": (
        MEASURES,
        MEASURES.replace("(outputs - targets) ** 2", "(outputs - targets[:, 0]) ** 2"),
        r"val_loss has shape \((\d), \1\) for \1 samples, expected \(\1,\) or .*squeeze the outputs",
    ),
    "measures reduced": (
        MEASURES,
        MEASURES.replace("(outputs - targets) ** 2", "(outputs - targets).square().mean().sqrt()"),
        r"val_loss has shape \(\) for (\d) samples, expected \(\1,\) or .*not their mean",
    ),
    "measures by column": (
        MEASURES,
        MEASURES.replace("(outputs - targets) ** 2", "(outputs - targets).square().mean(0)"),
        r"val_loss has shape \(1,\) for (\d) samples, expected \(\1,\) or .*not their mean",
    ),
    "values that compare samples": (
        MEASURES,
        MEASURES.replace("(outputs - targets) ** 2", "(outputs - targets.mean()) ** 2"),
        COMPARED,
    ),
    "measures divided by the number of samples": (
        MEASURES,
        MEASURES.replace("(outputs - targets) ** 2", "(outputs - targets) ** 2 / len(targets)"),
        COMPARED,
    ),
    "exits": (NETWORK, "raise SystemExit(3)", r"called sys.exit\(3\) \(own.*:23\); what the file does when it is run"),
    "exits at import": ("import torch\n", "import torch, sys; sys.exit(0)\n", r"called sys.exit\(0\)"),
    "not a number": (LOSS, LOSS + " * float('nan')", "the training loss is nan in epoch 1 from step 1 of 6 on"),
    "validation raises": (MEASURES, "raise KeyError('x')", r"KeyError: 'x' \(own.*:35\)"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_mistake_is_one_line_with_the_users_file_and_line(tmp_path: Path, name: str, mistake: str) -> None:
    old, new, message = MISTAKES[mistake]
    path = written(tmp_path, name, (old, new))
    with pytest.raises((OwnCodeError, DataError, FloatingPointError), match=message) as raised:
        trained(path, tmp_path / "trial")
    assert "\n" not in str(raised.value)


def test_measures_that_compare_samples_are_found_after_batches_too_small_to_tell(tmp_path: Path, name: str) -> None:
    old, new, message = MISTAKES["values that compare samples"]
    path = written(tmp_path, name, (old, new))
    trained(path, tmp_path / "pairs", epochs=1, batch_size=2)
    with pytest.raises(OwnCodeError, match=message):
        trained(path, tmp_path / "trial", epochs=1)


SQUEEZED = (ITEM, "return self.x[i], self.y[i][0]"), (MEASURES, MEASURES.replace("outputs", "outputs[:, 0]"))


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_loss_that_compares_each_output_with_all_targets_is_a_mistake(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, *SQUEEZED)
    with pytest.raises(OwnCodeError, match=r"loss: outputs \(8, 1\) and targets \(8,\) broadcast against each other"):
        trained(path, tmp_path / "trial")


@pytest.mark.parametrize(
    "loss",
    [
        "return nn.functional.mse_loss(outputs[:, 0], targets)",
        "return outputs.square().mean()",  # of the outputs alone
        "return (outputs.mean() - targets[0]).square()",
        "return nn.functional.binary_cross_entropy_with_logits(outputs, (targets > 0).float()[:, None])",
        "return nn.functional.mse_loss(outputs[:, 0], targets + 200_000)",
        "return nn.functional.l1_loss(outputs[:, 0].sigmoid(), targets.sigmoid())",
        "return nn.functional.l1_loss(outputs[:, 0] + 20, targets)",
        "return nn.functional.smooth_l1_loss(outputs[:, 0] + 20, targets)",
        "return nn.functional.binary_cross_entropy(outputs.sigmoid()[:, 0], (targets > 0).float())",
    ],
)
def test_a_loss_that_squeezes_or_needs_no_pairs_is_none(tmp_path: Path, name: str, loss: str) -> None:
    trained(written(tmp_path, name, *SQUEEZED, (LOSS, loss)), tmp_path / "trial")


def test_a_network_whose_first_outputs_are_alike_has_a_right_loss(tmp_path: Path, name: str) -> None:
    zeros = "nn.Linear(hidden, 1).apply(lambda last: [nn.init.zeros_(each) for each in last.parameters()])"
    right = LOSS, "return nn.functional.mse_loss(outputs[:, 0], targets)"
    path = written(tmp_path, name, *SQUEEZED, right, ("nn.Linear(hidden, 1)", zeros))
    for number in range(2):
        trained(path, tmp_path / f"{number}")


def test_a_dataset_that_needs_a_folder_says_so_where_there_is_none(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, ("return Rows(part)", "return Rows(part + '/' + root)"))
    with pytest.raises(DataError, match=r"TypeError: .* \(own.*:27\); root is None: data.root or --root names"):
        trained(path, tmp_path / "trial")


def test_a_view_that_channels_last_does_not_allow_is_an_error_that_names_the_setting(tmp_path: Path, name: str) -> None:
    image = "return nn.Sequential(nn.Unflatten(1, (2, 1, 2)), nn.Conv2d(2, 2, (1, 2), padding=1))"
    path = written(tmp_path, name, (NETWORK, image), (LOSS, "return outputs.view(-1, 18).mean()"))
    error = r"view size is not compatible.* \(own.*:31\); memory_format=contiguous keeps PyTorch's order"
    with pytest.raises(OwnCodeError, match=error):
        trained(path, tmp_path / "trial")


def probe_fails_on_rank(rank: int, world_size: int, path: str, folder: Path, config: dict[str, Any]) -> bool:
    """Whether the probe finds the measures wrong on this rank; a server has no samples to measure."""
    trainable = load_trainable(path)
    worker = LocalWorker(folder, 1, trainable.locate_data(Data()), Resources(1), rank, world_size)
    try:
        trainable.probe({**CONFIG, **config}, worker)
    except OwnCodeError as error:
        return "squeeze the outputs" in str(error)
    return False


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "ranks"), [("ddp", 2), ("fsdp", 2), ("pipeline", 2), ("parameter_server", 3)])
def test_a_probe_of_any_strategy_finds_wrong_measures(tmp_path: Path, name: str, strategy: str, ranks: int) -> None:
    old, new, _ = MISTAKES["measures broadcast"]
    path = written(tmp_path, name, (old, new))
    config = {"strategy": strategy, "num_microbatches": 2}
    assert any(on_ranks(probe_fails_on_rank, ranks, path, tmp_path, config))


# without the values that compare samples: the mean of two targets may be that of three in the last batch of a probe
WRONG_MEASURES = [mistake for mistake in MISTAKES if "measure" in mistake]


@pytest.mark.parametrize("mistake", WRONG_MEASURES)
@pytest.mark.usefixtures("short_probes")
def test_a_probe_finds_wrong_measures_before_an_epoch_is_trained(tmp_path: Path, name: str, mistake: str) -> None:
    old, new, message = MISTAKES[mistake]
    trainable = load_trainable(written(tmp_path, name, (old, new)))
    worker = LocalWorker(tmp_path, 1, trainable.locate_data(Data()), Resources(1))
    with pytest.raises(OwnCodeError, match=message):
        trainable.probe(CONFIG, worker)
    assert not worker.reported


@pytest.mark.parametrize(
    "values",
    [
        "(outputs - targets).squeeze() ** 2",
        "((outputs - targets) ** 2).flatten()",
        "((outputs - targets) ** 2)[targets > 0]",  # as of texts without their padding
        "((outputs - targets) ** 2).expand(-1, 8)",  # as many as there are samples
        "outputs.square().squeeze().cpu().numpy()",
    ],
)
@pytest.mark.parametrize("batch_size", [6, 8])  # the last batch of 19 samples has one, or three
def test_a_sample_may_have_one_value_or_several_or_none(
    tmp_path: Path, name: str, values: str, batch_size: int
) -> None:
    path = written(tmp_path, name, (MEASURES, MEASURES.replace("(outputs - targets) ** 2", values)))
    found = trained(path, tmp_path / "trial", epochs=1, batch_size=batch_size).reported[-1].metrics
    assert math.isfinite(found["val_loss"])


@pytest.mark.parametrize("mistake", ["item raises", "shapes differ"])
def test_a_mistake_in_a_loader_process_is_one_line_too(tmp_path: Path, name: str, mistake: str) -> None:
    old, new, message = MISTAKES[mistake]
    path = written(tmp_path, name, (old, new))
    with pytest.raises(DataError, match=message) as raised:
        trained(path, tmp_path / "trial", num_workers=1)
    assert "\n" not in str(raised.value)


def test_random_state_outside_the_dataset_is_untouched(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    trained(path, tmp_path / "trial")
    assert torch.equal(before, torch.random.get_rng_state())


def test_missing_data_are_named(tmp_path: Path, name: str) -> None:
    for root in (str(tmp_path / "none"), "~nobody-here/data"):
        with pytest.raises(DataError, match=rf"data\.root .*{root}: no such file or folder"):
            load_trainable(written(tmp_path, name)).locate_data(Data(root=root))


def test_the_description_of_the_data_changes_with_the_data(tmp_path: Path, name: str) -> None:
    trainable = load_trainable(written(tmp_path, name))
    (root := tmp_path / "data").mkdir()
    (root / "a").write_text("1")
    data = trainable.locate_data(Data(root=str(root)))
    before = trainable.describe_data(data)
    assert str(tmp_path) not in before
    (root / "b").write_text("22")
    assert trainable.describe_data(data) != before


def test_results_and_code_in_the_data_folder_are_no_data(tmp_path: Path, name: str) -> None:
    trainable = load_trainable(written(tmp_path, name))
    (tmp_path / "rows.csv").write_text("1,2")
    data = trainable.locate_data(Data(root=str(tmp_path)))
    before = trainable.describe_data(data)
    assert "1 file of 3 bytes" in before
    files = ("results/a/journal.jsonl", "results/a/trained/t1/curves.csv", "other/training.lock", "other/config.json")
    for file in (*files, ".git/index", "part/__pycache__/a.pyc", ".hidden", "space.yaml", "helper.py", "run.log"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("written meanwhile")
    assert trainable.describe_data(data) == before
    (tmp_path / "part" / "labels.yaml").write_text("1")
    assert "2 files of 4 bytes" in trainable.describe_data(data)


def test_a_full_training_into_the_data_folder_goes_on_there(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name)
    arguments = ["--trainable", str(path), "--root", str(tmp_path), "--folder", str(tmp_path / "full"), "--epochs", "1"]
    arguments += ["batch_size=8", "threads=1"]
    assert train.main(arguments) == 0
    assert train.main(arguments) == 0


def test_a_full_training_warns_of_data_of_another_size_but_not_of_another_date(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, rows = written(tmp_path, name), tmp_path / "data" / "rows.csv"
    rows.parent.mkdir()
    rows.write_text("1,2")
    arguments = ["--trainable", str(path), "--root", str(rows.parent), "--folder", str(tmp_path / "full")]
    arguments += ["--epochs", "1", "batch_size=8", "threads=1"]
    assert train.main(arguments) == 0
    os.utime(rows, (1e9, 1e9))
    assert train.main(arguments) == 0
    assert "other files" not in capsys.readouterr().out
    rows.write_text("1,2,3")
    assert train.main(arguments) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert re.search(r'other files than before: ".* 1 file of 3 bytes", now ".* 1 file of 5 bytes"', output)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes are not forked")
@pytest.mark.parametrize("strategy", ["single", "ddp"])
def test_loader_processes_of_any_rank_share_its_memory_as_predicted(
    tmp_path: Path, name: str, strategy: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ranks are spawned; loaders that were spawned by them would have 0.3 GiB of libraries each."""
    path = written(tmp_path, name, ("return Rows(part)", "return torch.utils.data.ConcatDataset([Rows(part)] * 200)"))
    found = []
    for workers in (0, 2):
        folder = f"{tmp_path / str(workers)}"
        settings = [f"strategy={strategy}", f"num_workers={workers}", "batch_size=8", "precision=fp32"]
        assert train.main(["--trainable", path, "--probe", "--json", "--folder", folder, *settings]) == 0
        lines = capfd.readouterr().out.splitlines()
        found.append(next(json.loads(line)["metrics"] for line in lines if line.startswith('{"epoch"')))
    measured, predicted = (found[1][m] - found[0][m] for m in ("peak_memory_gib", "predicted_memory_gib"))
    assert predicted - measured < 0.15 * found[1]["peak_memory_gib"]
    assert measured < 0.3


def test_evaluation_opens_its_samples_before_the_first_batch_as_the_ranks_meet_in_between(
    tmp_path: Path, name: str
) -> None:
    workload = OwnFile(path := written(tmp_path, name))
    settings = OwnTrainable(Path(path)).settings(batch_size=8)
    batches = workload.evaluation_batches(settings, Data(), "test", torch.device("cpu"), 0, 1)
    assert ("test", None) in workload._datasets
    assert next(batches)


def test_parts_that_are_drawn_at_random_are_parts_of_one_division(tmp_path: Path, name: str) -> None:
    """Else validation samples would be trained on, and other ones in each trial."""
    text = (
        "import random\n\nimport numpy as np\nimport torch\n\n"
        + """
PARAMETERS = {}
METRICS = {"val_loss": "1"}


def network():
    return torch.nn.Linear(1, 1)


def loss(outputs, targets):
    return (outputs - targets).square().mean()


def measures(outputs, targets):
    return {"val_loss": (outputs - targets).square().flatten(1).mean(1)}


def dataset(part, root):
    order = torch.randperm(60).tolist() + np.random.permutation(3).tolist() + [random.random()]
    places = {"train": order[:40], "validation": order[40:50], "test": order[50:60]}[part]
    with open(DRAWN, "a") as file:
        file.write(f"{part}: {order}\\n")
    return [(torch.tensor([float(place)]), torch.tensor([0.0])) for place in places]
""".replace("DRAWN", repr(str(tmp_path / "drawn")))
    )
    (tmp_path / name).write_text(text)
    for number in range(2):
        torch.manual_seed(number)
        trained(str(tmp_path / name), tmp_path / f"trial{number}")
    orders = {line.partition(": ")[2] for line in (tmp_path / "drawn").read_text().splitlines()}
    assert len(orders) == 1


def test_what_augment_makes_of_targets_is_not_what_measures_is_tried_with(tmp_path: Path, name: str) -> None:
    augment = "def augment(batch):\n    x, y = batch\n    return x, torch.cat([y, y, y], 1)\n\n\ndef loss("
    first = ("mse_loss(outputs, targets)", "mse_loss(outputs, targets[:, :1])")
    measures = ("(outputs - targets) ** 2", "(outputs - targets.view(len(outputs), 1)) ** 2")
    trainable = load_trainable(written(tmp_path, name, ("def loss(", augment), first, measures))
    worker = LocalWorker(tmp_path, 1, trainable.locate_data(Data()), Resources(1))
    trainable.probe(CONFIG, worker)
    assert worker.reported


def test_all_ranks_start_with_the_weights_of_rank_0(tmp_path: Path, name: str) -> None:
    """Of a file that draws others in each process; DDP hands out those of rank 0 by itself."""
    changes = (
        ("def network(hidden):\n", "def network(hidden):\n    torch.manual_seed(torch.distributed.get_rank())\n"),
        ("nn.Dropout(0.1)", "nn.Identity()"),
    )
    path = written(tmp_path, name, *changes)
    configs = [{"strategy": strategy} for strategy in ("ddp", "ring_allreduce")]
    ((ddp, ring), *_) = on_ranks(metrics_of_ranks, 2, path, tmp_path / "trial", configs)
    assert ring["train_loss"] == pytest.approx(ddp["train_loss"], rel=1e-5)
    assert ring["val_loss"] == pytest.approx(ddp["val_loss"], rel=1e-5)
