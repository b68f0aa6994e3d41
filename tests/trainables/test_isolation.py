"""Isolation of trials that share a process: what one leaves does not change the next."""

from collections.abc import Callable
from operator import attrgetter, ne
from typing import Any

import pytest
import torch
from torch import Tensor

from trainables.machine import isolation
from trainables.machine.isolation import isolated


def change_all() -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    torch.set_anomaly_enabled(True)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = True
    torch.backends.mkldnn.conv.fp32_precision = "bf16"  # type: ignore[attr-defined]
    torch.manual_seed(1)


def settings() -> list[Any]:
    of_backends = [attrgetter(name)(torch.backends) for name in isolation.OF_BACKENDS]
    return [torch.get_default_device(), *of_backends, *(f"{getter()}" for getter in isolation.SETTINGS.values())]


def test_settings_of_pytorch_that_a_trial_changes_are_as_they_were() -> None:
    before, inside = settings(), list[Any]()
    isolated(lambda: (change_all(), inside.extend(settings())), threads=2)
    assert settings() == before
    assert sum(map(ne, before, inside)) >= 10


def test_the_new_way_to_allow_tf32_ends_with_its_trial() -> None:
    before = settings()

    def newer() -> None:
        torch.backends.fp32_precision = "tf32"  # type: ignore[attr-defined]

    def older() -> None:
        torch.backends.cudnn.allow_tf32 = False

    for trial in (newer, older, newer):
        isolated(trial, threads=2)
        assert settings() == before


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor cannot treat denormals as zero")
def test_flush_denormals_holds_for_all_threads_of_its_trial_and_for_no_other_trial() -> None:
    def kept() -> float:
        return float((torch.full((4_000_000,), 1e-20) * 1e-19).ne(0).float().mean())

    assert [isolated(kept, threads=2, flush_denormals=flush) for flush in (False, True, False)] == [1.0, 0.0, 1.0]


def test_each_trial_of_a_process_is_compiled_however_many_there_are() -> None:
    """PyTorch compiles eight variants of a function, and then runs it as it is."""
    compiled = list[int]()

    def doubled(inputs: Tensor) -> Tensor:
        return inputs * 2

    def trial(width: int) -> Tensor:
        def backend(graph: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
            compiled.append(width)
            return graph.forward

        return torch.compile(doubled, backend=backend, dynamic=False)(torch.ones(width))

    for width in range(1, 13):
        assert isolated(lambda: trial(width), threads=1).sum() == 2 * width  # noqa: B023 - called at once
    assert compiled == list(range(1, 13))
