"""Environment variables that say how long threads wait."""

import subprocess
import sys

import pytest

from trainables.thread_waiting import DEFAULT, thread_waiting

CHOSEN = {"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "passive"}


@pytest.fixture(autouse=True)
def _none_is_set(monkeypatch):
    for variables in CHOSEN:
        for name in variables:
            monkeypatch.delenv(name, raising=False)


def test_threads_wait_as_by_default():
    assert thread_waiting() == DEFAULT


@pytest.mark.parametrize("chosen", CHOSEN)
def test_what_the_user_has_set_counts(chosen, monkeypatch):
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    assert thread_waiting() == chosen


def test_the_command_that_trains_sets_it_before_torch_is_imported():
    code = "import os, sys; from trainables.train import main; main(['vgg19_cifar10', 'no=setting'])"
    seen = "; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code + seen], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1000", "False"]
