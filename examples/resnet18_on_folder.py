"""ResNet-18 on a folder of pictures, `root/train/CLASS/*.jpg`, `root/validation/...`, `root/test/...`."""

import os

import torch.nn.functional as F
from torchvision import datasets, models
from torchvision import transforms as T

UNIT = "images"
PARAMETERS = {"dropout": {"default": 0.0, "low": 0.0, "high": 0.9, "affects": "trained"}}
METRICS = {"val_accuracy": "fraction", "val_loss": "nats"}
SIZE = int(os.environ.get("IMAGE_SIZE", "224"))
NORMALIZE = [T.ToTensor(), T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
TRAINING = [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()]
EVALUATION = [T.Resize(SIZE * 8 // 7), T.CenterCrop(SIZE)]
CLASSES = 20  # at most


def network(dropout):
    model = models.resnet18(num_classes=CLASSES)
    model.fc.register_forward_pre_hook(lambda layer, inputs: F.dropout(inputs[0], dropout, layer.training))
    return model


def dataset(part, root):
    transforms = TRAINING if part == "train" else EVALUATION
    return datasets.ImageFolder(f"{root}/{part}", T.Compose(transforms + NORMALIZE))


def loss(outputs, targets):
    return F.cross_entropy(outputs, targets)


def measures(outputs, targets):
    return {
        "val_accuracy": outputs.argmax(1) == targets,
        "val_loss": F.cross_entropy(outputs, targets, reduction="none"),
    }
