"""What the terminal shows of a run: time left, states, what runs now, and the front as a sketch and as a table."""

from __future__ import annotations

from itertools import zip_longest

from rich.console import Group, RenderableType
from rich.text import Text

from search.record.history import History
from search.terminal.front_sketch import ASCII_MARKS, Marks, front_sketch
from search.terminal.now import now_lines
from search.terminal.pace import spent
from search.terminal.trial_rows import COLORS, trial_rows
from search.text.wording import about, count, duration

SKETCHED_WIDTH, SKETCHED_HEIGHT = 72, 16  # columns, and lines below the first ones, with room for the sketch
LEAST_BAR_WIDTH, MOST_BAR_WIDTH = 8, 40
MOST_SKETCH_WIDTH, MOST_SKETCH_HEIGHT = 60, 16
BESIDE = 2  # columns between the sketch and what is beside it


class View:
    """Draws a history within so many lines of so many columns. What time alone does not change is kept until `forget`.

    At a thousand trials drawing it takes 25 ms of a core that a trial is measured on, and the view is redrawn often.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._size: tuple[int, int, bool] | None = None  # of what is kept
        self._body: list[Text] = []

    def forget(self) -> None:
        """The history has changed."""
        self._size = None

    def draw(self, now: float, width: int, height: int, ascii_only: bool = False) -> RenderableType:
        """The whole view, at most `height` lines of at most `width` columns."""
        history, marks = self._history, ASCII_MARKS if ascii_only else Marks()
        if not history.info:
            return Text("starting")
        title = _line(history.info["name"], style="bold")
        head = [title, _data(history), _bar(history, now, width, marks), _states(history, now)]
        if self._size != (width, height, ascii_only):
            self._size, self._body = (width, height, ascii_only), _body(history, width, height - len(head), marks)
        return Group(*head, *self._body)


def _body(history: History, width: int, height: int, marks: Marks) -> list[Text]:
    """Below the first lines."""
    sketched = width >= SKETCHED_WIDTH and height >= SKETCHED_HEIGHT
    upper = _sketch_and_now(history, width, height, marks) if sketched else [Text()]
    return [*upper, *trial_rows(history, width, height - len(upper), marks, with_running=not sketched)]


# --- the first lines --------------------------------------------------------------------------------------------------


def _data(history: History) -> Text:
    data = history.info["data"]
    if data["name"] != "generated":
        return _line(data["description"])
    return _line("generated pictures: their accuracy says nothing of real ones", style="yellow")


def _bar(history: History, now: float, width: int, marks: Marks) -> Text:
    """The budget as a bar with its words beside it; the words alone where there is no room."""
    now_spent = spent(history, now)
    if history.end is not None:
        return _line(f"ended after {duration(history.active_seconds())}: {history.end}")
    if now_spent is None:
        text, fraction = "time left: known after the first epoch" if history.trials else "starting", 0.0
    else:
        left = f"{about(now_spent.seconds_left)} left" if now_spent.seconds_left else "finishing"
        text, fraction = f"{now_spent.text} · {left}", now_spent.fraction
    room = min(width - len(text) - 2, MOST_BAR_WIDTH)
    if room < LEAST_BAR_WIDTH:
        return _line(text)
    done = round(fraction * room)
    return Text.assemble((marks.done * done, "bold cyan"), (marks.to_do * (room - done), "dim"), f"  {text}")


def _states(history: History, now: float) -> Text:
    counts = {state: total for state, total in history.counts().items() if total}
    parts = [Text(f"{total} {state}", style=COLORS[state]) for state, total in counts.items()] or [Text("no trial yet")]
    if preparing := len(history.preparing()):
        parts.append(Text(count(preparing, "probe"), style="dim"))
    if history.end is None:
        parts.append(Text(f"{duration(history.active_seconds(now))} so far", style="dim"))
    line = Text(" · ").join(parts)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


# --- the sketch, and what runs beside it ------------------------------------------------------------------------------


def _sketch_and_now(history: History, width: int, height: int, marks: Marks) -> list[Text]:
    """The sketch on the left; what runs and what the letters mean on the right. A line more is left free."""
    lines, columns = min(max(height // 2 - 1, 8), MOST_SKETCH_HEIGHT), min(width // 2, MOST_SKETCH_WIDTH)
    drawn = front_sketch(history, columns, lines, marks)
    words = now_lines(history, width - columns - BESIDE, lines - 2, marks.now)
    if drawn.lines:
        words += [Text()] * (lines - 1 - len(words)) + [Text(drawn.legend(marks), style="dim")]
    both = [
        _line("").append_text(_dressed(left, columns, marks)).append_text(right)
        for left, right in zip_longest(drawn.lines, words)
    ]
    for line in both:
        line.rstrip()
    return [Text(), *both, Text()] if both else [Text()]


def _dressed(line: str | None, columns: int, marks: Marks) -> Text:
    """A line of the sketch in its colours; what the letters mean does not depend on them."""
    text = Text(f"{line or '':<{columns + BESIDE}}")
    text.highlight_regex(r"[⠁-⣿]+|[│└─|+-]+", "dim")
    text.highlight_words([marks.front], "bold green")
    text.highlight_words([marks.now], "bold cyan")
    return text


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
