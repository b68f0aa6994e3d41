"""Record of the GPU benchmark in Markdown, from its steps."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from gpu_tables import NOT_MEASURED, batch_sizes, comparison, goals, label, number, settings, stage_times, table
from steps_file import StepsFile

WIDTH = 120
ACCURACY_GOAL = 0.9
SECONDS_GOAL = 120  # of a training to that accuracy


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
        section("Trainings", training(file)),
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
    """Table of trainings by seed, whether they meet the goal, and the epochs of the first one."""
    found = file.read("training").measured
    if not found:
        return ""
    first = next(iter(found.values()))
    met = [row["test_accuracy"] >= ACCURACY_GOAL and row["seconds"] < SECONDS_GOAL for row in found.values()]
    trained = [sum(epoch["epoch_seconds"] for epoch in row["epochs"]) for row in found.values()]
    tests = ("test_accuracy", "test_accuracy_flip", "test_accuracy_six_views")
    rows = [
        [seed, *(number(row, name, ".4f") for name in tests), f"{row['seconds']:.1f}", f"{seconds:.1f}"]
        for (seed, row), seconds in zip(found.items(), trained, strict=True)
    ]
    epochs = [
        [
            f"{i}",
            *(number(epoch, name, ".4f") for name in ("val_accuracy", "train_loss")),
            *(number(epoch, f"{part}_seconds", ".2f") for part in ("epoch", "evaluation", "checkpoint")),
        ]
        for i, epoch in enumerate(first["epochs"], start=1)
    ]
    header = ["epoch", "val_accuracy", "train_loss", "s, training", "s, evaluation", "s, checkpoint"]
    goal = f"A test accuracy of {ACCURACY_GOAL:g} without averages of views in less than {SECONDS_GOAL} s"
    return (
        f"{label(first['config'])}; {len(first['epochs'])} epochs. {goal}: {sum(met)} of {len(met)}. The seconds are "
        f"those of the whole training, with its start and its evaluations.\n\n"
        f"{table(['training', *tests, 's', 's, training'], rows)}\n\n{table(header, epochs)}"
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
