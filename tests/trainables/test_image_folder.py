"""A network of torchvision on a folder of pictures."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.trainables.ranked import on_ranks
from trainables import image_folder as module
from trainables.contract import Data, DataError, InfeasibleError, Resources
from trainables.image_folder_settings import ImageFolderSettings, networks
from trainables.local_worker import LocalWorker
from trainables.plan import Plan
from trainables.sample_shape import SampleShape
from trainables.samples import loaders, picture_source, worker_batches
from trainables.samples.split import split
from trainables.stages import Timeline
from trainables.workloads import image_folder

SMALL = {"network": "resnet18", "image_size": 32, "batch_size": 4, "precision": "fp32", "threads": 1}
CPU = torch.device("cpu")
trainable = module.trainable


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pictures of two classes, of different sizes and file formats."""
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", str(tmp_path / "cache"))
    generator = np.random.default_rng(0)
    for part, count in (("train", 12), ("test", 4)):
        for label, name in enumerate(("cats", "dogs")):
            (folder := tmp_path / "pictures" / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = generator.integers(0, 120, (40 + number, 60, 3)) + 100 * label
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.{'png' if number % 2 else 'jpg'}")
    return tmp_path / "pictures"


def trained(folder: Path, root: Path, epochs: int = 2, rank: int = 0, ranks: int = 1, **config: Any) -> LocalWorker:
    folder.mkdir(exist_ok=True)
    worker = LocalWorker(folder, epochs, trainable.locate_data(Data(root=str(root))), Resources(2), rank, ranks)
    trainable.train({**SMALL, **config}, worker)
    return worker


def metrics_of_ranks(rank: int, world_size: int, folder: Path, root: Path, config: dict[str, Any]) -> dict[str, float]:
    return dict(trained(folder, root, 1, rank, world_size, **config).reported[-1].metrics)


def test_it_trains_validates_and_tests(tmp_path: Path, root: Path) -> None:
    worker = trained(tmp_path / "trial", root)
    assert {"val_accuracy", "val_loss", "train_loss"} <= set(worker.reported[-1].metrics)
    ends = {f"test_{name}_{end}" for name in ("accuracy", "loss") for end in ("low", "high")}
    assert set(trainable.test(SMALL, worker)) == {"test_accuracy", "test_loss", *ends}
    assert worker.data.val_images == 2
    assert "pictures" in trainable.describe_data(worker.data)


def test_both_loaders_give_the_same_pictures(root: Path) -> None:
    data, given = trainable.locate_data(Data(root=str(root))), {}
    plan = Plan(image_folder.training_indices(data), 4, seed=1)
    for loader, num_workers in (("workers", 0), ("workers", 2), ("memory", 0)):
        settings = trainable._settings({"image_size": 32, "loader": loader, "num_workers": num_workers})
        batches = image_folder.training_batches(settings, data, plan, CPU)
        given[loader, num_workers] = list(batches.epoch(1, Timeline(CPU)))
        batches.close()
    first, *others = given.values()
    assert first[0][0].shape == (4, 3, 32, 32)
    for other in others:
        for (images, labels), (same_images, same_labels) in zip(first, other, strict=True):
            assert torch.equal(images, same_images)
            assert torch.equal(labels, same_labels)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_strategies_train_it(tmp_path: Path, root: Path, strategy: str) -> None:
    config = {"network": "squeezenet1_1", "image_size": 64}
    (tmp_path / strategy).mkdir()
    one, two = on_ranks(metrics_of_ranks, 2, tmp_path / strategy, root, {**config, "strategy": strategy})
    assert one["train_loss"] == two["train_loss"]
    assert one["val_loss"] > 0


def test_networks_are_those_of_torchvision() -> None:
    from torchvision import models

    expected = set(models.list_models(module=models))
    assert set(networks()) == expected
    assert (trainable.PARAMETERS or {})["network"].choices == networks()


@pytest.mark.parametrize("name", ["googlenet", "inception_v3", "vit_b_32", "maxvit_t", "mobilenet_v3_small", "swin_t"])
def test_unusual_networks_are_built_for_the_size_and_the_classes(name: str) -> None:
    settings = ImageFolderSettings(network=name, image_size=224)
    shape = SampleShape(torch.empty(3, 224, 224), torch.empty(()), 7)
    with torch.device("meta"):
        network = image_folder.network(settings, shape)
        assert network(torch.empty(2, 3, 224, 224)).shape == (2, 7)


@pytest.mark.parametrize(("name", "size"), [("vit_b_32", 100), ("squeezenet1_1", 16)])
def test_a_size_that_a_network_cannot_take_is_infeasible(name: str, size: int) -> None:
    shape = SampleShape(torch.empty(3, size, size), torch.empty(()), 7)
    with pytest.raises(InfeasibleError, match=f"network {name}: image_size {size} is not possible: "):
        image_folder.network(ImageFolderSettings(network=name, image_size=size), shape)


def test_what_a_network_takes_is_found_out_without_random_numbers() -> None:
    shape, weights = SampleShape(torch.empty(3, 32, 32), torch.empty(()), 7), []
    for _ in range(2):
        torch.manual_seed(0)
        network = image_folder.network(ImageFolderSettings(network="resnet18", image_size=33), shape)
        weights.append(next(network.parameters()))
    assert torch.equal(*weights)


def test_only_pictures_that_are_used_are_decoded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    whole = image_folder.decoded
    monkeypatch.setattr(image_folder, "decoded", lambda path, size: read.append(path) or whole(path, size))
    data = trainable.locate_data(Data(root=str(root), train_images=8, val_images=4))
    settings = trainable._settings({"image_size": 32, "loader": "memory", "batch_size": 4})
    training = image_folder.training_batches(settings, data, Plan(image_folder.training_indices(data), 4, 1), CPU)
    list(training.epoch(1, Timeline(CPU)))
    assert len(list(image_folder.evaluation_batches(settings, data, "validation", CPU, 0, 1))) == 1
    assert len(read) == len(set(read)) == 12


def test_without_a_disk_cache_pictures_are_decoded_once_in_a_training(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", str(tmp_path / "file" / "cache"))
    data, read, decoded = trainable.locate_data(Data(root=str(root))), list[Path](), image_folder.decoded
    monkeypatch.setattr(image_folder, "decoded", lambda path, size: read.append(path) or decoded(path, size))
    own = ImageFolderSettings(image_size=32, batch_size=4, loader="memory")
    indices = image_folder.training_indices(data)
    batches = image_folder.training_batches(own, data, Plan(indices, 4, seed=0), CPU)
    for _ in range(2):
        assert len(list(image_folder.evaluation_batches(own, data, "validation", CPU, 0, 1))) == 1
    assert len(read) == len(set(read)) == 24
    batches.close()


def test_evaluation_finds_its_pictures_before_the_first_batch_as_the_ranks_meet_in_between(root: Path) -> None:
    data, settings = trainable.locate_data(Data(root=str(root))), trainable._settings(SMALL)
    shutil.rmtree(root)
    image_folder._files.cache_clear()
    with pytest.raises(DataError):
        image_folder.evaluation_batches(settings, data, "validation", CPU, 0, 1)


@pytest.mark.parametrize(("loader", "num_workers"), [("workers", 0), ("workers", 2), ("memory", 0)])
def test_evaluation_is_of_the_middle_by_as_many_loader_processes_as_training(
    root: Path, monkeypatch: pytest.MonkeyPatch, loader: str, num_workers: int
) -> None:
    data = trainable.locate_data(Data(root=str(root), train_images=8, val_images=5))
    config = {"image_size": 32, "loader": loader, "num_workers": num_workers, "batch_size": 4}
    used: list[int] = []
    made = worker_batches.WorkerBatches
    monkeypatch.setattr(image_folder, "WorkerBatches", lambda *a, **k: used.append(k["num_workers"]) or made(*a, **k))
    batches = list(image_folder.evaluation_batches(trainable._settings(config), data, "validation", CPU, 0, 1))
    assert [len(images) for images, _ in batches] == [4, 1]
    assert used == [num_workers]
    files = image_folder._files(str(root), "train")[0]
    index = split(image_folder._labels(data, "train"), data)[1][0]
    middle = image_folder.decoded(files[index].path, 32)[2:34, 2:34]
    normalized = loaders.normalization(CPU, image_folder.MEAN, image_folder.STD)
    torch.testing.assert_close(batches[0][0][0], normalized(torch.from_numpy(middle.copy()).permute(2, 0, 1)))


def test_what_is_wrong_with_the_folder_is_said(tmp_path: Path, root: Path) -> None:
    with pytest.raises(DataError, match=r"data\.root: image_folder needs a folder of pictures"):
        trainable.locate_data(Data())
    for nowhere in (str(tmp_path / "none"), "~nobody-here/data"):
        with pytest.raises(DataError, match=r"data\.root .*: no such folder$"):
            trainable.locate_data(Data(root=nowhere))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no train/<class>/ .* in .*/empty$"):
        trainable.locate_data(Data(root=str(tmp_path / "empty")))
    (root / "train" / "cats" / "0.jpg").write_bytes(b"no picture")
    for loader in ("workers", "memory"):
        with pytest.raises(DataError, match=r"cats/0\.jpg cannot be read as a picture"):
            trained(tmp_path / loader, root, loader=loader)


def decoded(path: Path) -> Any:
    return image_folder.decoded(path, 28)


readers = pytest.mark.parametrize("read", [decoded, picture_source.open_picture])


@readers
@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_of_pictures_of_16_bits_the_higher_8_are_read(tmp_path: Path, read: Any, suffix: str) -> None:
    pixels = np.linspace(0, 65535, 32 * 32).astype(np.uint16).reshape(32, 32)
    Image.fromarray(pixels).save(path := tmp_path / f"deep.{suffix}")
    assert np.array_equal(np.asarray(read(path)), np.stack([pixels >> 8] * 3, axis=2))


@readers
def test_pictures_of_16_bits_are_turned_as_their_camera_was(tmp_path: Path, read: Any) -> None:
    pixels = np.zeros((20, 40), np.uint16)
    pixels[:, :10] = 65535  # on the left; turned by 90 degrees clockwise, at the top
    picture = Image.fromarray(pixels)
    picture.getexif()[0x0112] = 6
    picture.save(path := tmp_path / "deep.png", exif=picture.getexif())
    read_pixels = np.asarray(read(path))[..., 0]
    assert read_pixels[0].mean() > read_pixels[-1].mean() + 40


def test_test_pictures_without_classes_leave_the_test_to_a_part_of_the_others(root: Path) -> None:
    shutil.rmtree(root / "test")
    (root / "test").mkdir()
    Image.new("RGB", (40, 40)).save(root / "test" / "1.png")
    data = trainable.locate_data(Data(root=str(root), val_images=4))
    assert "16 train, 4 validation, 4 test; 2 classes" in trainable.describe_data(data)


@readers
@pytest.mark.parametrize("value", [np.float32(0.5), np.int32(-1), np.int32(2**16)])
def test_pictures_of_other_numbers_are_refused_by_name(tmp_path: Path, read: Any, value: Any) -> None:
    Image.fromarray(np.full((1, 1), value)).save(path := tmp_path / "deep.tif")
    with pytest.raises(DataError, match=r"deep\.tif has values other than whole numbers of 16 bits"):
        read(path)


@readers
def test_pictures_of_any_size_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Any) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    Image.new("RGB", (40, 60)).save(path := tmp_path / "large.png")
    assert np.asarray(read(path)).shape == (32, 32, 3)


def test_memory_is_predicted_with_the_pictures_that_are_kept(root: Path) -> None:
    data = trainable.locate_data(Data(root=str(root)))
    kept = trainable.memory({**SMALL, "loader": "memory"}, data, Resources(2))
    assert kept is not None
    assert kept.parts["samples"] == (22 + 2) * 3 * 36**2  # those for validation, too
