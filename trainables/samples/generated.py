"""Generated images: ten shapes that a network can learn without any file, in CIFAR-10's format and number.

They are no photographs, and an accuracy on them says nothing about photographs. Shapes vary in position, size,
proportions, angle, colour and sharpness. The background has as much texture and nearly the same colour, a part is
covered, and noise is added: a network improves over many epochs and never reaches full accuracy.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

VERSION = 1  # of the images, part of the key of cached copies
NUM_TRAIN, NUM_TEST = 50_000, 10_000
SIZE = 32
CHUNK = 500  # images: 6 MB of floats, which stay in the processor's cache

Floats = NDArray[Any]  # float32
Shape = Callable[[Floats, Floats], Floats]
PIXELS = (np.arange(SIZE, dtype=np.float32) + 0.5) / SIZE  # positions along an axis of the image, from 0 to 1


def _box(u: Floats, v: Floats, width: float, height: float) -> Floats:
    return np.maximum(np.abs(u) / width, np.abs(v) / height) - 1


# Distance functions: negative inside the shape, positive outside, about one at a distance of its own radius.
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
    """Generate images, shape (count, 32, 32, 3), and their balanced classes 0..9, at about 60 us per image.

    A smaller `count` gives a prefix of a larger one.
    """
    labels = np.arange(count, dtype=np.int64) % len(SHAPES)
    images = np.empty((count, SIZE, SIZE, 3), dtype=np.uint8)
    for start in range(0, count, CHUNK):
        part = labels[start : start + CHUNK]
        whole = _draw(np.arange(CHUNK) % len(SHAPES), np.random.default_rng([seed, start]))
        images[start : start + CHUNK] = whole[: len(part)]
    return images, labels


def _draw(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.uint8]:
    n = len(labels)
    # coordinates of all pixels relative to the shape: centre at 0, edge at 1
    x = PIXELS[None, None, :] - _uniform(rng, 0.36, 0.64, (n, 1, 1))
    y = PIXELS[None, :, None] - _uniform(rng, 0.36, 0.64, (n, 1, 1))
    angle = _uniform(rng, -0.2, 0.2, (n, 1, 1))
    radius = _uniform(rng, 0.25, 0.45, (n, 1, 1))
    stretch = _uniform(rng, 0.75, 1.33, (n, 1, 1))
    cosine, sine = np.cos(angle), np.sin(angle)
    u, v = (cosine * x + sine * y) / (radius * stretch), (cosine * y - sine * x) / radius
    outside = np.empty_like(u)
    for label, shape in enumerate(SHAPES):
        mine = labels == label
        outside[mine] = shape(u[mine], v[mine])
    inside = np.clip(0.5 - outside * _uniform(rng, 1.5, 6, (n, 1, 1)), 0, 1)[..., None]  # share of the pixel
    # two colours that differ by some contrast, both with texture
    ground = _uniform(rng, 0.2, 0.8, (n, 1, 1, 3))
    direction = rng.standard_normal((n, 1, 1, 3), dtype=np.float32)
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    figure = ground + direction * _uniform(rng, 0.2, 1.0, (n, 1, 1, 1))
    ground, figure = ground + _texture(n, rng), figure + _texture(n, rng)
    picture = ground + inside * (figure - ground)
    # a small rectangle covers a part
    columns = np.abs(PIXELS - _uniform(rng, 0, 1, (n, 1))) < _uniform(rng, 0.02, 0.15, (n, 1))
    rows = np.abs(PIXELS - _uniform(rng, 0, 1, (n, 1))) < _uniform(rng, 0.02, 0.15, (n, 1))
    patch = (rows[:, :, None] & columns[:, None, :]).astype(np.float32)[..., None]
    picture += patch * (_uniform(rng, 0, 1, (n, 1, 1, 3)) - picture)
    noise = _uniform(rng, 0.01, 0.08, (n, 1, 1, 1))
    picture += noise * rng.standard_normal(picture.shape, dtype=np.float32)
    return np.asarray(np.clip(picture, 0, 1) * 255, dtype=np.uint8)


def _texture(n: int, rng: np.random.Generator) -> Floats:
    """Smooth grey variation, shape (n, 32, 32, 1): 6x6 random heights, interpolated."""
    knots = np.linspace(0, 5, SIZE, dtype=np.float32)[:, None]
    spread = np.maximum(0, 1 - np.abs(knots - np.arange(6, dtype=np.float32)))
    heights = rng.standard_normal((n, 6, 6), dtype=np.float32) * _uniform(rng, 0.0, 0.1, (n, 1, 1))
    return np.asarray(spread @ heights @ spread.T)[..., None]


def _uniform(rng: np.random.Generator, low: float, high: float, shape: tuple[int, ...]) -> Floats:
    return low + (high - low) * rng.random(shape, dtype=np.float32)
