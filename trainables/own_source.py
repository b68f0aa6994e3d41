"""A user's training file: its declaration, its data folder, and errors of its code."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from trainables.contract import (
    Data,
    DataError,
    DeviceLostError,
    HelperLostError,
    InfeasibleError,
    Metric,
    OwnCodeError,
    PeerLostError,
    Role,
    Source,
)
from trainables.declared import Declaration, declaration_of
from trainables.machine.exception_chain import described
from trainables.source_files import check_module_name, digest_of, imported_files

MAX_FILES = 20_000  # of the data folder, that are described
WRITTEN = ("journal.jsonl", "training.lock")  # one of them is in each folder of a run or of a training
NO_DATA = (".py", ".yaml", ".yml", ".log")  # of files directly in the data folder, which may be the training file's own
# Words in names of metrics of which less is better.
LOSSES = (
    "loss logloss error err errors nll entropy crossentropy perplexity ppl bpc bpb mse rmse mae mape smape msle rmsle "
    "wer cer ter eer ece brier fid lpips distance divergence deviation difference residual cost risk regret"
)
LOST = (PeerLostError, HelperLostError, DeviceLostError)
EXPECTED = (InfeasibleError, DataError, *LOST, OwnCodeError, FloatingPointError, OSError)


class OwnSource:
    """A training file as it is when it is first read."""

    def __init__(self, path: Path, reserved: Collection[str]) -> None:
        """Read the file's declaration; `reserved`: names of parameters that it cannot have.

        Raises:
            DeclarationError: one line with the mistake, its file and line.
        """
        self.declaration: Declaration = declaration_of(path, reserved)
        check_module_name(path)
        files = {file.relative_to(path.parent).as_posix(): file.read_bytes() for file in imported_files(path)}
        self.source = Source(path, digest_of(path), files)

    def module(self) -> ModuleType:
        """Import the file.

        Raises:
            Exception: whatever the file raises.
        """
        from trainables.own_module import imported

        return imported(self.source.path)

    def locate_data(self, data: Data) -> Data:
        """Return the data with an absolute root; without `val_images` all validation samples are used (0).

        Raises:
            DataError: there is no such file or folder.
        """
        root = None if data.root is None else Path(os.path.expanduser(data.root)).absolute()
        if root is not None and not root.exists():
            raise DataError(f"data.root {root}: no such file or folder")
        val_images = 0 if data.val_images == Data.val_images else data.val_images
        return replace(data, name="folder", root=None if root is None else str(root), val_images=val_images)

    def describe_data(self, data: Data) -> str:
        """Return where the samples come from."""
        limit = "" if data.train_images is None else f", at most {data.train_images:,} training samples of it"
        limit += f", at most {data.val_images:,} validation samples" if data.val_images else ""
        found = "" if data.root is None else f", from {_described_files(Path(data.root))}"
        what = "dataset" if "dataset" in self.declaration.functions else "data"
        return f"{what} of {self.source.path.name} (sha256 {self.source.digest}){limit}{found}"


@contextlib.contextmanager
def own_errors(folder: Path) -> Iterator[None]:
    """Turn errors of a user's code into one line; `folder` has the file.

    Raises:
        OwnCodeError: the code raised, or called sys.exit.
    """
    try:
        yield
    except EXPECTED:
        raise
    except SystemExit as error:
        hint = 'what the file does when it is run as a script belongs under if __name__ == "__main__"'
        _, found, place = described(error, folder).rpartition(" (")
        raise OwnCodeError(f"called sys.exit({error.code!r}){found}{place if found else ''}; {hint}") from error
    except Exception as error:
        cached = "; a cache of the file holds a tensor without data, made while operators were counted: keep what "
        cached += "forward computes once in the network, by register_buffer"
        raise OwnCodeError(described(error, folder) + cached * ("FakeTensor" in f"{error}")) from error


def own_metrics(declaration: Declaration, tested: bool = True) -> dict[str, Metric]:
    """Return the declared metrics with their roles and, if `tested`, those of the test samples."""
    declared: Mapping[str, Metric] = declaration.metrics
    metrics = {
        name: metric if metric.role else replace(metric, role=_role(name), role_is_guess=True)
        for name, metric in declared.items()
    }
    for name, metric in declared.items():
        if tested and name.startswith("val_"):
            help = f"as {name}, on the test samples; measured once, at the end"
            metrics[name.replace("val_", "test_", 1)] = Metric(metric.unit, help, probed=False)
    return metrics


def _role(name: str) -> Role:
    return "quality" if set(LOSSES.split()).isdisjoint(name.lower().split("_")) else "loss"


def _described_files(root: Path) -> str:
    """Return number, size and date of the files in a folder; of the first ones if there are many."""
    status, truncated = [], False
    for folder, names in _data_files(root):
        status += [os.stat(os.path.join(folder, name), follow_symlinks=False) for name in names]
        if truncated := len(status) >= MAX_FILES:
            break
    newest = datetime.datetime.fromtimestamp(max((s.st_mtime for s in status), default=0.0), datetime.UTC)
    count = f"{len(status):,} file{'' if len(status) == 1 else 's'}" + (" and more" if truncated else "")
    return f"{count} of {sum(s.st_size for s in status):,} bytes, newest {newest:%Y-%m-%d %H:%M:%S} UTC"


def _data_files(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder of the data with the names of its files, without results, code and what is hidden."""
    if not root.is_dir():
        yield str(root.parent), [root.name]
        return
    for folder, inner, names in os.walk(root, followlinks=True):
        is_root = folder == str(root)
        if not is_root and not set(WRITTEN).isdisjoint(names):
            inner.clear()
            continue
        # sorted, as the first ones must be the same ones wherever the folder lies
        inner[:] = sorted(name for name in inner if not name.startswith(".") and name != "__pycache__")
        visible = [name for name in names if not name.startswith(".")]
        yield folder, [name for name in visible if not (is_root and name.endswith(NO_DATA))]
