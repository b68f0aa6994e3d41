"""The answer: which configuration to run, how sure that is and why; and the other picks, each with a ready command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from search.page.markup import Html, joined, tag
from search.page.prose import prose
from search.page.standing import Standings, stated
from search.record.history import Trial
from search.report.as_yaml import as_yaml
from search.report.command import command, continued, full_command
from search.report.picks import Pick, against, merged, no_front
from search.text.wording import count, listed, metric_label, percent, setting


def answer(standings: Standings, told: Mapping[str, str]) -> Html:
    """In a few sentences; where there is none, why. `told`: the summary, by section."""
    run = standings.run
    knee = next((pick.trial for pick in standings.picks if pick.name == "knee"), None)
    if knee is None:
        words = tag("p", "No configuration to recommend: ", no_front(run), ".", class_="lead")
        reasons = [block for block in told["Trials"].split("\n\n") if block.startswith("- ")]
        return tag("section", words, prose("\n\n".join(reasons)), class_="answer", id="answer")
    others = any(pick.trial is not knee for pick in standings.picks)
    which = "the best compromise" if others else "best in everything"
    lead = tag("p", "Run ", tag("a", knee.trial_id, href=f"#{knee.trial_id}"), f", {which}.", class_="lead")
    sure = tag("p", tag("b", "How sure. "), _sure(standings, knee))
    why = tag("p", tag("b", "Why. "), _why(standings, knee))
    return tag(
        "section", lead, figures(standings, knee), _chips(standings, knee), why, sure, class_="answer", id="answer"
    )


def pick_cards(standings: Standings) -> Html:
    """A card for each trial that is picked, the recommended one first."""
    groups = merged(standings.picks)
    ordered = sorted(groups, key=lambda same: not any(pick.name == "knee" for pick in same))
    return tag("div", *(_card(standings, same, groups) for same in ordered), class_="cards")


def figures(standings: Standings, trial: Trial) -> Html:
    """A trial's objectives, and its test accuracy where it was asked, large."""
    run = standings.run
    names = [o.metric for o in run.history.objectives] + [name for name in trial.tested if "accuracy" in name]
    pairs = (
        joined(tag("dt", metric_label(name, run.info["data"])), tag("dd", stated(run, trial, name), class_="num"))
        for name in names
    )
    return tag("dl", *(tag("div", pair) for pair in pairs), class_="figures")


def _sure(standings: Standings, trial: Trial) -> str:
    """How probable its place on the front is, how often it was measured, and what it cannot be told apart from."""
    history, name = standings.run.history, trial.trial_id
    words = [f"With a probability of {percent(standings.odds[name])} it belongs to the Pareto front, by its intervals."]
    times = f", and its rate probed {count(len(trial.repeats), 'time')} more" if trial.repeats else ""
    words.append(f"It was {'trained' if trial.epochs else 'probed'} once (n = 1){times}.")
    ties = [other for other, standing in standings.of.items() if standing == "tie"]
    if ties:
        ties.sort(key=lambda other: -standings.odds[other])
        named = listed(ties) if len(ties) <= 4 else f"{', '.join(ties[:4])} and {len(ties) - 4} more"
        words.append(f"Not told apart from the front: {named}.")
    if history.end is None:
        words.append("The run has not ended: this is out of what is known so far.")
    if trial.metrics.get("disturbed"):
        words.append("Something else took the cores while its rate was measured: it is perhaps too low.")
    return " ".join(words)


def _why(standings: Standings, trial: Trial) -> str:
    reasons = "; ".join(pick.why for pick in standings.picks if pick.trial is trial)
    beside = " ".join(against(standings.run, trial, merged(standings.picks)))
    bound = f" {_sentence(trial.verdict['why'])}" if trial.verdict else ""
    return f"{_sentence(reasons)} {beside}{bound}"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _chips(standings: Standings, trial: Trial) -> Html:
    """What was chosen for it."""
    names = [name for name in standings.run.history.parameters() if name in trial.config]
    return tag(
        "ul",
        *(tag("li", tag("span", name), " ", tag("b", setting(trial.config[name]))) for name in names),
        class_="chips",
    )


def _card(standings: Standings, same: list[Pick], groups: list[list[Pick]]) -> Html:
    run, trial = standings.run, same[0].trial
    names = listed([pick.name for pick in same])
    reason = "; ".join(pick.why for pick in same)
    return tag(
        "article",
        tag("h3", f"{names[0].upper()}{names[1:]} ", tag("a", trial.trial_id, href=f"#{trial.trial_id}")),
        figures(standings, trial),
        tag("p", _sentence(reason), " ", " ".join(against(run, trial, groups))),
        _chips(standings, trial),
        _copyable("Train it in full", continued(full_command(Path("results", run.name), trial)), shown=True),
        _copyable("As it was searched, without search", command(run, trial)),
        _copyable("YAML", as_yaml(run, same[0])),
        class_="card",
    )


def _copyable(title: str, text: str, shown: bool = False) -> Html:
    return tag(
        "details",
        tag("summary", title),
        tag("button", "Copy", type="button", class_="js copy"),
        tag("pre", tag("code", text), tabindex="0"),
        open=shown,
    )
