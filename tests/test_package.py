"""The wheel, installed into an environment of its own, outside of the checkout."""

import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
USER = """\
from search.results import load

count: int = len(load("run").trials)
wrong: str = len(load("run").trials)
"""


@pytest.mark.slow
def test_the_wheel_plans_and_runs_the_quickstart_and_has_types(tmp_path):
    """Its dependencies are those of this environment."""

    def run(*command: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, command)), cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )

    source = tmp_path / "source"  # building leaves files beside it
    for folder in ("search", "trainables", "spaces"):
        shutil.copytree(ROOT / folder, source / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    built = run(sys.executable, "-m", "pip", "wheel", source, "--no-deps", "--no-build-isolation", "-w", "wheels")
    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    packages = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    installed = run("venv/bin/pip", "install", "--no-deps", "--force-reinstall", "--no-index", wheel)
    assert installed.returncode == 0, installed.stderr
    planned = run("venv/bin/training-search", "run", "quickstart", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert "budget       6 epochs a trial" in planned.stdout
    short = ("--set", "budget.trials=2", "--set", "budget.hours=0.02")
    searched = run("venv/bin/training-search", "run", "quickstart", "--name", "first", "--no-dashboard", *short)
    assert searched.returncode == 0, searched.stderr
    assert (tmp_path / "results" / "first" / "report.html").exists()
    (tmp_path / "user.py").write_text(USER)
    checked = run("venv/bin/python", "-m", "mypy", "--strict", "user.py")
    assert checked.stdout.splitlines()[0].startswith("user.py:4: error: Incompatible types in assignment")
    assert len(checked.stdout.splitlines()) == 2, checked.stdout
