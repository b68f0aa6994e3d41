"""Settings of a configuration as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SHORT_NAMES = {"learning_rate": "lr", "batch_size": "batch", "weight_decay": "decay", "num_microbatches": "micro"}


MOST_WRITTEN = 7  # characters of a float that someone wrote; a drawn one has more
DEFAULT = "default"  # instead of None, with which the training chooses a value itself


def format_setting(value: Any) -> str:
    """Return a configuration's value as text: a float as it was written, or with three digits, near 1 with six."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"
    if float(text) == value or len(str(value)) > MOST_WRITTEN:
        return text if text != "1" else f"{value:.6g}"
    return str(value)


def format_change(parameter: str, old: Any, new: Any) -> str:
    """Return a change of a setting, as in `precision bf16 -> fp32`; None: the training's own default."""
    before, after = (DEFAULT if value is None else format_setting(value) for value in (old, new))
    return f"{parameter} {before} -> {after}"


def with_all_digits(value: Any) -> str:
    """Return a setting as commands take it."""
    return format_setting(value) if isinstance(value, bool) else f"{value}"


def assignments(config: Mapping[str, Any]) -> list[str]:
    """Return settings as NAME=VALUE, as commands take them."""
    return [f"{name}={with_all_digits(value)}" for name, value in config.items()]


def format_settings(config: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return settings for a narrow column, as in `batch=128 lr=0.05 memory bf16`; text values have no name."""
    shown = ((name, config[name]) for name in names if name in config)
    return " ".join(v if isinstance(v, str) else f"{SHORT_NAMES.get(k, k)}={format_setting(v)}" for k, v in shown)
