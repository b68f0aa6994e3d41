"""Present activity of a run: each trial in a word or two, and what else goes on while none runs."""

from search.record.budget_use import budget_use
from search.record.events import Again, BesideNeighbour, Turn
from search.record.run_clock import AFTER_SEARCH
from search.record.run_state import RunState
from search.record.trial import Trial
from search.text.numbers import plural


def activity(run_state: RunState, trial: Trial) -> str:
    """Activity of a trial in a word or two: `epoch 2/3`, `probing`, `waits`, `complete`, `stopped 1/3`."""
    if run_state.is_preparing(trial):
        return {"running": "probing", "complete": "probed"}.get(trial.state, trial.state)
    if run_state.is_probe_run or trial.state not in ("running", "stopped"):
        return trial.state
    if trial.state == "running" and trial.waits_for:
        return "waits"
    epochs = run_state.length(trial)
    if trial.state == "stopped":
        return f"stopped {trial.epochs}/{epochs}"
    return f"epoch {min(trial.epochs + 1, epochs)}/{epochs}"


def phase(run_state: RunState) -> str:
    """Return what the run does while no trial runs; an empty text: it has ended."""
    if run_state.end is not None:
        return ""
    if not run_state.trials:
        return "the first trial is being chosen"
    front = run_state.front()
    tested, repeated = sum(bool(t.test_metrics) for t in front), sum(len(t.repeats) for t in front)
    use = budget_use(run_state)
    if run_state.latest not in AFTER_SEARCH and not (use and not use.seconds_left):
        return "choosing what to try next"
    if tested:
        return f"reading the test set for the front: {tested} of {len(front)} done"
    if run_state.latest in (Turn, BesideNeighbour):
        return "measuring the front's rates in turns"
    if run_state.latest is Again:
        return "training the front with other seeds"
    return f"measuring the front's rates again: {plural(repeated, 'probe')} done" if repeated else "measuring the front"
