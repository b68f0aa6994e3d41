"""Space files to start from: each must be one that a search takes, and must not change what the file trains."""

import re
import shutil
from pathlib import Path

import pytest

from search.space.parameters import Range
from search.space.parsing import load_space
from search.space.space import Space
from search.space.starting_space import starting_space, values_around, values_to_search
from tests.trainables.own_files import LOOP, written
from trainables.contract import Parameter, load_trainable

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def loaded(path: str, root: str | None = None, **settings: str) -> tuple[str, Space]:
    """The space file of a training file, and the space that is read from it."""
    text = starting_space(load_trainable(path), Path(path).name, root, 32, settings)
    (space := Path(path).with_suffix(".yaml")).write_text(text)
    return text, load_space(space)


def test_the_space_file_searches_what_every_training_has_and_keeps_the_files_own_settings(tmp_path: Path) -> None:
    text, space = loaded(written(tmp_path, "rows.py"))
    assert [o.goal for o in space.objectives] == ["minimize", "maximize"]
    assert set(space.parameters) == {"batch_size", "learning_rate", "num_workers"}
    assert space.fixed == {"hidden": 8}
    assert "# hidden: {values: [4, 8, 16]}" in text


def test_settings_of_the_check_are_kept(tmp_path: Path) -> None:
    _, space = loaded(written(tmp_path, "rows.py"), optimizer="adamw", num_workers="1", hidden="16")
    assert space.fixed == {"optimizer": "adamw", "num_workers": 1, "hidden": 16}
    rates = space.parameters["learning_rate"]
    assert isinstance(rates, Range)
    assert rates.max == 0.01
    assert "num_workers" not in space.parameters


def test_settings_of_a_loop_that_are_not_searched_are_those_of_the_file(tmp_path: Path) -> None:
    more = '"learning_rate": 0.01, "optimizer": "adamw", "name": "true", "dropout": 0.0, "seed": 3, "eps": 1e-8}'
    _, space = loaded(written(tmp_path, "rows.py", ('"learning_rate": 0.01}', more), text=LOOP))
    assert space.fixed == {"optimizer": "adamw", "name": "true", "dropout": 0.0, "seed": 3}
    assert set(space.parameters) == {"batch_size", "hidden", "learning_rate", "eps"}


def test_settings_that_take_no_time_are_said_to_affect_training_alone(tmp_path: Path) -> None:
    _, space = loaded(written(tmp_path, "rows.py", text=LOOP))
    assert space.parameters["learning_rate"].affects == "trained"
    assert space.parameters["hidden"].affects is None


def test_a_guessed_goal_is_said_to_be_one(tmp_path: Path) -> None:
    text, space = loaded(written(tmp_path, "rows.py", ("val_loss", "val_distance")))
    assert space.objectives[0].goal == "minimize"
    assert "a guess by its name" in text
    goal = ('"val_loss": "1"', '"val_loss": {"unit": "1", "goal": "maximize"}')
    text, space = loaded(written(tmp_path, "rows2.py", goal))
    assert space.objectives[0].goal == "maximize"
    assert "guess" not in text


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_space_file_of_every_example_is_one(tmp_path: Path, example: Path) -> None:
    shutil.copy(example, tmp_path)
    trainable = load_trainable(str(tmp_path / example.name))
    text, space = loaded(str(tmp_path / example.name), str(tmp_path))
    defaults = {n: (trainable.PARAMETERS or {})[n].default for n in getattr(trainable, "own_names", ())}
    for name, default in defaults.items():
        searched = space.parameters.get(name)
        assert space.fixed.get(name) == default or (searched is not None and searched.contains(default))
    proposed = [line for line in text.splitlines() if line.startswith("  # ")]
    used = "\n".join(line.replace("  # ", "  ", 1) if line in proposed else line for line in text.splitlines())
    names = [line.split()[1].removesuffix(":") for line in proposed]
    used = "\n".join(line for line in used.splitlines() if "{" in line or line.strip().split(":")[0] not in names)
    used = re.sub(r"fixed:\n(?=\w)", "", used)
    (tmp_path / "used.yaml").write_text(used)
    assert set(load_space(tmp_path / "used.yaml").parameters) == {*space.parameters, *names}


def test_probes_come_first_only_where_they_may_save_time(tmp_path: Path) -> None:
    trainable = load_trainable(written(tmp_path, "rows.py"))
    assert "evaluation" not in starting_space(trainable, "rows.py", None, 32, {})
    assert "\nevaluation: decoupled\n" in starting_space(trainable, "rows.py", None, 32, {}, decoupled=True)


@pytest.mark.parametrize(
    ("name", "parameter", "text"),
    [
        ("dropout", Parameter("float", 0.0, "", low=0.0, high=0.6), "{min: 0.0, max: 0.6}"),
        ("width", Parameter("int", 64, "", low=15.5, high=512), "{min: 16, max: 512, log: true}"),
        (
            "eps",
            Parameter("float", 1e-8, "", low=1e-9, high=1e-5),
            "{min: 1e-09, max: 1e-05, log: true, affects: trained}",
        ),
        ("width", Parameter("int", 64, "", low=16), "{values: [32, 64, 128]}"),
        ("seed", Parameter("int", 1, "", low=0, high=9), ""),
    ],
)
def test_a_declared_range_is_what_is_searched(name: str, parameter: Parameter, text: str) -> None:
    assert values_to_search(name, parameter) == text


@pytest.mark.parametrize(
    ("name", "parameter", "values"),
    [
        ("beta1", Parameter("float", 0.9, "", high=1.0), [0.8, 0.9, 0.95]),
        ("dropout", Parameter("float", 0.5, "", low=0.0, high=1.0), [0.25, 0.5, 0.75]),
        ("dropout", Parameter("float", 0.0, "", low=0.0, high=0.8), [0.0, 0.1, 0.2]),
        ("dropout", Parameter("float", 0.0, ""), [0.0]),
        ("learning_rate", Parameter("float", 1e-5, "", low=0.0), [5e-6, 1e-5, 2e-5]),
        ("temperature", Parameter("float", 1.0, "", high=1.0), [0.5, 1.0]),
        ("layers", Parameter("int", 4, "", low=3, high=8), [4, 8]),
        ("layers", Parameter("int", 1, ""), [1, 2]),
        ("workers", Parameter("int", 0, ""), [0]),
        ("seed", Parameter("int", 42, ""), [42]),
        ("shift", Parameter("float", -1.0, ""), [-1.0]),
        ("flag", Parameter("bool", False, ""), [False, True]),
        ("kind", Parameter("str", "a", "", choices=("a", "b")), ["a", "b"]),
        ("kind", Parameter("str", "a", ""), ["a"]),
    ],
)
def test_values_around_a_default_make_sense(name: str, parameter: Parameter, values: list[object]) -> None:
    assert values_around(name, parameter) == values
