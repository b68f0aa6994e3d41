"""What this machine can do at most: matrix, convolution, memory and decoding rates, measured once and kept.

    python -m trainables.machine.ceilings [--threads N]     measure again, keep the best so far, print all

A rate is the best of many short repetitions: a disturbance can only lower it. While something else took the cores, what
is kept counts as provisional, and the next process that asks measures again, up to five times in all.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from trainables.machine.footprint import GIB
from trainables.machine.kept import Figures, kept, machine
from trainables.machine.processor import precisions

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MATRIX_SIZES = {"cpu": (1024, 2048), "cuda": (8192,)}  # on a CPU they differ by up to a tenth, either way
CONVOLUTION = {"cpu": (64, 256, 16), "cuda": (128, 512, 32)}  # batch, channels in and out, map size
COPIED_FLOATS = {"cpu": 2**26, "cuda": 2**27}  # more than caches hold, and few enough for a small GPU
SECONDS = 0.25  # for each rate
QUIET_SHARE = 0.95  # of its cores that the process must have had
MAX_TRIES = 5


@dataclass(frozen=True)
class Ceilings:
    """The highest rates seen, with `threads` threads or on the GPU."""

    threads: int
    matrix_teraflops_per_second: Mapping[str, float]  # by precision
    convolution_teraflops_per_second: Mapping[str, float]
    memory_gib_per_second: float  # read and written while copying
    decoded_images_per_second: float  # 32x32 JPEG files by PIL, on one core

    def teraflops_per_second(self, precision: str) -> float:
        """Of the faster kind: some libraries are slow at one of them."""
        return max(self.matrix_teraflops_per_second[precision], self.convolution_teraflops_per_second[precision])


@cache
def ceilings(threads: int, device: torch.device) -> Ceilings:
    """Those kept for this machine, so many threads and this `device`; measured (2 s on a CPU) if there are none."""
    return _ceilings(kept("ceilings", machine(device, threads), lambda old: _measured(old, threads, device), _enough))


def _ceilings(figures: Figures) -> Ceilings:
    return Ceilings(**{name: value for name, value in figures.items() if name not in ("quiet", "tries")})


def _enough(figures: Figures) -> bool:
    return bool(figures["quiet"] or figures["tries"] >= MAX_TRIES)


def _measured(old: Figures | None, threads: int, device: torch.device) -> Figures:
    """The better of `old` and a new measurement, rate by rate."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            new = _rates(threads, device)
    finally:
        torch.set_num_threads(before)
    if old is None:
        return new
    return {**{name: _better(new[name], old[name]) for name in new}, "tries": old["tries"] + 1}


def _better(new: object, old: object) -> object:
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        return {name: max(new[name], old[name]) for name in new}
    return max(new, old)  # type: ignore[call-overload]


def _rates(threads: int, device: torch.device) -> Figures:
    quiet = True
    rates: dict[str, dict[str, float]] = {"matrix": {}, "convolution": {}}
    for precision in precisions(device.type):
        for kind, works in (("matrix", _matrices), ("convolution", _convolutions)):
            best = max(_best(flops, work, device) for flops, work in works(DTYPES[precision], device))
            rates[kind][precision] = best[0] / 1e12
            quiet &= device.type == "cuda" or best[1] >= QUIET_SHARE * threads
    return {
        "threads": threads,
        "matrix_teraflops_per_second": rates["matrix"],
        "convolution_teraflops_per_second": rates["convolution"],
        "memory_gib_per_second": _best(*_copying(device), device)[0],
        "decoded_images_per_second": _best(*_decoding(), torch.device("cpu"))[0],
        "quiet": quiet,
        "tries": 1,
    }


# --- the work ---------------------------------------------------------------------------------------------------------

Work = tuple[float, Callable[[], object]]  # what one call does, in the rate's unit; the call


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
    """Numbers that cost as much as a network's, drawn apart from the trial's own random numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _copying(device: torch.device) -> tuple[float, Callable[[], object]]:
    source = torch.ones(COPIED_FLOATS[device.type], dtype=torch.float32, device=device)
    target = torch.ones_like(source)
    return 2 * source.nbytes / GIB, lambda: target.copy_(source)


def _decoding(count: int = 100) -> tuple[float, Callable[[], object]]:
    from PIL import Image

    smooth = torch.nn.functional.interpolate(_noise(1, 3, 8, 8), size=(32, 32), mode="bilinear")
    pixels = smooth[0].mul(40).add(128).clamp(0, 255).to(torch.uint8).permute(1, 2, 0).contiguous()
    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, "JPEG", quality=90)
    return float(count), lambda: [Image.open(file).convert("RGB") for _ in range(count)]


def _best(amount: float, work: Callable[[], object], device: torch.device) -> tuple[float, float]:
    """The highest rate of `amount` per second in many calls, and how many cores the process had in that call."""
    best = (0.0, 0.0)
    work()
    _wait(device)
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until or best[0] == 0.0:
        started, cpu_started = time.perf_counter(), time.process_time()
        work()
        _wait(device)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
        best = max(best, (amount / seconds, cpu_seconds / seconds))
    return best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# --- the command line -------------------------------------------------------------------------------------------------


def table(measured: Ceilings) -> str:
    """For people, in 80 columns."""
    lines = [f"{'':<12}{'matrix product':>18}{'convolution':>18}"]
    for precision, rate in measured.matrix_teraflops_per_second.items():
        other = measured.convolution_teraflops_per_second[precision]
        lines.append(f"{precision:<12}{rate:>11.3f} TFLOP/s{other:>10.3f} TFLOP/s")
    lines.append(f"memory      {measured.memory_gib_per_second:>11.1f} GiB/s, read and written by a copy")
    lines.append(f"decoding    {measured.decoded_images_per_second:>11,.0f} images/s on one core, 32x32 JPEG by PIL")
    return "\n".join(lines)


def main() -> None:
    """Measure again, keep the best, print."""
    parser = argparse.ArgumentParser(
        prog="python -m trainables.machine.ceilings", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    threads = parser.parse_args().threads
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    source = machine(device, threads)
    figures = kept("ceilings", source, lambda old: _measured(old, threads, device), enough=lambda figures: False)
    print(", ".join(f"{name} {value}" for name, value in source.items()))
    print(table(_ceilings(figures)))
    if not figures["quiet"]:
        print("something else took the cores: these rates may be too low")


if __name__ == "__main__":
    main()
