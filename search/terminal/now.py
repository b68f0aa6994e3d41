"""What runs now, in a few lines: each trial with its epoch, what it measured, and its settings."""

from __future__ import annotations

import textwrap

from rich.text import Text

from search.record.history import History, Trial
from search.terminal.front_sketch import is_rate, unit_of
from search.terminal.pace import most_trials
from search.text.wording import count, half_width, metric_label, short_settings, spread


def doing(history: History, trial: Trial) -> str:
    """What a trial does or did, in a word or two: `epoch 2/3`, `probing`, `complete`, `stopped 1/3`."""
    if trial.kind == "probe" and not history.probes:
        return {"running": "probing", "complete": "probed"}.get(trial.state, trial.state)
    if history.probes or trial.state not in ("running", "stopped"):
        return trial.state
    epochs = history.budget["epochs"]
    if trial.state == "stopped":
        return f"stopped {trial.epochs}/{epochs}"
    return f"epoch {min(trial.epochs + 1, epochs)}/{epochs}"


def now_lines(history: History, width: int, height: int, mark: str) -> list[Text]:
    """At most `height` lines of at most `width` columns; of several trials in short, if they do not fit in full."""
    running = [trial for trial in history.trials.values() if trial.state == "running"]
    if not running or history.end is not None:
        return [Text(line, style="dim") for line in textwrap.wrap(_phase(history), width)][:height]
    full = [line for trial in running for line in _in_full(history, trial, width, mark)]
    if len(full) <= height:
        return full
    if len(running) == 1:
        return full[:height]
    shown = running if len(running) <= height else running[-(height - 1) :]
    lines = [_in_short(history, trial, width, mark) for trial in shown]
    return lines + [Text(f"and {len(running) - len(shown)} more", style="dim")] * (len(shown) < len(running))


def _in_full(history: History, trial: Trial, width: int, mark: str) -> list[Text]:
    first = _line(f"{mark} {trial.trial_id}  {doing(history, trial)}", width, "bold cyan")
    figures = [_line(f"  {text}", width) for text in _figures(history, trial)]
    settings = textwrap.wrap(short_settings(trial.config, history.parameters()), width - 2, break_on_hyphens=False)
    return [first, *figures, *(_line(f"  {line}", width, "dim") for line in settings)]


def _in_short(history: History, trial: Trial, width: int, mark: str) -> Text:
    metrics = trial.metrics
    rates = [
        f"{spread(metrics[o.metric], half_width(metrics, o.metric))} {unit_of(history, o.metric)}".rstrip()
        for o in history.objectives
        if is_rate(history, o.metric) and o.metric in metrics
    ]
    return _line("  ".join([f"{mark} {trial.trial_id}", doing(history, trial), *rates[:1]]), width)


def _figures(history: History, trial: Trial) -> list[str]:
    """What its last epoch measured; before that, what there was to say."""
    metrics, data = trial.metrics, history.info["data"]
    found = [
        f"{metric_label(o.metric, data)} {spread(metrics[o.metric], half_width(metrics, o.metric))}"
        for o in history.objectives
        if o.metric in metrics
    ]
    retried = [f"tried again, {count(trial.retries, 'time')}"] if trial.retries else []
    return [*(found or ["nothing measured yet"]), *retried]


def _phase(history: History) -> str:
    """What a run does while no trial runs."""
    front = [trial for trial in history.front() if trial.kind == "train"]
    tested, repeated = sum(bool(t.tested) for t in front), sum(len(t.repeats) for t in front)
    if history.end is not None or not history.trials:
        return "" if history.trials else "the first trial is being chosen"
    if tested:
        return f"reading the test set for the front: {tested} of {len(front)} done"
    if repeated or len(history.counted()) == most_trials(history):
        return f"measuring the front's rates again: {count(repeated, 'probe')} done"
    return "choosing what to try next"


def _line(text: str, width: int, style: str = "") -> Text:
    return Text(text if len(text) <= width else f"{text[: width - 1]}…", style=style)
