"""Terminal view of a run: time left, trial states, running trials, and the front as a plot and a table."""

from itertools import zip_longest

from rich.console import Group, RenderableType
from rich.text import Text

from search.record.budget_use import budget_use
from search.record.run_state import RunState
from search.terminal.front_sketch import ASCII_SYMBOLS, Symbols, front_sketch
from search.terminal.trial_rows import COLORS, running_lines, trial_rows
from search.text.durations import format_duration, rough_duration
from search.text.numbers import plural

SKETCHED_WIDTH, SKETCHED_HEIGHT = 72, 16  # columns, and lines below the head, that the plot needs
MIN_BAR_WIDTH, MAX_BAR_WIDTH = 8, 40
MAX_SKETCH_WIDTH, MAX_SKETCH_HEIGHT = 60, 16
BESIDE = 2  # columns between the plot and the text on its right


class View:
    """Renderer of a run for a given terminal size. Everything except the time is cached until `forget`.

    With a thousand trials a full rendering takes 25 ms on a core that a trial is measured on.
    """

    def __init__(self, run_state: RunState) -> None:
        self._run_state = run_state
        self._size: tuple[int, int, bool] | None = None  # of the cached body
        self._body: list[Text] = []

    def forget(self) -> None:
        """Drop the cache because the run state has changed."""
        self._size = None

    def draw(self, now: float, width: int, height: int, ascii_only: bool = False) -> RenderableType:
        """Return the whole view, of at most `width` columns and, from 12 on, at most `height` lines."""
        run_state, symbols = self._run_state, ASCII_SYMBOLS if ascii_only else Symbols()
        if run_state.opening is None:
            return Text("starting")
        title = _line(run_state.info.name, style="bold")
        data = _line(run_state.info.data.description)
        if run_state.info.data.name == "generated":
            data = _line("generated pictures: their accuracy says nothing about real ones", style="yellow")
        head = [title, data, _bar(run_state, now, width, symbols), _states(run_state, now)]
        if self._size != (width, height, ascii_only):
            self._size, lines = (width, height, ascii_only), height - len(head)
            sketched = width >= SKETCHED_WIDTH and lines >= SKETCHED_HEIGHT
            upper = _sketch_and_running(run_state, width, lines, symbols) if sketched else [Text()]
            rows = trial_rows(run_state, width, lines - len(upper), symbols, with_running=not sketched)
            self._body = [*upper, *rows]
        return Group(*head, *self._body)


def _bar(run_state: RunState, now: float, width: int, symbols: Symbols) -> Text:
    """Progress bar of the budget with its text; the text alone if the terminal is narrow."""
    use = budget_use(run_state, now)
    if run_state.end is not None:
        return _line(f"ended after {format_duration(run_state.clock.active_seconds())}: {run_state.end}")
    if use is None:
        text, fraction = "time left: known after the first epoch" if run_state.trials else "starting", 0.0
    else:
        left = f"{rough_duration(use.seconds_left)} left" if use.seconds_left else "finishing"
        text, fraction = f"{use.text} · {left}", use.fraction
    room = min(width - len(text) - 2, MAX_BAR_WIDTH)
    if room < MIN_BAR_WIDTH:
        return _line(text)
    done = round(fraction * room)
    return Text.assemble((symbols.done * done, "bold cyan"), (symbols.to_do * (room - done), "dim"), f"  {text}")


def _states(run_state: RunState, now: float) -> Text:
    counts = run_state.shown_counts(is_running=run_state.end is None)
    so_far = f"{format_duration(run_state.clock.active_seconds(now))} so far"
    parts = [Text(so_far, style="dim")] * (run_state.end is None)
    parts += [Text(f"{total} {state}", style=COLORS.get(state, "")) for state, total in counts.items()]
    if not counts:
        parts.append(Text("no trial yet"))
    if preparing := len(run_state.preparing_probes()):
        parts.append(Text(plural(preparing, "probe"), style="dim"))
    return _line(" · ").join(parts)


def _sketch_and_running(run_state: RunState, width: int, height: int, symbols: Symbols) -> list[Text]:
    """Plot on the left, running trials and the legend on the right, an empty line above and below."""
    lines, columns = min(max(height // 2 - 1, 8), MAX_SKETCH_HEIGHT), min(width // 2, MAX_SKETCH_WIDTH)
    sketch, legend = front_sketch(run_state, columns, lines, symbols)
    words = running_lines(run_state, width - columns - BESIDE, lines - 2, symbols.now)
    if sketch:
        words += [Text()] * (lines - 1 - len(words)) + [Text(legend, style="dim")]
    both = []
    for left, right in zip_longest(sketch, words):
        line = _line(f"{left or '':<{columns + BESIDE}}")
        line.highlight_regex(r"[⠁-⣿]+|[│└─|+-]+", "dim")
        line.highlight_words([symbols.front], "bold green")
        line.highlight_words([symbols.now], "bold cyan")
        line.append_text(right).rstrip()
        both.append(line)
    return [Text(), *both, Text()] if both else [Text()]


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
