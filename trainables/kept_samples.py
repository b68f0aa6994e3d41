"""Values of a metric of single validation samples, as text that a journal keeps. NumPy.

Two trainings that are measured on the same samples are compared sample by sample: what is hard for both cancels.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_KEPT = 10_000  # evenly spaced, of more; they suffice to tell how alike two trainings err

Values = NDArray[np.float32]


def as_text(values: NDArray[np.floating[Any]]) -> str:
    """Return the values, shape (samples,), as text: a bit each where all are 0 or 1, else rounded to 16 bits."""
    kept = values[:: -(-len(values) // MOST_KEPT)] if len(values) else values
    if np.isin(kept, (0, 1)).all():
        return f"bits {len(kept)} {_encoded(np.packbits(kept.astype(np.uint8)))}"
    scale = float(np.abs(kept).max())
    return f"halves {scale!r} {_encoded((kept / scale).astype('<f2'))}"


def from_text(text: str) -> Values:
    """Return the values, shape (samples,).

    Raises:
        ValueError: the text is damaged.
    """
    kind, number, encoded = text.split(" ")
    try:
        content = np.frombuffer(base64.b64decode(encoded, validate=True), np.uint8)
    except binascii.Error as error:
        raise ValueError(f"no values of samples: {error}") from None
    match kind:
        case "bits":
            return np.unpackbits(content, count=int(number)).astype(np.float32)
        case "halves":
            return float(number) * content.view("<f2").astype(np.float32)
    raise ValueError(f"no values of samples: {kind}")


def _encoded(values: NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode()
