"""Where pictures come from, in which order they are looked for, and how they are split."""

import hashlib
import pickle
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets import CIFAR10

from trainables.contract import Data, DataError
from trainables.samples import picture_folder, picture_source
from trainables.samples.split import split

CLASSES = ("ant", "bee", "cow")


def write_pictures(root: Path, per_class: int, size: int = 32, suffix: str = "png") -> None:
    """Classes told apart by their colour."""
    for label, name in enumerate(CLASSES):
        (root / name).mkdir(parents=True)
        for i in range(per_class):
            colour = [10 * i, 10 * i, 10 * i]
            colour[label] = 250
            Image.new("RGB", (size, size), tuple(colour)).save(root / name / f"{i}.{suffix}")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    write_pictures(root / "train", 5)
    write_pictures(root / "test", 2)
    return root


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The official archive's format with 20 pictures a file; torchvision is told these files' checksums."""
    root = tmp_path / "archive"
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)

    def write(name: str, content: dict[str, Any]) -> list[str]:
        (folder / name).write_bytes(pickle.dumps(content))
        return [name, hashlib.md5((folder / name).read_bytes()).hexdigest()]

    def batch(name: str) -> list[str]:
        pixels = rng.integers(0, 256, (20, 3072), dtype=np.uint8)
        return write(name, {"data": pixels, "labels": (np.arange(20) % 10).tolist()})

    monkeypatch.setattr(CIFAR10, "train_list", [batch(f"data_batch_{i}") for i in range(1, 6)])
    monkeypatch.setattr(CIFAR10, "test_list", [batch("test_batch")])
    name, md5 = write("batches.meta", {"label_names": [str(i) for i in range(10)]})
    monkeypatch.setattr(CIFAR10, "meta", {"filename": name, "key": "label_names", "md5": md5})
    return root


@pytest.fixture
def packed(archive: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same as the one file that is downloaded."""
    path = archive / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(archive / "cifar-10-batches-py", "cifar-10-batches-py")
    shutil.rmtree(archive / "cifar-10-batches-py")
    monkeypatch.setattr(CIFAR10, "tgz_md5", hashlib.md5(path.read_bytes()).hexdigest())
    return archive


# --- the official archive ---------------------------------------------------------------------------------------------


def test_the_official_archive_is_read_as_torchvision_reads_it(archive: Path) -> None:
    data = picture_source.locate(Data(name="cifar10", root=str(archive)))
    train, test = picture_source.training_pictures(data), picture_source.test_pictures(data)
    theirs = CIFAR10(str(archive), train=True)
    assert np.array_equal(train.images, theirs.data)
    assert train.labels.tolist() == theirs.targets
    assert (train.images.shape, test.images.shape) == ((100, 32, 32, 3), (20, 32, 32, 3))
    assert train.images.dtype == np.uint8


def test_a_packed_archive_is_unpacked(packed: Path) -> None:
    data = picture_source.locate(Data(name="cifar10", root=str(packed)))
    assert len(picture_source.training_pictures(data).labels) == 100


def test_a_damaged_archive_is_refused(archive: Path) -> None:
    with (archive / "cifar-10-batches-py" / "data_batch_3").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match="damaged or incomplete"):
        picture_source.locate(Data(name="cifar10", root=str(archive)))


def test_a_damaged_packed_archive_is_refused_and_not_downloaded_again(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchvision.datasets.cifar.download_and_extract_archive", lambda *a, **k: pytest.fail("asked"))
    with (packed / "cifar-10-python.tar.gz").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match="damaged or incomplete"):
        picture_source.locate(Data(name="cifar10", root=str(packed)))


# --- a folder of pictures ---------------------------------------------------------------------------------------------


def test_a_divided_folder_gives_each_class_its_label(tree: Path) -> None:
    data = picture_source.locate(Data(name="folder", root=str(tree)))
    train, test = picture_source.training_pictures(data), picture_source.test_pictures(data)
    assert np.bincount(train.labels).tolist() == [5, 5, 5]
    assert np.bincount(test.labels).tolist() == [2, 2, 2]
    assert (train.images[range(15), 0, 0, train.labels] == 250).all()
    assert train.files is not None
    assert [path.parent.name for path in train.files] == [CLASSES[label] for label in train.labels]


def test_of_an_undivided_folder_a_sixth_is_held_out_from_each_class(tmp_path: Path) -> None:
    write_pictures(tmp_path / "tree", 12)
    data = Data(name="folder", root=str(tmp_path / "tree"))
    train, test = picture_source.training_pictures(data), picture_source.test_pictures(data)
    assert np.bincount(train.labels).tolist() == [10, 10, 10]
    assert np.bincount(test.labels).tolist() == [2, 2, 2]
    assert not set(train.files or ()) & set(test.files or ())


def test_a_sixth_of_train_is_held_out_where_there_is_no_test(tmp_path: Path) -> None:
    for part in ("train", "val"):
        write_pictures(tmp_path / "tree" / part, 6)
    data = Data(name="folder", root=str(tmp_path / "tree"), val_images=3)
    unused = "pictures in val/ant and 2 more folders"
    counts = "12 train, 3 validation, 3 test; 3 classes, ant to cow"
    assert picture_source.describe(data) == f"folder of pictures: {counts}; not used: {unused}"


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    write_pictures(tmp_path / "tree", 6)
    (tmp_path / "tree" / "ant").rename(tmp_path / "tree" / "train")
    assert picture_source.num_classes(Data(name="folder", root=str(tmp_path / "tree"), val_images=3)) == 3


@pytest.mark.parametrize("folder", ["train/ant/more", "test/zebra"])
def test_folders_with_pictures_of_no_class_are_named(tree: Path, folder: str) -> None:
    (tree / folder).mkdir()
    Image.new("RGB", (32, 32)).save(tree / folder / "0.png")
    described = picture_source.describe(Data(name="folder", root=str(tree), val_images=3))
    assert described.endswith(f"6 test; 3 classes, ant to cow; not used: pictures in {folder}")


@pytest.mark.parametrize("suffix", ["jpg", "bmp", "gif", "webp"])
def test_other_sizes_and_formats_become_32_by_32_rgb(tmp_path: Path, suffix: str) -> None:
    write_pictures(tmp_path / "tree", 6, size=50, suffix=suffix)
    pictures = picture_source.training_pictures(Data(name="folder", root=str(tmp_path / "tree")))
    assert pictures.images.shape == (15, 32, 32, 3)
    assert pictures.images[:, 16, 16].argmax(axis=1).tolist() == pictures.labels.tolist()


def test_hidden_files_and_files_that_are_no_pictures_are_skipped(tree: Path) -> None:
    (tree / "train" / "ant" / ".hidden.png").write_bytes(b"")
    (tree / "train" / "ant" / "notes.txt").write_text("x")
    (tree / "train" / ".cache").mkdir()
    (tree / "train" / "empty").mkdir()
    pictures = picture_source.training_pictures(Data(name="folder", root=str(tree)))
    assert np.bincount(pictures.labels).tolist() == [5, 5, 5]


def test_names_of_data_files_that_the_library_only_recognises_are_no_pictures(tree: Path) -> None:
    for name in ("features.h5", "film.mpg"):
        (tree / "train" / "ant" / name).write_bytes(b"x")
    pictures = picture_source.training_pictures(Data(name="folder", root=str(tree)))
    assert np.bincount(pictures.labels).tolist() == [5, 5, 5]


def test_a_damaged_header_is_no_lack_of_memory(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Image.Image, *arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Image.Image, "convert", fail)
    with pytest.raises(DataError, match=r"\.png cannot be read as a picture; remove it"):
        picture_source.training_pictures(Data(name="folder", root=str(tree)))


def test_a_picture_that_is_gone_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.png is gone since the data were listed; start again"):
        picture_folder.rgb(tmp_path / "gone.png")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white(tmp_path: Path, mode: str) -> None:
    """Black ink on nothing is black on white."""
    picture = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    picture.putpixel((0, 0), (0, 0, 0, 255))
    picture.convert(mode).save(path := tmp_path / "ink.png")
    pixels = np.asarray(picture_folder.rgb(path))
    assert pixels[0, 0].tolist() == [0, 0, 0]
    assert pixels[3, 3].tolist() == [255, 255, 255]


def test_a_picture_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    picture = Image.new("RGB", (4, 2), "black")
    picture.putpixel((0, 0), (255, 0, 0))
    exif = picture.getexif()
    exif[0x0112] = 6  # turned by a quarter
    picture.save(path := tmp_path / "turned.png", exif=exif)
    pixels = np.asarray(picture_folder.rgb(path))
    assert pixels.shape == (4, 2, 3)
    assert pixels[0, 1].tolist() == [255, 0, 0]


def test_a_picture_that_cannot_be_read_is_named(tree: Path) -> None:
    (tree / "train" / "ant" / "torn.png").write_bytes(b"\x89PNG")
    with pytest.raises(DataError, match=r"torn\.png cannot be read"):
        picture_source.training_pictures(Data(name="folder", root=str(tree)))


def test_a_changed_folder_is_prepared_again(tree: Path) -> None:
    data = Data(name="folder", root=str(tree))
    before = picture_source.training_pictures(data)
    Image.new("RGB", (32, 32)).save(tree / "train" / "ant" / "new.png")
    picture_source._pictures.cache_clear()  # as in another process
    assert len(picture_source.training_pictures(data).labels) == len(before.labels) + 1


def test_a_picture_drawn_over_is_read_again(tree: Path) -> None:
    data = Data(name="folder", root=str(tree))
    picture = tree / "train" / "ant" / "0.bmp"
    for brightness in (10, 90):  # in a format whose files are all of one size
        Image.new("RGB", (32, 32), (brightness, 0, 0)).save(picture)
        picture_source._pictures.cache_clear()
        pictures = picture_source.training_pictures(data)
        assert brightness in pictures.images[pictures.labels == 0][:, 0, 0, 0]


def test_one_class_is_not_enough(tmp_path: Path) -> None:
    (tmp_path / "ant").mkdir()
    Image.new("RGB", (32, 32)).save(tmp_path / "ant" / "0.png")
    with pytest.raises(DataError, match="at least two <class>"):
        picture_source.locate(Data(name="folder", root=str(tmp_path)))


def test_a_folder_without_test_pictures_is_refused(tree: Path) -> None:
    for name in CLASSES:
        shutil.rmtree(tree / "test" / name)
    with pytest.raises(DataError, match="no pictures for the test part"):
        picture_source.describe(Data(name="folder", root=str(tree)))


# --- looking for it ---------------------------------------------------------------------------------------------------


def test_auto_takes_the_archive_then_a_folder_then_generates(
    archive: Path, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture_source, "PLACES", (str(tmp_path / "nothing"), str(tree), str(archive)))
    assert picture_source.locate(Data()) == Data(name="cifar10", root=str(archive))
    shutil.rmtree(archive)
    assert picture_source.locate(Data()) == Data(name="folder", root=str(tree))
    shutil.rmtree(tree)
    assert picture_source.locate(Data()) == Data(name="generated")


def test_the_setting_comes_before_the_variable_and_the_variable_before_the_usual_places(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    shutil.copytree(tree, other)
    monkeypatch.setattr(picture_source, "PLACES", (str(tree),))
    monkeypatch.setenv("TRAINING_SEARCH_DATA", str(other))
    assert picture_source.locate(Data()).root == str(other)
    assert picture_source.locate(Data(root=str(tree))).root == str(tree)


@pytest.mark.parametrize("root", ["nothing", "~nobody-here/data"])
@pytest.mark.parametrize("name", ["cifar10", "folder"])
def test_what_was_asked_for_and_is_not_there_is_one_line_with_what_would_do(
    tmp_path: Path, name: Any, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as error:
        picture_source.locate(Data(name=name, root=root))
    message = str(error.value)
    assert "\n" not in message
    assert str(tmp_path / root) in message
    assert "--set data.root=DIR says where it is, --root DIR where a command has no --set" in message
    assert ("--set data.download=true" in message) == (name == "cifar10")


def test_a_named_folder_without_pictures_is_not_replaced_by_generated_ones(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data folder: no such folder: .*nothing; --set data\.root=DIR"):
        picture_source.locate(Data(root=str(tmp_path / "nothing")))


def test_a_description_has_counts_but_no_path_and_says_what_is_generated(tree: Path) -> None:
    described = picture_source.describe(Data(name="folder", root=str(tree), val_images=3))
    assert described == "folder of pictures: 12 train, 3 validation, 6 test; 3 classes, ant to cow"
    generated = picture_source.describe(Data(name="generated"))
    assert "not photographs" in generated
    assert "45,000 train, 5,000 validation, 10,000 test" in generated


def test_fewer_generated_pictures_are_made_when_fewer_are_wanted(few: Data) -> None:
    assert len(picture_source.training_pictures(few).labels) == 160
    assert len(picture_source.test_pictures(few).labels) == 32


# --- splitting --------------------------------------------------------------------------------------------------------

LABELS = np.repeat(np.arange(3), [600, 300, 100])[np.random.default_rng(1).permutation(1000)]


def test_a_split_is_disjoint_and_gives_every_class_its_share() -> None:
    training, validation = split(LABELS, Data(val_images=100, train_images=500))
    assert (len(training), len(validation)) == (500, 100)
    assert not set(training) & set(validation)
    for indices, share in ((training, 0.5), (validation, 0.1)):
        assert np.abs(np.bincount(LABELS[indices]) - share * np.array([600, 300, 100])).max() <= 1


def test_a_split_is_always_the_same_and_fewer_training_pictures_leave_validation_as_it_is() -> None:
    one, other = (split(LABELS, Data(val_images=100, train_images=n)) for n in (500, None))
    again = split(LABELS, Data(val_images=100, train_images=500))
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert np.array_equal(one[1], other[1])
    assert len(other[0]) == 900
    assert set(one[0]) < set(other[0])


@pytest.mark.parametrize("val_images", [-1, 1000])
def test_validation_must_leave_training_pictures(val_images: int) -> None:
    with pytest.raises(DataError, match=f"data.val_images {val_images}"):
        split(LABELS, Data(val_images=val_images))


def test_a_variable_that_names_no_folder_is_not_replaced_by_generated_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING_SEARCH_DATA", str(tmp_path / "nothing"))
    with pytest.raises(DataError, match="no such folder"):
        picture_source.locate(Data())
