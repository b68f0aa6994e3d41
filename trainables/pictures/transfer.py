"""Batches on their way from the host to the device: the next one travels while this one is trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from trainables.stages import Timeline

Batch = tuple[Tensor, Tensor]


def copied(batches: Iterable[Batch], device: torch.device, timeline: Timeline) -> Iterator[Batch]:
    """The same batches on `device`. Copies from pinned memory overlap with what the device computes.

    What is left to wait for is marked: `load` until the host has the batch, `transfer` until the device has it.
    """
    if device.type != "cuda":
        yield from batches
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    travelling: tuple[Batch, torch.cuda.Event] | None = None
    for images, labels in batches:
        with torch.cuda.stream(stream):
            batch = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            following = batch, stream.record_event()
        if travelling:
            yield _arrived(*travelling, timeline)
        travelling = following
    if travelling:
        yield _arrived(*travelling, timeline)


def _arrived(batch: Batch, copied: torch.cuda.Event, timeline: Timeline) -> Batch:
    """The batch, for the stream that computes."""
    timeline.mark("load")
    computing = torch.cuda.current_stream()
    computing.wait_event(copied)
    timeline.mark("transfer")
    for tensor in batch:
        tensor.record_stream(computing)  # or its memory would be given away while it is read
    return batch
