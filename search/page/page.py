"""The page of a run, `report.html`: one file with all results. Each section has a file of its own in this package."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from markupsafe import Markup

from search.page.answer import answer, pick_cards
from search.page.curves import learning_curves
from search.page.differences import difference_figures
from search.page.document import FILE_NAME, document
from search.page.front import front_charts
from search.page.front_status import FrontStatus, front_status
from search.page.heading import heading
from search.page.importance import importance_bars
from search.page.machine_load import machine_load
from search.page.parallel import parallel_coordinates
from search.page.prose import prose
from search.page.render import render
from search.page.stage_times import stage_bars
from search.page.trials import filter_form, trial_table
from search.record.dataframes import Run
from search.record.disk import write_text_atomically
from search.report.report import sections
from search.text.numbers import plural

logger = logging.getLogger(__name__)

SCRIPTS = ("trials.js", "front.js", "filter.js", "parallel.js", "table.js", "page.js")
STYLES = ("page.css", "charts.css")
REFRESH_SECONDS = 10
NO_TIMES = "Not measured: no trial profiled its steps."
SWEEPS = ("Loader processes", "Batch size", "Strategies", "Scaling")  # sections of the summary


def write_page(run: Run, now: float | None = None) -> Path:
    """Write `report.html` into a run's folder; return its path. With `now`, see `page`, it reloads every few seconds.

    Raises:
        OSError: the file cannot be written.
    """
    path = run.folder / FILE_NAME
    write_text_atomically(path, page(run, now))
    return path


def try_to_write(run: Callable[[], Run], now: float | None = None, quietly: bool = False) -> bool:
    """Write the page, and return whether that succeeded; a failure is logged as a warning, `quietly` at debug level."""
    try:
        write_page(run(), now)
    except Exception as error:  # of any kind: a page must never end a run
        level = logging.DEBUG if quietly else logging.WARNING
        logger.log(level, "%s cannot be written: %r", FILE_NAME, error)
        return False
    return True


def page(run: Run, now: float | None = None) -> str:
    """Return the whole file. `now`: for a run that is still running, the time in seconds since 1970."""
    status, summary = front_status(run, is_running=now is not None), sections(run)
    found = {title: content for title, content in _sections(status, summary, now is not None).items() if content}
    return document(
        "page.html",
        STYLES,
        SCRIPTS,
        title=f"{run.name}: training search",
        settings={"run": run.name, "refreshSeconds": REFRESH_SECONDS if now else None},
        heading=heading(run, now),
        notes=prose([block for block in summary[""] if block.startswith("> ")]),
        answer=answer(status, summary),
        sections=found,
    )


def _sections(status: FrontStatus, summary: dict[str, list[str]], running: bool) -> dict[str, Markup | None]:
    """Return the sections by title, in the order of a reader's questions; None or empty: left out."""
    run = status.run
    trials, times = run.state.trials, stage_bars(status)
    verdicts = [block for block in summary.get("Where the time goes", []) if block.startswith("- ")]
    settings = (parallel_coordinates(status) or Markup()) + importance_bars(run.state, running) if trials else None
    return {
        "Pareto front": _front(status, summary) if trials else None,
        "Picks": pick_cards(status) + difference_figures(status) if status.picks else None,
        "Settings": settings,
        "Learning curves": learning_curves(status),
        "Where the time goes": times + prose(verdicts) if times else prose([NO_TIMES]),
        **{title: prose(summary[title]) for title in SWEEPS if title in summary},
        "Machine load": machine_load(run),
        "Trials": prose(summary["Trials"]) + (trial_table(status) if trials else Markup()),
        "Conditions": prose(summary["Conditions"]),
        "As DataFrames": prose(summary["As DataFrames"]),
    }


def _front(status: FrontStatus, summary: dict[str, list[str]]) -> Markup:
    run_state, drawn = status.run.state, {trial.trial_id for trial in status.trials_to_draw()}
    missing = run_state.trials.keys() - drawn
    probes = len(missing & {trial.trial_id for trial in run_state.preparing_probes()})
    return render(
        "front_section.html",
        filter=filter_form(status),
        charts=front_charts(status) if drawn else "",
        missing=" and ".join(plural(n, noun) for n, noun in ((len(missing) - probes, "trial"), (probes, "probe")) if n),
        summary=prose(summary.get("Pareto front", [])),
    )
