"""How numbers, times and settings are written for people. One way for the terminal, the summary and the messages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ARROWS = {"maximize": "↑", "minimize": "↓"}
SHORT_NAMES = {"learning_rate": "lr", "batch_size": "batch", "weight_decay": "decay", "num_microbatches": "micro"}


def number(value: float) -> str:
    """With the digits that can mean something: 0.7124, 12.3, 5,234; a dash for what was not measured."""
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    if size >= 100 or value == 0:
        return f"{value:,.0f}"
    if size < 0.001:
        return f"{value:.1e}"
    return f"{value:.{1 if size >= 10 else 2 if size >= 1 else 4}f}"


def spread(value: float, half_width: float | None) -> str:
    """A value with what it may be off by, if that is known: `352 ± 4.1`; `352 ± ?` where that is as much as itself."""
    if half_width is None or not math.isfinite(half_width):
        return number(value)
    if half_width >= abs(value) > 0:
        return f"{number(value)} ± ?"
    return f"{number(value)} ± " + (f"{half_width:,.0f}" if half_width >= 10 else f"{half_width:.2g}")


def half_width(metrics: Mapping[str, float], metric: str) -> float | None:
    """Half of the metric's 95% interval; in runs of old its standard deviation; None: neither was measured."""
    low, high = metrics.get(f"{metric}_low", math.nan), metrics.get(f"{metric}_high", math.nan)
    return (high - low) / 2 if math.isfinite(high - low) else metrics.get(f"{metric}_std")


def percent(fraction: float) -> str:
    """`62%`; a dash for what was not measured."""
    return f"{fraction:.0%}" if math.isfinite(fraction) else "–"


def setting(value: Any) -> str:
    """A configuration's value, floats to three digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def short_settings(config: Mapping[str, Any], names: Iterable[str]) -> str:
    """For a narrow column: `batch=128 lr=0.05 memory bf16`. A word speaks for itself, a number needs its name."""
    return " ".join(_short(name, config[name]) for name in names if name in config)


def _short(name: str, value: Any) -> str:
    return value if isinstance(value, str) else f"{SHORT_NAMES.get(name, name)}={setting(value)}"


def duration(seconds: float) -> str:
    """A time that was measured: `8.3 s`, `4 min 10 s`, `2 h 5 min`, `1 h`."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_rest = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes_rest, "min"), (rest if not hours else 0, "s"))
    return " ".join(f"{amount} {unit}" for amount, unit in parts if amount)


def about(seconds: float) -> str:
    """A time that is a guess, no more exact than it is: `about 40 s`, `about 4 min`, `about 2.5 h`."""
    if seconds < 90:
        return f"about {max(10, round(seconds, -1)):.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


def count(number: int, noun: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def metric_label(metric: str, data: Mapping[str, Any]) -> str:
    """The metric's name; learned from generated pictures it says so, for it means nothing on others."""
    learned = any(word in metric for word in ("accuracy", "loss"))
    return f"{metric} (generated)" if learned and data.get("name") == "generated" else metric


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
