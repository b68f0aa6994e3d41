"""Recorded problems by name: those of a `mobench.py` in a folder, and our table of VGG-19 (family `vgg19`)."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from problems import Problem
from vgg19_table import Vgg19Table, is_recorded


def names(folder: Path) -> list[str]:
    """Return the problems of the folder as family:instance, and our table if it is complete."""
    return [*_mobench(folder).NAMES, *([Vgg19Table.name] if is_recorded() else [])]


def load(folder: Path, name: str) -> Problem:
    """Return the problem of that name."""
    problem: Problem = Vgg19Table() if name == Vgg19Table.name else _mobench(folder).load(name)
    return problem


@cache
def _mobench(folder: Path) -> ModuleType:
    path = folder / "mobench.py"
    spec = importlib.util.spec_from_file_location("mobench", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SystemExit(f"{folder}: no mobench.py in this folder")
    module = importlib.util.module_from_spec(spec)
    sys.modules["mobench"] = module
    spec.loader.exec_module(module)
    return module
