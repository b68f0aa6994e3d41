"""Declarations of users' training files, and the mistakes in them; no file is run."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from trainables.declared import DeclarationError, declaration_of
from trainables.settings import Settings
from trainables.source_files import check_module_name, digest_of, imported_files, imported_packages

COMMON = tuple(Settings.__dataclass_fields__)
GOOD = """\
import torch

UNIT = "tokens"
PARAMETERS = {"dropout": 0.0}
METRICS = {"val_loss": "nats"}
def network(dropout): ...
def dataset(part, root): ...
def loss(outputs, targets): ...
def measures(outputs, targets): ...
"""


def written(folder: Path, text: str, name: str = "own.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def test_a_declaration_is_read_without_running_the_file(tmp_path: Path) -> None:
    found = declaration_of(written(tmp_path, "raise SystemExit\n" + GOOD), COMMON)
    assert (found.unit, list(found.parameters), list(found.metrics)) == ("tokens", ["dropout"], ["val_loss"])
    assert (found.parameters["dropout"].type, found.parameters["dropout"].default) == ("float", 0.0)
    assert not found.metrics["val_loss"].probed


def test_details_of_a_parameter(tmp_path: Path) -> None:
    details = '{"heads": {"default": 4, "choices": [2, 4], "affects": "all", "help": "of attention"}, "p": '
    details += '{"default": 0.1, "low": 0, "high": 0.5, "affects": "trained"}}'
    text = GOOD.replace('{"dropout": 0.0}', details).replace("(dropout)", "(heads, p)")
    found = declaration_of(written(tmp_path, text)).parameters
    assert (found["heads"].choices, found["heads"].help) == ((2, 4), "of attention")
    assert (found["p"].low, found["p"].high, found["p"].affects) == (0, 0.5, "trained")


def test_a_loop_may_have_any_word_as_a_parameter(tmp_path: Path) -> None:
    text = 'PARAMETERS = {"lambda": 0.1}\nMETRICS = {"val_loss": "1"}\ndef train(config, trial): ...\n'
    assert list(declaration_of(written(tmp_path, text)).parameters) == ["lambda"]


def test_unit_parameters_and_annotations_may_be_left_out_or_added(tmp_path: Path) -> None:
    text = GOOD.replace('UNIT = "tokens"\n', "").replace('PARAMETERS = {"dropout": 0.0}\n', "")
    text = text.replace("METRICS = ", "METRICS: dict = ").replace("(dropout)", "(dropout=0.5)")
    found = declaration_of(written(tmp_path, text))
    assert (found.unit, dict(found.parameters)) == ("samples", {})


def test_functions_may_be_imported_or_assigned(tmp_path: Path) -> None:
    text = GOOD.replace("def loss(outputs, targets): ...", "from helpers import loss")
    declaration_of(written(tmp_path, text.replace("def network(dropout): ...", "network = make")))
    declaration_of(written(tmp_path, text.replace("def network(dropout): ...", "network, other = make, 1")))


# what is replaced, by what, and the message, in which `own.py:LINE: ` precedes what has a line
MISTAKES = [
    ("def loss(outputs, targets): ...", "def loss(outputs, targets) ...", "8: expected ':'"),
    ("import torch", "  import torch", "1: unexpected indent"),
    ("def loss(outputs, targets): ...", "", "no function loss; a training file has network, dataset, loss, measures"),
    ("def measures(outputs, targets): ...", "", "no function measures;"),
    ("def dataset(part, root): ...", "", "no function dataset;"),
    ("def network(dropout): ...", "", "no function network;"),
    ('METRICS = {"val_loss": "nats"}', "", "no METRICS; expected names with units"),
    ('METRICS = {"val_loss": "nats"}', "METRICS = {}", "no METRICS;"),
    ('{"val_loss": "nats"}', '{"loss": "nats"}', '5: METRICS: "loss" must begin with val_'),
    ('{"val_loss": "nats"}', '{"val_loss": 1}', "5: METRICS: val_loss: 1 is no unit"),
    (
        '{"val_loss": "nats"}',
        '{"val_a": "1", "val_a_low": "1"}',
        '5: METRICS: "val_a_low" is the end of an interval of',
    ),
    ('"nats"', '{"unit": "nats", "goal": "lower"}', 'expected a unit, or {"unit": "m", "goal": "minimize"} or'),
    ('"nats"', '{"unit": "nats", "aim": "minimize"}', "5: METRICS: val_loss: "),
    ('"nats"', '{"goal": "minimize"}', "is no unit; expected a string"),
    ('"nats"', '"max"', "5: METRICS: val_loss: 'max' is no unit; expected as in"),
    ('{"val_loss": "nats"}', '["val_loss"]', "5: METRICS must be a dictionary written out"),
    ('{"val_loss": "nats"}', "{**more}", "5: METRICS must be a dictionary written out"),
    ('"tokens"', '"images per s"', "3: UNIT is 'images per s'; expected a word"),
    ('"tokens"', "unit()", "3: UNIT must have plain values"),
    ('{"dropout": 0.0}', '{"dropout": 1 / 8}', "4: PARAMETERS: dropout must have plain values"),
    ('{"dropout": 0.0}', "dict(dropout=0.0)", "4: PARAMETERS must be a dictionary written out"),
    ('{"dropout": 0.0}', '{"dropout": None}', "4: PARAMETERS: dropout: None is no number, string, True or False"),
    ('{"dropout": 0.0}', '{"drop out": 0.0}', "4: PARAMETERS: 'drop out' is no name"),
    ('{"dropout": 0.0}', '{"batch_size": 1}', '4: PARAMETERS: every training has "batch_size" already'),
    ('{"dropout": 0.0}', '{"lambda": 0.1}', '4: PARAMETERS: "lambda" is a word of Python; choose another name'),
    ('{"dropout": 0.0}', '{"dropout": {"default": 1, "choices": 5}}', "4: PARAMETERS: dropout: choices is 5, no list"),
    ('{"dropout": 0.0}', '{"dropout": {"low": 0}}', '4: PARAMETERS: dropout: no "default"'),
    ('{"dropout": 0.0}', '{"dropout": {"default": 0, "hihg": 1}}', 'unknown "hihg"; did you mean "high"?'),
    ('{"dropout": 0.0}', '{"dropout": {"default": 2.0, "high": 1}}', "the default 2.0 is outside its limits"),
    ('{"dropout": 0.0}', '{"dropout": {"default": 1, "choices": [2]}}', "the default 1 is not among the choices"),
    ('{"dropout": 0.0}', '{"dropout": {"default": 1, "choices": [1, "a"]}}', "choices must be of the type"),
    ('{"dropout": 0.0}', '{"dropout": {"default": "a", "low": 1}}', "the limit 1 needs numbers"),
    ('{"dropout": 0.0}', '{"dropout": {"default": 1, "affects": "x"}}', "affects is 'x'; expected"),
    ("network(dropout)", "network(width)", '6: network takes "width", which PARAMETERS does not declare'),
    ("network(dropout)", "network()", '6: PARAMETERS declares "dropout", which network does not take'),
    ("network(dropout)", "network(dropout, /)", "6: network must take its arguments by name"),
    ("dataset(part, root)", "dataset(part)", "7: dataset must take part, root"),
    ("loss(outputs, targets)", "loss(outputs, targets, weights)", "8: loss must take outputs, targets"),
    ("measures(outputs, targets)", "measures(outputs, *, targets)", "9: measures must take outputs, targets"),
]


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES, ids=[f"{i}" for i in range(len(MISTAKES))])
def test_a_mistake_is_one_line_with_file_and_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(DeclarationError) as raised:
        declaration_of(path, COMMON)
    text = str(raised.value)
    assert text.startswith(f"{path}:{message}" if message[0].isdigit() else str(path)), text
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a = \0"])
def test_what_is_no_python_is_one_line(tmp_path: Path, content: bytes) -> None:
    (path := tmp_path / "own.py").write_bytes(content)
    with pytest.raises(DeclarationError, match=f"^{path}"):
        declaration_of(path)


def test_a_missing_file_and_a_folder_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="No such file"):
        declaration_of(tmp_path / "none.py")
    with pytest.raises(DeclarationError, match="Is a directory"):
        declaration_of(tmp_path)


@pytest.mark.parametrize("name", ["json.py", "class.py", "two words.py", "numpy.py", "search.py"])
def test_a_name_that_cannot_be_imported_or_hides_a_module_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DeclarationError, match="rename the file"):
        check_module_name(tmp_path / name)
    check_module_name(tmp_path / "flowers.py")


def test_the_digest_changes_with_the_file_and_what_it_imports_and_with_nothing_else(tmp_path: Path) -> None:
    path = written(tmp_path, "import helpers\nfrom parts import layers\n" + GOOD)
    written(tmp_path, "import json\n", "helpers.py")
    (tmp_path / "parts").mkdir()
    written(tmp_path, "", "parts/__init__.py")
    written(tmp_path, "from . import more\n", "parts/layers.py")
    written(tmp_path, "", "parts/more.py")
    written(tmp_path, "", "unrelated.py")
    names = [file.relative_to(tmp_path).as_posix() for file in imported_files(path)]
    assert names == ["helpers.py", "own.py", "parts/__init__.py", "parts/layers.py", "parts/more.py"]
    before = digest_of(path)
    written(tmp_path, "# a comment\n", "unrelated.py")
    assert digest_of(path) == before
    written(tmp_path, "x = 1\n", "parts/more.py")
    assert digest_of(path) != before


def test_the_packages_that_it_imports_have_versions(tmp_path: Path) -> None:
    path = written(tmp_path, "import json, PIL.Image\nimport no_such_package\n" + GOOD)
    assert set(imported_packages(path)) == {"torch", "pillow"}


def test_reading_a_declaration_imports_neither_torch_nor_numpy(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    code = f"""
        import sys
        from trainables.contract import load_trainable
        load_trainable({str(path)!r})
        sys.exit(bool({{"torch", "numpy", "own"}} & set(sys.modules)))
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(code)]).returncode == 0
