"""Benchmark of the training recipe, on a tiny network."""

import json
from pathlib import Path

import pytest
import recipe

SMALL = ["--data", "generated", "--train-images", "200", "--epochs", "1", "--seeds", "2"]
SETTINGS = ["--set", "width=0.01", "depth=11", "batch_size=50", "threads=1"]


@pytest.mark.slow
def test_a_change_has_its_row_and_records_repeat_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["initialization=he", "epochs=2", *SMALL, *SETTINGS, "--records", f"{tmp_path / 'records.jsonl'}"]
    recipe.main(command)
    first = capsys.readouterr().out.splitlines()
    rows = json.loads(first[-1])["recipe"]
    assert list(rows) == ["none", "initialization=he", "epochs=2"]
    assert rows["none"][1:3] == [0.0, 0.0]
    assert rows["epochs=2"][3] > 1.2  # twice the time
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == 6
    recipe.main(command)
    again = capsys.readouterr().out.splitlines()
    assert again[1:] == first[1:]
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == 6


@pytest.mark.slow
def test_accuracies_may_be_of_the_test_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = ["--records", f"{tmp_path / 'records.jsonl'}"]
    means = []
    for option in ([], ["--test"]):
        recipe.main(["momentum=0.8", *SMALL, *SETTINGS, *option, *records])
        *_, header, _, _, _, found = capsys.readouterr().out.splitlines()
        assert ("test_accuracy" if option else "val_accuracy") in header
        means.append(json.loads(found)["recipe"]["none"][0])
    assert means[0] != means[1]
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == 8
