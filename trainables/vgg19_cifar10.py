"""Trainable: VGG19 on CIFAR-10, or on other pictures of its format."""

from __future__ import annotations

from trainables.contract import Data, Metric
from trainables.torch_trainable import TorchTrainable
from trainables.vgg19_settings import Vgg19Settings

OWN_METRICS = {
    "val_accuracy": Metric("fraction", "accuracy on the validation pictures, after the epoch", False, role="quality"),
    "val_loss": Metric("nats", "cross-entropy on the validation pictures", probed=False, role="loss"),
    "train_loss": Metric("nats", "label-smoothed cross-entropy, mean over the epoch's steps", probed=False),
    "test_accuracy": Metric("fraction", "accuracy on the test pictures; measured once, at the end", probed=False),
    "test_accuracy_flip": Metric(
        "fraction",
        "likewise, of the mean of the outputs for each picture and its mirror image; of full trainings",
        False,
    ),
    "test_accuracy_six_views": Metric(
        "fraction", "likewise, also with both moved by a pixel up left and down right; of full trainings", False
    ),
}


class Vgg19Cifar10(TorchTrainable):
    """VGG19 on pictures of 32x32."""

    USUAL_EPOCHS = 200  # of a full training on CIFAR-10

    def locate_data(self, data: Data) -> Data:
        """Find the pictures."""
        from trainables.samples import picture_source

        return picture_source.locate(data)

    def describe_data(self, data: Data) -> str:
        """Return name and counts of the pictures."""
        from trainables.samples import picture_source

        return picture_source.describe(data)


trainable = Vgg19Cifar10(Vgg19Settings, "images", OWN_METRICS)
