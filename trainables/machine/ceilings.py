"""Ceilings: peak matrix, convolution and memory rates of this machine, measured once and stored.

    python -m trainables.machine.ceilings [--threads N]     measure again, store the best so far, print all

A rate is the best of many short repetitions, because interference can only lower it. A result measured under
interference is provisional: the next process that asks measures again, up to five times in all.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache

import torch
from torch import Tensor

from trainables.machine.devices import synchronize
from trainables.machine.measurement_cache import Figures, cached_measurement, machine_fingerprint
from trainables.machine.peak_memory import GIB
from trainables.machine.processor import precisions

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MATRIX_SIZES = {"cpu": (1024, 2048), "cuda": (8192,)}  # on a CPU they differ by up to a tenth, either way
CONVOLUTION = {"cpu": (64, 256, 16), "cuda": (128, 512, 32)}  # batch, channels in and out, map size
COPIED_FLOATS = {"cpu": 2**26, "cuda": 2**27}  # more than caches hold, and few enough for a small GPU
SECONDS = 0.25  # for each rate
QUIET_SHARE = 0.95  # share of its cores that the process had, at least, in a measurement without interference
MAX_TRIES = 5


@dataclass(frozen=True)
class Ceilings:
    """Highest rates observed, with as many threads as were asked for, or on the GPU."""

    matrix_teraflops_per_second: Mapping[str, float]  # by precision
    convolution_teraflops_per_second: Mapping[str, float]
    memory_gib_per_second: float  # read and written while copying

    def teraflops_per_second(self, precision: str) -> float:
        """Return the higher of the matrix and the convolution rate: some libraries are slow at one of them."""
        return max(self.matrix_teraflops_per_second[precision], self.convolution_teraflops_per_second[precision])


@cache
def ceilings(threads: int, device: torch.device) -> Ceilings:
    """Return the stored ceilings of a CPU with `threads`, or of a GPU, or measure them (2 s on a CPU)."""
    return _as_ceilings(_figures(threads, device, lambda old: bool(old["quiet"] or old["tries"] >= MAX_TRIES)))


def _figures(threads: int, device: torch.device, enough: Callable[[Figures], bool]) -> Figures:
    if device.type != "cpu":
        threads = 1  # a GPU's rates do not depend on them
    fingerprint = machine_fingerprint(device, threads)
    return cached_measurement("ceilings", fingerprint, lambda old: _measured(old, threads, device), enough)


def _as_ceilings(figures: Figures) -> Ceilings:
    return Ceilings(**{row.name: figures[row.name] for row in fields(Ceilings)})


def _measured(old: Figures | None, threads: int, device: torch.device) -> Figures:
    """Return the better of `old` and a new measurement, rate by rate."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            new = _rates(threads, device)
    finally:
        torch.set_num_threads(before)
    return new if old is None else {**_better(new, old), "tries": old["tries"] + 1}


def _better(new: Figures, old: Figures) -> Figures:
    return {
        name: _better(value, old[name]) if isinstance(value, dict) else max(value, old[name])
        for name, value in new.items()
    }


def _rates(threads: int, device: torch.device) -> Figures:
    quiet = True
    rates: dict[str, dict[str, float]] = {"matrix": {}, "convolution": {}}
    for precision in precisions(device.type):
        for kind, works in (("matrix", _matrices), ("convolution", _convolutions)):
            best = max(_best(flops, work, device) for flops, work in works(DTYPES[precision], device))
            rates[kind][precision] = best[0] / 1e12
            quiet &= device.type == "cuda" or best[1] >= QUIET_SHARE * threads
    return {
        "matrix_teraflops_per_second": rates["matrix"],
        "convolution_teraflops_per_second": rates["convolution"],
        "memory_gib_per_second": _best(*_copying(device), device)[0],
        "quiet": quiet,
        "tries": 1,
    }


Work = tuple[float, Callable[[], object]]  # work of one call, in the rate's unit; the call


def _matrices(dtype: torch.dtype, device: torch.device) -> Iterable[Work]:
    for size in MATRIX_SIZES[device.type]:
        a, b = (_noise(size, size).to(device, dtype) for _ in range(2))
        yield 2.0 * size**3, lambda a=a, b=b: torch.mm(a, b)  # type: ignore[misc]


def _convolutions(dtype: torch.dtype, device: torch.device) -> Iterable[Work]:
    batch, channels, size = CONVOLUTION[device.type]
    images, weights = _noise(batch, channels, size, size), _noise(channels, channels, 3, 3)
    images, weights = (x.to(device, dtype).to(memory_format=torch.channels_last) for x in (images, weights))
    yield 2.0 * batch * size**2 * 9 * channels**2, lambda: torch.conv2d(images, weights, padding=1)


def _noise(*shape: int) -> Tensor:
    """Draw values like a network's, without using the trial's random numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _copying(device: torch.device) -> tuple[float, Callable[[], object]]:
    source = torch.ones(COPIED_FLOATS[device.type], dtype=torch.float32, device=device)
    target = torch.ones_like(source)
    return 2 * source.nbytes / GIB, lambda: target.copy_(source)


def _best(amount: float, work: Callable[[], object], device: torch.device) -> tuple[float, float]:
    """Return the highest rate of `amount` per second in many calls, and the cores that the process had in that call."""

    def timed() -> tuple[float, float]:
        started, cpu_started = time.perf_counter(), time.process_time()
        work()
        synchronize(device)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
        return amount / seconds, cpu_seconds / seconds

    timed()  # warm-up
    until = time.perf_counter() + SECONDS
    best = timed()
    while time.perf_counter() < until:
        best = max(best, timed())
    return best


def table(measured: Ceilings) -> str:
    """Format the ceilings in 80 columns."""
    lines = [f"{'':<12}{'matrix product':>18}{'convolution':>18}"]
    for precision, rate in measured.matrix_teraflops_per_second.items():
        other = measured.convolution_teraflops_per_second[precision]
        lines.append(f"{precision:<12}{rate:>11.3f} TFLOP/s{other:>10.3f} TFLOP/s")
    lines.append(f"memory      {measured.memory_gib_per_second:>11.1f} GiB/s, read and written by a copy")
    return "\n".join(lines)


def main() -> None:
    """Measure again, store the best, print."""
    parser = argparse.ArgumentParser(
        prog="python -m trainables.machine.ceilings", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    threads = parser.parse_args().threads
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    figures = _figures(threads, device, lambda old: False)
    print(", ".join(f"{name} {value}" for name, value in machine_fingerprint(device, threads).items()))
    print(table(_as_ceilings(figures)))
    if not figures["quiet"]:
        print("other processes used the cores meanwhile: these rates may be too low")


if __name__ == "__main__":
    main()
