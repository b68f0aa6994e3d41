"""Rates of the machine: kept once measured, never lowered by a disturbance."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from trainables.machine import ceilings as module
from trainables.machine.ceilings import Ceilings, ceilings, table
from trainables.machine.measurement_cache import cached_measurement, machine_fingerprint
from trainables.machine.processor import precisions

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _new_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", str(tmp_path))
    ceilings.cache_clear()


def rates(fp32: float, *, quiet: bool, tries: int = 1) -> dict[str, Any]:
    by_precision = {"fp32": fp32, "bf16": 2 * fp32}
    return {
        "matrix_teraflops_per_second": by_precision,
        "convolution_teraflops_per_second": {"fp32": 3 * fp32, "bf16": fp32},
        "memory_gib_per_second": 10.0,
        "quiet": quiet,
        "tries": tries,
    }


@pytest.mark.slow
def test_what_is_measured_here_is_in_the_order_of_what_processors_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.0)
    measured = ceilings(1, CPU)
    assert set(measured.matrix_teraflops_per_second) == set(precisions("cpu"))
    assert 1e-3 < measured.teraflops_per_second("fp32") < 100
    assert 0.5 < measured.memory_gib_per_second < 5000
    assert torch.get_num_threads() == 1


def test_a_quiet_measurement_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter([rates(0.1, quiet=True)])
    monkeypatch.setattr(module, "_rates", lambda threads, device: next(given))
    first = ceilings(1, CPU)
    ceilings.cache_clear()  # as another process
    assert ceilings(1, CPU) == first


def test_a_contended_measurement_is_repeated_and_the_better_of_each_rate_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter([rates(0.2, quiet=False), rates(0.1, quiet=True)])
    monkeypatch.setattr(module, "_rates", lambda threads, device: next(given))
    ceilings(1, CPU)
    ceilings.cache_clear()
    assert ceilings(1, CPU).matrix_teraflops_per_second == {"fp32": 0.2, "bf16": 0.4}
    ceilings.cache_clear()
    ceilings(1, CPU)  # quiet once is enough: a third measurement would fail


def test_a_measurement_of_an_earlier_version_with_further_rates_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = {**rates(0.1, quiet=True), "threads": 1, "decoded_images_per_second": 1000.0}
    monkeypatch.setattr(module, "_rates", lambda threads, device: earlier)
    assert ceilings(1, CPU).memory_gib_per_second == 10.0


def test_a_machine_that_is_never_quiet_is_not_measured_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter([rates(0.1, quiet=False)] * module.MAX_TRIES)
    monkeypatch.setattr(module, "_rates", lambda threads, device: next(given))
    for _ in range(module.MAX_TRIES + 2):
        ceilings.cache_clear()
        ceilings(1, CPU)
    assert next(given, None) is None


def test_the_ceiling_of_a_precision_is_that_of_the_faster_kind() -> None:
    measured = Ceilings({"fp32": 0.2, "bf16": 0.9}, {"fp32": 0.4, "bf16": 0.8}, 50.0)
    assert measured.teraflops_per_second("fp32") == 0.4
    assert measured.teraflops_per_second("bf16") == 0.9
    assert max(map(len, table(measured).splitlines())) <= 80


def test_other_threads_or_another_source_is_measured_anew(tmp_path: Path) -> None:
    made: list[int] = []

    def measure(old: Mapping[str, Any] | None) -> dict[str, Any]:
        made.append(1)
        return {"number": len(made)}

    assert machine_fingerprint(CPU, 1) != machine_fingerprint(CPU, 2)
    assert [cached_measurement("some", machine_fingerprint(CPU, n), measure)["number"] for n in (1, 2, 1)] == [1, 2, 1]


def test_torn_figures_are_measured_anew(tmp_path: Path) -> None:
    cached_measurement("some", {"a": 1}, lambda old: {"number": 1})
    (file,) = tmp_path.glob("some-*.json")
    assert json.loads(file.read_text())["source"] == {"a": 1}
    file.write_text(file.read_text()[:20])
    assert cached_measurement("some", {"a": 1}, lambda old: {"number": 2}) == {"number": 2}


def test_where_nothing_can_be_kept_it_is_measured_for_this_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", str(tmp_path / "file" / "folder"))
    assert cached_measurement("some", {}, lambda old: {"number": 1}) == {"number": 1}
    assert "cannot be used" in caplog.text


def test_the_command_prints_what_it_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_rates", lambda threads, device: rates(0.1, quiet=True))
    monkeypatch.setattr("sys.argv", ["ceilings", "--threads", "1"])
    module.main()
    assert "memory             10.0 GiB/s" in capsys.readouterr().out
