"""Division of samples into training and validation: stratified by class, and the same in all trials of all runs."""

import numpy as np
from numpy.typing import NDArray

from trainables.contract import Data, DataError

SEED = 20090408  # fixed, so that all trials of all runs are evaluated on the same samples
Labels = NDArray[np.int64]
Indices = NDArray[np.int64]


def split(labels: Labels, data: Data) -> tuple[Indices, Indices]:
    """Return the indices of training and of validation images: disjoint, stratified by class, always the same.

    Raises:
        DataError: there are not enough images.
    """
    if not 0 <= data.val_images < len(labels):
        raise DataError(out_of_range(data.val_images, len(labels)))
    validation, training = stratified_sample(labels, data.val_images, SEED)
    if data.train_images is not None and data.train_images < len(training):
        chosen, _ = stratified_sample(labels[training], data.train_images, SEED)
        training = training[chosen]
    return training, validation


def out_of_range(validation: int, train: int) -> str:
    """Return the message that so many validation pictures leave none to train on, and what would do."""
    few = max(1, train // 5)
    return (
        f"data.val_images {validation}: expected 0 to {train - 1:,} of the {train:,} training pictures; {few} would do"
    )


def stratified_sample(labels: Labels, count: int, seed: int) -> tuple[Indices, Indices]:
    """Return `count` indices, stratified by class, and the remaining ones; both in ascending order."""
    rng = np.random.default_rng(seed)
    # Each image gets its relative position in its shuffled class; any prefix by position has each class in its share.
    along = np.empty(len(labels))
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        along[mine] = (rng.permutation(len(mine)) + rng.random()) / len(mine)
    order = np.argsort(along, kind="stable")
    return np.sort(order[:count]), np.sort(order[count:])
