"""Search methods that are compared: the Advisor and its alternatives, one trial at a time.

Each method runs through its own public interface, in one process, sequentially, with its own defaults. The Advisor is
told that a configuration cannot run; the other methods get accuracy and throughput 0, as the authors of these problems
do it.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ax_method import AxQLogNEHVI
from method import Method, Random, Setting
from optuna_methods import OptunaGP, optuna_nsga2, optuna_tpe, optuna_tpe_multivariate
from our_methods import PARTS, OurAdvisor, OurAdvisorWithout
from problems import Problem
from ray_method import RayOptunaAsha
from smac_method import SmacParEgo
from syne_tune_method import SyneTuneMoasha

METHODS: Mapping[str, Callable[[Problem, int, int, Setting], Method]] = {
    "ours": OurAdvisor,
    "ours_random": functools.partial(OurAdvisor, searcher={"name": "random"}),
    "ours_tpe": functools.partial(OurAdvisor, searcher={"name": "tpe"}),
    "random": Random,
    "optuna_tpe": optuna_tpe,
    "optuna_tpe_multivariate": optuna_tpe_multivariate,
    "optuna_nsga2": optuna_nsga2,
    "optuna_gp": OptunaGP,
    "ax_qlognehvi": AxQLogNEHVI,
    "smac_parego": SmacParEgo,
    "ray_optuna_asha": RayOptunaAsha,
    "syne_tune_moasha": SyneTuneMoasha,
    **{f"ours_without_{part}": functools.partial(OurAdvisorWithout, part) for part in PARTS},
}
WITHOUT_A_PART = tuple(f"ours_without_{part}" for part in PARTS)
OURS = ("ours", "ours_random", "ours_tpe", *WITHOUT_A_PART)
STOPPING = ("ray_optuna_asha", "syne_tune_moasha")

_REVISION = 2  # raise it when a baseline is called differently
_PACKAGES = {
    "optuna": "optuna",
    "ray": "ray",
    "syne": "syne-tune",
    "ax": "ax-platform",
    "smac": "smac",
    "random": "numpy",
}


def method_version(method: str) -> str | None:
    """Return the versions that decide the results of a method, or None if its package is not installed."""
    if method in OURS:
        return f"search {_sources_digest()}"
    package = _PACKAGES[method.split("_")[0]]
    try:
        parts = [package, "optuna"] if package == "ray" else [package]
        return f"{_REVISION} " + ", ".join(f"{name} {version(name)}" for name in parts)
    except PackageNotFoundError:
        return None


def _sources_digest() -> str:
    """Hash of the modules of `search` that the Advisor has imported."""
    digest = hashlib.sha256()
    for name in sorted(name for name in sys.modules if name.startswith("search.")):
        digest.update(Path(sys.modules[name].__file__ or "").read_bytes())
    return digest.hexdigest()[:12]
