"""Tables of the GPU benchmark's record in Markdown: loops in turn, and single probes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from steps_file import PartState, StepsFile, Values

CEILING_GOAL, TEXTBOOK_GOAL = 0.45, 12.0  # fraction of the measured bf16 ceiling, times the textbook loop
STAGES = ("load", "transfer", "forward", "backward", "update")
NOT_MEASURED = "not measured"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column is text; empty without rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    marks = ["---", *["--:" for _ in header[1:]]]
    return "\n".join([f"| {' | '.join(header)} |", f"| {' | '.join(marks)} |", *lines]) if lines else ""


def number(row: Mapping[str, Any], name: str, form: str = ",.3g", factor: float = 1.0) -> str:
    """Format a metric; a dash where it was not measured."""
    return format(factor * row[name], form) if name in row else "-"


def label(config: Mapping[str, Any]) -> str:
    """Name a configuration by its settings."""
    return ", ".join(f"{name} {str(value).lower()}" for name, value in config.items())


def turns(state: PartState) -> dict[str, list[Values]]:
    """Return the turns by loop and configuration, in the order of their first turn."""
    found: dict[str, list[Values]] = {}
    for row in state.measured.values():
        found.setdefault(f"{row['side']}, {label(row['config'])}", []).append(row)
    return found


def median_rate(rows: Sequence[Values]) -> float:
    """Return the median of the images per second."""
    return float(statistics.median(row["images_per_second"] for row in rows))


def fastest(state: PartState, side: str) -> list[Values]:
    """Return the turns of a loop's fastest configuration; empty if it has none."""
    mine = [rows for rows in turns(state).values() if rows[0]["side"].startswith(side)]
    return max(mine, key=median_rate, default=[])


def ceiling(file: StepsFile) -> float | None:
    """Return the highest bf16 rate measured on this GPU in TFLOP/s, of matrix products or convolutions."""
    found = file.read("conditions").measured.get("ceilings")
    if found is None:
        return None
    kinds = (found[f"{kind}_teraflops_per_second"] for kind in ("matrix", "convolution"))
    return max((float(rates["bf16"]) for rates in kinds if "bf16" in rates), default=None)


def of_ceiling(file: StepsFile, images_per_second: float) -> float | None:
    """Return a rate as a fraction of the measured bf16 ceiling; None: the ceiling or the operations are not known."""
    counted = (row for row in probes(file) if "teraflops_per_second" in row)
    per_image = next((row["teraflops_per_second"] / row["images_per_second"] for row in counted), None)
    highest = ceiling(file)
    return float(images_per_second * per_image / highest) if per_image and highest else None


def probes(file: StepsFile) -> list[Values]:
    """Return the metrics of all probes of our loop."""
    return [row for part in ("batch sizes", "settings") for row in file.read(part).measured.values()]


def share(value: float | None) -> str:
    """Format a fraction."""
    return "-" if value is None else f"{value:.3f}"


def ratio(ours: Sequence[Values], theirs: Sequence[Values]) -> float:
    """Return the median of the ratios of the turns of the same number."""
    pairs = zip(ours, theirs, strict=False)  # the last round may have been cut off
    return float(statistics.median(a["images_per_second"] / b["images_per_second"] for a, b in pairs))


def comparison(file: StepsFile) -> str:
    """Table of the loops, with median and spread."""
    state = file.read("comparison")
    textbook = fastest(state, "textbook")
    rows = []
    for name, mine in turns(state).items():
        rates = [row["images_per_second"] for row in mine]
        spread = f"{median_rate(mine):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
        times = f"{ratio(mine, textbook):.2f}" if textbook else "-"
        rows.append([name, spread, f"{len(mine)}", times, share(of_ceiling(file, median_rate(mine)))])
    header = ["loop", "images/s, median (lowest to highest)", "n", "of the textbook's fastest", "of the bf16 ceiling"]
    text = table(header, rows)
    if rows and (highest := ceiling(file)):
        text += f"\n\nCeiling: {highest:,.3g} TFLOP/s in bf16, the higher of matrix product and convolution."
    return text


def goals(file: StepsFile) -> str:
    """Table of the goals; a miss is followed by the stage times of our fastest configuration."""
    state = file.read("comparison")
    ours, textbook = fastest(state, "ours"), fastest(state, "textbook")
    if not ours:
        return ""
    found = [
        ("fraction of the measured bf16 ceiling", CEILING_GOAL, of_ceiling(file, median_rate(ours))),
        ("times the textbook loop", TEXTBOOK_GOAL, ratio(ours, textbook) if textbook else None),
    ]
    rows = [
        [name, f"{goal:g}", NOT_MEASURED if value is None else f"{value:.3g}", verdict(value, goal)]
        for name, goal, value in found
    ]
    text = table(["our loop at its fastest", "goal", "measured", "met"], rows)
    if any(value is not None and value < goal for _, goal, value in found):
        text += f"\n\nMissed with {label(ours[0]['config'])}: {why_missed(file, ours[0]['config'])}"
    return text


def verdict(value: float | None, goal: float) -> str:
    """Return whether the goal is met."""
    return "-" if value is None else "yes" if value >= goal else "no"


def why_missed(file: StepsFile, config: Mapping[str, Any]) -> str:
    """Return the stage times of a configuration in words."""
    row = next((row for row in probes(file) if row["config"] == config and "step_seconds" in row), None)
    if row is None:
        return f"its stage times were {NOT_MEASURED}."
    stages = ", ".join(f"{stage} {number(row, f'{stage}_seconds', '.3f', 1e3)}" for stage in STAGES)
    step = f"{1e3 * config['batch_size'] / row['images_per_second']:.3f}"
    return f"ms per step: {stages}; {step} at the measured rate."


def errors(state: PartState, columns: int) -> list[list[str]]:
    """Return a row for each step that failed."""
    return [[step, error, *["" for _ in range(columns - 2)]] for step, error in state.errors.items()]


def stage_times(file: StepsFile, parts: Sequence[str]) -> str:
    """Table of milliseconds per step by stage, from profiled steps; the last column is the measured rate's."""
    header = ["ms per step", *STAGES, "sum", "at the measured rate", "images/s"]
    rows = []
    for part in parts:
        state = file.read(part)
        for step, row in state.measured.items():
            times = [number(row, f"{stage}_seconds", ",.3f", 1e3) for stage in (*STAGES, "step")]
            measured = f"{1e3 * row['config']['batch_size'] / row['images_per_second']:,.3f}"
            rows.append([step, *times, measured, number(row, "images_per_second", ",.0f")])
        rows += errors(state, len(header))
    return table(header, rows)


def batch_sizes(file: StepsFile) -> str:
    """Table of rate, memory, utilisation and power by batch size."""
    state = file.read("batch sizes")
    columns = {
        "images/s": ("images_per_second", ",.0f"),
        "allocated GiB": ("peak_memory_gib", ".2f"),
        "reserved": ("peak_reserved_gib", ".2f"),
        "predicted": ("predicted_memory_gib", ".2f"),
        "GPU busy": ("gpu_utilization", ".0%"),
        "watts": ("gpu_power_watts", ",.0f"),
        "of the ceiling": ("fraction_of_ceiling", ".3f"),
    }
    rows = [[step, *(number(row, *column) for column in columns.values())] for step, row in state.measured.items()]
    return table(["configuration", *columns], [*rows, *errors(state, 1 + len(columns))])


def settings(file: StepsFile) -> str:
    """Table of rate and memory by `compile` and `cuda_graphs`."""
    state = file.read("settings")
    columns = {
        "images/s": ("images_per_second", ",.0f"),
        "reserved GiB": ("peak_reserved_gib", ".2f"),
        "of the ceiling": ("fraction_of_ceiling", ".3f"),
    }
    rows = [[step, *(number(row, *column) for column in columns.values())] for step, row in state.measured.items()]
    return table(["configuration", *columns], [*rows, *errors(state, 1 + len(columns))])
