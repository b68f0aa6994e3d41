"""Loaders: the same pictures by every way, each picture once an epoch, the ranks' shares a global batch together."""

import multiprocessing
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from trainables.contract import Data, InfeasibleError
from trainables.plan import Plan, Share
from trainables.samples import picture_source
from trainables.samples.loaders import (
    MEAN,
    STD,
    augmented,
    evaluation_batches,
    normalization,
    share_drawn,
    training_batches,
)
from trainables.samples.picture_source import Pictures
from trainables.stages import Timeline

CPU = torch.device("cpu")
OFF = Timeline(CPU)


@pytest.fixture
def pictures() -> Pictures:
    rng = np.random.default_rng(0)
    return Pictures(rng.integers(0, 256, (50, 32, 32, 3), dtype=np.uint8), np.arange(50) % 10)


def epoch_of(
    loader: str, pictures: Pictures, plan: Plan, epoch: int = 1, num_workers: int = 0, **options: int
) -> list[Any]:
    options |= {"num_workers": num_workers, "pin_memory": False}
    with closing(training_batches(loader, pictures, plan, CPU, **options)) as batches:  # type: ignore[arg-type]
        return list(batches.epoch(epoch, OFF))


@pytest.mark.parametrize(("num_workers", "padding"), [(0, 4), (2, 4), (0, 1), (0, 0)])
def test_loaders_give_the_same_pictures_to_the_last_bit(pictures: Pictures, num_workers: int, padding: int) -> None:
    plan = Plan(np.arange(50), batch_size=16, seed=3)
    one = epoch_of("memory", pictures, plan, padding=padding)
    other = epoch_of("workers", pictures, plan, num_workers=num_workers, padding=padding)
    assert len(one) == len(other) == 3
    for (images, labels), (their_images, their_labels) in zip(one, other, strict=True):
        assert (images.shape, images.dtype, labels.dtype) == ((16, 3, 32, 32), torch.float32, torch.int64)
        assert torch.equal(images, their_images)
        assert torch.equal(labels, their_labels)


def test_the_workers_loader_reads_the_files_of_a_folder(tmp_path: Path) -> None:
    for label, name in enumerate(("ant", "bee")):
        (tmp_path / name).mkdir()
        for i in range(6):
            Image.new("RGB", (40, 40), (100 * label, 20 * i, 0)).save(tmp_path / name / f"{i}.png")
    pictures = picture_source.training_pictures(Data(name="folder", root=str(tmp_path)))
    plan = Plan(np.arange(len(pictures.labels)), batch_size=5, seed=0)
    for one, other in zip(epoch_of("memory", pictures, plan), epoch_of("workers", pictures, plan), strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])


def test_loader_processes_are_gone_after_closing_also_in_the_middle_of_an_epoch(pictures: Pictures) -> None:
    plan = Plan(np.arange(50), batch_size=4, seed=0)
    batches = training_batches("workers", pictures, plan, CPU, num_workers=2, pin_memory=False)
    list(batches.epoch(1, OFF))
    iterator = batches.epoch(2, OFF)
    next(iterator)
    assert len(multiprocessing.active_children()) == 2  # the same two all the time
    batches.close()
    assert multiprocessing.active_children() == []


def labels_of(batches: list[Any]) -> list[int]:
    return [int(label) for _, labels in batches for label in labels]


def test_an_epoch_has_each_picture_at_most_once_and_the_rest_is_dropped() -> None:
    pictures = Pictures(np.zeros((50, 32, 32, 3), dtype=np.uint8), np.arange(50))
    seen = labels_of(epoch_of("memory", pictures, Plan(np.arange(5, 45), batch_size=16, seed=0)))
    assert len(seen) == len(set(seen)) == 32
    assert set(seen) <= set(range(5, 45))


def test_order_and_augmentation_depend_on_seed_and_epoch_alone(pictures: Pictures) -> None:
    def images(seed: int, epoch: int) -> Tensor:
        plan = Plan(np.arange(50), batch_size=50, seed=seed)
        return epoch_of("memory", pictures, plan, epoch)[0][0]  # type: ignore[no-any-return]

    assert torch.equal(images(seed=1, epoch=2), images(seed=1, epoch=2))
    assert not torch.equal(images(seed=1, epoch=2), images(seed=1, epoch=3))
    assert not torch.equal(images(seed=1, epoch=2), images(seed=2, epoch=2))


@pytest.mark.parametrize("loader", ["memory", "workers"])
def test_the_shares_of_the_ranks_are_the_batches_of_one_process(pictures: Pictures, loader: str) -> None:
    alone = epoch_of(loader, pictures, Plan(np.arange(50), 12, seed=0))
    shares = [epoch_of(loader, pictures, Plan(np.arange(50), 12, seed=0, share=Share(r, 3))) for r in range(3)]
    for i, batch in enumerate(alone):
        for j in (0, 1):
            assert torch.equal(batch[j], torch.cat([share[i][j] for share in shares]))


@pytest.mark.parametrize("padding", [0, 2, 4])
def test_augmentation_moves_by_at_most_the_padding_and_flips(pictures: Pictures, padding: int) -> None:
    plan = Plan(np.arange(50), batch_size=50, seed=0)
    draws = next(share_drawn(plan, 1, 2 * padding))
    images, corners, flips = (torch.from_numpy(x) for x in (pictures.images[draws.indices], draws.corners, draws.flips))
    crops = augmented(images, corners, flips, padding)
    for crop, index, (top, left), flip in zip(crops, draws.indices, draws.corners, draws.flips, strict=True):
        padded = np.pad(pictures.images[index], ((padding, padding), (padding, padding), (0, 0)))
        expected = padded[top : top + 32, left : left + 32]
        assert np.array_equal(crop.permute(1, 2, 0).numpy(), expected[:, ::-1] if flip else expected)
    assert set(draws.corners.ravel()) == set(range(2 * padding + 1))
    assert 10 < draws.flips.sum() < 40  # the odds against are 1 in 40,000


def test_evaluation_sees_every_picture_once_as_it_is_whatever_the_number_of_ranks(pictures: Pictures) -> None:
    indices = np.arange(3, 40)
    whole = torch.cat([images for images, _ in evaluation_batches(pictures, indices, CPU)])
    shares = [torch.cat([i for i, _ in evaluation_batches(pictures, indices, CPU, r, 2)]) for r in range(2)]
    mean, std = (torch.tensor(x).view(3, 1, 1) for x in (MEAN, STD))
    bytes_again = ((whole * std + mean) * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
    assert np.array_equal(bytes_again.numpy(), pictures.images[indices])
    assert torch.equal(whole[0::2], shares[0])
    assert torch.equal(whole[1::2], shares[1])


def test_pictures_like_cifar10_come_out_with_mean_0_and_deviation_1() -> None:
    rng = np.random.default_rng(0)
    pixels = 255 * (np.array(MEAN) + np.array(STD) * rng.uniform(-1, 1, (20, 32, 32, 3)) * 3**0.5)
    images = normalization(CPU)(torch.from_numpy(np.clip(pixels, 0, 255).astype(np.uint8)).permute(0, 3, 1, 2))
    assert images.mean(dim=(0, 2, 3)).abs().max() < 0.05
    assert (images.std(dim=(0, 2, 3)) - 1).abs().max() < 0.05


def test_shares_of_a_batch_that_cannot_be_divided_differ_by_one_picture(pictures: Pictures) -> None:
    alone = epoch_of("memory", pictures, Plan(np.arange(50), 16, seed=0))
    shares = [epoch_of("memory", pictures, Plan(np.arange(50), 16, 0, Share(number, 3))) for number in range(3)]
    assert [len(labels) for _, labels in (share[0] for share in shares)] == [5, 5, 6]
    for (images, _), *parts in zip(alone, *shares, strict=True):
        assert torch.equal(torch.cat([part for part, _ in parts]), images)


@pytest.mark.parametrize("loader", ["memory", "workers"])
def test_who_reads_no_picture_gets_as_many_batches_of_nothing(loader: str, pictures: Pictures) -> None:
    batches = epoch_of(loader, pictures, Plan(np.arange(50), 16, 0, Share(None, 3)))
    assert [(images.shape, labels.shape) for images, labels in batches] == [((0, 3, 32, 32), (0,))] * 3


def test_a_batch_has_a_picture_for_each_share_and_is_not_larger_than_the_data(pictures: Pictures) -> None:
    with pytest.raises(InfeasibleError, match="batch_size 2 is less than a sample for each of 3"):
        Plan(np.arange(50), batch_size=2, seed=0, share=Share(0, 3))
    with pytest.raises(InfeasibleError, match="batch_size 64: there are 50 training samples"):
        Plan(np.arange(50), batch_size=64, seed=0)


def test_the_device_loader_needs_a_cuda_device(pictures: Pictures) -> None:
    with pytest.raises(InfeasibleError, match="CUDA"):
        epoch_of("device", pictures, Plan(np.arange(50), 10, seed=0))
