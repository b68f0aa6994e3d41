"""Steps that are written as they end, and a run that continues after them."""

from pathlib import Path

import pytest
from steps_file import StepsFile


def describe(error: Exception) -> str:
    return f"{error}"


@pytest.fixture
def file(tmp_path: Path) -> StepsFile:
    return StepsFile(tmp_path / "new" / "steps.jsonl")


def test_only_the_steps_that_have_not_ended_are_measured_again(file: StepsFile) -> None:
    calls = []

    def step(name: str):
        return lambda: calls.append(name) or {"name": name}

    steps = {name: step(name) for name in ("a", "b", "c")}
    first = file.run("part", steps, describe)
    next(first), next(first)  # cut off after the second one
    assert file.read("part").missing == ["c"]
    list(file.run("part", steps, describe))
    assert calls == ["a", "b", "c"]
    assert file.read("part").complete


def test_a_step_that_fails_is_written_with_its_reason_and_the_next_one_runs(file: StepsFile) -> None:
    def fails():
        raise RuntimeError("out of memory")

    errors = list(file.run("part", {"a": fails, "b": lambda: {"x": 1}}, describe))
    state = file.read("part")
    assert [type(error) for error in errors] == [RuntimeError, type(None)]
    assert (state.errors, state.measured, state.complete) == ({"a": "out of memory"}, {"b": {"x": 1}}, True)


def test_a_line_that_was_cut_off_costs_only_its_own_step(file: StepsFile) -> None:
    file.plan("part", ["a", "b"])
    file.add("part", "a", {"x": 1})
    file.path.write_bytes(file.path.read_bytes()[:-5])
    file.add("part", "b", {"x": 2})
    assert file.read("part").measured == {"b": {"x": 2}}
    assert file.read("part").missing == ["a"]


def test_the_last_outcome_of_a_step_counts(file: StepsFile) -> None:
    file.add("part", "a", {})
    file.fail("part", "a", "error after it")
    assert (file.read("part").measured, file.read("part").errors) == ({}, {"a": "error after it"})


def test_a_part_without_a_plan_is_not_complete(file: StepsFile) -> None:
    file.plan("other", [])
    assert not file.read("part").complete
    assert file.read("other").complete
