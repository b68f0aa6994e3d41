"""The documentation builds without a warning, the README is short, and what is there can be found."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Among them dead links, and pages that no other page leads to."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(tmp_path / "cache"), "-c", "docs"]
    done = subprocess.run(
        [*command, ".", str(tmp_path / "site")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "docs" / "index.html").exists()


def test_each_published_table_is_listed() -> None:
    listed = (ROOT / "docs" / "benchmarks.md").read_text()
    tables = sorted((ROOT / "results" / "published").glob("*.md"))
    assert tables
    assert [table.name for table in tables if f"](../results/published/{table.name})" not in listed] == []


def test_the_readme_has_at_most_a_thousand_words_and_leads_to_each_document() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 1000
    assert {f"docs/{path.name}" for path in ROOT.glob("docs/*.md")} <= set(re.findall(r"\]\(([^)\s]+)\)", text))


def test_the_tutorial_asks_what_the_quickstart_asks() -> None:
    text = (ROOT / "docs" / "tutorial.md").read_text()
    quickstart = (ROOT / "spaces" / "quickstart.yaml").read_text()
    (shown,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert all(line in quickstart for line in shown.splitlines())
    assert not re.search(r"^[A-Z]{3,}$", text, re.MULTILINE)  # a place that is not filled in
