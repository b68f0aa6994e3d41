"""The timeout that the environment sets for the processes of a trial."""

from __future__ import annotations

import pytest

from trainables.contract import OLD_TIMEOUT_VARIABLE, TIMEOUT_SECONDS, TIMEOUT_VARIABLE, timeout_seconds


def test_the_timeout_is_read_from_the_environment_under_its_old_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (TIMEOUT_VARIABLE, OLD_TIMEOUT_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    assert timeout_seconds() == TIMEOUT_SECONDS
    monkeypatch.setenv("TRAINING_SEARCH_PATIENCE_SECONDS", "7")
    assert timeout_seconds() == 7.0
    monkeypatch.setenv("TRAINING_SEARCH_TIMEOUT_SECONDS", "5")
    assert timeout_seconds() == 5.0
