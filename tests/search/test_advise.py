"""Measured advice: which neighbours are tried, how they are compared, and what is said."""

import itertools
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from search.advise import __main__ as command
from search.advise.answer import as_json, as_text
from search.advise.comparison import MOST_AT_A_TIME, Comparisons
from search.front.differences import FEWEST_ROUNDS
from search.front.neighbour import Neighbour, gains, updated
from search.front.settings_to_try import neighbours
from search.train.turn_group import TurnError, TurnGroup
from tests.trainables.own_files import LOOP, written
from trainables.contract import Bound, Layout, Resources, load_trainable

CORES = Resources(2)
ONE = Layout(1, 2, 0)
TWO = Layout(2, 1, 0)
numbers = itertools.count()


def whole(**changed: Any) -> dict[str, Any]:
    parameters = load_trainable("vgg19_cifar10").PARAMETERS or {}
    return {**{name: row.default for name, row in parameters.items()}, **changed}


def of_vgg(resources: Resources = CORES, bound_by: Bound | None = None, **changed: Any) -> list[Neighbour]:
    return neighbours(load_trainable("vgg19_cifar10"), whole(**changed), resources, {}, bound_by)


def values(changes: list[Neighbour], name: str) -> list[Any]:
    return [change.new for change in changes if change.parameter == name]


def test_neighbours_differ_in_one_setting_that_bears_on_the_rate() -> None:
    found = of_vgg(batch_size=128, precision="fp32", loader="workers")
    assert values(found, "batch_size") == [256, 64]
    assert values(found, "num_workers") == [1, 2]
    assert values(found, "memory_format") == ["contiguous"]
    assert values(found, "threads") == [1]
    assert {"learning_rate", "trace_steps", "width", "seed", "schedule", "head"}.isdisjoint(c.parameter for c in found)
    assert all(each.new != each.old for each in found)


def test_what_cannot_run_here_and_what_is_the_same_is_not_tried() -> None:
    found = of_vgg()
    assert values(found, "cuda_graphs") == []  # `auto` is false without a GPU
    assert "memory" not in values(found, "loader")
    assert values(of_vgg(loader="workers"), "loader") == ["memory"]  # and not `auto`, which means the same
    assert values(of_vgg(loader="memory"), "num_workers") == []  # that loader has no processes
    assert "data_parallel" not in values(found, "strategy")
    assert "device" not in values(found, "loader")
    automatic = load_trainable("vgg19_cifar10").meanings_of_auto(Resources(2))["precision"]  # type: ignore[attr-defined]
    assert automatic not in values(found, "precision")
    assert "auto" not in values(of_vgg(precision=automatic), "precision")
    assert values(of_vgg(Resources(1)), "strategy") == []


def test_what_cannot_matter_to_a_users_network_or_be_done_with_it_is_not_tried(tmp_path: Path) -> None:
    def ruled_out(*changes: tuple[str, str]) -> set[str]:
        path = written(tmp_path, f"advised_{next(numbers)}.py", *changes)
        return {*command._ruled_out(command._of_configuration(command._parser().parse_args(["--trainable", path])))}

    chain = (
        "class Chain(nn.Sequential):\n    def forward(self, x):\n        return super().forward(x)\n\n\ndef network("
    )
    assert ruled_out() == {"memory_format"}
    other = ("nn.Tanh(),", "nn.Unflatten(1, (1, 1, -1)), nn.Conv2d(1, 1, 1), nn.Flatten(),")
    assert ruled_out(other, ("def network(", chain), ("return nn.Sequential(", "return Chain(")) == {
        "strategy=pipeline"
    }
    found = neighbours(
        load_trainable("vgg19_cifar10"), whole(), CORES, {}, None, ["memory_format", "strategy=pipeline"]
    )
    assert not values(found, "memory_format")
    assert "ddp" in values(found, "strategy")
    assert "pipeline" not in values(found, "strategy")


def test_settings_of_other_strategies_are_not_tried() -> None:
    assert not values(of_vgg(), "num_microbatches")
    assert values(of_vgg(strategy="pipeline", num_microbatches=4), "num_microbatches") == [8, 2]


def test_the_promising_come_first_and_other_layouts_last() -> None:
    found = of_vgg(bound_by="input", loader="workers")
    assert [each.parameter for each in found[:3]] == ["loader", "num_workers", "num_workers"]
    assert [each.parameter for each in found if each.layout == TWO][-1] == "strategy"
    assert found[-1].changed == {"compile": True} or not any(each.parameter == "compile" for each in found)
    learned = [each.changes_learning for each in of_vgg() if each.layout == ONE and not each.is_slow_to_start]
    assert learned == sorted(learned)


def test_values_of_the_space_are_neighbours_too() -> None:
    trainable = load_trainable("vgg19_cifar10")
    found = neighbours(trainable, whole(batch_size=100), Resources(2), {"batch_size": [64, 96, 100, 110, 512]})
    assert values(found, "batch_size") == [200, 50, 110, 96]
    found = neighbours(trainable, whole(batch_size=100), Resources(2), {"batch_size": [64]})
    assert values(found, "batch_size") == [200, 50, 64]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Groups:
    """Processes whose rates are known: by the value of a setting, with some noise, each round taking a second."""

    def __init__(
        self, clock: Clock, noise: float = 0.01, fails: dict[str, int | None] | None = None, start_seconds: float = 0.0
    ) -> None:
        self.clock, self.noise, self.fails, self.start_seconds = clock, noise, fails or {}, start_seconds
        self.started: list[list[dict[str, Any]]] = []
        self.open = 0

    def __call__(self, arguments: list[str], changes: list[dict[str, Any]]) -> "Fake":
        for place, change in enumerate(changes):
            if (name := next(iter(change), "")) in self.fails:
                raise TurnError(f"{name} is not there", None if self.fails[name] is None else place)
        self.clock.now += self.start_seconds
        self.started.append(changes)
        self.open += 1
        return Fake(self, changes)


class Fake:
    def __init__(self, groups: Groups, changes: list[dict[str, Any]]) -> None:
        self.groups, self.changes = groups, changes

    def round(self) -> list[float]:
        self.groups.clock.now += 1
        if any("dies" in change for change in self.changes):
            raise TurnError("was killed")
        slow = 0.5 if self.groups.clock.now % 20 < 7 else 1.0  # the machine
        return [slow * 100 * next(iter(c.values()), 1.0) * math.exp(self.noise()) for c in self.changes]

    def noise(self) -> float:
        return random.gauss(0.0, self.groups.noise)

    def close(self) -> None:
        self.groups.open -= 1


def change(name: str, ratio: float, layout: Layout = ONE) -> Neighbour:
    return Neighbour(name, 1.0, ratio, layout=layout)


def tried(seconds: float, *changes: Neighbour, **keys: Any) -> tuple[dict[str, Neighbour], Groups]:
    random.seed(0)
    clock = Clock()
    groups = Groups(clock, **{name: keys.pop(name) for name in ("noise", "fails", "start_seconds") if name in keys})
    comparisons = Comparisons([], ONE, seconds, start_group=groups, clock=clock, **keys)  # type: ignore[arg-type]
    found = comparisons.run(changes)
    assert groups.open == 0
    return {each.parameter: each for each in found}, groups


def test_what_took_all_the_time_to_start_is_measured_all_the_same() -> None:
    found, _ = tried(60, change("faster", 1.2), change("slower", 0.7), start_seconds=200.0)
    assert found["faster"].estimate is not None
    assert found["slower"].estimate is not None


def measured(ratio: float, again: bool = False) -> Neighbour:
    """A change with rounds that scatter by a percent."""
    rounds = [(100 * ratio * (1 + 0.01 * (-1) ** number), 100.0) for number in range(20)]
    return Neighbour("threads", 1, 2, layout=ONE, rounds=rounds, measured_again=again)


def test_what_differs_from_one_time_to_another_enters_the_interval() -> None:
    steady, unsteady = measured(1.4), measured(1.6)
    key = ("threads", 2)
    (found,) = updated([steady], {key: measured(1.4, again=True)}, 0.0)
    assert found.estimate is not None
    alone = measured(1.4).estimate
    assert alone is not None
    assert found.estimate.deviation == alone.deviation
    (found,) = updated([steady], {key: measured(1.4, again=True)}, 0.12)
    assert found.estimate is not None
    assert found.estimate.deviation == pytest.approx(math.hypot(alone.deviation, 0.04))
    (found,) = updated([unsteady], {key: measured(1.4, again=True)}, 0.0)
    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(math.log(1.4), abs=0.001)
    assert found.estimate.low < math.log(1.25) < math.log(1.6) < found.estimate.high
    (found,) = updated([steady], {}, 0.12)  # measured once
    assert found.estimate is not None
    assert found.estimate.deviation == pytest.approx(math.hypot(alone.deviation, 0.04))


def test_the_slower_a_step_the_fewer_are_tried_at_a_time() -> None:
    changes = [change(f"change {number}", 1.0) for number in range(12)]
    for step_seconds, at_first in ((0.0, 10), (0.3, 5), (5.0, 3)):
        _, groups = tried(120, *changes, step_seconds=step_seconds)
        assert len(groups.started[0]) == 1 + at_first, step_seconds


def test_a_gain_is_measured_again_and_recommended_and_nothing_else_is() -> None:
    found, groups = tried(
        60, change("faster", 1.2), change("slower", 0.7), change("equal", 1.0), change("little", 1.02)
    )
    assert [each.parameter for each in gains(list(found.values()))] == ["faster"]
    estimate = found["faster"].estimate
    assert estimate is not None
    assert estimate.ratio[1] < 1.2 < estimate.ratio[2]
    assert found["faster"].measured_again
    assert not found["slower"].measured_again
    assert {"faster": 1.2} in groups.started[1]
    assert {"slower": 0.7} not in groups.started[1]


def test_other_layouts_have_processes_of_their_own_and_the_same_turns() -> None:
    found, groups = tried(60, change("here", 1.0), change("there", 1.3, TWO))
    assert groups.started[:2] == [[{}, {"here": 1.0}], [{"there": 1.3}]]
    assert found["there"].is_gain
    assert len(found["here"].rounds) == FEWEST_ROUNDS


@pytest.mark.parametrize("place", [0, None])
def test_what_cannot_run_says_why_and_the_others_are_measured(place: int | None) -> None:
    """Also where the processes do not say which of the configurations it is."""
    changes = [change("bad", 1.0), change("faster", 1.5), *(change(f"equal{n}", 1.0) for n in range(3))]
    found, _ = tried(100, *changes, fails={"bad": place})
    assert found["bad"].reason == "bad is not there"
    assert found["faster"].is_gain
    assert all(each.reason is None for name, each in found.items() if name != "bad")


def test_a_death_in_between_costs_only_its_own_changes() -> None:
    found, _ = tried(60, change("dies", 1.0, TWO), change("faster", 1.5))
    assert found["dies"].reason == "was killed"
    assert found["faster"].is_gain


def test_an_error_of_the_configuration_itself_is_raised() -> None:
    with pytest.raises(TurnError, match="is not there"):
        tried(60, change("any", 1.0), fails={"": 0})


def test_no_more_are_in_memory_than_fit_and_what_there_is_no_time_for_is_left() -> None:
    def equal() -> list[Neighbour]:
        return [change(f"equal{n}", 1.0) for n in range(12)]

    found, groups = tried(60, *equal(), most_at_a_time=4)
    assert max(map(len, groups.started)) == 5
    assert [bool(each.rounds) for each in found.values()] == [True] * 12
    found, _ = tried(5, *equal(), most_at_a_time=4)
    assert [bool(each.rounds) for each in found.values()] == [True] * 3 + [False] * 9
    assert max(map(len, tried(120, *equal())[1].started)) == MOST_AT_A_TIME + 1


def test_equal_rates_are_seldom_called_a_gain() -> None:
    """30 searches among 10 equal neighbours: the luckiest of them is measured again."""
    wrong = 0
    for seed in range(30):
        clock = Clock()
        random.seed(seed)
        groups = Groups(clock, noise=0.05)
        comparisons = Comparisons([], ONE, 60, start_group=groups, clock=clock)  # type: ignore[arg-type]
        wrong += bool(gains(comparisons.run([change(f"equal{n}", 1.0) for n in range(10)])))
    assert wrong <= 3


def test_the_answer_names_gain_reason_and_the_command_that_goes_on() -> None:
    found, _ = tried(60, change("faster", 1.2), change("bad", 1.0), change("slower", 0.7), fails={"bad": 0})
    text = as_text(list(found.values()), ["python -m search.advise runs/r", "--trial t0007"], {"batch_size": 64})
    assert "Best: faster 1.0 -> 1.2, 1." in text
    assert "python -m search.advise runs/r --trial t0007 batch_size=64 faster=1.2" in text
    assert "bad 1.0 -> 1.0: not possible here: bad is not there" in text
    assert max(map(len, text.splitlines())) <= 80
    rows = json.loads(as_json(list(found.values()), 100.0))["changes"]
    assert [row["parameter"] for row in rows if row["recommended"]] == ["faster"]
    assert rows[1]["rate_ratio"] is None


def test_without_a_gain_it_says_so() -> None:
    found, _ = tried(60, change("slower", 0.7), change("equal", 1.0))
    assert "None of the 2 changes that were measured surely gains more than 3%." in as_text(
        list(found.values()), [], {}
    )
    text = as_text([found["slower"]], [], {})
    assert text.endswith("The one change that was measured does not surely gain more than 3%.")


def test_a_question_mark_is_explained() -> None:
    unsteady = replace(measured(1.0), rounds=[(rate, 100.0) for rate in (2.0, 5000.0) * 10])
    text = " ".join(as_text([unsteady], [], {}).split())
    assert "1.00 ± ?" in text
    assert "A question mark: no interval is known" in text
    assert "A question mark" not in as_text([measured(1.0)], [], {})


def test_without_a_measurement_it_recommends_more_time() -> None:
    assert "Nothing was measured in the time" in as_text([change("any", 1.0)], [], {})


def test_a_table_with_long_changes_fits_80_columns() -> None:
    long = replace(measured(1.3), parameter="memory_format", old="channels_last", new="contiguous")
    text = as_text([long, measured(1.2)], ["python -m search.advise runs/r"], {})
    assert "memory_format channels_last -> contiguous" in text
    assert max(map(len, text.splitlines())) <= 80


SLOW = (
    'PARAMETERS = {"hidden": 8}',
    'PARAMETERS = {"hidden": 8, "nap": {"default": 0.004, "choices": [0.004, 0.0], "affects": "probed"}}',
)


def sleeper(tmp_path: Path) -> str:
    """A training that sleeps in each step unless it is told not to."""
    network = "import time\n\n\nclass Nap(nn.Sequential):\n    def forward(self, x):\n        time.sleep(self.nap)\n"
    network += "        return super().forward(x)\n\n\ndef network(hidden, nap):\n    made = "
    name = f"advised_{next(numbers)}.py"
    return written(
        tmp_path,
        name,
        SLOW,
        ("def network(hidden):\n    return nn.Sequential(", f"{network}Nap("),
        ("\n\n\ndef dataset(", "\n    made.nap = nap\n    return made\n\n\ndef dataset("),
    )


@pytest.mark.slow
def test_advice_on_a_file_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--trainable", sleeper(tmp_path), "--minutes", "0.1", "--only", "nap", "--json", "batch_size=32"]
    assert command.main([*words, "threads=1"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["changes"]
    assert row["recommended"]
    assert row["rate_ratio_low"] > 1.3


@pytest.mark.slow
def test_advice_on_a_loop_of_ones_own_is_measured_in_processes_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nap = '"learning_rate": 0.01, "nap": {"default": 0.004, "choices": [0.004, 0.0], "affects": "probed"}}'
    path = written(
        tmp_path,
        f"advised_{next(numbers)}.py",
        ('"learning_rate": 0.01}', nap),
        ("import torch\n", "import time\n\nimport torch\n"),
        ("            optimizer.zero_grad()\n", '            time.sleep(config["nap"]), optimizer.zero_grad()\n'),
        text=LOOP,
    )
    assert command.main(["--trainable", path, "--minutes", "0.1", "--only", "nap", "--json", "threads=1"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["changes"]
    assert row["recommended"]
    assert row["rate_ratio_low"] > 1.3


@pytest.mark.slow
def test_processes_take_turns_with_several_ranks_and_name_what_cannot_run(tmp_path: Path) -> None:
    arguments = ["--trainable", sleeper(tmp_path), "strategy=ddp", "world_size=2", "batch_size=32"]
    group = TurnGroup(arguments, [{}, {"nap": 0.0}])
    try:
        rounds = [group.round() for _ in range(3)]
    finally:
        group.close()
    assert all(fast > slow > 0 for slow, fast in rounds)
    with pytest.raises(TurnError, match="batch_size 1000000") as caught:
        TurnGroup(arguments, [{}, {"batch_size": 1_000_000}])
    assert caught.value.place == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected the folder of one run"),
        (["nowhere"], "nowhere"),
        (["--trainable", "vgg19_cifar10", "batch_sise=3"], "batch_size"),
        (["--trainable", "vgg19_cifar10", "batch_size"], "expected NAME=VALUE"),
        *(
            (["--trainable", "vgg19_cifar10", "--minutes", minutes], f"--minutes {minutes}: expected a number above 0")
            for minutes in ("0", "nan", "inf")
        ),
        (["--trainable", "vgg19_cifar10", "--trial", "t0001"], "belongs to a run"),
        (["--trainable", "vgg19_cifa"], "vgg19_cifar10"),
        (["--trainable", "replay"], "recorded"),
        (
            ["--trainable", "vgg19_cifar10", "--data", "generated", "--only", "seed"],
            "--only seed: cannot be changed here; there are ",
        ),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("search.advise: ")
    assert error.count("\n") == 1
    assert message in error
