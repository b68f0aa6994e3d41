"""Counts over a network without data: of networks that branch on values there are none."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from trainables.machine.exception_chain import described, is_within
from trainables.settings import Settings

DEEPEST, MOST_LOOKED_AT = 4, 2000  # of what a cache refers to
T = TypeVar("T")
Told = Callable[[str], None]
log = logging.getLogger(__name__)


def counted_or_none(count: Callable[[], T], settings: Settings, told: Told = log.info) -> T | None:
    """Return the count; None where the network needs values that tensors without data do not have.

    `told` gets the reason. An error of the network itself, of whatever kind, is raised again by its first step.
    """
    folder = Path(settings.workload).parent
    before = _keys(folder) if settings.source else {}
    try:
        return count()
    except Exception as error:
        told(described(error, folder))
        return None
    finally:
        if settings.source:
            _forget(folder, before)


def _values(folder: Path) -> list[Any]:
    """Return what the modules in a user's folder have at their top level."""
    named = ((f"{getattr(module, '__file__', '')}", module) for module in list(sys.modules.values()))
    files = (module for file, module in named if file.startswith(f"{folder}") and is_within(file, folder))
    return [value for module in files for value in vars(module).values()]


def _keys(folder: Path) -> dict[int, set[Any]]:
    """Return the keys of a user's dictionaries, by the `id` of each."""
    return {id(value): set(value) for value in _values(folder) if isinstance(value, dict)}


def _forget(folder: Path, before: Mapping[int, set[Any]]) -> None:
    """Take tensors without data out of the caches of a user's files: dictionaries, and functions with `lru_cache`.

    `before`: keys that the dictionaries had before the count, which stay.
    """
    for value in _values(folder):
        if isinstance(value, dict):
            new = value.keys() - before.get(id(value), set())
            for key in [key for key in new if any(map(_has_no_data, tree_leaves(value[key])))]:
                del value[key]
        elif hasattr(value, "cache_clear") and _refers_to_one(value):
            value.cache_clear()


def _has_no_data(value: Any) -> bool:
    return isinstance(value, FakeTensor) or (isinstance(value, Tensor) and value.is_meta)


def _refers_to_one(cache: Any) -> bool:
    """Return whether a cache has a tensor without data; one of data is left as it is, so that nothing is read again."""
    found = [cache]
    for _ in range(DEEPEST):
        found = gc.get_referents(*found)[:MOST_LOOKED_AT]
        if any(map(_has_no_data, found)):
            return True
    return False
