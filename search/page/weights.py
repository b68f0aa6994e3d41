"""How much each setting decides, as bars."""

from __future__ import annotations

from search.front.objective import Objective
from search.page.chart import figure, percent
from search.page.markup import Html, joined, tag
from search.record.history import History
from search.report.importance import SHUFFLES, Importance, importance
from search.text.wording import count, metric_label
from search.text.wording import percent as percent_words

METHOD = (
    "Which settings the best tenth of the trials (at least 5) has that the others have not, as shares of the whole: "
    "PED-ANOVA, of Optuna. The mark is the most that a setting reached when the results were dealt out anew, "
    f"{SHUFFLES} times; a bar that ends before it, pale, may be chance. A search looks where it expects the "
    "best: this is of what was tried, not of all that could be."
)


def importance_bars(history: History, going_on: bool) -> Html:
    """For each objective. While a run goes on there are none: they would cost the machine that is being measured."""
    if going_on:
        return joined(tag("h3", "Importance"), tag("p", "When the run has ended.", class_="note"))
    parts = [_of_objective(history, objective) for objective in history.objectives]
    return joined(
        tag("h3", "Importance of each setting"),
        tag("p", METHOD, class_="note"),
        tag("div", *parts, class_="pair"),
    )


def _of_objective(history: History, objective: Objective) -> Html:
    found = importance(history, objective)
    title = metric_label(objective.metric, history.info["data"])
    if isinstance(found, str):
        return figure(title, tag("p", found, class_="note"))
    longest = max([*found.shares.values(), *found.chance.values()])
    note = f"Of {count(found.trials, 'trial')}{f' of {found.measured}' if found.measured > found.trials else ''}."
    bars = (_bar(found, name, longest) for name in found.shares)
    return figure(title, tag("ol", *bars, class_="bars weights"), note=note)


def _bar(found: Importance, name: str, longest: float) -> Html:
    share, chance = found.shares[name], found.chance[name]
    at = percent(100 * chance / longest)
    words = f"{name} {percent_words(share)}, by chance up to {percent_words(chance)}"
    return tag(
        "li",
        tag("span", name),
        tag(
            "svg",
            tag(
                "rect",
                width=percent(100 * share / longest),
                height="100%",
                class_="pale" if share <= chance else "full",
            ),
            tag("line", x1=at, x2=at, y1="-15%", y2="115%"),
            role="img",
            aria_label=words,
            width="100%",
            height="100%",
        ),
        tag("span", percent_words(share), class_="num"),
    )
