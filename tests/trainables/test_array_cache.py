"""Arrays made once: by whichever process comes first, and again whenever what is there is not whole."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trainables.machine.array_cache import Arrays, cached_arrays, default_folder


class Maker:
    """Makes an array, and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Arrays:
        self.calls += 1
        return {"images": np.arange(12, dtype=np.uint8).reshape(3, 4), "labels": np.arange(3)}


def make_slowly(log: Path) -> Callable[[], Arrays]:
    def make() -> Arrays:
        with log.open("a") as file:
            file.write("made\n")
        return {"images": np.ones((1000, 1000))}

    return make


def prepare_in_a_process(folder: Path, log: Path) -> None:
    assert float(cached_arrays("the source", make_slowly(log), folder)["images"].sum()) == 1e6


def test_several_processes_that_ask_at_once_prepare_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=prepare_in_a_process, args=(tmp_path, log)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert log.read_text() == "made\n"


def test_what_is_there_is_mapped_and_not_made_again(tmp_path: Path) -> None:
    make = Maker()
    first, second = cached_arrays(["a", 1], make, tmp_path), cached_arrays(["a", 1], make, tmp_path)
    assert make.calls == 1
    assert isinstance(second["images"], np.memmap)
    assert not second["images"].flags.writeable
    assert all(np.array_equal(first[name], second[name]) for name in ("images", "labels"))


def test_another_source_is_prepared_on_its_own(tmp_path: Path) -> None:
    make = Maker()
    cached_arrays(["a", 1], make, tmp_path)
    cached_arrays(["a", 2], make, tmp_path)
    assert make.calls == 2


def cut(place: Path) -> None:
    content = (place / "images.npy").read_bytes()
    (place / "images.npy").write_bytes(content[:-1])


def lose(place: Path) -> None:
    (place / "labels.npy").unlink()


def scribble(place: Path) -> None:
    (place / "contents.json").write_text("[1, 2")


def replace_by_foreign(place: Path) -> None:
    text = (place / "contents.json").read_text()
    (place / "contents.json").write_text(text.replace('[\\"a\\", 1]', '[\\"b\\", 1]'))


@pytest.mark.parametrize("damage", [cut, lose, scribble, replace_by_foreign])
def test_what_is_torn_or_foreign_is_made_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    make = Maker()
    cached_arrays(["a", 1], make, tmp_path)
    damage(next(path for path in tmp_path.iterdir() if path.is_dir()))
    arrays = cached_arrays(["a", 1], make, tmp_path)
    assert make.calls == 2
    assert arrays["labels"].tolist() == [0, 1, 2]
    cached_arrays(["a", 1], make, tmp_path)
    assert make.calls == 2


def test_where_nothing_can_be_written_the_arrays_stay_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    arrays = cached_arrays(["a", 1], Maker(), tmp_path / "file" / "folder")
    assert arrays["labels"].tolist() == [0, 1, 2]
    assert "prepared in memory" in caplog.text


def test_a_home_that_does_not_exist_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", "~nobody-of-this-name/cache")
    assert default_folder() == Path("~nobody-of-this-name/cache")
