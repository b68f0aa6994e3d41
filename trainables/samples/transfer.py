"""Transfer of batches from the host to the device: the next one is copied while this one is trained on."""

from collections.abc import Iterable, Iterator

import torch
from torch.utils._pytree import tree_leaves, tree_map

from trainables.plan import Batch
from trainables.stages import Timeline


def copied(batches: Iterable[Batch], device: torch.device, timeline: Timeline) -> Iterator[Batch]:
    """Copy batches to `device`. Copies from pinned memory overlap with computation.

    The remaining waiting time is marked: `load` until the host has the batch, `transfer` until the device has it.
    """
    if device.type != "cuda":
        yield from batches
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    in_transfer: tuple[Batch, torch.cuda.Event] | None = None
    for on_host in batches:
        with torch.cuda.stream(stream):
            batch = tree_map(lambda tensor: tensor.to(device, non_blocking=True), on_host)
            following = batch, stream.record_event()
        if in_transfer:
            yield _arrived(*in_transfer, timeline)
        in_transfer = following
    if in_transfer:
        yield _arrived(*in_transfer, timeline)


def _arrived(batch: Batch, copied: torch.cuda.Event, timeline: Timeline) -> Batch:
    """Make the computing stream wait for the batch."""
    timeline.mark("load")
    computing = torch.cuda.current_stream()
    computing.wait_event(copied)
    timeline.mark("transfer")
    for tensor in tree_leaves(batch):
        tensor.record_stream(computing)  # else the allocator would reuse its memory while it is read
    return batch
