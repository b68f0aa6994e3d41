"""macOS as far as it matters here, for each process with this folder on its PYTHONPATH.

Processes start anew instead of by a fork, there is no /proc, /sys or /dev/shm, and `search` and `trainables` see
modules without what only Linux has. Ray and PyTorch see Linux. Python imports a module of this name when it starts.
"""

import importlib.machinery
import multiprocessing
import os
import pathlib
import signal
import sys
import types
from collections.abc import Callable
from typing import Any

OF_OS = ("sched_getaffinity", "sched_setaffinity", "waitid", "posix_fadvise", "pidfd_open", "memfd_create", "eventfd")
OF_SIGNAL = ("SIGPWR", "SIGRTMIN", "SIGSTKFLT", "pidfd_send_signal", "sigtimedwait", "sigwaitinfo")
FOLDERS = ("/proc", "/sys", "/dev/shm")
execute = importlib.machinery.SourceFileLoader.exec_module


class _Seen(types.ModuleType):
    """A module without some of its names."""

    def __init__(self, module: types.ModuleType, missing: tuple[str, ...], **changed: str) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(_module=module, _missing=missing, **changed)

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__["_missing"]:
            raise AttributeError(f"macOS has no {self.__name__}.{name}")
        return getattr(self.__dict__["_module"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_module"], name, value)


SEEN = {
    "os": _Seen(os, OF_OS),
    "signal": _Seen(signal, OF_SIGNAL),
    "sys": _Seen(sys, (), platform="darwin"),
}


def execute_with_what_macos_has(self: Any, module: types.ModuleType) -> None:
    execute(self, module)
    if module.__name__.partition(".")[0] in ("search", "trainables"):
        module.__dict__.update({name: seen for name, seen in SEEN.items() if name in module.__dict__})
        if "psutil" in module.__dict__ and hasattr(module.psutil.Process, "io_counters"):
            del module.psutil.Process.io_counters


def without_linux_folders(method: Callable[..., Any]) -> Callable[..., Any]:
    def called(path: pathlib.Path, *arguments: Any, **named: Any) -> Any:
        if str(path).startswith(FOLDERS):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return method(path, *arguments, **named)

    return called


multiprocessing.set_start_method("spawn", force=True)
importlib.machinery.SourceFileLoader.exec_module = execute_with_what_macos_has  # type: ignore[method-assign]
for name in ("open", "stat", "iterdir"):
    setattr(pathlib.Path, name, without_linux_folders(getattr(pathlib.Path, name)))
