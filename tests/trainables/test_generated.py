"""Generated pictures: always the same, all alike in form, and something can be learned from them."""

import numpy as np
import pytest
import torch

from trainables.samples.generated import SHAPES, generate


def test_the_same_seed_gives_the_same_pictures_and_fewer_are_a_prefix_of_more() -> None:
    images, labels = generate(1010, seed=0)
    fewer, fewer_labels = generate(30, seed=0)
    assert np.array_equal(images[:30], fewer)
    assert np.array_equal(labels[:30], fewer_labels)
    assert not np.array_equal(generate(30, seed=1)[0], fewer)


def test_pictures_have_the_form_of_cifar10_and_classes_are_even() -> None:
    images, labels = generate(1000, seed=0)
    assert (images.shape, images.dtype, labels.dtype) == ((1000, 32, 32, 3), np.uint8, np.int64)
    assert np.bincount(labels).tolist() == [100] * len(SHAPES)
    assert 90 < images.mean() < 165


def test_classes_cannot_be_told_by_colour_or_brightness() -> None:
    """A linear classifier on mean and deviation of the channels does no better than 2.5 times chance."""
    images, labels = generate(4000, seed=0)
    pixels = images.reshape(4000, -1, 3) / 255
    features = np.concatenate([pixels.mean(1), pixels.std(1), np.ones((4000, 1))], axis=1)
    weights = np.linalg.lstsq(features[:3000], np.eye(10)[labels[:3000]], rcond=None)[0]
    accuracy = ((features[3000:] @ weights).argmax(1) == labels[3000:]).mean()
    assert accuracy < 0.25


@pytest.mark.slow
def test_a_small_network_learns_something_and_not_everything() -> None:
    images, labels = (torch.from_numpy(x) for x in generate(4000, seed=0))
    inputs = images.permute(0, 3, 1, 2).float() / 128 - 1
    torch.manual_seed(0)
    widths = ((3, 16), (16, 32), (32, 64))
    layers = [
        layer
        for a, b in widths
        for layer in (
            torch.nn.Conv2d(a, b, 3, padding=1),
            torch.nn.BatchNorm2d(b),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
        )
    ]
    model = torch.nn.Sequential(*layers, torch.nn.AdaptiveMaxPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(2):
        for start in range(0, 3000, 50):
            loss = torch.nn.functional.cross_entropy(model(inputs[start : start + 50]), labels[start : start + 50])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        accuracy = (model.eval()(inputs[3000:]).argmax(1) == labels[3000:]).float().mean().item()
    assert 0.2 < accuracy < 0.9
