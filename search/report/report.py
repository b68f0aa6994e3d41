"""Summary of a run in Markdown: the front, the picks with their commands, the causes, the conditions."""

from __future__ import annotations

import json
import math
import shlex
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from search.front.candidates import NOT_COMPARED
from search.front.objective import Constraint
from search.front.roles import has_test, sounds_learned
from search.record.dataframes import Run
from search.record.disk import write_text_atomically
from search.record.events import KnownMeasurement
from search.record.run_lock import is_locked
from search.record.trial import Trial
from search.report.causes import where_time_goes
from search.report.command import command, full_epochs
from search.report.front_tables import front_section
from search.report.picks import (
    against,
    improbable,
    learned_alike,
    lucky,
    no_front,
    outcome,
    picks,
    picks_by_trial,
    praise,
)
from search.report.scaling import nodes_used, scaling_tables, strategy_tables
from search.report.sweeps import batch_tables, loader_tables
from search.text.configurations import format_setting
from search.text.durations import format_duration
from search.text.markdown import format_table, wrap
from search.text.numbers import first_few, format_number, join_words, plural, unknown_intervals
from search.text.reasons import without_numbers
from search.text.shell import continued
from search.text.shorten import shorten
from trainables.contract import find_trainable

FILE_NAME = "summary.md"

BUDGET: Mapping[str, Callable[[Any], str]] = {
    "trials": lambda n: plural(n, "trial"),
    "epochs": lambda n: f"{plural(n, 'epoch')} per trial",
    "hours": lambda hours: f"{hours:g} h",
    "gpu_hours": lambda hours: f"{hours:g} GPU hours",
    "total_epochs": lambda n: f"{plural(n, 'epoch')} in total",
    "least_gain": lambda gain: f"least expected gain of the hypervolume per trial {gain:g}",
    "repeats": lambda n: f"front probed again {plural(n, 'time')}",
    "deciding": lambda share: f"up to {share:.0%} of the time to decide the front",
}

GENERATED = """\
> **Generated data.** This run used no real images. Its accuracies compare
> configurations; they do not hold for CIFAR-10 or other images."""

LOADING = """\
```python
from search.results import load
run = load({folder})
run.trials      # one row per trial started
run.curves      # one row per trial and epoch
run.front       # the Pareto front
```"""
LOADING_NEEDS = "This needs pandas, numpy, moocore and pydantic, but neither Ray nor torch."

CONDITIONS = ("machine", "versions", "command", "budget", "trainable")  # that a summary needs
PROBES = "They tune the settings that affect only the rate; training uses the fastest ones."
NOT_CHOSEN = "Nothing was chosen. A larger budget finds more."
MOST_NAMED = 4  # trials with one reason
MOST_ROWS = 16  # of the stage table of a probe run that shows all trials; above it, only the front


def write_summary(run: Run) -> str:
    """Write `summary.md` into the folder of a run, finished or not, and return its text.

    Raises:
        ValueError: the journal lacks conditions of the run.
    """
    blocks = [f"# {run.name}"]
    for title, content in sections(run).items():
        blocks += [f"## {title}"] * bool(title) + content
    text = "\n\n".join(blocks) + "\n"
    write_text_atomically(run.folder / FILE_NAME, text)
    return text


def sections(run: Run) -> dict[str, list[str]]:
    """Return blocks of Markdown by section of the summary; those before the first heading have the key ''.

    Raises:
        ValueError: the journal lacks conditions of the run.
    """
    if missing := run.info.missing(CONDITIONS):
        raise ValueError(f"{run.name}: its journal lacks {', '.join(missing)}")
    generated = run.info.data.name == "generated"
    front = {"Pareto front": front_section(run), "Picks": _picks(run)} if run.state.front() else {}
    return {
        "": [*_answer(run), *[GENERATED] * generated],
        **front,
        **_causes(run),
        "Trials": _trials(run),
        "Conditions": [_conditions(run), *_command(run)],
        "As DataFrames": [LOADING.format(folder=json.dumps(f"{run.folder}", ensure_ascii=False)), LOADING_NEEDS],
    }


def closing_lines(run: Run) -> str:
    """Return the last lines of a run in the terminal: the picks, and the files with the rest."""
    groups, compared = picks_by_trial(run), run.state.candidates()
    if groups:
        complete = plural(run.state.counts()["complete"], "complete trial")
        head = f"Pareto front: {plural(len(run.state.front()), 'point')} from {complete}"
        names = {group[0].trial.trial_id: join_words([pick.name for pick in group]) for group in groups}
        lines = [f"  {name}  {words}: {_measured(run, run.state.trials[name])}" for name, words in names.items()]
        shown = [run.state.trials[name] for name in names]
        lines += [f"  {text}" for trial in shown for text in [*lucky(run, trial), *improbable(run, trial)]]
        if others := [trial.trial_id for trial in run.state.front() if trial.trial_id not in names]:
            lines.append(f"  Also on the front: {join_words(others)}.")
        lines += [f"  {line}" for line in unknown_intervals("\n".join(lines))]
        if len(compared) == 1:
            lines.append(f"  It is {praise(run)}: {NOT_CHOSEN[0].lower()}{NOT_CHOSEN[1:]}")
        lines += [f"  {text}" for text in learned_alike(run)]
    else:
        head = wrap(f"No configuration to recommend: {no_front(run)}.")
        lines = [f"  {line}" for line in _reasons(run)[:3]]
    if contended := sum(bool(trial.metrics.get("contended")) for trial in compared):
        text = f"Other processes used the cores during {contended} of {plural(len(compared), 'trial')}"
        lines.append(f"  {text}: their true rates may be higher.")
    where = f"{'Commands and conditions' if groups else 'More'}: {run.folder / FILE_NAME}, report.html"
    return "\n".join([head, *(wrap(line, " " * 9) for line in lines), wrap(where, "  ")])


def _answer(run: Run) -> list[str]:
    """Return the recommendation in one line."""
    named = {pick.name: pick for pick in picks(run)}
    if not named:
        return [wrap(f"**No configuration to recommend**: {no_front(run)}.")]
    trial = named["knee"].trial
    notes = [NOT_CHOSEN] if len(run.state.candidates()) == 1 else learned_alike(run)
    return [wrap(" ".join([f"**Run `{trial.trial_id}`, {praise(run)}: {_measured(run, trial)}.**", *notes]))]


def _measured(run: Run, trial: Trial) -> str:
    return ", ".join(f"{label} {value}" for label, value in outcome(run, trial).items())


def _picks(run: Run) -> list[str]:
    """Return each picked trial with its reason, configuration and command."""
    blocks = []
    for same in picks_by_trial(run):
        trial, names = same[0].trial, join_words([pick.name for pick in same])
        why = "Why: " + "; ".join(pick.why for pick in same)
        settings = ", ".join(f"{key} {format_setting(value)}" for key, value in run.state.ordered_config(trial).items())
        blocks += [
            f"### {names[0].upper()}{names[1:]}: {trial.trial_id}",
            wrap(f"**{_measured(run, trial)}**"),
            wrap(" ".join([*lucky(run, trial), *improbable(run, trial), f"{why}.", *against(run, trial)])),
            wrap(f"Configuration: {settings}."),
            f"```sh\n{command(run, trial)}\n```",
        ]
    other_data = (
        "`--root DIR` or the environment variable `TRAINING_SEARCH_DATA` names the folder of the data; the default is "
        "the same as in the search."
        if not run.info.source and not run.info.data_settings.get("root")
        else "`--root DIR` names other data."
    )
    note = f"Each command repeats the training of the search where the search was started, without Ray. {other_data}"
    folder = shlex.quote(f"{run.folder}")
    middle = next(pick.trial for pick in picks(run) if pick.name == "knee")
    train = continued(["python -m search.train", folder, f"--trial {middle.trial_id}"])
    wish = _example_requirement(run)
    pick = continued(["python -m search.pick", folder, wish])
    length = plural(full_epochs(run.info, middle), "epoch")
    heading = (
        f"To train one for {length} with {'its test metrics and ' * has_test(run.info.metrics)}a comparison with the "
        "search, and to pick by other requirements:"
    )
    blocks += [wrap(note), wrap(heading), f"```sh\n{train}\n{pick}\n```"]
    if hasattr(find_trainable(run.info.trainable), "turns") and not middle.neighbours:
        advise = continued(["python -m search.advise", folder, f"--trial {middle.trial_id}"])
        blocks += ["To measure which single change of a setting would make one faster:", f"```sh\n{advise}\n```"]
    return blocks


def _example_requirement(run: Run) -> str:
    """Return an option of `search.pick`: nearly the best of what the training learned, or of the first objective."""
    learned = next((o.metric for o in run.state.objectives if sounds_learned(o.metric)), None)
    if learned is None:
        return f"--within {_nearly_best(run, run.state.objectives[0].metric)}"
    if learned == "val_accuracy":
        return "--accuracy-within 0.005"
    return f"--within {_nearly_best(run, learned)}"


def _nearly_best(run: Run, metric: str) -> str:
    smallest = min((abs(trial.metrics[metric]) for trial in run.state.front()), default=1.0)
    return f"{metric}={0.02 * smallest or 0.01:.1g}"


def _causes(run: Run) -> dict[str, list[str]]:
    """Return the sections that explain the rates of the trials, as far as they were measured."""
    trials = list(run.state.trials.values())
    varying, front, compared = run.state.varying_parameters(trials), run.state.front(), run.state.candidates()
    shown = compared if run.state.is_probe_run and len(compared) <= MOST_ROWS else front
    timeless = run.info.without_effect(run.state.rate_metric)
    timed = [name for name in varying if name not in timeless]
    trainable = find_trainable(run.info.trainable)
    strategies = trainable.STRATEGIES if trainable else {}
    cores, gpus = run.info.machine.cores, len(run.info.machine.gpus)
    found = {
        "Where the time goes": where_time_goes(shown, front, varying if shown is not front else ()),
        "Loader processes": loader_tables(trials, timed, timeless, run.state.rate_ratio),
        "Batch size": batch_tables(trials, timed, timeless, run.state.rate_ratio),
        "Strategies": strategy_tables(trials, timed, strategies, timeless, run.state.rate_ratio),
        "Scaling": scaling_tables(trials, timed, cores, gpus, strategies, timeless, run.state.rate_ratio),
    }
    return {title: [*blocks, *unknown_intervals("\n".join(blocks))] for title, blocks in found.items() if blocks}


def _trials(run: Run) -> list[str]:
    """Return the number of trials by state, and the reasons of those that did not complete."""
    trials, preparing = list(run.state.trials.values()), run.state.preparing_probes()
    if not trials:
        return ["No trial was started."]
    states = run.state.shown_counts(is_running=run.state.end is None and is_locked(run.folder))
    totals = {**states, "**all**": sum(states.values())}
    blocks = [format_table({"state": list(totals), "trials": [str(total) for total in totals.values()]})]
    blocks += ["\n".join(wrap(f"- {line}", "  ") for line in _reasons(run, _without_markup))]
    if preparing:
        took = format_duration(sum(t.seconds for t in preparing if t.seconds == t.seconds))
        blocks.append(wrap(f"{plural(len(preparing), 'probe')} of rates took {took} in total. {PROBES}"))
    if left := run.state.counts()["complete"] - len(run.state.candidates()):
        pairs = ((trial, run.state.violated(trial)) for trial in run.state.complete())
        beyond = [f"{trial.trial_id} ({join_words(limits)})" for trial, limits in pairs if limits]
        which = f" Violated: {join_words(first_few(beyond, MOST_NAMED))}." if beyond else ""
        blocks.append(wrap(f"Not compared: {plural(left, 'complete trial')}; each {NOT_COMPARED}.{which}"))
    if retries := sum(trial.retries for trial in trials):
        blocks.append(f"{plural(retries, 'restart')} after workers died.")
    return [block for block in blocks if block]


def _reasons(run: Run, written: Callable[[str], str] = str) -> list[str]:
    """Return one line per reason, the most frequent first. Reasons that differ only in numbers are grouped.

    `written`: makes the text of a reason fit for where it stands.
    """
    groups: dict[tuple[str, str], list[Trial]] = defaultdict(list)
    for trial in run.state.trials.values():
        if trial.reason:
            groups[trial.state, without_numbers(trial.reason)].append(trial)
    ordered = sorted(groups.values(), key=len, reverse=True)
    return [
        f"{group[0].state}, {plural(len(group), 'trial')} ({_some([t.trial_id for t in group])}): "
        + written(shorten(" ".join((group[0].reason or "").split()), 200))
        + _traceback(run, group[0])
        for group in ordered
    ]


def _traceback(run: Run, trial: Trial) -> str:
    """Return where the traceback of a trial's error is, within the run's folder; empty: there is none."""
    found = sorted((run.folder / "trials" / trial.trial_id).glob("error-*.txt"))
    return f"; traceback: {found[0].relative_to(run.folder)}" if found else ""


def _some(names: Sequence[str]) -> str:
    return join_words(first_few(names, MOST_NAMED))


def _without_markup(text: str) -> str:
    """Return the text as code where Markdown would read markup in it, as in `Net.__init__()`."""
    return f"`{text.replace('`', chr(39))}`" if set(text) & set("*_<`") else text


def _not_judged(run: Run, constraint: Constraint) -> str:
    """Return of how many complete trials it is not known whether they meet the constraint; empty: of none."""
    metric, complete = constraint.metric, run.state.complete()
    unknown = sum(not math.isfinite(trial.metrics.get(metric, math.nan)) for trial in complete)
    if not unknown:
        return ""
    which = "no trial measured" if unknown == len(complete) else f"{unknown} of {len(complete)} trials did not measure"
    return f" ({which} {metric}, without which it is not judged)"


def _known_before(measurements: Sequence[KnownMeasurement]) -> str | None:
    runs = list(dict.fromkeys(measurement.run or "?" for measurement in measurements))
    return f"{plural(len(measurements), 'measurement')} of {_some(runs)}" if measurements else None


def _conditions(run: Run) -> str:
    """Return the conditions of the run, with which it can be repeated or compared."""
    info, run_state, known = run.info, run.state, run.state.known
    started = datetime.fromtimestamp(info.time, UTC)
    hypervolume = "none: there is no front"
    if found := run_state.hypervolume():
        metrics = [run_state.label(o.metric) for o in run_state.objectives]
        point = ", ".join(f"{metric} {format_number(value)}" for metric, value in zip(metrics, found[1], strict=True))
        rule = "the worst compared values, moved away by a tenth of the range; values far off count less"
        hypervolume = f"{format_number(found[0])} ({' × '.join(metrics)}); reference point {point} ({rule})"
    given = run_state.budget.model_dump(exclude_none=True, exclude_unset=True)
    nothing_probed = all(map(info.is_learned, run_state.asked))
    unused = ("epochs", "repeats") if run_state.is_probe_run else ("repeats",) * nothing_probed
    budget = [BUDGET[key](value) for key, value in given.items() if key not in unused]
    budget += [plural(info.grid_points, "grid point")] if info.grid_points else []
    budget += ["one probe per trial"] * run_state.is_probe_run
    lines = {
        "Objectives": ", ".join(f"{o.goal} {o.metric}" for o in run_state.objectives),
        "Constraints": ", ".join(f"{limit}{_not_judged(run, limit)}" for limit in run_state.constraints),
        "Hypervolume": hypervolume,
        "Machine": str(info.machine),
        "Nodes": nodes_used(run_state.trials.values(), info.machine.num_nodes),
        "Data": info.data.description,
        "Known before": _known_before([measurement for measurement in known if measurement.metrics]),
        "Known of other conditions": _known_before([measurement for measurement in known if measurement.elsewhere]),
        "Left out": "; ".join(info.left_out) or "nothing",
        "Auto": ", ".join(f"{name} was {value}" for name, value in info.auto.items()) or None,
        "Budget": ", ".join(budget),
        "Ended": run_state.end or "not yet, or interrupted",
        "Wall time": f"{format_duration(run_state.clock.active_seconds())} from {started:%Y-%m-%d %H:%M} UTC",
        "GPU hours": format_number(spent / 3600) if (spent := run_state.gpu_seconds()) else None,
        "Seed": info.seed,
        "Commit": info.commit or "unknown (the program is in no git checkout, as in a Ray job)",
        "Versions": ", ".join(f"{name} {version}" for name, version in info.versions.items()),
    }
    return "\n".join(wrap(f"- {name}: {text}", "  ") for name, text in lines.items() if text not in (None, ""))


def _command(run: Run) -> list[str]:
    """Return the command that started the run, and the one that last went on with it, to be copied."""
    first, last = run.info.command, run.state.last_command
    continued_by = ["Last continued by:", _to_copy(last)] if last and last != first else []
    return ["The command:", _to_copy(first), *continued_by]


def _to_copy(words: Sequence[str]) -> str:
    return f"```sh\n{continued([shlex.quote(word) for word in words])}\n```"
