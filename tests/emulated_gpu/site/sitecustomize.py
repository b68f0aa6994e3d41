"""Emulation in each process that trains: Ray's workers and the ranks of a trial import it by its name, as Python does.

A trial runs within `trainables.machine.isolation.isolated`; there the operators are computed.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

ISOLATION = "trainables.machine.isolation"


class _Emulating(importlib.abc.MetaPathFinder):
    """Finder that changes the module of isolation when it is imported."""

    def find_spec(self, name, path=None, target=None):
        if name != ISOLATION:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _emulate(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _emulate(module):
    from tests.emulated_gpu.emulation import emulated
    from tests.emulated_gpu.setting import prepare

    prepare()
    isolated = module.isolated

    def emulating(work, **settings):
        def emulated_work():
            with emulated():
                return work()

        return isolated(emulated_work, **settings)

    module.isolated = emulating


if "EXECUTED_LINES" in os.environ:
    from tests.emulated_gpu import executed_lines

    executed_lines.record()

if "libemulatedcuda" in os.environ.get("LD_PRELOAD", ""):
    sys.meta_path.insert(0, _Emulating())
