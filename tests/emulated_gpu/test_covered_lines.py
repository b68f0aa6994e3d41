"""Lines that mention the GPU: each is executed by a test, or excepted with its reason."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import pytest

from tests.emulated_gpu import executed_lines
from tests.emulated_gpu.covered_lines import Line, main, not_executed
from tests.emulated_gpu.executed_lines import FILE_VARIABLE, lines_of
from tests.emulated_gpu.processes import needs_emulation

SOURCE = '''"""A module for cuda."""
import os  # graph


def stream(on):
    """Choose a stream."""
    if on:
        return "cuda"
    return (lambda: "nccl") if on is None else 0
'''


def test_code_counts_and_neither_comments_nor_docstrings_do() -> None:
    assert list(lines_of(ast.parse(SOURCE), SOURCE)) == [5, 8, 9]


def test_a_line_is_recorded_when_it_is_executed_and_not_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A lambda counts when it is called."""
    (tmp_path / "trainables_sample.py").write_text(SOURCE)
    file = tmp_path / "lines"
    file.touch()
    monkeypatch.setenv(FILE_VARIABLE, f"{file}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    executed_lines.record()
    lines = [Line("trainables_sample", number, "") for number in (5, 8, 9)]
    stream = runpy.run_module("trainables_sample")["stream"]
    assert not_executed(lines, file) == lines
    stream(None)
    assert not_executed(lines, file) == lines[1:]
    stream(None)()
    stream(True)
    assert not_executed(lines, file) == []


@needs_emulation
@pytest.mark.slow
@pytest.mark.timeout(4000)
def test_each_line_that_mentions_the_gpu_is_executed_or_excepted(capfd: pytest.CaptureFixture[str]) -> None:
    assert main() == 0, capfd.readouterr().out
