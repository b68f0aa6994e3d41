"""Record of the GPU benchmark in Markdown, from its steps."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from gpu_tables import NOT_MEASURED, batch_sizes, comparison, goals, label, number, settings, stage_times, table
from steps_file import StepsFile

WIDTH = 120


def record_name(file: StepsFile) -> str:
    """Return the name of the record's file: date and GPU."""
    about = conditions_of(file)
    gpu = re.sub(r"[^a-z0-9]+", "-", about["gpu"].lower()).strip("-")
    return f"{about['date']}-{'emulated-' if about['emulated'] else ''}gpu-{gpu}.md"


def record_of(file: StepsFile, parts: Sequence[str]) -> str:
    """Return the whole record."""
    about = conditions_of(file)
    title = f"One {about['gpu']}: rates, memory and stage times of VGG19"
    if about["emulated"]:
        title = f"EMULATED GPU, its rates say nothing about any GPU ({title})"
    sections = [
        f"# {title}",
        f"    {about['command']}",
        conditions(about),
        section("Goals", goals(file)),
        section("Loops in turn", comparison(file)),
        section("Stage times of a step", stage_times(file, ["batch sizes", "settings"])),
        section("Batch sizes, otherwise defaults", batch_sizes(file)),
        section("Compilation and CUDA graphs", settings(file)),
        section("Loader processes", stage_times(file, ["loader processes"])),
        section("Training to an accuracy", training(file)),
        section("Tests on this GPU", tests(file)),
        section("Not measured", not_measured(file, parts)),
    ]
    return "\n\n".join(sections) + "\n"


def conditions_of(file: StepsFile) -> dict[str, Any]:
    """Return the conditions, which every run measures first."""
    return file.read("conditions").measured["conditions"]


def conditions(about: Mapping[str, Any]) -> str:
    """Describe the conditions in a paragraph."""
    watts = about["power_limit_watts"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    text = (
        f"{about['date']}, commit {about['commit']}. {about['gpu']} ({about['gpu_memory_gib']} GiB, "
        f"{about['multiprocessors']} multiprocessors), power limit "
        f"{'not readable' if watts is None else f'{watts:.0f} W'}, driver {about['driver'] or 'not readable'}, "
        f"CUDA {about['cuda']}, cuDNN {about['cudnn'] or 'not used'}; {versions}. {about['cores']} cores of "
        f"{about['processor']}, load {about['load']} at the start. Pictures: {about['data']}."
        f"{' Tiny sizes (--small).' if about['small'] else ''} Where no number of repeats stands, n = 1."
    )
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def section(title: str, body: str) -> str:
    """Return a section; without figures it says so."""
    return f"## {title}\n\n{body or NOT_MEASURED.capitalize() + '.'}"


def training(file: StepsFile) -> str:
    """Sentence about the seconds to the target, and a table of epochs."""
    epochs = list(file.read("training").measured.values())
    if not epochs:
        return ""
    seconds = sum(row.get(f"{part}_seconds", 0) for row in epochs for part in ("epoch", "evaluation", "checkpoint"))
    last, target = epochs[-1], epochs[-1]["target"]
    reached = last["val_accuracy"] >= target
    trained = sum(row["epoch_seconds"] for row in epochs)
    header = ["epoch", "val_accuracy", "train_loss", "s, training", "s, evaluation", "s, checkpoint"]
    rows = [
        [
            f"{i}",
            *(number(row, name, ".4f") for name in ("val_accuracy", "train_loss")),
            *(number(row, f"{part}_seconds", ".2f") for part in ("epoch", "evaluation", "checkpoint")),
        ]
        for i, row in enumerate(epochs, start=1)
    ]
    return (
        f"{conditions_of(file)['data']}; {label(last['config'])}. Accuracy {target:g} "
        f"{'was reached' if reached else 'was NOT reached'} after {len(epochs)} epochs: {last['val_accuracy']:.4f}, "
        f"{seconds:.1f} s with evaluation and checkpoints, {trained:.1f} s of them training.\n\n{table(header, rows)}"
    )


def tests(file: StepsFile) -> str:
    """Counts by outcome, and the reasons of failures and of tests left out."""
    state = file.read("tests")
    skipped = {step: row["skipped"] for step, row in state.measured.items() if "skipped" in row}
    passed = len(state.measured) - len(skipped)
    if state.planned is None:
        return ""
    lines = [f"{passed} passed, {len(state.errors)} failed, {len(skipped)} skipped, {len(state.missing)} not run."]
    lines += [f"- FAILED {step}: {reason}" for step, reason in state.errors.items()]
    lines += [f"- skipped {step}: {reason}" for step, reason in skipped.items()]
    return "\n".join([lines[0], "", *lines[1:]]).strip()


def not_measured(file: StepsFile, parts: Sequence[str]) -> str:
    """List of the steps that are missing, with the reason."""
    lines = []
    for part in parts:
        state = file.read(part)
        if not state.complete:
            what = "all of it" if state.planned is None else f"{len(state.missing)} of {len(state.planned)} steps"
            lines.append(f"- {part}: {what} ({state.stopped or 'not started'})")
    return "\n".join(lines) or "Nothing is missing."
