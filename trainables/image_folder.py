"""Trainable: a classification network of torchvision on a folder of pictures, without any Python of the user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from trainables.contract import Data, DataError, Metric, Parameter
from trainables.image_folder_settings import ImageFolderSettings, networks
from trainables.torch_trainable import TorchTrainable

OWN_METRICS = {
    "val_accuracy": Metric("fraction", "accuracy on the validation pictures, after the epoch", False, role="quality"),
    "val_loss": Metric("nats", "cross-entropy on the validation pictures", probed=False, role="loss"),
    "test_accuracy": Metric("fraction", "accuracy on the test pictures; measured once, at the end", probed=False),
    "test_loss": Metric("nats", "cross-entropy on the test pictures; measured once, at the end", probed=False),
}


class ImageFolder(TorchTrainable):
    """A network of torchvision on pictures in `root/train/CLASS/`, `root/test/CLASS/`, or only `root/CLASS/`."""

    def __init__(self) -> None:
        super().__init__(ImageFolderSettings, "images", OWN_METRICS)
        known: dict[str, Parameter] = dict(self.PARAMETERS or {})
        self.PARAMETERS: Mapping[str, Parameter] | None = {
            **known,
            "network": replace(known["network"], choices=networks()),
        }

    def locate_data(self, data: Data) -> Data:
        """Return the data with an absolute root; by default at most a tenth of the training pictures validate.

        Raises:
            DataError: there is no folder, or it has too few classes or pictures.
        """
        from trainables.samples import picture_folder, picture_source

        if data.root is None:
            raise DataError(f"data.root: image_folder needs a folder of pictures, {picture_source.WHERE}")
        root = Path(os.path.expanduser(data.root)).absolute()
        picture_folder.check_folder(root)
        found = replace(data, name="folder", root=str(root))
        files, _ = picture_folder.picture_files(root, "train")
        if data.val_images == Data.val_images:
            found = replace(found, val_images=max(1, min(data.val_images, len(files) // 10)))
        picture_source.training_count(found)
        return found

    def describe_data(self, data: Data) -> str:
        """Return counts of the pictures."""
        from trainables.samples import picture_source

        return picture_source.describe(data)


trainable = ImageFolder()
