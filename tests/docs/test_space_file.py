"""docs/space-file.md names every key of a space file."""

import dataclasses
import re
from pathlib import Path

import pytest

from search.front.objective import Objective
from search.space.budget import Budget, SearcherSettings, StoppingSettings
from search.space.parameters import Choice, Range
from search.space.space import Space
from trainables.contract import Data

TEXT = (Path(__file__).parents[2] / "docs" / "space-file.md").read_text()
KEYS = {key for row in re.findall(r"^\| (`[^|]+) \|", TEXT, re.MULTILINE) for key in re.findall(r"`([\w.]+)`", row)}


@pytest.mark.parametrize("kind", [Space, Choice, Range, Budget])
def test_each_key_has_a_row(kind):
    assert kind.model_fields.keys() <= KEYS


@pytest.mark.parametrize("kind", [Objective, Data])
def test_each_key_of_an_objective_and_of_the_data_has_a_row(kind):
    assert {field.name for field in dataclasses.fields(kind)} <= KEYS


@pytest.mark.parametrize(("section", "kind"), [("searcher", SearcherSettings), ("stopping", StoppingSettings)])
def test_each_key_of_a_short_section_has_a_row(section, kind):
    assert {f"{section}.{name}" for name in kind.model_fields} <= KEYS


def test_no_row_names_a_key_that_there_is_not():
    models = [Space, Choice, Range, Budget]
    known = {name for model in models for name in model.model_fields}
    known |= {field.name for kind in (Objective, Data) for field in dataclasses.fields(kind)}
    known |= {f"searcher.{name}" for name in SearcherSettings.model_fields}
    known |= {f"stopping.{name}" for name in StoppingSettings.model_fields}
    assert known >= KEYS
