"""Memory on the command line: parts, a verdict, the largest batches; bad input is one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from search.commandline import given_settings
from search.memory import Question, answer, main
from search.space.machine import GIB
from trainables.contract import Config, Data, Layout, MemoryNeed, Parameter, Resources, Scalar, load_trainable

PARAMETERS: Mapping[str, Parameter] = {
    "batch_size": Parameter("int", 128, "pictures per step", low=1),
    "optimizer": Parameter("str", "sgd", "", choices=("sgd", "adamw")),
    "precision": Parameter("str", "fp32", "", choices=("fp32", "bf16", "fp16")),
}


class Straight:
    """A trainable whose memory is a straight line: a GiB, doubled by adamw, and bytes by picture and precision."""

    PARAMETERS = PARAMETERS

    def __init__(self, processes: int = 1) -> None:
        self.processes = processes

    def memory(self, config: Config, data: Data, resources: Resources) -> MemoryNeed:
        fixed, each = self._line(config)
        return MemoryNeed({"parameters": fixed, "activations": each * config.get("batch_size", 128)}, 5 * GIB)

    def largest_batch(self, config: Config, data: Data, resources: Resources, available: int) -> int:
        fixed, each = self._line(config)
        return max(0, available - fixed) // each

    def _line(self, config: Config) -> tuple[int, int]:
        fixed = GIB * (2 if config.get("optimizer") == "adamw" else 1)
        return fixed, 2**21 if config.get("precision") == "bf16" else 2**22

    def unavailable(self, parameter: str, value: Scalar, resources: Resources) -> str | None:
        return "needs a CUDA device" if value == "fp16" else None

    def layout(self, config: Config, resources: Resources) -> Layout:
        return Layout(self.processes)


def question(config: dict[str, Any], available: int | None = None, processes: int = 1) -> Question:
    return Question(Straight(processes), config, Data(), Resources(2), available)  # type: ignore[arg-type]


def rows(text: str) -> dict[str, list[str]]:
    """Cells of all tables by their row's first cell."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells}


def test_the_answer_has_the_parts_their_sum_and_whether_they_fit() -> None:
    text = answer(question({"batch_size": 512}))
    assert rows(text)["parameters"] == ["1.000"]
    assert rows(text)["activations"] == ["2.000"]
    assert rows(text)["total"] == ["3.000"]
    assert "\nfits: 3.00 GiB of 5.00 GiB\n" in text
    assert "does not fit: 3.00 GiB of 2.50 GiB" in answer(question({"batch_size": 512}, available=int(2.5 * GIB)))


def test_the_largest_batches_are_those_of_the_line_and_what_cannot_run_here_is_left_out() -> None:
    text = answer(question({"batch_size": 7}))
    assert "largest batch_size that fits, at most all training samples, other settings as given:" in text
    found = rows(text)
    assert found["optimizer"] == ["fp32", "bf16"]
    assert found["sgd"] == ["1,024", "2,048"]
    assert found["adamw"] == ["768", "1,536"]


def test_with_several_processes_the_largest_batch_is_said_to_be_that_of_all_of_them() -> None:
    assert "over 3 processes" in answer(question({}, processes=3))


def test_where_nothing_fits_there_is_a_dash() -> None:
    assert rows(answer(question({}, available=int(1.5 * GIB))))["adamw"] == ["–", "–"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bach_size=1"], 'bach_size: vgg19_cifar10 has no "bach_size"; did you mean "batch_size"?'),
        (["batch_size"], '"batch_size": expected NAME=VALUE'),
        (["batch_size=many"], 'batch_size: found "many"; expected a whole number'),
        (["batch_size=0"], "batch_size: found 0; expected at least 1"),
        (["learning_rate=nan"], "learning_rate: found nan; expected a finite number"),
        (["precision=fp8"], 'precision: found "fp8"'),
        (["--available", "-1"], "--available -1: a number of GiB is expected"),
        (["--available", "much"], "--available: invalid float value"),
        (["--trainable", "vgg20"], 'no trainable "vgg20"'),
        (["--trainable", "replay"], "cannot be predicted"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_setting_has_the_type_that_it_would_have_in_a_space_file() -> None:
    given = ["batch_size=64", "learning_rate=1e-3", "pin_memory=false", "precision=bf16", "threads=null"]
    found = given_settings(given, load_trainable("vgg19_cifar10"), "vgg19_cifar10")
    assert list(found.values()) == [64, 1e-3, False, "bf16", None]
