"""docs/space-file.md names every key of a space file."""

import dataclasses
import json
import re
from pathlib import Path

import jsonschema
import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

from search.front.objective import Objective
from search.space.budget import Budget, SearcherSettings, StoppingSettings
from search.space.parameters import Choice, Range
from search.space.schema import space_schema
from search.space.space import Space
from trainables.contract import Data

ROOT = Path(__file__).parents[2]
SPACES = [*ROOT.glob("spaces/*.yaml"), *ROOT.glob("examples/*.yaml")]
TEXT = (ROOT / "docs" / "space-file.md").read_text()
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
    models: list[type[BaseModel]] = [Space, Choice, Range, Budget]
    known = {name for model in models for name in model.model_fields}
    known |= {field.name for kind in (Objective, Data) for field in dataclasses.fields(kind)}
    known |= {f"searcher.{name}" for name in SearcherSettings.model_fields}
    known |= {f"stopping.{name}" for name in StoppingSettings.model_fields}
    assert known >= KEYS


def test_the_schema_in_docs_is_that_of_the_code():
    assert (ROOT / "docs" / "space.schema.json").read_text() == space_schema()


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.name)
def test_our_own_files_meet_the_schema(path):
    jsonschema.validate(YAML(typ="safe").load(path), json.loads(space_schema()))


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("budget", "trails", 8),
        ("parameters", "batch_size", {"values": [1], "min": 1}),
        ("parameters", "batch_size", {"vals": [1]}),
        ("parameters", "batch_size", {"min": 1, "max": "a"}),
        ("searcher", "name", "gpp"),
    ],
)
def test_a_mistake_does_not_meet_the_schema(section, key, value):
    mapping = YAML(typ="safe").load(ROOT / "spaces" / "quickstart.yaml")
    mapping[section][key] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(mapping, json.loads(space_schema()))


@pytest.mark.parametrize("objective", [{"time_to": {"val_accuracy": 0.8}}, {"metric": "a", "goal": "minimize"}])
@pytest.mark.parametrize("likely", ["0.01 to 0.1", [0.01, 0.1]])
def test_short_forms_meet_the_schema(objective, likely):
    mapping = YAML(typ="safe").load(ROOT / "spaces" / "quickstart.yaml")
    mapping["objectives"] = [objective, {"metric": "b", "goal": "maximize"}]
    mapping["constraints"] = ["b >= 0.95 * baseline"]
    mapping["parameters"]["learning_rate"] = {"min": 0.001, "max": 1, "likely": likely, "when": {"optimizer": "sgd"}}
    jsonschema.validate(mapping, json.loads(space_schema()))
