"""Trainable around a user's training file, which declares a workload. Nothing of the file is run here."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping
from dataclasses import field, make_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from trainables.contract import (
    Config,
    Data,
    DataError,
    HelperLostError,
    InfeasibleError,
    Metric,
    OwnCodeError,
    Parameter,
    PeerLostError,
    Role,
    Source,
    Worker,
)
from trainables.declared import Declaration, declaration_of
from trainables.machine.exception_chain import described
from trainables.settings import TYPES, Settings
from trainables.source_files import check_module_name, digest_of, imported_files, imported_packages
from trainables.torch_trainable import TorchTrainable

T = TypeVar("T")
MAX_FILES = 20_000  # of the data folder, that are described
COMMON = tuple(Settings.__dataclass_fields__)
LOSSES = ("loss", "error", "perplexity")  # parts of names of metrics of which less is better
EXPECTED = (InfeasibleError, DataError, PeerLostError, HelperLostError, FloatingPointError, OSError)


class OwnTrainable(TorchTrainable):
    """A training that a file declares."""

    def __init__(self, path: Path) -> None:
        """Read the file's declaration.

        Raises:
            DeclarationError: one line with the mistake, its file and line.
        """
        declaration = declaration_of(path, reserved=COMMON)
        check_module_name(path)
        files = {file.relative_to(path.parent).as_posix(): file.read_bytes() for file in imported_files(path)}
        self.source = Source(path, digest_of(path), files, imported_packages(path))
        settings = _settings_class(declaration, self.source.digest)
        self.own_names = tuple(declaration.parameters)
        super().__init__(settings, declaration.unit, _metrics(declaration.metrics))

    def locate_data(self, data: Data) -> Data:
        """Return the data with an absolute root; without `val_images` all validation samples are used (0)."""
        root = None if data.root is None else Path(data.root).expanduser().absolute()
        if root is not None and not root.exists():
            raise DataError(f"data.root {root}: no such file or folder")
        val_images = 0 if data.val_images == Data.val_images else data.val_images
        return replace(data, name="folder", root=None if root is None else str(root), val_images=val_images)

    def describe_data(self, data: Data) -> str:
        """Return where the samples come from."""
        limit = "" if data.train_images is None else f", {data.train_images:,} training samples of it"
        found = "" if data.root is None else f", from {_described_files(Path(data.root))}"
        return f"dataset of {self.source.path.name} (sha256 {self.source.digest}){limit}{found}"

    def _isolated(self, config: Config, worker: Worker, work: Callable[[Settings, Worker], T]) -> T:
        """Call `work`; errors of the user's code become one line with file and line."""
        try:
            return super()._isolated(config, worker, work)
        except EXPECTED:
            raise
        except SystemExit as error:
            raise OwnCodeError(f"called sys.exit({error.code!r})") from error
        except Exception as error:
            raise OwnCodeError(described(error, self.source.path.parent)) from error


ANY = TorchTrainable(Settings, "samples", {})  # what every training has


@cache
def own_trainable(path: Path) -> OwnTrainable:
    """Return the training of a file, as it was when it was first asked for.

    Raises:
        DeclarationError: one line with the mistake, its file and line.
    """
    return OwnTrainable(path)


def _described_files(root: Path) -> str:
    """Return number, size and date of the files in a folder; of the first ones if there are many."""
    status, truncated = [], False
    for folder, _, names in os.walk(root) if root.is_dir() else [(str(root.parent), [], [root.name])]:
        status += [os.stat(os.path.join(folder, name), follow_symlinks=False) for name in names]
        if truncated := len(status) >= MAX_FILES:
            break
    newest = datetime.datetime.fromtimestamp(max((s.st_mtime for s in status), default=0.0), datetime.UTC)
    count = f"{len(status):,} file{'' if len(status) == 1 else 's'}" + (" and more" if truncated else "")
    return f"{count} of {sum(s.st_size for s in status):,} bytes, newest {newest:%Y-%m-%d %H:%M:%S} UTC"


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


def _metrics(declared: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the declared metrics with their roles, and those of the test samples."""
    metrics = {name: replace(metric, role=_role(name)) for name, metric in declared.items()}
    for name, metric in declared.items():
        help = f"as {name}, on the test samples; measured once, at the end"
        metrics[name.replace("val_", "test_", 1)] = Metric(metric.unit, help, probed=False)
    return metrics


def _role(name: str) -> Role:
    return "loss" if any(word in name for word in LOSSES) else "quality"
