"""Text scatter plot of a run's trials: the front, dominated trials and running trials."""

from collections.abc import Sequence
from dataclasses import dataclass

from search.front.objective import Objective, measured
from search.record.run_state import RunState
from search.record.trial import Trial
from search.text.metrics import ARROWS
from search.text.scatter_plot import DOT, PLAIN_DOT, Axis, Point, scatter_plot


@dataclass(frozen=True)
class Symbols:
    """Characters for points of the front, running trials, other trials (in the legend), and the progress bar."""

    front: str = "●"
    now: str = "◆"
    other: str = DOT
    done: str = "━"
    to_do: str = "─"


ASCII_SYMBOLS = Symbols("*", "@", PLAIN_DOT, "=", "-")


def front_sketch(run_state: RunState, width: int, height: int, symbols: Symbols) -> tuple[list[str], str]:
    """Plot the second objective to the right and the first one upwards; return the lines and a legend.

    Without trials to draw, or without room, there are no lines.

    The frame extends beyond the front by the front's own size on each side that has points: far worse trials would
    push the front into a corner. Running trials outside the frame are drawn at its edge.
    """
    objectives = run_state.objectives[:2]
    trials = [trial for trial in run_state.counted() if measured(trial.metrics, objectives)]
    if len(objectives) < 2 or not trials:
        return [], ""
    up, right = objectives
    front = run_state.front()
    x, y = (_axis(run_state, objective, front, trials) for objective in (right, up))
    running = [trial for trial in trials if trial.state == "running"]
    ended = [trial for trial in trials if trial.state != "running"]
    inside = [t for t in ended if all(_clamped(t, o, axis) == t.metrics[o.metric] for o, axis in ((right, x), (up, y)))]
    marked = ((DOT, inside), (symbols.front, front), (symbols.now, running))
    points = [Point(_clamped(t, right, x), _clamped(t, up, y), mark) for mark, some in marked for t in some]
    lines = scatter_plot(points, x, y, width, height, ascii_only=symbols.other == PLAIN_DOT)
    outside = f" ({len(ended) - len(inside)} outside)" if len(ended) > len(inside) else ""
    return lines, f"{symbols.front} front  {symbols.now} now  {symbols.other} other{outside}"


def _axis(run_state: RunState, objective: Objective, front: Sequence[Trial], trials: Sequence[Trial]) -> Axis:
    values, log = [t.metrics[objective.metric] for t in trials], run_state.is_rate(objective.metric)
    name = (log and run_state.unit(objective.metric)) or run_state.label(objective.metric)
    label = f"{name} {ARROWS[objective.goal]}{' (log)' * log}"
    low, high = min(values), max(values)
    best = [t.metrics[objective.metric] for t in front]
    if best and min(best) < max(best):
        near, far = min(best), max(best)
        below, above = (near * near / far, far * far / near) if log and near > 0 else (2 * near - far, 2 * far - near)
        low, high = max(low, below), min(high, above)
    return Axis(label, log, (low, high))


def _clamped(trial: Trial, objective: Objective, axis: Axis) -> float:
    assert axis.ends is not None
    return min(max(trial.metrics[objective.metric], axis.ends[0]), axis.ends[1])
