"""The check of a training file before a search."""

import contextlib
import io
import itertools
import json
import math
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from search import check
from search.__main__ import COMMANDS
from search.__main__ import main as command
from tests.trainables.own_files import LOOP, written
from trainables import facts
from trainables.contract import Resources, load_trainable, source_of


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.py"], "none.py: No such file"),
        (["flowers"], "expected a Python file"),
        ([], "the following arguments are required: file (see"),
        (["rows.py", "batch_size"], '"batch_size": expected NAME=VALUE'),
        (["rows.py", "batch_size=many"], 'batch_size: found "many"; expected a whole number'),
        (["rows.py", "batch_size=0"], "batch_size: found 0; expected at least 1"),
        (["rows.py", "foo=1"], 'rows.py has no "foo"'),
        (["wrong.py"], "wrong.py: no function loss"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    written(tmp_path, "rows.py")
    written(tmp_path, "wrong.py", ("def loss", "def lost"))
    monkeypatch.chdir(tmp_path)
    assert check.main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_facts_are_those_of_the_file_and_the_settings(tmp_path: Path) -> None:
    path = Path(written(tmp_path, "rows.py", ("import torch", "print('x')\nimport torch")))
    found = check._facts(check.Check(path, None, {}), "hidden=6")
    assert found == {
        "samples": 48,
        "input": "float32 [4]",
        "target": "float32 [1]",
        "units": 1,
        "parameters": 4 * 6 + 6 + 6 + 1,
        "flops": 2 * (4 * 6 * 2 + 6 * 3),
        "flops_error": None,
        "memory_error": None,
    }


@pytest.mark.usefixtures("in_this_process")
def test_why_flops_and_memory_cannot_be_counted_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probed = {"peak_memory_gib": 0.5}
    monkeypatch.setattr(check, "_trained", lambda *_, probe=False, **__: check.Outcome(probed if probe else {}))
    monkeypatch.setattr(check, "_compared", lambda *_: [])
    monkeypatch.setattr(check, "_in_auto_precision", lambda *_: [])
    module = "class Branch(nn.Sequential):\n    def forward(self, x):\n"
    module += "        return super().forward(x if x.sum().item() > 0 else -x)\n\n\nclass Rows"
    branch = ("class Rows", module), ("return nn.Sequential(", "return Branch(")
    path = written(tmp_path, f"rows_{next(numbers)}.py", *branch)
    one = check.Check(Path(path), None, {})
    found = {name: text for name, text, _ in check.findings(one, load_trainable(path), source_of(path))}
    place = f"({Path(path).name}:11)"
    assert re.search(rf"FLOPs cannot be counted: \w+Error: .*meta tensors? {re.escape(place)}", found["network"])
    assert found["memory"].startswith("0.50 GiB, not predicted: ")
    assert found["memory"].endswith(place)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """`trainables.facts` without a new process, which needs seconds to start."""

    def facts_here(one: check.Check, *arguments: str, seconds: float | None = None) -> Any:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            facts.main([str(one.path), *arguments])
        return json.loads(out.getvalue().splitlines()[-1])

    monkeypatch.setattr(check, "_facts", facts_here)


numbers = itertools.count(1)


@pytest.mark.usefixtures("in_this_process")
def test_an_error_of_the_file_ends_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "wrong_rows.py", ("return Rows(part)", "return Row(part)"))
    assert check.main([path]) == 1
    printed = capsys.readouterr().out
    assert "NameError: name 'Row' is not defined (wrong_rows.py:27)" in printed
    assert "trainable:" not in printed


def checked_loop(folder: Path, *changes: tuple[str, str], **settings: str) -> dict[str, tuple[str, bool]]:
    """Findings of a loop with changes, by name; the rate is not measured."""
    path = written(folder, f"rows_{next(numbers)}.py", *changes, text=LOOP)  # in one process a name is imported once
    one = check.Check(Path(path), None, settings, workload=False)
    found: dict[str, tuple[str, bool]] = {}
    for name, text, good in check.findings(one, load_trainable(path), source_of(path)):
        found[name] = text, good
        if name == "first report":
            break
    return found


@pytest.mark.usefixtures("in_this_process")
def test_a_loop_is_run_to_its_first_report(tmp_path: Path) -> None:
    text, good = checked_loop(tmp_path)["first report"]
    assert good
    assert re.fullmatch(r"val_loss [\d.]+", text)


@pytest.mark.usefixtures("in_this_process")
def test_the_first_report_of_a_loop_takes_few_steps(tmp_path: Path) -> None:
    counted = ("            optimizer.step()\n", "            optimizer.step()\n            steps += 1\n")
    changes = (
        ("        for x, y in trial", "        steps = 0\n        for x, y in trial"),
        ("tested(model, 1)", "steps"),
        counted,
    )
    assert checked_loop(tmp_path, *changes)["first report"] == (f"val_loss {check.STEPS}", True)


@pytest.mark.usefixtures("in_this_process")
def test_a_loop_that_reports_what_it_does_not_declare_is_found(tmp_path: Path) -> None:
    found = checked_loop(tmp_path, ("val_loss=tested", "val_los=tested"))
    assert found["first report"] == ("trial.report was given val_los; METRICS declares val_loss", False)


@pytest.mark.usefixtures("in_this_process")
def test_a_loop_whose_test_is_wrong_is_found(tmp_path: Path) -> None:
    text, good = checked_loop(tmp_path, ('return {"test_loss"', 'return {"test_los"'))["first report"]
    assert "test returned test_los; expected test_loss" in text
    assert not good


@pytest.mark.usefixtures("in_this_process")
def test_a_test_without_a_checkpoint_is_found(tmp_path: Path) -> None:
    text, good = checked_loop(tmp_path, ("checkpoint=model.state_dict(), ", ""))["first report"]
    assert "test needs the network that train reports: trial.report(..., checkpoint=...)" in text
    assert not good


def test_a_loop_without_a_report_in_time_is_said_to_be_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "FIRST_REPORT_SECONDS", 1.0)
    slow = ("import torch\n", "import time\n\nimport torch\n"), ("    model = ", "    time.sleep(100)\n    model = ")
    assert checked_loop(tmp_path, *slow)["first report"] == ("not checked: no trial.report within 1 s", True)
    several = checked_loop(tmp_path, world_size="2")
    assert several["first report"] == ("not checked: only loops of one process are", True)


@pytest.mark.parametrize("other", [{"train_loss": 1.0, "val_f1": math.nan}, {"train_loss": 1.0}])
def test_a_metric_that_is_no_number_is_no_equal_one(other: dict[str, float]) -> None:
    one = check.Outcome({"train_loss": 1.0, "val_f1": 0.5})
    assert check._difference(one, one) == 0.0
    assert check._difference(one, check.Outcome(other)) == math.inf


@pytest.mark.parametrize("contended", [0.0, 1.0])
def test_a_rate_that_others_disturbed_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch, contended: float) -> None:
    metrics = {"rows_per_second": 5.0, "rows_per_second_low": 4.0, "rows_per_second_high": 6.0, "contended": contended}
    monkeypatch.setattr(check, "_trained", lambda *arguments, **settings: check.Outcome(metrics))
    ((_, text, good),) = check._measured(check.Check(Path("rows.py"), None, {}), "rows_per_second", {"rate": {}})
    assert good
    assert "± 1 rows/s" in text
    assert ("measured while other processes used the cores" in text) == bool(contended)


def test_an_epoch_is_long_where_the_best_rate_takes_longer_than_a_probe_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter([5.0, 50.0, 20.0])
    monkeypatch.setattr(check, "_trained", lambda *_, **__: check.Outcome({"rows_per_second": next(rates)}))
    one = check.Check(Path("rows.py"), None, {})
    list(check._measured(one, "rows_per_second", {"rate": {}}))
    assert not one.epoch_is_long  # of a loop: the samples are not known
    one.figures["units"] = 400
    assert one.epoch_is_long
    list(check._measured(one, "rows_per_second", {"rate": {}, "1 loader": {}}))
    assert not one.epoch_is_long


@pytest.mark.parametrize(
    ("loss", "text"),
    [(1.01, "bf16 here: train_loss 1.01, 1.0% from fp32"), (2.0, "bf16 here: train_loss 2, 50.0% from fp32: far; ")],
)
def test_the_loss_in_the_precision_of_a_search_is_compared_with_that_in_fp32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: float, text: str
) -> None:
    monkeypatch.setattr("trainables.machine.processor.bf16", lambda: "computed")
    monkeypatch.setattr(check, "_trained", lambda *arguments, **settings: check.Outcome({"train_loss": loss}))
    trainable, one = load_trainable(written(tmp_path, "rows.py")), check.Check(tmp_path / "rows.py", None, {})
    single = check.Outcome({"train_loss": 1.0})
    ((name, found, good),) = check._in_auto_precision(one, trainable, Resources(1), single)
    assert name == "precision auto"
    assert found.startswith(text)
    assert good
    chosen = check.Check(tmp_path / "rows.py", None, {"precision": "bf16"})
    assert not [*check._in_auto_precision(chosen, trainable, Resources(1), single)]
    monkeypatch.setattr("trainables.machine.processor.bf16", lambda: "emulated")
    assert [*check._in_auto_precision(one, trainable, Resources(1), single)] == [("precision auto", "fp32 here", True)]


@pytest.mark.slow
def test_a_whole_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "rows.py", ("48 if part", "4800 if part"), ("nn.Dropout(0.1)", "nn.Identity()"))
    assert check.main([path, "batch_size=8", "threads=1"]) == 0
    printed = capsys.readouterr().out
    assert "equal with the same seed in another process" in printed
    assert "equal with loader processes" in printed
    assert re.search(r"precision auto    (fp32 here|bf16 here: train_loss [\d.]+, \d\.\d% from fp32)\n", printed)
    for strategy in ("ddp", "fsdp", "ring_allreduce"):
        assert f"{strategy:<18}equal up to rounding" in printed
    assert "rows/s" in printed
    assert "GiB" in printed
    assert all(len(line) <= 80 for line in printed.splitlines())


@pytest.mark.slow
def test_a_file_that_keeps_something_from_one_training_to_the_next_is_found(tmp_path: Path) -> None:
    kept = "SEEN = []\n\n\ndef loss(outputs, targets):\n    SEEN.append(1)\n    outputs = outputs * len(SEEN)\n"
    for name, replaced in (("clean.py", ()), ("keeping.py", (("def loss(outputs, targets):\n", kept),))):
        one = check.Check(Path(written(tmp_path, name, *replaced)), None, {"batch_size": "8", "threads": "1"})
        difference = check._difference(check._trained(one), check._trained_twice(one))
        assert (difference == 0) == (name == "clean.py")


def test_the_command_has_the_check_and_otherwise_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["check", "flowers"]) == 2
    assert "search.check: flowers: expected a Python file" in capsys.readouterr().err
    assert command(["none.yaml"]) == 2
    assert "none.yaml" in capsys.readouterr().err


def test_the_help_has_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["--help"]) == 0
    printed = capsys.readouterr().out
    folder = Path(check.__file__).parent
    programs = [path.parent if path.name == "__main__.py" else path for path in folder.glob("**/*.py")]
    names = {path.stem for path in programs if path != folder and (path.is_dir() or "__main__" in path.read_text())}
    assert names == COMMANDS.keys()
    assert all(f"\n  {name} " in printed for name in names)
    assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_that_of_its_module(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command([name, "--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: python -m search.{name} ")


def test_a_command_that_there_is_not_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["pik", "results"]) == 2
    assert capsys.readouterr().err == 'training-search: no command "pik"; did you mean "pick"?\n'
    assert command([]) == 2
    assert "usage: training-search COMMAND" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["--version"]) == 0
    assert capsys.readouterr().out == f"training-search {version('training-search')}\n"


def test_the_help_of_the_check_says_what_it_does_and_how_long_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command(["check", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "Trains 8 steps in one process" in printed
    assert "Takes one to two minutes" in printed
    assert f"{check.STEPS} steps" in printed


@pytest.mark.usefixtures("in_this_process")
def test_a_mistake_in_measures_is_found_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_trained", lambda *arguments, **settings: pytest.fail("trained"))
    path = written(tmp_path, f"rows_{next(numbers)}.py", ('return {"val_loss"', 'return {"val_los"'))
    found = [*check.findings(check.Check(Path(path), None, {}), load_trainable(path), source_of(path))]
    name, text, good = found[-1]
    assert (name, good) == ("error", False)
    assert "measures returned val_los, val_sign; METRICS declares val_loss, val_sign" in text


def test_a_metric_is_told_with_its_goal_and_whether_that_is_a_guess(tmp_path: Path) -> None:
    path = written(tmp_path, "rows.py")
    _, (name, text, _), *_ = itertools.islice(
        check.findings(check.Check(Path(path), None, {}), load_trainable(path), source_of(path)), 2
    )
    assert name == "metrics"
    assert text.startswith("val_loss (")
    assert "lower is better, as its name suggests)" in text


def test_an_interruption_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object) -> Iterator[tuple[str, str, bool]]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("search.check.findings", interrupted)
    assert check.main([written(tmp_path, "rows.py")]) == 130
    assert capsys.readouterr().err == "search.check: interrupted\n"
