"""What the tests of trainables share: a cache of their own, one thread, small generated pictures."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.trainables.exact import exact_arithmetic
from trainables.contract import Data
from trainables.measure import instruments, probe_end
from trainables.prediction import memory_need
from trainables.samples import picture_source


@pytest.fixture(autouse=True)
def _own_world(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", str(tmp_path_factory.getbasetemp() / "prepared"))
    monkeypatch.delenv("TRAINING_SEARCH_DATA", raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(memory_need, "machine_calibration", lambda device: memory_need.TYPICAL[device.type])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    picture_source._pictures.cache_clear()


@pytest.fixture
def short_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes of a second at most, where the rate matters to nobody."""
    monkeypatch.setattr(probe_end, "PROBE_SECONDS", 0.5)
    monkeypatch.setattr(probe_end, "MAX_PROBE_SECONDS", 1.0)
    monkeypatch.setattr(instruments, "PROFILED_SECONDS", 0.1)


@pytest.fixture(name="exact_arithmetic")
def _exact_arithmetic() -> Iterator[None]:
    """Arithmetic of a GPU with which the losses of two trainings can be compared."""
    with exact_arithmetic():
        yield


@pytest.fixture
def few() -> Data:
    """Generated pictures: 120 for training, 40 for validation, 32 for testing."""
    return Data(name="generated", train_images=120, val_images=40)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a trial."""
    path = tmp_path / "trial"
    path.mkdir()
    return path
