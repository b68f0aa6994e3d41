"""The allocator: what is told to glibc is taken back. What it does with it is measured by `benchmarks/knobs.py`."""

import pytest

from trainables.machine import allocator
from trainables.machine.allocator import RETAIN, SYSTEM, allocating


def test_what_glibc_is_told_is_taken_back_also_when_a_trial_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[int, int]] = []
    monkeypatch.setattr(allocator, "_set_options", lambda options: told.append(options) is None)
    with pytest.raises(ValueError, match="in a trial"), allocating("retain"):
        raise ValueError("in a trial")
    assert told == [RETAIN, SYSTEM]
    with allocating("system"):
        assert told == [RETAIN, SYSTEM]
