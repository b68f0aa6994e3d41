"""Roles of metrics, by their names: the rate of a training, and what it learned."""

from __future__ import annotations

from collections.abc import Collection, Iterable

ENDS = {"_low": "lower end", "_high": "upper end"}  # of a metric's 95% interval, by the end of its name
FIRST_RATE = "images_per_second"  # VGG19's, and that of runs that recorded no metrics


def rate_metric(names: Collection[str]) -> str:
    """Return the name of the training's rate: the metric per second that has an interval."""
    return next((n for n in names if is_rate(n) and f"{n}_low" in names), FIRST_RATE)


def is_interval_end(name: str, names: Collection[str]) -> bool:
    """Return whether a name is that of the lower or the upper end of another metric's interval."""
    return name.endswith(tuple(ENDS)) and name.rpartition("_")[0] in names


def is_rate(name: str) -> bool:
    """Return whether a metric is a rate by its name."""
    return name.endswith("_per_second")


def rate_unit(rate: str) -> str:
    """Return the unit of a rate: `tokens/s` of tokens_per_second."""
    return f"{rate.removesuffix('_per_second')}/s"


def sounds_learned(metric: str) -> bool:
    """Return whether a metric takes training by its name, where nothing else says it."""
    return metric.startswith(("val_", "test_")) or any(word in metric for word in ("accuracy", "loss"))


def metric_label(metric: str, data_name: str) -> str:
    """Return the metric's name, marked if it was learned from generated samples and does not hold for others."""
    return f"{metric} (generated)" if sounds_learned(metric) and data_name == "generated" else metric


def has_test(known: Collection[str] | None) -> bool:
    """Return whether a training with these metrics may have a test set; None: it may have any metric."""
    return known is None or any(name.startswith("test_") for name in known)


def wanted_test_metrics(objectives: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the test metrics that people want to see: those of objectives, and accuracies."""
    wanted = {name.replace("val_", "test_", 1) for name in objectives if name.startswith("val_")}
    return [name for name in known if name in wanted or ("accuracy" in name and not is_interval_end(name, known))]
