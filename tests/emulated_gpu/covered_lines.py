"""Lines of code that mention the GPU and that no test executes: `python -m tests.emulated_gpu.covered_lines`.

Runs the tests marked `gpu` on emulated GPUs, the tests of this folder and the quick tests of trainables, and prints the
lines of `trainables/` and `search/execution/` that none of them executed. It takes 15 to 20 minutes on two cores.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.emulated_gpu.executed_lines import FILE_VARIABLE, PACKAGES, lines_of
from tests.emulated_gpu.processes import ROOT

TIMEOUT_SECONDS = 3000
TESTS = {  # options of pytest by what they run
    "emulated GPUs": ("-m", "slow or not slow", "-k", "not covered_lines", "tests/emulated_gpu"),
    "CPU": ("-m", "not slow and not gpu", "tests/trainables"),
}
EXCEPTED: Mapping[str, str] = {  # by a line's text: why no test executes it
    "torch._C._cuda_releasePool(index, pool)": "only PyTorch 2.11 leaves the end of a failed capture to us",
}


@dataclass(frozen=True)
class Line:
    """Line of code that mentions the GPU."""

    module: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.module}:{self.number}: {self.text}"


def all_lines() -> list[Line]:
    """Return the lines to be executed."""
    found = []
    for package in PACKAGES:
        for path in sorted(ROOT.joinpath(*package.split(".")).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            source = path.read_text()
            texts = source.splitlines()
            numbers = lines_of(ast.parse(source), source)
            found += [Line(module, number, texts[number - 1].strip()) for number in numbers]
    return found


def record_tests(file: Path) -> None:
    """Run the tests; the lines that they execute are appended to `file`."""
    paths = [str(ROOT), str(Path(__file__).parent / "site"), os.environ.get("PYTHONPATH", "")]
    variables = {**os.environ, FILE_VARIABLE: f"{file}", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    for name, options in TESTS.items():
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short", *options]
        done = subprocess.run(command, env=variables, cwd=ROOT, timeout=TIMEOUT_SECONDS, check=False)
        if done.returncode:
            print(f"tests on {name} failed", file=sys.stderr)


def not_executed(lines: Iterable[Line], file: Path) -> list[Line]:
    """Return the lines that are not in `file`."""
    executed = set(file.read_text().split())
    return [line for line in lines if f"{line.module}:{line.number}" not in executed]


def main() -> int:
    """Print the lines that were not executed; 1 if one of them is not excepted, or an exception is executed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "lines")
        file.touch()
        record_tests(file)
        lines = all_lines()
        missing = not_executed(lines, file)
    unexplained = [line for line in missing if line.text not in EXCEPTED]
    needless = EXCEPTED.keys() - {line.text for line in missing}
    print(f"{len(lines)} lines, {len(lines) - len(missing)} executed, {len(missing) - len(unexplained)} excepted")
    for line in missing:
        print(line, f"# {EXCEPTED[line.text]}" if line.text in EXCEPTED else "# not executed")
    for text in sorted(needless):
        print(f"executed, though excepted: {text}")
    return int(bool(unexplained or needless))


if __name__ == "__main__":
    sys.exit(main())
