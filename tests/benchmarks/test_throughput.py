"""The comparison of the two loops, with rates that are given instead of measured."""

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import throughput

RATES_OF_AVX2 = {128: 60.7, 512: 51.4}  # images/s of our loop by batch size: the default is the fastest


def compare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ours: dict[int, float]) -> Any:
    def measure(options: object, side: str, config: dict[str, int]) -> dict[str, float]:
        return {"rate": ours[config["batch_size"]] if side == "ours" else 30.0, "loader_share": 0.0}

    rates = SimpleNamespace(matrix_teraflops_per_second=dict.fromkeys(("fp32", "bf16", "fp16"), 1.0))
    monkeypatch.setattr(throughput, "measure", measure)
    monkeypatch.setattr(throughput, "ceilings", lambda threads, device: rates)
    monkeypatch.setattr(throughput, "BEST", {})
    batches = [batch for batch in ours if batch != throughput.BATCH]
    throughput.compare_rates(argparse.Namespace(root=Path(), repeats=2, batches=batches, set=[]))
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_the_default_batch_size_may_be_the_fastest(monkeypatch, capsys):
    figures = compare(monkeypatch, capsys, RATES_OF_AVX2)
    assert figures["images_per_second"] == {"textbook, batch_size 128": 30.0, "ours, batch_size 128": 60.7}
    assert figures["ratio_best_batch"] == figures["ratio_batch_128"] == pytest.approx(60.7 / 30, abs=1e-3)


def test_a_faster_batch_size_is_compared_beside_the_default(monkeypatch, capsys):
    figures = compare(monkeypatch, capsys, {128: 60.0, 512: 90.0})
    assert (figures["ratio_batch_128"], figures["ratio_best_batch"]) == (2.0, 3.0)
    assert len(figures["images_per_second"]) == 4
