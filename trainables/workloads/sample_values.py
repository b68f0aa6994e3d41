"""Check that the values of a metric are those of samples: their number must grow as that of the samples does.

A shape alone does not tell: values of shape (8, 8) may be 8 pixels of each of 8 samples, or the result of (8, 1) and
(8,) broadcast against each other; a mean over the batch has one value whatever the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from trainables.seeding import restored_random_state
from trainables.workload import num_samples

SPREADS = (10.0, 100.0)  # of outputs, beside that of the targets
OF_ALL = "what is computed from all samples together, such as F1, needs a loop of your own"
OTHER_METRIC = "so that another batch_size gives another metric"
MOST_SAMPLES = 2  # that are measured once and twice: large outputs are not copied

Measures = Callable[[Any, Any], Mapping[str, Tensor]]


def first_samples(tree: Any, count: int, samples: int, times: int = 1) -> Any:
    """Return the first `count` samples of a batch, `times` times over; other tensors are left as they are."""

    def part(leaf: Any) -> Any:
        return torch.cat([leaf[:count]] * times) if any(of_samples(leaf, samples)) else leaf

    return tree_map(part, tree)


def of_samples(tree: Any, samples: int) -> list[bool]:
    """Return for each tensor with an axis whether it has a row for each sample, unlike nodes of graphs or boxes."""
    return [len(leaf) == samples for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.ndim]


def mistake_of(measures: Measures, outputs: Any, targets: Any, found: Mapping[str, Tensor]) -> str | None:
    """Return which of the values that `measures` found are not those of samples, with the remedy; None: all are."""
    samples = num_samples(targets)
    if not samples or not any(of_samples(outputs, samples)):  # not as many targets as samples
        return None
    count = min(MOST_SAMPLES, samples)
    try:
        once, twice = (measures(*first_samples((outputs, targets), count, samples, times)) for times in (1, 2))
    except Exception:  # measures that need whole batches, such as of graphs, which are not cut by samples
        once, twice = {}, {}
    for name, values in found.items():
        wanted = f"expected ({samples},) or ({samples}, ...), values of each sample"
        what = f"{name} has shape {tuple(values.shape)} for {samples} sample{'s' * (samples > 1)}, {wanted}"
        grows = twice[name].numel() - 2 * once[name].numel() if twice else -1 if samples > 1 and not values.ndim else 0
        if grows > 0:
            return f"{what}: {_shapes(outputs, targets)} broadcast against each other; squeeze the outputs"
        if grows < 0:
            return f"{what}: return them, not their mean, which is reported; {OF_ALL}"
        if name in once and _depends_on_others(once[name], values):
            return f"{name} of a sample changes with the other samples of its batch, {OTHER_METRIC}; {OF_ALL}"
    return None


def _depends_on_others(alone: Tensor, together: Tensor) -> bool:
    """Return whether the first samples have other values alone than they have in their batch."""
    if not (alone.ndim and together.ndim) or len(alone) >= len(together) or alone.shape[1:] != together.shape[1:]:
        return False
    first = together[: len(alone)].double().cpu()
    return not torch.allclose(alone.double().cpu(), first, rtol=1e-3, atol=1e-5, equal_nan=True)


def mixed_samples(loss: Callable[[Any, Any], Tensor], outputs: Any, targets: Any) -> str | None:
    """Return that a loss compares each output with all targets, with the remedy; None: it does not.

    Outputs (n, 1) and targets (n,), or the reverse, are broadcast to (n, n). Then it does not matter which target
    belongs to which output, though the targets matter. That must hold for the outputs, and for the targets in their
    place, also spread more widely: of outputs that are all alike, or far from the targets, it may hold by chance. All
    is done on the CPU, where an output that a loss does not take, such as a probability of 2, ends no CUDA context.
    """
    if not all(type(each) in (Tensor, nn.Parameter) and each.ndim and not each.is_meta for each in (outputs, targets)):
        return None
    one_more = outputs.shape == (*targets.shape, 1) or targets.shape == (*outputs.shape, 1)
    if len(targets) < 2 or not one_more:
        return None
    with torch.no_grad(), restored_random_state():
        outputs, targets = outputs.detach().float().cpu(), targets.detach().cpu()
        perfect = targets.reshape(outputs.shape).float()
        wider = [perfect + factor * (perfect - perfect.mean()) for factor in SPREADS]
        found = {_is_mixed(loss, each, targets) for each in (outputs, perfect, *wider)}
    if True in found and False not in found:
        return f"{_shapes(outputs, targets)} broadcast against each other; squeeze the outputs"
    return None


def _is_mixed(loss: Callable[[Any, Any], Tensor], outputs: Tensor, targets: Tensor) -> bool | None:
    """Return whether the order of the targets makes no difference, though the targets do; None: not known."""
    try:
        found, shifted, other = (
            loss(outputs, each) for each in (targets, targets.roll(1, 0), targets[:1].expand_as(targets))
        )
    except Exception:  # of outputs that this loss does not take
        return None
    if not torch.isclose(found, shifted, rtol=1e-4):
        return False
    return None if torch.isclose(found, other, rtol=1e-4) else True


def _shapes(outputs: Any, targets: Any) -> str:
    known = {"outputs": outputs, "targets": targets}
    return " and ".join(f"{n} {tuple(x.shape)}" if isinstance(x, Tensor) else n for n, x in known.items())
