"""Copy of a run's folder on an object store or another file system, kept up while the run goes on.

pyarrow's filesystems do the transfer: `s3://BUCKET/PREFIX`, `gs://...`, `abfs://...`, `file:///DIR`.
"""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from search.record.disk import is_out_of_space, write_atomically
from search.record.events import End, Event, Finish
from search.record.journal import FILE_NAME as JOURNAL
from search.record.run_state import RunState
from search.text.errors import first_line

WRITER = "writer.json"  # names the process that writes the copy, for as long as it does
SECONDS_BETWEEN = 30.0  # two copies, unless a trial finishes
PIECE_BYTES = 2**20
SIGN_SECONDS = 1.0  # in which another process, which has looked for a writer before this one signed, signs too
SILENT_SECONDS = 90.0  # after which a writer that changes nothing is taken to be gone
UNFINISHED = ".part"  # end of the name of a file that is being written
OTHER_SEED = "-seed-"  # in the name of the folder of a training with another seed
UNKNOWN = (-1, -1)  # size and time of change of a file that an earlier process has copied
log = logging.getLogger(__name__)


class MirrorError(Exception):
    """The copy cannot be used; the message is one line."""


class Mirror:
    """The copy of one run."""

    def __init__(self, uri: str, name: str) -> None:
        """`uri`: of the folder that has a folder for each run; `name`: of the run.

        Raises:
            MirrorError: there is no such file system.
        """
        from pyarrow import fs

        self.uri = uri  # as people name it
        if "@" in uri.partition("?")[0]:
            raise MirrorError("--mirror: keys belong into the environment, as AWS_ACCESS_KEY_ID and so on")
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._renewal = threading.Thread(target=self._renew, name="mirror claim", daemon=True)
        self._copied: dict[str, tuple[int, int]] = {}  # size and time of change, by path within the folder
        self._token, self._signed_at = uuid.uuid4().hex, -math.inf
        self._no_file = fs.FileType.NotFound
        try:
            files, base = fs.FileSystem.from_uri(uri)
            self._is_local = isinstance(files, fs.LocalFileSystem)
            self._files: Any = files
            self._base = f"{base.rstrip('/')}/{name}"
            folder = Path(self._base)
            missing = [each for each in (folder, *folder.parents) if not each.exists()] if self._is_local else []
            self._made = missing  # by the claim, the innermost first
            self.has_run()
        except (OSError, ValueError, TypeError) as error:
            raise MirrorError(f"--mirror {uri}: {first_line(error)}; e.g. s3://BUCKET/runs or /DIR") from error

    def has_run(self) -> bool:
        """Return whether the copy has the journal of a run.

        Raises:
            OSError: it cannot be read.
        """
        return bool(self._files.get_file_info(self._path(JOURNAL)).type != self._no_file)

    def claim(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Become the only writer. One that was killed is taken to be gone when it has changed nothing for a while.

        Raises:
            MirrorError: another process writes there, or nothing can be written.
        """
        try:
            found, waited = self._writer(), 0.0
            if found is not None and not _is_gone(found):
                log.warning("%s", f"{self.uri}: waits up to {SILENT_SECONDS:.0f} s: {_named(found)} may write there")
                while waited < SILENT_SECONDS and self._writer() == found:
                    sleep(SECONDS_BETWEEN / 6)
                    waited += SECONDS_BETWEEN / 6
                if self._writer() not in (None, found):
                    raise MirrorError(f"--mirror {self.uri}: {_named(found)} is writing there: wait for it, or end it")
            self._sign()
            sleep(SIGN_SECONDS)
            if not self._is_ours():
                raise MirrorError(f"--mirror {self.uri}: another process began to write there at the same moment")
            self._copied = dict.fromkeys(self._files_there(), UNKNOWN)
        except OSError as error:
            raise MirrorError(f"--mirror {self.uri}: {first_line(error)}") from error

    def keep_claim(self) -> None:
        """Stay the only writer until `release`, however long nothing is copied, as while the nodes of a run start."""
        self._renewal.start()

    def fetch(self, folder: Path) -> bool:
        """Copy the run into its folder if the folder has none, or less of it; return whether it was copied.

        Raises:
            MirrorError: the copy cannot be read, or is of another run.
        """
        try:
            if not self.has_run():
                return False
            there, path = self._read(JOURNAL), folder / JOURNAL
            here = path.read_bytes() if path.is_file() else b""
            if here.startswith(there):
                return False
            if not there.startswith(here[: here.rfind(b"\n") + 1]):
                if here.partition(b"\n")[0] != there.partition(b"\n")[0]:
                    raise MirrorError(f"--mirror {self.uri}: {folder} has another run of this name")
                what = "has events that the copy, which went on elsewhere, lacks; rename it to go on from the copy"
                raise MirrorError(f"--mirror {self.uri}: {folder} {what}")
            for name in self._files_there():
                if name != JOURNAL:
                    self._fetch(name, folder / name)
            self._fetch(JOURNAL, path)  # last: with it the folder is that of a run
        except OSError as error:
            if is_out_of_space(error):  # of this machine
                raise
            raise MirrorError(f"--mirror {self.uri}: {first_line(error)}") from error
        return True

    def is_in(self, folder: Path) -> bool:
        """Return whether the copy is the run's folder itself."""
        return self._is_local and Path(self._base).resolve() == folder.resolve()

    def copy(self, folder: Path, unfinished: AbstractSet[str] = frozenset()) -> None:
        """Copy what has changed since the last copy, the journal last, and delete what is gone.

        `unfinished`: trials whose own files are left out.

        Raises:
            MirrorError: another process writes there now.
            OSError: something could not be copied.
        """
        with self._lock:
            self._sign_again()
            found = dict(_kept_files(folder, unfinished))
            for name in sorted(found, key=lambda name: name == JOURNAL):
                if self._copied.get(name) != found[name]:
                    with suppress(FileNotFoundError):  # deleted meanwhile
                        self._write(name, folder / name)
                        self._copied[name] = found[name]
            for name in self._copied.keys() - found.keys():
                if _trial_of(Path(name)) in unfinished:
                    continue  # a trial that goes on from its checkpoint: the copy keeps the one before
                self._files.delete_file(self._path(name))
                del self._copied[name]

    def release(self) -> None:
        """Say that nobody writes any more; leave no empty folder that the claim has made."""
        self._released.set()
        if self._renewal.is_alive():
            self._renewal.join(SIGN_SECONDS)  # no longer: the store may hang
        with suppress(OSError):
            if self._is_ours():
                self._files.delete_file(self._path(WRITER))
            for folder in self._made:
                folder.rmdir()

    def _files_there(self) -> list[str]:
        """Return the paths within the copy of its files."""
        from pyarrow import fs

        entries = self._files.get_file_info(fs.FileSelector(self._base, allow_not_found=True, recursive=True))
        names = (entry.path.removeprefix(f"{self._base}/") for entry in entries if entry.type == fs.FileType.File)
        return [name for name in names if name != WRITER]

    def _fetch(self, name: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda unfinished: unfinished.write_bytes(self._read(name)))

    def _read(self, name: str) -> bytes:
        with self._files.open_input_stream(self._path(name)) as stream:
            content: bytes = stream.read()
        return content

    def _writer(self) -> dict[str, Any] | None:
        """Return what the writer says of itself; None: there is none."""
        try:
            found = json.loads(self._read(WRITER))
        except FileNotFoundError:
            return None
        except ValueError:
            return {"token": "unreadable"}
        return found if isinstance(found, dict) else {"token": "unreadable"}

    def _is_ours(self) -> bool:
        """Return whether this process is the writer."""
        return (self._writer() or {}).get("token") == self._token

    def _sign(self) -> None:
        said = {"host": socket.gethostname(), "pid_namespace": pid_namespace(), "process": os.getpid()}
        said |= {"token": self._token, "time": time.time()}
        self._put(WRITER, lambda stream: stream.write(json.dumps(said).encode()))
        self._signed_at = time.monotonic()

    def _renew(self) -> None:
        while not self._released.wait(SECONDS_BETWEEN / 3):
            with self._lock, suppress(Exception):  # of the store, or that it is claimed by another: a copy says so
                if not self._released.is_set() and time.monotonic() - self._signed_at >= SECONDS_BETWEEN:
                    self._sign_again()

    def _sign_again(self) -> None:
        if not self._is_ours():
            raise MirrorError(f"--mirror {self.uri}: another process writes there now")
        self._sign()

    def _write(self, name: str, path: Path) -> None:
        """Write a file; where that takes long, show that this process is still there."""

        def write(stream: Any) -> None:
            while piece := file.read(PIECE_BYTES):
                stream.write(piece)
                if time.monotonic() - self._signed_at >= SECONDS_BETWEEN:
                    self._sign_again()

        with path.open("rb") as file:
            self._put(name, write)

    def _put(self, name: str, write: Callable[[Any], object]) -> None:
        """Write a file whole: an object appears when it is complete, and a local file gets its name then."""
        path = self._path(name)
        if not self._is_local:
            with self._files.open_output_stream(path) as stream:
                write(stream)
            return
        self._files.create_dir(os.path.dirname(path), recursive=True)
        with self._files.open_output_stream(f"{path}{UNFINISHED}") as stream:
            write(stream)
        self._files.move(f"{path}{UNFINISHED}", path)

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}"


class Mirroring:
    """Context that keeps the copy up in a thread; also a listener of the journal. No failure ends the run."""

    def __init__(self, mirror: Mirror, folder: Path, run_state: RunState) -> None:
        self._mirror, self._folder, self._run_state = mirror, folder, run_state
        self._due, self._ended, self._failed = threading.Event(), False, False
        self.timeout_seconds: float | None = None  # of the last copy; None: as long as it takes
        self._thread = threading.Thread(target=self._watch, name="mirror", daemon=True)

    def __call__(self, event: Event) -> None:
        """Copy soon after a trial or the search has ended."""
        if isinstance(event, Finish | End):
            self._due.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()  # nothing waits for the thread here: a store that hangs must not keep the results back

    def _stop(self) -> None:
        self._ended = True
        self._due.set()

    def finish(self) -> None:
        """Copy everything a last time, and say that nobody writes any more. Give up on a store that does not answer."""
        self._stop()
        last = threading.Thread(target=self._finish, daemon=True)
        last.start()
        last.join(self.timeout_seconds)
        if last.is_alive():
            log.warning("%s", f"not copied: {self._mirror.uri} does not answer")

    def _finish(self) -> None:
        self._thread.join()
        self.copy(everything=True)
        self._mirror.release()

    def copy(self, everything: bool = False) -> None:
        """Copy now, `everything`: unfinished trials, too; log the first failure."""
        try:
            self._mirror.copy(self._folder, set() if everything else self._unfinished())
            self._failed = False
        except Exception as error:
            log.log(logging.DEBUG if self._failed else logging.WARNING, "%s", f"not copied: {first_line(error)}")
            self._failed = True

    def _unfinished(self) -> set[str]:
        with self._run_state.lock:
            return {name for name, trial in self._run_state.trials.items() if trial.state == "running"}

    def _watch(self) -> None:
        while not self._ended:
            self._due.wait(SECONDS_BETWEEN)
            self._due.clear()
            self.copy()


def _trial_of(name: Path) -> str:
    """Return the trial of a path within the folder; empty: it is of none."""
    return "".join(name.parts[1:2]) if name.parts[0] == "trials" else ""


def _kept_files(folder: Path, unfinished: AbstractSet[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the path within the folder, the size and the time of change of each file that is copied."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        trial = _trial_of(name)
        if trial in unfinished or OTHER_SEED in trial:
            continue  # one with another seed is deleted when it ends
        if path.name.startswith(".") or path.name.endswith(UNFINISHED) or path.is_symlink():
            continue
        with suppress(FileNotFoundError):
            if path.is_file():
                status = path.stat()
                yield name.as_posix(), (status.st_size, status.st_mtime_ns)


def pid_namespace() -> str:
    """Return what tells apart machines and containers of one host name; empty where the system has no such names."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # such as on macOS
        return ""


def _is_gone(writer: dict[str, Any]) -> bool:
    """Return whether the writer was a process of this machine, and of this container, that is no longer there."""
    if writer.get("host") != socket.gethostname() or not isinstance(writer.get("process"), int):
        return False
    if writer.get("pid_namespace", pid_namespace()) != pid_namespace():  # earlier versions wrote none
        return False
    try:
        os.kill(writer["process"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return bool(writer["process"] == os.getpid())


def _named(writer: dict[str, Any]) -> str:
    return f"process {writer.get('process', '?')} on {writer.get('host', 'a machine')}"
