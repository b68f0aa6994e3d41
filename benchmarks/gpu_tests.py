"""Tests marked `gpu`, run by pytest in this process; the outcome of each is written as it ends."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steps_file import StepsFile

PART = "tests"
ROOT = Path(__file__).parents[1]
# Without the plugin pytest-timeout its settings in pyproject.toml are unknown.
OPTIONS = ("-m", "gpu", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestConfigWarning", "--tb=short")


class Outcomes:
    """Plugin of pytest that leaves out the tests that have ended, and writes the outcomes of the others."""

    def __init__(self, file: StepsFile) -> None:
        self._file = file

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Write the plan, and deselect what has ended."""
        marked = [item for item in items if item.get_closest_marker("gpu") is not None]
        self._file.plan(PART, [item.nodeid for item in marked])
        missing = set(self._file.read(PART).missing)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in missing])
        items[:] = [item for item in marked if item.nodeid in missing]

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Write the outcome of a test, or an error before or after it."""
        if report.failed:
            lines = str(report.longrepr).splitlines()
            reason = next((line for line in lines if line.startswith("E ")), lines[-1] if lines else "failed")
            self._file.fail(PART, report.nodeid, reason.removeprefix("E ").strip(), report.duration)
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self._file.add(PART, report.nodeid, {"skipped": reason.removeprefix("Skipped: ")}, report.duration)
        elif report.when == "call":
            self._file.add(PART, report.nodeid, {}, report.duration)


def run_tests(paths: Sequence[str] | None, file: StepsFile) -> None:
    """Run the tests of these files, by default of all those that need a GPU and no Ray."""
    if importlib.util.find_spec("pytest") is None:
        file.plan(PART, ["pytest"])
        file.fail(PART, "pytest", "pytest is not installed")
        return
    import pytest

    pytest.main([*OPTIONS, *(paths or files_with_gpu_tests())], plugins=[Outcomes(file)])


def files_with_gpu_tests(folder: Path = ROOT / "tests" / "trainables") -> list[str]:
    """Return the test files of the trainables, which know no Ray, with a test marked `gpu`."""
    return [str(path) for path in sorted(folder.rglob("test_*.py")) if "mark.gpu" in path.read_text()]
