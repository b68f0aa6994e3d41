"""Isolation of trials that share a process: what one leaves does not change the next."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from trainables.machine.isolation import isolated


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
