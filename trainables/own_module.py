"""Import of a user's training file, so that loader processes and ranks can import it too."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType


def imported(path: Path) -> ModuleType:
    """Import a file by its stem, also where a file of the same name in another folder was imported before."""
    folder = str(path.parent)
    if sys.path[:1] != [folder]:  # another folder before it may have a file of this name
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
        sys.path.insert(0, folder)
    known = os.environ.get("PYTHONPATH", "")
    if folder not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, known)))
    present = sys.modules.get(path.stem)
    if present is not None and present.__file__ != str(path):
        del sys.modules[path.stem]
    importlib.invalidate_caches()
    return importlib.import_module(path.stem)
