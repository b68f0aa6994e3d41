"""One file for everything that a run found: `report.html`. What its sections say is in the files beside this one."""

from __future__ import annotations

import base64
import hashlib
import logging
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from search.page.answer import answer, pick_cards
from search.page.curves import learning_curves
from search.page.front import front_charts
from search.page.heading import heading
from search.page.markup import Html, data_block, joined, tag
from search.page.parallel import parallel_coordinates
from search.page.prose import prose, sections
from search.page.stage_times import stage_bars
from search.page.standing import Standings, standings
from search.page.telemetry import telemetry
from search.page.trials import filter_form, trial_table
from search.page.weights import importance_bars
from search.record.disk import written
from search.report.report import summary
from search.results import Run
from search.text.wording import count

logger = logging.getLogger(__name__)

FILE_NAME = "report.html"
SCRIPTS = ("trials.js", "front.js", "filter.js", "parallel.js", "table.js", "page.js")
STYLES = ("page.css", "charts.css")
REFRESH_SECONDS = 10
SWEEPS = ("Loader processes", "Batch size", "Strategies", "Scaling")  # sections of the summary


def write_page(run: Run, going_on: bool = False) -> Path:
    """Write `report.html` into a run's folder.

    `going_on`: the page looks for a newer one of itself every few seconds.

    Raises:
        OSError: it cannot be written.
    """
    path = run.folder / FILE_NAME
    text = page(run, time.time() if going_on else None)
    written(path, lambda unfinished: unfinished.write_text(text, encoding="utf-8"))
    return path


def try_to_write(run: Callable[[], Run], going_on: bool = False, quietly: bool = False) -> bool:
    """Whether it could be written; why not is a warning, or `quietly` no more than a word for who debugs."""
    try:
        write_page(run(), going_on)
    except Exception as error:  # whatever it is, a page is not worth a run
        level = logging.DEBUG if quietly else logging.WARNING
        logger.log(level, "%s cannot be written: %r", FILE_NAME, error)
        return False
    return True


def page(run: Run, now: float | None = None) -> str:
    """The whole file. It may load nothing: its style and script are allowed by their hashes, all else is forbidden.

    `now`: of a run that goes on, the time, in seconds since 1970.
    """
    style, script = (_packaged(names) for names in (STYLES, SCRIPTS))
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    refresh = tag("meta", http_equiv="refresh", content=str(REFRESH_SECONDS))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{run.name}: training search"),
        tag("style", Html(style)),
        tag("noscript", refresh) if now else None,
    )
    settings = data_block("page", {"run": run.name, "refreshSeconds": REFRESH_SECONDS if now else None})
    body = tag("body", *_body(run, now), settings, tag("script", Html(script)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _body(run: Run, now: float | None) -> list[Html]:
    stands, told = standings(run), sections(summary(run))
    parts = [(title, content) for title, content in _sections(stands, told, now is not None).items() if content]
    links = (tag("li", tag("a", title, href=f"#{_anchor(title)}")) for title, _ in parts)
    return [
        tag("a", "To the answer", href="#answer", class_="skip"),
        tag("header", heading(run, now), tag("nav", tag("ul", *links), aria_label="sections")),
        tag(
            "main",
            prose("\n\n".join(block for block in told[""].split("\n\n") if block.startswith("> "))),
            answer(stands, told),
            *(tag("section", tag("h2", title), content, id=_anchor(title)) for title, content in parts),
        ),
        tag("footer", tag("p", "Written by training search. This file loads nothing and sends nothing.")),
    ]


def _sections(stands: Standings, told: dict[str, str], going_on: bool) -> dict[str, Html | None]:
    """In the order in which a reader asks."""
    history = stands.run.history
    sweeps = {title: prose(told[title]) for title in SWEEPS if title in told}
    return {
        "Pareto front": _front(stands, told),
        "Picks": pick_cards(stands) if stands.picks else None,
        "Settings": joined(parallel_coordinates(stands), importance_bars(history, going_on))
        if history.trials
        else None,
        "Learning curves": learning_curves(stands),
        "Where the time goes": _times(stands, told),
        **sweeps,
        "Telemetry": telemetry(history),
        "Trials": joined(prose(told["Trials"]), trial_table(stands)) if history.trials else prose(told["Trials"]),
        "Conditions": prose(told["Conditions"]),
        "As DataFrames": prose(told["As DataFrames"]),
    }


def _front(stands: Standings, told: dict[str, str]) -> Html | None:
    if not stands.run.history.trials:
        return None
    drawn, trials = stands.drawn(), stands.run.history.trials
    panel = tag("aside", id="trial", class_="js", aria_live="polite", aria_label="the trial pointed at")
    charts = tag("div", front_charts(stands), panel, class_="front-and-trial") if drawn else None
    undrawn = trials.keys() - {trial.trial_id for trial in drawn}
    probes = len(undrawn & {trial.trial_id for trial in stands.run.history.preparing()})
    left = [count(n, word) for n, word in ((len(undrawn) - probes, "trial"), (probes, "probe")) if n]
    reasons = tag("a", "reasons", href="#trials")
    missing = joined("Not drawn: ", " and ".join(left), " without all objectives (", reasons, ").")
    missing = tag("p", missing, class_="note") if left else Html("")
    return joined(filter_form(stands), charts, missing, prose(told.get("Pareto front", "")))


def _times(stands: Standings, told: dict[str, str]) -> Html:
    bars = stage_bars(stands)
    if bars is None:
        return tag("p", "Not measured: no trial profiled its steps.")
    words = [block for block in told.get("Where the time goes", "").split("\n\n") if block.startswith("- ")]
    return joined(bars, prose("\n\n".join(words)))


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _packaged(names: tuple[str, ...]) -> str:
    folder = files("search.page")
    return "\n".join(folder.joinpath("assets", name).read_text(encoding="utf-8") for name in names)


def _hash(text: str) -> str:
    """As a Content Security Policy names a text that it allows."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
