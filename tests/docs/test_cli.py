"""docs/cli.md names every command and option."""

import re
import runpy
from pathlib import Path

import pytest

from search.__main__ import COMMANDS

DOCS = Path(__file__).parents[2] / "docs"
SECTIONS = dict(
    re.findall(r"^## (\w+): .*?\n(.*?)(?=^## |\Z)", (DOCS / "cli.md").read_text(), re.MULTILINE | re.DOTALL)
)


def options(text):
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_of_a_command_stands_in_its_section_and_no_other(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    found = runpy.run_path(str(DOCS / "write_cli.py"))["help_of"](name)
    assert options(SECTIONS[name]) == options(found) > {"--help"}


def test_no_section_is_of_a_command_that_there_is_not():
    assert SECTIONS.keys() == COMMANDS.keys()
