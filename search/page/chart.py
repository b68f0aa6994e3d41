"""A chart's frame in SVG. All places are percent of its box, so that it fits any width and no text is scaled."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from search.front.objective import Objective
from search.page.axes import Axis, axis, tick_label
from search.page.markup import Html, joined, tag
from search.text.wording import ARROWS, metric_label

LOG_UNITS = ("/s", "/J")  # rates compare by ratios


def percent(share: float) -> str:
    """As an attribute of SVG."""
    return f"{share:.6g}%"


def chart(content: Html, x: Axis, y: Axis, titles: tuple[str, str], label: str, class_: str = "") -> Html:
    """The content over a grid; `titles` of the horizontal and the vertical axis, `label` for who cannot see it."""
    return tag(
        "div",
        tag("p", titles[1], class_="axis-title"),
        tag(
            "svg",
            tag("g", *_across(x), *_upward(y), class_="grid", aria_hidden="true"),
            content,
            role="group",
            aria_label=label,
            width="100%",
            height="100%",
        ),
        tag("p", titles[0], class_="axis-title below"),
        class_=f"chart {class_}".strip(),
    )


def _across(x: Axis) -> Iterable[Html]:
    for tick in x.ticks():
        at = percent(x.percent(tick))
        yield tag("line", x1=at, x2=at, y1="0", y2="100%")
        yield tag("text", tick_label(tick), x=at, y="100%", dy="1.4em", text_anchor="middle")


def _upward(y: Axis) -> Iterable[Html]:
    for tick in y.ticks():
        at = percent(100 - y.percent(tick))
        yield tag("line", x1="0", x2="100%", y1=at, y2=at)
        yield tag("text", tick_label(tick), x="0", y=at, dx="-0.6em", dy="0.33em", text_anchor="end")


def lines(paths: Iterable[Html]) -> Html:
    """Paths whose coordinates are percent of the chart, 0 0 at its top left."""
    return tag("svg", *paths, viewBox="0 0 100 100", preserveAspectRatio="none", width="100%", height="100%")


def path(points: Sequence[tuple[float, float]]) -> str:
    """A path's data through points of a chart, each in percent from its lower left corner."""
    return "M" + "L".join(f"{x:.4g} {100 - y:.4g}" for x, y in points)


def metric_axis(values: Sequence[float], unit: str) -> Axis:
    """Logarithmic for rates."""
    return axis(values, log=is_log(values, unit))


def is_log(values: Iterable[float], unit: str) -> bool:
    """Whether it is a rate that has a logarithm."""
    return unit.endswith(LOG_UNITS) and min((v for v in values if math.isfinite(v)), default=0.0) > 0


def metric_title(objective: Objective, info: Mapping[str, Mapping[str, str]], of: Axis) -> str:
    """`images_per_second ↑ (images/s, log)`."""
    unit = info.get("metrics", {}).get(objective.metric, "")
    notes = ", ".join([*([unit] if unit else []), *(["log scale"] if of.log else [])])
    return f"{metric_label(objective.metric, info['data'])} {ARROWS[objective.goal]}" + (f" ({notes})" if notes else "")


def key(items: Iterable[tuple[str, str]]) -> Html:
    """What the marks mean: (class, words)."""
    return tag("ul", *(tag("li", tag("i", class_=f"swatch {name}"), words) for name, words in items), class_="key")


def figure(title: str, *content: Html, note: str = "", class_: str | None = None) -> Html:
    """A chart with its title and what is to be known of it."""
    caption = tag("figcaption", tag("b", title), f" {note}" if note else None)
    return tag("figure", caption, joined(*content), class_=class_)
