"""Devices of a process."""

import pytest
import torch

from trainables.machine.devices import claimed_gpus, devices_of
from trainables.settings import Settings

FIRST = torch.device("cuda", 0)


def test_a_process_uses_the_gpus_of_its_trial_and_not_all_that_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    several, one = Settings(strategy="data_parallel"), Settings(strategy="ddp")
    assert len(devices_of(several, FIRST)) == 4
    with claimed_gpus(2):
        assert devices_of(several, FIRST) == [FIRST, torch.device("cuda", 1)]
        assert devices_of(several, torch.device("cuda", 1)) == [torch.device("cuda", 1), FIRST]
        assert devices_of(one, FIRST) == [FIRST]
    assert len(devices_of(several, FIRST)) == 4
