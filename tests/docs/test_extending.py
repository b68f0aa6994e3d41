"""docs/extending.md: its file and its space file run as they stand."""

import re
from pathlib import Path

import pytest

from search.space.parsing import load_space
from trainables.contract import Data, Resources, load_trainable
from trainables.declared import DeclarationError, declaration_of
from trainables.local_worker import LocalWorker

TEXT = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()


def block(language: str, number: int = 0) -> str:
    """A code block in this language, by default the first."""
    text: str = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)[number]
    return text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.py").write_text(block("python"))
    (tmp_path / "rows.yaml").write_text(block("yaml"))
    return tmp_path


def test_the_space_file_is_right(folder: Path) -> None:
    assert load_space(folder / "rows.yaml").trainable == str(folder / "rows.py")


def test_the_file_trains(folder: Path) -> None:
    trainable = load_trainable(str(folder / "rows.py"))
    worker = LocalWorker(folder, 2, trainable.locate_data(Data(train_images=640)), Resources(2))
    trainable.train({"batch_size": 32}, worker)  # the other settings are the defaults, with which the check trains
    assert worker.reported[1].metrics["val_loss"] < worker.reported[0].metrics["val_loss"]


@pytest.mark.parametrize(
    ("old", "new"),
    [('"val_loss": "1"}  ', '"loss": "1"}  '), ("network(hidden, dropout):", "network(width, dropout):")],
)
def test_the_mistakes_are_the_printed_ones(folder: Path, old: str, new: str) -> None:
    path = folder / "rows.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(DeclarationError) as raised:
        declaration_of(path)
    assert str(raised.value).replace(str(path), "rows.py") in TEXT


def test_the_loop_trains(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(block("python", 1))
    trainable = load_trainable(str(tmp_path / "steps.py"))
    worker = LocalWorker(tmp_path, 3, trainable.locate_data(Data()), Resources(2))
    trainable.train({}, worker)
    losses = [measurement.metrics["val_loss"] for measurement in worker.reported]
    assert losses[-1] < losses[0]
