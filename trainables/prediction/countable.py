"""Networks whose operators cannot be counted without data, because they branch on values, for example."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
)

UNCOUNTABLE = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)
T = TypeVar("T")
log = logging.getLogger(__name__)


def counted_or_none(count: Callable[[], T]) -> T | None:
    """Return the count; None where the network needs values that tensors without data do not have.

    An error of the network itself is raised again by its first step.
    """
    try:
        return count()
    except UNCOUNTABLE as error:
        log.info("operators of this network cannot be counted: %s", str(error).partition("\n")[0])
        return None
