"""docs/cli.md and docs/columns.md name every command, option and column."""

import re
import runpy
from pathlib import Path

import pytest

from search.__main__ import COMMANDS
from search.record.columns import COLUMNS
from trainables.contract import load_trainable

DOCS = Path(__file__).parents[2] / "docs"
SECTIONS = dict(
    re.findall(r"^## (\w+): .*?\n(.*?)(?=^## |\Z)", (DOCS / "cli.md").read_text(), re.MULTILINE | re.DOTALL)
)


def options(text):
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_of_a_command_stands_in_its_section_and_no_other(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    found = runpy.run_path(str(DOCS / "write_reference.py"))["help_of"](name)
    assert options(SECTIONS[name]) == options(found) > {"--help"}


def test_no_section_is_of_a_command_that_there_is_not():
    assert SECTIONS.keys() == COMMANDS.keys()


def test_each_column_of_a_run_stands_in_docs():
    text = (DOCS / "columns.md").read_text()
    assert text == runpy.run_path(str(DOCS / "write_reference.py"))["columns"]()
    trainable = load_trainable("vgg19_cifar10")
    names = [*COLUMNS, *trainable.METRICS, *(f"config.{name}" for name in trainable.PARAMETERS)]
    assert all(f"| `{name}` |" in text for name in names)
