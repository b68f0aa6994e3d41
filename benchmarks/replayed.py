"""Space of a search over replayed curves, whose trials wait instead of training."""

from __future__ import annotations

from typing import Any

OBJECTIVES = [
    {"metric": "val_accuracy", "goal": "maximize"},
    {"metric": "images_per_second", "goal": "maximize"},
]
LEARNING_RATE = {"min": 0.001, "max": 0.5, "log": True}
BATCH_SIZE = {"values": [64, 128, 256, 512]}


def replay_space(**keys: Any) -> dict[str, Any]:
    """Return the content of a space file with these keys; written as JSON it is YAML, too."""
    return {"trainable": "replay", "objectives": OBJECTIVES, **keys}
