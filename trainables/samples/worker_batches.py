"""Batches from loader processes, for any dataset."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data import default_collate as stacked

from trainables.contract import DataError, HelperLostError
from trainables.plan import Batch, Batches, Plan
from trainables.samples import loader_processes
from trainables.samples.transfer import copied
from trainables.stages import Timeline

PREFETCHED_BATCHES = 2  # that each loader process keeps ready
LOST = "DataLoader worker (pid"  # beginning of PyTorch's message that one has ended
log = logging.getLogger(__name__)

Collate = Callable[[list[Any]], Any]


class Choices(Protocol):
    """Random choices for the samples of an epoch."""

    def __call__(self, plan: Plan, epoch: int) -> Iterable[list[Any]]:
        """Yield what the dataset is asked for, batch by batch: the share's samples with their random choices."""


class LoadError(DataError):
    """Raised in the training process for an error in a loader process, with its reason in one line."""


class LoadFailure:
    """Reason of an error, which a loader process returns in place of a batch."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class WorkerBatches(Batches):
    """Batches from loader processes that live until `close`; with `num_workers` 0 from this process."""

    def __init__(
        self,
        dataset: Dataset[Any],
        choices: Choices,
        plan: Plan,
        device: torch.device,
        *,
        num_workers: int,
        pin_memory: bool,
        bytes_per_sample: int,
        collate: Collate = stacked,
        explain: Callable[[Exception, Any], str] | None = None,
    ) -> None:
        """`explain`: turns an error of `collate`, and the samples it was given, into one line.

        The dataset may return a `LoadFailure` likewise.
        """
        self._device, self._order = device, _Order(choices, plan)
        in_flight = bytes_in_flight(plan.batch_size // plan.share.of + 1, num_workers, bytes_per_sample)
        through_pipes = num_workers > 0 and not loader_processes.fits_in_shared_memory(in_flight)
        if through_pipes:
            log.warning("/dev/shm has no %d bytes: batches come through pipes, which is slower", in_flight)
            collate = partial(_pickled, _in_own_memory if collate is stacked else collate)
        if explain is not None:
            collate = partial(_explained, collate, explain)
        self._loader: DataLoader[Any] = DataLoader(
            dataset,
            batch_sampler=self._order,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            prefetch_factor=PREFETCHED_BATCHES if num_workers else None,
            multiprocessing_context=loader_processes.start_method() if num_workers else None,
            pin_memory=pin_memory and device.type == "cuda",
            generator=torch.Generator(),  # else it would draw its seeds from dropout's stream
            collate_fn=collate,
            worker_init_fn=loader_processes.end_with_parent,
        )
        self._iterator: Any = None

    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        """Yield the epoch's batches.

        Raises:
            LoadError: the dataset raised, or cannot be sent to loader processes.
            HelperLostError: a loader process has ended.
        """
        self._order.epoch = epoch
        try:
            self._iterator = self._started()
            loader_processes.limit_lock_wait(self._iterator)
            yield from copied(map(_received, self._iterator), self._device, timeline)
        except RuntimeError as error:
            if LOST in str(error):
                raise HelperLostError(str(error).partition("\n")[0]) from error
            raise
        except (ConnectionError, EOFError) as error:  # the process that holds the batch's memory has ended
            pids = ", ".join(map(str, loader_processes.ended(self._iterator)))
            raise HelperLostError(f"DataLoader worker (pid(s) {pids}) exited unexpectedly") from error

    def _started(self) -> Any:
        try:
            return iter(self._loader)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            if "pickle" not in str(error):
                raise
            why = "on this system the dataset is sent to loader processes by `pickle`"
            raise LoadError(f"{error}: {why}; with num_workers 0 there are none") from error

    def close(self) -> None:
        """End the loader processes."""
        # The DataLoader ends its processes only when it is collected, which a traceback can delay.
        if hasattr(self._iterator, "_shutdown_workers"):
            loader_processes.shut_down(self._iterator)
        self._iterator = None


def bytes_in_flight(batch: int, num_workers: int, bytes_per_sample: int) -> int:
    """Return the bytes of the batches that loader processes hold ready or make."""
    return (PREFETCHED_BATCHES + 1) * num_workers * batch * bytes_per_sample


def _received(batch: Any) -> Batch:
    """Return the batch as tensors: it comes through a pipe as bytes, else through shared memory."""
    if isinstance(batch, LoadFailure):
        raise LoadError(batch.reason)
    inputs, targets = pickle.loads(batch) if isinstance(batch, bytes) else batch
    return tree_map(_tensor, inputs), tree_map(_tensor, targets)


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _explained(collate: Collate, explain: Callable[[Exception, Any], str], samples: Any) -> Any:
    """Collate a batch; return a failure in its place, of loading or of collation."""
    if isinstance(samples, LoadFailure):
        return samples
    try:
        return collate(samples)
    except Exception as error:
        return LoadFailure(explain(error, samples))


def _pickled(collate: Collate, samples: list[Any]) -> bytes:
    """Collate a batch as bytes, which go through a pipe; tensors would go through shared memory."""
    # of a view, all that it is a view of would be pickled
    batch = tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, collate(samples))
    return pickle.dumps(batch, pickle.HIGHEST_PROTOCOL)


def _in_own_memory(samples: list[Any]) -> Any:
    """Stack samples without shared memory, which PyTorch's own collation uses in a loader process."""
    return tree_map(lambda *parts: torch.stack([_own_tensor(part) for part in parts]), *samples)


def _own_tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.from_numpy(np.asarray(value))


class _Order(Sampler[list[Any]]):
    """Sampler that passes the random choices for each sample to the loader processes, which draw nothing themselves."""

    def __init__(self, choices: Choices, plan: Plan) -> None:
        self._choices, self._plan, self.epoch = choices, plan, 1

    def __iter__(self) -> Iterator[list[Any]]:
        return iter(self._choices(self._plan, self.epoch))

    def __len__(self) -> int:
        return self._plan.num_batches
