"""Generated pictures: ten shapes that a network can learn without any file, in CIFAR-10's form and number.

They are no photographs, and an accuracy on them says nothing about photographs. Shapes differ in place, size,
proportions, angle, colour and sharpness, lie on a background with as much texture and nearly the same colour, are
partly hidden, and are seen through noise: a network improves over many epochs and never knows them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

VERSION = 1  # of the pictures: part of what a prepared copy is kept under
NUM_TRAIN, NUM_TEST = 50_000, 10_000
SIZE = 32
CHUNK = 500  # 6 MB of floats: what a chunk touches stays in the cache

Floats = NDArray[Any]  # float32
Shape = Callable[[Floats, Floats], Floats]


def _box(u: Floats, v: Floats, width: float, height: float) -> Floats:
    return np.maximum(np.abs(u) / width, np.abs(v) / height) - 1


# Below zero inside the shape, above outside, about one at a distance of its own radius.
SHAPES: tuple[Shape, ...] = (
    lambda u, v: np.hypot(u, v) - 1,  # disc
    lambda u, v: np.abs(np.hypot(u, v) - 0.75) - 0.25,  # ring
    lambda u, v: _box(u, v, 0.85, 0.85),  # square
    lambda u, v: np.abs(u) + np.abs(v) - 1.1,  # diamond
    lambda u, v: np.maximum(1.2 * np.abs(u) + 0.7 * v, -v) - 0.6,  # triangle
    lambda u, v: np.minimum(_box(u, v, 1, 0.3), _box(u, v, 0.3, 1)),  # plus
    lambda u, v: np.minimum(np.abs(u - v), np.abs(u + v)) - 0.35 + np.maximum(0, np.hypot(u, v) - 1.1),  # saltire
    lambda u, v: _box(u, np.abs(v) - 0.6, 1, 0.3),  # two bars lying
    lambda u, v: _box(np.abs(u) - 0.6, v, 0.3, 1),  # two bars standing
    lambda u, v: np.maximum(np.hypot(u, v) - 1, 0.8 - np.hypot(u, v + 0.6)),  # crescent
)


def generate(count: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pictures, shape (count, 32, 32, 3), and their classes 0..9, as even as can be. Fewer are a prefix of more.

    About 60 microseconds a picture.
    """
    labels = np.arange(count, dtype=np.int64) % len(SHAPES)
    images = np.empty((count, SIZE, SIZE, 3), dtype=np.uint8)
    for start in range(0, count, CHUNK):
        part = labels[start : start + CHUNK]
        whole = _draw(np.arange(CHUNK) % len(SHAPES), np.random.default_rng([seed, start]))
        images[start : start + CHUNK] = whole[: len(part)]
    return images, labels


def _draw(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.uint8]:
    """One chunk of pictures."""
    n = len(labels)
    inside = _shapes(labels, rng)[..., None]
    ground, figure = _colours(n, rng)
    picture = ground + inside * (figure - ground)
    picture += _patches(n, rng)[..., None] * (_uniform(rng, 0, 1, (n, 1, 1, 3)) - picture)  # hides a part of it
    noise = _uniform(rng, 0.01, 0.08, (n, 1, 1, 1))
    picture += noise * rng.standard_normal(picture.shape, dtype=np.float32)
    return np.asarray(np.clip(picture, 0, 1) * 255, dtype=np.uint8)


def _shapes(labels: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """How much of each pixel the shape covers, shape (n, 32, 32), from 0 to 1."""
    n = len(labels)
    u, v = _coordinates(n, rng, smallest=0.25, largest=0.45, tilt=0.2)
    outside = np.empty_like(u)
    for label, shape in enumerate(SHAPES):
        mine = labels == label
        outside[mine] = shape(u[mine], v[mine])
    return np.asarray(np.clip(0.5 - outside * _uniform(rng, 1.5, 6, (n, 1, 1)), 0, 1))


def _coordinates(
    n: int, rng: np.random.Generator, smallest: float, largest: float, tilt: float
) -> tuple[Floats, Floats]:
    """Coordinates of all pixels as a shape sees them: centre at 0, edge at 1. Sizes are shares of the picture."""
    axis = (np.arange(SIZE, dtype=np.float32) + 0.5) / SIZE
    x = axis[None, None, :] - _uniform(rng, 0.36, 0.64, (n, 1, 1))
    y = axis[None, :, None] - _uniform(rng, 0.36, 0.64, (n, 1, 1))
    angle = _uniform(rng, -tilt, tilt, (n, 1, 1))
    radius = _uniform(rng, smallest, largest, (n, 1, 1))
    stretch = _uniform(rng, 0.75, 1.33, (n, 1, 1))
    cosine, sine = np.cos(angle), np.sin(angle)
    return (cosine * x + sine * y) / (radius * stretch), (cosine * y - sine * x) / radius


def _patches(n: int, rng: np.random.Generator) -> Floats:
    """Small tilted rectangles anywhere, shape (n, 32, 32); 1 where they cover."""
    axis = (np.arange(SIZE, dtype=np.float32) + 0.5) / SIZE
    x = np.abs(axis[None, :] - _uniform(rng, 0, 1, (n, 1))) < _uniform(rng, 0.02, 0.15, (n, 1))
    y = np.abs(axis[None, :] - _uniform(rng, 0, 1, (n, 1))) < _uniform(rng, 0.02, 0.15, (n, 1))
    return (y[:, :, None] & x[:, None, :]).astype(np.float32)


def _colours(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Ground and figure, each (n, 32, 32, 3): two colours that differ by some contrast, both with texture."""
    ground = _uniform(rng, 0.2, 0.8, (n, 1, 1, 3))
    direction = rng.standard_normal((n, 1, 1, 3), dtype=np.float32)
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    figure = ground + direction * _uniform(rng, 0.2, 1.0, (n, 1, 1, 1))
    return ground + _texture(n, rng), figure + _texture(n, rng)


def _texture(n: int, rng: np.random.Generator) -> Floats:
    """Smooth grey variation, shape (n, 32, 32, 1): 6x6 random heights, interpolated."""
    knots = np.linspace(0, 5, SIZE, dtype=np.float32)[:, None]
    spread = np.maximum(0, 1 - np.abs(knots - np.arange(6, dtype=np.float32)))
    heights = rng.standard_normal((n, 6, 6), dtype=np.float32) * _uniform(rng, 0.0, 0.1, (n, 1, 1))
    return np.asarray(spread @ heights @ spread.T)[..., None]


def _uniform(rng: np.random.Generator, low: float, high: float, shape: tuple[int, ...]) -> Floats:
    return low + (high - low) * rng.random(shape, dtype=np.float32)
