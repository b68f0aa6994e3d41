"""Trainable around a user's training file. Nothing of the file is run here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import field, make_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from trainables.contract import Config, Cost, Data, MemoryNeed, OwnCodeError, Parameter, Resources, Worker
from trainables.declared import Declaration, kind_of
from trainables.own_loop import OwnLoop
from trainables.own_source import OwnSource, own_errors, own_metrics
from trainables.setting_check import TYPES
from trainables.settings import Settings
from trainables.torch_trainable import TorchTrainable

T = TypeVar("T")
VIEW_FAILED = "view size is not compatible"  # in PyTorch's message


class OwnTrainable(TorchTrainable):
    """A training whose network, samples and loss a file declares."""

    def __init__(self, path: Path) -> None:
        """Read the file's declaration.

        Raises:
            DeclarationError: one line with the mistake, its file and line.
        """
        self._file = OwnSource(path, reserved=dir(Settings))
        self.source, declaration = self._file.source, self._file.declaration
        self.own_names = tuple(declaration.parameters)
        self.locate_data, self.describe_data = self._file.locate_data, self._file.describe_data
        settings = _settings_class(declaration, self.source.digest)
        super().__init__(settings, declaration.unit, own_metrics(declaration))

    @contextlib.contextmanager
    def errors(self, config: Config) -> Iterator[None]:
        """Turn errors of the user's code into one line with file and line.

        Raises:
            OwnCodeError: see `own_errors`.
        """
        try:
            with own_errors(self.source.path.parent):
                yield
        except OwnCodeError as error:
            if VIEW_FAILED not in f"{error}" or config.get("memory_format") == "contiguous":
                raise
            raise OwnCodeError(f"{error}; memory_format=contiguous keeps PyTorch's order") from error.__cause__

    def estimate(self, config: Config, data: Data) -> Cost:
        """Time a few steps; errors of the user's code become one line with file and line."""
        with self.errors(config):
            return super().estimate(config, data)

    def memory(self, config: Config, data: Data, resources: Resources) -> MemoryNeed | None:
        """Predict memory; errors of the user's code become one line with file and line."""
        with self.errors(config):
            return super().memory(config, data, resources)

    def _isolated(self, config: Config, worker: Worker, work: Callable[[Settings, Worker], T]) -> T:
        """Call `work`; errors of the user's code become one line with file and line."""
        with self.errors(config):
            self._file.module()  # what it sets at its top level holds for all of its trials
            return super()._isolated(config, worker, work)


ANY = TorchTrainable(Settings, "samples", {})  # what every training has


@cache
def own_trainable(path: Path) -> OwnTrainable | OwnLoop:
    """Return the training of a file, as it was when it was first asked for.

    Raises:
        DeclarationError: one line with the mistake, its file and line.
    """
    return OwnLoop(path) if kind_of(path) == "loop" else OwnTrainable(path)


def _settings_class(declaration: Declaration, digest: str) -> type[Settings]:
    rows = [(name, _type(parameter), _row(parameter)) for name, parameter in declaration.parameters.items()]
    names = tuple(declaration.parameters)

    def that_shape_the_network(self: Settings) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    return make_dataclass(
        "OwnSettings",
        rows,
        bases=(Settings,),
        namespace={
            "__module__": __name__,
            "workload": str(declaration.path),
            "source": digest,
            "that_shape_the_network": that_shape_the_network,
        },
        frozen=True,
        kw_only=True,
    )


def _type(parameter: Parameter) -> Any:
    return Literal[tuple(parameter.choices)] if parameter.choices else TYPES[parameter.type]


def _row(parameter: Parameter) -> Any:
    names = ("help", "low", "high", "affects")
    return field(default=parameter.default, metadata={name: getattr(parameter, name) for name in names})
