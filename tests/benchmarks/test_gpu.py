"""The benchmark of one GPU: time limits, continuation, its record, and the whole of it on an emulated GPU."""

import argparse
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpu
import gpu_parts
import gpu_tests
import pytest
import torch
from gpu_record import record_name, record_of
from gpu_tables import label
from steps_file import StepsFile

from tests.emulated_gpu.processes import environment, needs_emulation, run

PARTS = list(gpu.LIMITS_SECONDS)
CONDITIONS = {
    "date": "2026-11-24",
    "command": "make gpu",
    "commit": "abc123",
    "gpu": "NVIDIA H100 80GB HBM3",
    "emulated": False,
    "gpu_memory_gib": 79.2,
    "multiprocessors": 132,
    "power_limit_watts": 700.0,
    "driver": "580.1",
    "cuda": "13.0",
    "cudnn": None,
    "versions": {"torch": "2.11.0"},
    "processor": "a processor",
    "cores": 16,
    "load": 0.1,
    "data": "CIFAR-10",
    "small": False,
}
TERAFLOPS_PER_IMAGE = 0.001


@pytest.fixture
def file(tmp_path: Path) -> StepsFile:
    file = StepsFile(tmp_path / "steps.jsonl")
    ceilings = {"matrix_teraflops_per_second": {"bf16": 100.0}, "convolution_teraflops_per_second": {"bf16": 80.0}}
    file.plan("conditions", ["conditions", "ceilings"])
    file.add("conditions", "conditions", CONDITIONS)
    file.add("conditions", "ceilings", ceilings)
    return file


def add_probe(file: StepsFile, part: str, config: dict[str, Any], rate: float, **metrics: float) -> None:
    stages = {f"{stage}_seconds": 0.001 for stage in ("load", "transfer", "forward", "backward", "update")}
    row = {"config": config, "images_per_second": rate, "teraflops_per_second": rate * TERAFLOPS_PER_IMAGE}
    file.add(part, label(config), {**row, **stages, "step_seconds": 0.005, **metrics})


def add_turns(file: StepsFile, side: str, batch: int, rates: list[float]) -> None:
    for number, rate in enumerate(rates):
        values = {"side": side, "config": {"batch_size": batch}, "images_per_second": rate}
        file.add("comparison", f"turn {number}, {side}, batch_size {batch}", values)


def options(tmp_path: Path, **changes: Any) -> argparse.Namespace:
    words = ["--folder", str(tmp_path), "--published", str(tmp_path / "published")]
    return argparse.Namespace(**{**vars(gpu.parser().parse_args(words)), **changes})


# --- processes --------------------------------------------------------------------------------------------------------


def part_that(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    script = tmp_path / "part.py"
    script.write_text(code)
    monkeypatch.setattr(gpu, "__file__", str(script))


def test_a_part_is_ended_with_its_processes_at_its_time_limit(monkeypatch, tmp_path: Path, file: StepsFile) -> None:
    late = tmp_path / "late"
    code = f"import os, time; os.fork(); time.sleep(3); open({str(late)!r}, 'w')"
    part_that(monkeypatch, tmp_path, code)
    assert gpu.run_part([], "tests", time.monotonic() + 0.2, file) < 0
    assert file.read("tests").stopped == "time limit"
    time.sleep(2.5)
    assert not late.exists()


def test_a_part_whose_gpu_is_lost_goes_on_in_a_new_process(monkeypatch, tmp_path: Path, file: StepsFile) -> None:
    mark = tmp_path / "mark"
    code = f"import os, sys; p = {str(mark)!r}; lost = not os.path.exists(p); open(p, 'w'); sys.exit(75 if lost else 0)"
    part_that(monkeypatch, tmp_path, code)
    assert gpu.run_part([], "tests", time.monotonic() + 20, file) == 0
    assert file.read("tests").stopped is None


def test_a_part_that_crashes_is_written_down(monkeypatch, tmp_path: Path, file: StepsFile) -> None:
    part_that(monkeypatch, tmp_path, "import os; os.kill(os.getpid(), 11)")
    assert gpu.run_part([], "tests", time.monotonic() + 20, file) == -11
    assert file.read("tests").stopped == "ended by SIGSEGV"


class Parts:
    """Parts that end at once, with one step each; those in `cut_off` end without it."""

    def __init__(self, file: StepsFile, cut_off: tuple[str, ...] = ()) -> None:
        self.started: list[str] = []
        self._file, self._cut_off = file, cut_off

    def __call__(self, words: list[str], part: str, deadline: float, file: StepsFile) -> int:
        self.started.append(part)
        if part == "conditions":
            return 0
        file.plan(part, ["step"])
        if part in self._cut_off:
            file.stop(part, "time limit")
        else:
            file.fail(part, "step", "fails here")
        return 0


def test_the_same_command_goes_on_with_what_is_missing(monkeypatch, tmp_path: Path, file: StepsFile) -> None:
    first, second = Parts(file, cut_off=("settings", "training")), Parts(file)
    for parts in (first, second):
        monkeypatch.setattr(gpu, "run_part", parts)
        assert gpu.measure_all([], options(tmp_path), file) == 0
    assert first.started == PARTS
    assert second.started == ["conditions", "settings", "training"]


def test_the_record_is_there_after_each_part(monkeypatch, tmp_path: Path, file: StepsFile) -> None:
    def interrupted(words: list[str], part: str, deadline: float, file: StepsFile) -> int:
        if part == "tests":
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(gpu, "run_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gpu.measure_all([], options(tmp_path), file)
    record = tmp_path / "published" / "2026-11-24-gpu-nvidia-h100-80gb-hbm3.md"
    assert "- comparison: all of it (not started)" in record.read_text()


def test_nothing_is_measured_under_other_conditions(monkeypatch, tmp_path: Path, file: StepsFile) -> None:
    monkeypatch.setattr(gpu, "run_part", lambda *arguments: 2)
    assert gpu.measure_all([], options(tmp_path), file) == 2
    monkeypatch.setattr(
        gpu_parts, "conditions_of", lambda options, data: {**CONDITIONS, "commit": "def456", "date": ""}
    )
    reason = gpu_parts.changed_conditions(options(tmp_path), None, file)
    assert reason == "the steps in the folder were measured with commit abc123, not def456"


def test_ceilings_that_are_cut_off_stop_no_other_part(monkeypatch, tmp_path: Path, file: StepsFile) -> None:
    def cut_off(words: list[str], part: str, deadline: float, file: StepsFile) -> int:
        return -9 if part == "conditions" else 0

    monkeypatch.setattr(gpu, "run_part", cut_off)
    assert gpu.measure_all([], options(tmp_path), file) == 0


def test_a_machine_without_a_gpu_gets_one_line_and_exit_code_2(monkeypatch, tmp_path: Path, capsys, file) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_parts.measure("conditions", options(tmp_path), file) == 2
    assert re.fullmatch(r"gpu: PyTorch \S+ finds no CUDA device here\n", capsys.readouterr().err)


# --- tests as steps ---------------------------------------------------------------------------------------------------


def item(name: str) -> SimpleNamespace:
    return SimpleNamespace(nodeid=name, get_closest_marker=lambda marker: "mark")


def report(name: str, when: str = "call", outcome: str = "passed", longrepr: Any = None) -> SimpleNamespace:
    outcomes = {which: which == outcome for which in ("passed", "failed", "skipped")}
    return SimpleNamespace(nodeid=name, when=when, duration=0.1, longrepr=longrepr, **outcomes)


def test_a_test_that_has_ended_is_not_run_again(file: StepsFile) -> None:
    file.add("tests", "a", {})
    items = [item("a"), item("b")]
    config = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: None))
    gpu_tests.Outcomes(file).pytest_collection_modifyitems(config, items)
    assert [each.nodeid for each in items] == ["b"]


def test_the_record_names_failed_and_skipped_tests(file: StepsFile) -> None:
    file.plan("tests", ["a", "b", "c", "d"])
    outcomes = gpu_tests.Outcomes(file)
    outcomes.pytest_runtest_logreport(report("a", when="setup"))
    outcomes.pytest_runtest_logreport(report("a"))
    outcomes.pytest_runtest_logreport(report("b", outcome="failed", longrepr="def test\nE   assert 1 == 2\nx.py:3"))
    outcomes.pytest_runtest_logreport(report("c", "setup", "skipped", ("x.py", 1, "Skipped: needs two GPUs")))
    text = record_of(file, PARTS)
    assert "1 passed, 1 failed, 1 skipped, 1 not run." in text
    assert "- FAILED b: assert 1 == 2" in text
    assert "- skipped c: needs two GPUs" in text


def test_the_tests_of_a_gpu_machine_need_no_ray() -> None:
    files = gpu_tests.files_with_gpu_tests()
    assert any(path.endswith("test_gpu.py") for path in files)
    texts = [Path(path).read_text() for path in files]
    assert all("mark.gpu" in text and "import ray" not in text and "tests.search" not in text for text in texts)


# --- record -----------------------------------------------------------------------------------------------------------


def test_goals_compare_the_fastest_of_each_loop(file: StepsFile) -> None:
    add_probe(file, "batch sizes", {"batch_size": 128}, 40_000.0)
    add_turns(file, "textbook", 128, [2_000.0, 2_000.0, 4_000.0])
    add_turns(file, "textbook", 512, [1_000.0, 1_000.0, 1_000.0])
    add_turns(file, "ours", 128, [40_000.0, 50_000.0, 60_000.0])
    add_turns(file, "ours", 512, [10_000.0, 10_000.0, 10_000.0])
    text = record_of(file, PARTS)
    assert "| fraction of the measured bf16 ceiling | 0.45 | 0.5 | yes |" in text  # 50,000 * 0.001 / 100
    assert "| times the textbook loop | 12 | 20 | yes |" in text  # median of 20, 25 and 15
    assert "| ours, batch_size 128 | 50,000 (40,000 to 60,000) | 3 | 20.00 | 0.500 |" in text
    assert "Missed" not in text


def test_a_missed_goal_has_its_stage_times(file: StepsFile) -> None:
    add_probe(file, "batch sizes", {"batch_size": 128}, 20_000.0, forward_seconds=0.0025)
    add_turns(file, "textbook", 128, [2_000.0])
    add_turns(file, "ours", 128, [20_000.0])
    text = record_of(file, PARTS)
    assert "| times the textbook loop | 12 | 10 | no |" in text
    assert "Missed with batch_size 128: ms per step: load 1.000, transfer 1.000, forward 2.500, backward 1.000" in text
    assert "6.400 at the measured rate" in text


def test_what_was_not_measured_is_said_with_its_reason(file: StepsFile) -> None:
    file.plan("batch sizes", ["batch_size 128", "batch_size 256", "batch_size 512"])
    add_probe(file, "batch sizes", {"batch_size": 128}, 1.0)
    file.fail("batch sizes", "batch_size 256", "out of memory")
    file.stop("batch sizes", "time limit")
    text = record_of(file, PARTS)
    assert "| batch_size 256 | out of memory |" in text
    assert "- batch sizes: 1 of 3 steps (time limit)" in text
    assert "- training: all of it (not started)" in text
    assert "## Loops in turn\n\nNot measured." in text


def test_memory_and_sensors_that_are_missing_are_dashes(file: StepsFile) -> None:
    metrics = {"peak_memory_gib": 0.5, "peak_reserved_gib": 0.7, "predicted_memory_gib": 0.71, "gpu_power_watts": 400.0}
    add_probe(file, "batch sizes", {"batch_size": 128}, 1_000.0, **metrics)
    assert "| batch_size 128 | 1,000 | 0.50 | 0.70 | 0.71 | - | 400 | - |" in record_of(file, PARTS)


def test_a_training_meets_the_goal_if_it_is_accurate_and_fast(file: StepsFile) -> None:
    epochs = [{"epoch_seconds": 20.0, "val_accuracy": each, "train_loss": 1.0} for each in (0.5, 0.92)]
    row = {"config": {"crop_padding": 4}, "seconds": 45.5, "test_accuracy": 0.91, "epochs": epochs}
    file.add("training", "seed 0", row)
    file.add("training", "seed 1", {**row, "test_accuracy": 0.89})
    file.add("training", "seed 2", {**row, "seconds": 121.0})
    text = record_of(file, PARTS)
    assert "crop_padding 4; 2 epochs. A test accuracy of 0.9" in text
    assert "in less than 120 s: 1 of 3." in text
    assert "| seed 0 | 0.9100 | - | - | 45.5 | 40.0 |" in text
    assert "| 2 | 0.9200 | 1.0000 | 20.00 | - | - |" in text


def test_conditions_are_in_the_record(file: StepsFile) -> None:
    text = record_of(file, PARTS)
    assert text.startswith("# One NVIDIA H100 80GB HBM3: ")
    for word in ("make gpu", "commit abc123", "power limit 700 W", "driver 580.1", "torch 2.11.0", "n = 1"):
        assert word in text.replace("\n", " ")


def test_an_emulated_gpu_is_named_in_title_and_file(file: StepsFile) -> None:
    file.add("conditions", "conditions", {**CONDITIONS, "emulated": True})
    assert record_of(file, PARTS).startswith("# EMULATED GPU, its rates say nothing about any GPU")
    assert record_name(file).startswith("2026-11-24-emulated-gpu-")


# --- all of it --------------------------------------------------------------------------------------------------------

BLOCKER = "import os; open(os.environ['BLOCKED'], 'a').write(__name__); raise ImportError('blocked by a test')\n"
SOME_TESTS = ["tests/trainables/test_gpu_measuring.py::test_copied_batches_are_those_of_the_cpu"]


@needs_emulation
@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_all_of_it_runs_on_an_emulated_gpu_without_ray_and_optuna(tmp_path: Path) -> None:
    blockers, marks = tmp_path / "blockers", tmp_path / "blocked"
    for name in ("ray", "optuna"):
        (blockers / name).mkdir(parents=True)
        (blockers / name / "__init__.py").write_text(BLOCKER)
    seen = environment()
    seen |= {
        "PYTHONPATH": f"{blockers}:{seen['PYTHONPATH']}",
        "BLOCKED": str(marks),
        "TRAINING_SEARCH_CACHE": str(tmp_path / "cache"),
        "PYTEST_ADDOPTS": "-p tests.emulated_gpu.plugin",
    }
    seen.pop("TRAINING_SEARCH_DATA", None)
    folders = ["--folder", str(tmp_path / "steps"), "--published", str(tmp_path / "published")]
    arguments = " ".join(["--small", *folders, "--tests", *SOME_TESTS])
    done = run(["make", "gpu", f"PYTHON={sys.executable}", f"ARGS={arguments}"], seen, timeout_seconds=900)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert not marks.exists(), marks.read_text()
    (record,) = (tmp_path / "published").iterdir()
    text = record.read_text()
    assert "-emulated-gpu-" in record.name
    assert text.startswith("# EMULATED GPU")
    assert "Nothing is missing." in text, text
    assert "not emulated" in text  # compilation
    file = StepsFile(tmp_path / "steps" / "steps.jsonl")
    failed = {part: file.read(part).errors for part in PARTS if part != "settings" and file.read(part).errors}
    assert not failed
    again = run(["make", "gpu", f"PYTHON={sys.executable}", f"ARGS={arguments}"], seen)
    assert "tests:" not in again.stdout, "it measured a second time"
