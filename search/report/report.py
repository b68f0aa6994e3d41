"""The summary of a run for terminals and pull requests: the front, three picks with their commands, the conditions."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from search.record.disk import written
from search.record.history import Trial
from search.report.causes import where_time_goes
from search.report.command import FULL_EPOCHS, command, continued
from search.report.front_tables import front_section, measured
from search.report.picks import Pick, against, merged, no_front, picks
from search.report.scaling import nodes_used, scaling_tables, strategy_tables
from search.report.sweeps import batch_tables, loader_tables
from search.results import Run
from search.text.markdown import table, wrapped
from search.text.wording import count, duration, listed, metric_label, number, setting

__all__ = ["FILE_NAME", "Pick", "closing_lines", "command", "picks", "summary", "write_summary"]

FILE_NAME = "summary.md"

BUDGET = {
    "trials": "trials",
    "epochs": "epochs a trial",
    "hours": "h",
    "total_epochs": "epochs in all",
    "least_gain": "of the hypervolume expected of the next trial",
    "repeats": "more probes of the front",
}

GENERATED = """\
> **Generated data.** No real picture was seen in this run. Its accuracies
> compare configurations; they say nothing about CIFAR-10 or other pictures."""

CONDITIONS = ("machine", "versions", "command", "budget", "trainable")  # that a summary states
PROBES = "what bears on the rate alone was tuned by them, and trained only as it was best."
MOST_ROWS = 16  # of a table of probes that are not all on the front


def write_summary(run: Run) -> str:
    """Write `summary.md` into a run's folder, and return its text. A run that is still going on gets one too.

    Raises:
        ValueError: as `summary`.
    """
    text = summary(run)
    written(run.folder / FILE_NAME, lambda path: path.write_text(text, encoding="utf-8"))
    return text


def summary(run: Run) -> str:
    """The summary in Markdown.

    Raises:
        ValueError: the journal does not say under which conditions the run was made.
    """
    missing = [name for name in CONDITIONS if run.info.get(name) is None]
    if missing:
        raise ValueError(f"{run.name}: its journal does not say {', '.join(missing)}")
    blocks = [f"# {run.name}", *_answer(run)]
    if run.info["data"]["name"] == "generated":
        blocks.append(GENERATED)
    if run.history.front():
        blocks += ["## Pareto front", *front_section(run), "## Picks", *_picks(run)]
    blocks += [
        *_causes(run),
        "## Trials",
        *_trials(run),
        "## Conditions",
        _conditions(run),
        "## As DataFrames",
        _how_to_load(run),
    ]
    return "\n\n".join(blocks) + "\n"


def closing_lines(run: Run) -> str:
    """What to tell at the end of a run in the terminal: the picks, and where the rest is."""
    groups = merged(picks(run))
    if groups:
        complete = count(run.history.counts()["complete"], "complete trial")
        head = f"Pareto front: {count(len(run.history.front()), 'point')} from {complete}"
        lines = [
            f"  {g[0].trial.trial_id}  {listed([p.name for p in g])}: {_measured(run, g[0].trial)}" for g in groups
        ]
    else:
        head = wrapped(f"No configuration to recommend: {no_front(run)}.")
        lines = [f"  {line}" for line in _reasons(run)[:3]]
    where = f"{'Commands and conditions' if groups else 'More'}: {run.folder / FILE_NAME}, report.html"
    return "\n".join([head, *(wrapped(line, " " * 9) for line in lines), where])


def _answer(run: Run) -> list[str]:
    """One line to take home."""
    named = {pick.name: pick for pick in picks(run)}
    if not named:
        return [wrapped(f"**No configuration to recommend**: {no_front(run)}.")]
    trial = named["knee"].trial
    others = [pick.trial for pick in named.values() if pick.trial is not trial]
    which = "the best compromise" if others else "best in everything"
    return [wrapped(f"**Run `{trial.trial_id}`, {which}: {_measured(run, trial)}.**")]


def _measured(run: Run, trial: Trial) -> str:
    """A trial's objectives, and its test accuracy where it was asked."""
    metrics = [o.metric for o in run.history.objectives] + [name for name in trial.tested if "accuracy" in name]
    return ", ".join(f"{metric_label(name, run.info['data'])} {measured(trial, name)}" for name in metrics)


def _picks(run: Run) -> list[str]:
    """Each pick with its reason, its configuration and its command; a trial that is several of them once."""
    groups, blocks = merged(picks(run)), []
    for same in groups:
        trial = same[0].trial
        names = listed([pick.name for pick in same])
        why = "Why: " + "; ".join(pick.why for pick in same)
        settings = ", ".join(f"{key} {setting(value)}" for key, value in run.history.ordered(trial).items())
        blocks += [
            f"### {names[0].upper()}{names[1:]}: {trial.trial_id}",
            wrapped(f"**{_measured(run, trial)}**"),
            wrapped(" ".join([f"{why}.", *against(run, trial, groups)])),
            wrapped(f"Configuration: {settings}."),
            f"```sh\n{command(run, trial)}\n```",
        ]
    note = (
        "The commands need no search and no Ray. Where the pictures lie is told by `--root DIR`, or by the "
        "environment variable `TRAINING_SEARCH_DATA`; without either they are looked for as in the search."
    )
    where = shlex.quote(f"results/{run.name}")
    further = (
        [f"python -m search.train {where}", "--trial ID"],
        [f"python -m search.pick {where}", "--accuracy-within 0.005"],
    )
    commands = "\n".join(map(continued, further))
    said = f"To train one in full ({FULL_EPOCHS} epochs), and to decide by another wish:"
    return [*blocks, wrapped(note), said, f"```sh\n{commands}\n```"]


def _causes(run: Run) -> list[str]:
    """Why the trials are as fast as they are, as far as it was measured."""
    trials = list(run.history.trials.values())
    varying, front = run.history.varying(trials), run.history.front()
    compared = run.history.candidates()
    shown = compared if run.history.probes and len(compared) <= MOST_ROWS else front
    sections = {
        "Where the time goes": where_time_goes(shown, front, varying if shown is not front else ()),
        "Loader processes": loader_tables(trials, varying),
        "Batch size": batch_tables(trials, varying),
        "Strategies": strategy_tables(trials, varying),
        "Scaling": scaling_tables(trials, varying, run.info["machine"]["cores"], len(run.info["machine"]["gpus"])),
    }
    return [block for title, blocks in sections.items() if blocks for block in (f"## {title}", *blocks)]


def _trials(run: Run) -> list[str]:
    """How many trials ended how, reasons grouped."""
    trials, preparing = list(run.history.trials.values()), run.history.preparing()
    if not trials:
        return ["No trial was started."]
    states = {state: total for state, total in run.history.counts().items() if total}
    totals = {**states, "**started**": sum(states.values())}
    blocks = [table({"state": list(totals), "trials": [str(total) for total in totals.values()]})]
    blocks += ["\n".join(wrapped(f"- {line}", "  ") for line in _reasons(run))]
    if preparing:
        took = duration(sum(t.seconds for t in preparing if t.seconds == t.seconds))
        blocks.append(wrapped(f"Before them {count(len(preparing), 'probe')} of rates, {took} in all: {PROBES}"))
    left = run.history.counts()["complete"] - len(run.history.candidates())
    blocks += [f"{count(left, 'complete trial')} not compared: beyond a constraint or not fully measured."] * (left > 0)
    retries = sum(trial.retries for trial in trials)
    blocks += [f"{count(retries, 'restart')} after workers died."] * (retries > 0)
    return [block for block in blocks if block]


def _reasons(run: Run) -> list[str]:
    """A line for each reason, the most frequent first. Reasons that differ in figures only are the same."""
    groups: dict[tuple[str, str], list[Trial]] = defaultdict(list)
    for trial in run.history.trials.values():
        if trial.reason:
            groups[trial.state, re.sub(r"\d+(\.\d+)?", "#", trial.reason)].append(trial)
    ordered = sorted(groups.values(), key=len, reverse=True)
    return [
        f"{group[0].state}, {count(len(group), 'trial')} ({_some([t.trial_id for t in group])}): "
        + textwrap.shorten(group[0].reason or "", 200, placeholder=" …")
        for group in ordered
    ]


def _some(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[:most])} and {len(names) - most} more"


def _conditions(run: Run) -> str:
    """All that a reader needs to repeat the run, or to see why another gave something else."""
    info, history = run.info, run.history
    started = datetime.fromtimestamp(info["time"], UTC)
    lines = {
        "Objectives": ", ".join(f"{o.goal} {o.metric}" for o in history.objectives),
        "Constraints": ", ".join(info.get("constraints", [])),
        "Hypervolume": _hypervolume(run),
        "Machine": _machine(info["machine"]),
        "Nodes": nodes_used(history.trials.values(), info["machine"].get("num_nodes", 1)),
        "Data": info["data"]["description"],
        "Known before": _known_before(run),
        "Left out": "; ".join(info.get("left_out", [])) or "nothing",
        "Budget": _budget(run),
        "Ended": history.end or "not yet, or interrupted",
        "Wall time": f"{duration(history.active_seconds())} from {started:%Y-%m-%d %H:%M} UTC",
        "Seed": info.get("seed"),
        "Commit": info.get("commit") or "unknown (not run from a git checkout)",
        "Versions": ", ".join(f"{name} {version}" for name, version in info["versions"].items()),
        "Command": f"`{shlex.join(info['command'])}`",
    }
    return "\n".join(wrapped(f"- {name}: {text}", "  ") for name, text in lines.items() if text not in (None, ""))


def _known_before(run: Run) -> str | None:
    known = run.history.known
    runs = dict.fromkeys(measurement["source"].split()[0] for measurement in known)
    return f"{count(len(known), 'measurement')} of {_some(list(runs))}" if known else None


def _budget(run: Run) -> str:
    given = {key: value for key, value in run.history.budget.items() if value is not None}
    if run.history.probes:
        given = {key: value for key, value in given.items() if key not in ("epochs", "repeats")}
    limits = [f"{value} {BUDGET[key]}" for key, value in given.items()]
    if grid := run.info.get("grid_points"):
        limits.append(count(grid, "grid point"))
    return ", ".join([*limits, *["one probe a trial"] * run.history.probes])


def _hypervolume(run: Run) -> str:
    found = run.history.hypervolume()
    if found is None:
        return "none, for there is no front"
    metrics = [metric_label(o.metric, run.info["data"]) for o in run.history.objectives]
    point = ", ".join(f"{metric} {number(value)}" for metric, value in zip(metrics, found[1], strict=True))
    rule = "the worst that was compared, and a tenth of the range beyond"
    return f"{number(found[0])} ({' × '.join(metrics)}); reference point {point} ({rule})"


def _machine(machine: dict[str, Any]) -> str:
    gpus = [f"{gpu['name']} ({gpu['memory_gib']:.0f} GiB)" for gpu in machine["gpus"]]
    parts = [machine["cpu_name"], count(machine["cores"], "core"), f"{machine['memory_gib']:.0f} GiB memory"]
    return ", ".join([*parts, *(gpus or ["no GPU"])])


def _how_to_load(run: Run) -> str:
    return textwrap.dedent(f"""\
        ```python
        from search.results import load
        run = load("results/{run.name}")  # wherever it is now
        run.trials      # one row per trial started
        run.curves      # one row per trial and epoch
        run.front       # the Pareto front
        ```

        Neither Ray nor torch is needed for that, only pandas, numpy and moocore.""")
