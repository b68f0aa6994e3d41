"""The examples: their space files are right, and their trainings run."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from search.space.parsing import load_space
from trainables.contract import Data, Resources, load_trainable
from trainables.local_worker import LocalWorker
from trainables.own_loop import OwnLoop

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))
NAMES = [file.stem for file in FILES]
SMALL = {"gpt_on_text": {"layers": 1, "embed": 16}}  # it is evaluated on a tenth of the standard library


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_an_example_has_a_space_file_and_at_most_60_lines(file: Path) -> None:
    space = load_space(file.with_suffix(".yaml"))
    assert space.trainable == str(file)
    assert len(file.read_text().splitlines()) <= 60


def pictures(root: Path) -> Path:
    """Write a few pictures of two classes for each part."""
    generator = np.random.default_rng(0)
    for part, name in ((part, name) for part in ("train", "validation", "test") for name in ("a", "b")):
        (folder := root / part / name).mkdir(parents=True)
        for number in range(4):
            pixels = generator.integers(0, 255, (40, 40, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return root


@pytest.mark.parametrize("name", NAMES)
def test_an_example_trains_validates_and_tests(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMAGE_SIZE", "32")
    trainable = load_trainable(str(EXAMPLES / f"{name}.py"))
    if isinstance(trainable, OwnLoop):
        pytest.skip("has its own data; tested below, or in tests/trainables/test_adapters.py")
    data = trainable.locate_data(Data(root=str(pictures(tmp_path / "pictures")), train_images=8, val_images=4))
    worker = LocalWorker(tmp_path, 1, data, Resources(2))
    config = {"batch_size": 4, "precision": "fp32", **SMALL.get(name, {})}
    trainable.train(config, worker)
    metrics = {**worker.reported[-1].metrics, **trainable.test(config, worker)}
    assert all(np.isfinite(value) for value in metrics.values())
    assert {"val_loss", "test_loss"} <= set(metrics)


def test_the_own_loop_trains_and_tests(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.py").write_text("print('a text')\n" * 2000)
    trainable = load_trainable(str(EXAMPLES / "own_loop.py"))
    worker = LocalWorker(tmp_path, 2, trainable.locate_data(Data(root=str(tmp_path / "text"))), Resources(2))
    config = {"hidden": 8, "batch_size": 8, "length": 16}
    trainable.train(config, worker)
    first, last = (worker.reported[i].metrics["val_loss"] for i in (0, -1))
    assert last < first
    assert set(trainable.test(config, worker)) == {"test_loss"}
