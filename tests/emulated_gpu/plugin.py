"""Plugin of pytest for a process with emulated GPUs: `pytest -p tests.emulated_gpu.plugin -m gpu`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulated_gpu.emulation import Emulation, emulated
from tests.emulated_gpu.setting import prepare

prepare()

NOT_EMULATED = {"compile": "torch.compile needs Triton, which is not emulated"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of what is not emulated."""
    for item in items:
        for word, reason in NOT_EMULATED.items():
            if f"{{'{word}'" in str(getattr(item, "callspec", None) and item.callspec.params):  # type: ignore[attr-defined]
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def emulation() -> Iterator[Emulation]:
    """Compute the operators of each test; one that the CPU cannot compute is an error."""
    with emulated() as mode:
        yield mode
    assert not mode.unsupported, mode.unsupported
