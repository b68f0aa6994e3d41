"""The recommended configuration with its certainty and reasons, and a card with ready commands for each pick."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from search.page.front_status import FrontStatus
from search.page.prose import prose
from search.page.render import render
from search.record.dataframes import Run
from search.record.run_end import is_wanted_end
from search.record.trial import Trial
from search.report.as_yaml import as_yaml
from search.report.command import command, full_command, full_epochs
from search.report.doubts import doubts_about
from search.report.picks import Pick, against, learned_alike, lucky, no_front, outcome, picks_by_trial, praise
from search.text.configurations import format_setting
from search.text.metrics import CONTENDED
from search.text.numbers import format_probability, join_words, plural
from search.text.shell import continued


def answer(status: FrontStatus, summary: Mapping[str, list[str]]) -> Markup:
    """Render the recommendation, or the reason why there is none. `summary`: blocks by section."""
    run = status.run
    knee = run.state.knee
    if knee is None:
        reasons = prose([block for block in summary["Trials"] if block.startswith("- ")])
        return render("answer.html", trial=None, why=no_front(run), reasons=reasons)
    why = _why(run, [pick for pick in status.picks if pick.trial is knee])
    verdict = f" {_sentence(knee.verdict.why)}" if knee.verdict else ""
    percent = format_probability(run.front_probabilities[knee.trial_id])
    times = f", and its rate was probed {plural(len(knee.repeats), 'more time')}" if knee.repeats else ""
    certainty = [
        f"It belongs to the Pareto front with a probability of {percent}, computed from the 95% intervals.",
        f"It was {'trained' if knee.epochs else 'probed'} {_how_often(knee)}{times}.",
    ]
    certainty += [*learned_alike(run), *doubts_about(run, knee)]
    if not is_wanted_end(run.state.end):
        certainty.append("The run has not ended; this is the result so far.")
    if knee.metrics.get("contended"):
        certainty.append(f"Its rate was {CONTENDED}.")
    facts = _facts(run, knee)
    return render(
        "answer.html", trial=knee, which=praise(run), why=why + verdict, certainty=" ".join(certainty), **facts
    )


def _how_often(trial: Trial) -> str:
    return f"with {1 + len(trial.again)} seeds" if trial.again else "once (n = 1)"


def pick_cards(status: FrontStatus) -> Markup:
    """Render a card for each trial that is picked, the recommended one first."""
    run, cards = status.run, []
    for same in sorted(picks_by_trial(run), key=lambda same: not any(pick.name == "knee" for pick in same)):
        trial, names = same[0].trial, join_words([pick.name for pick in same])
        texts = {
            "Train in full": continued(full_command(run.folder, trial, full_epochs(run.info, trial))),
            "Train as in the search": command(run, trial),
            "YAML": as_yaml(run, same[0]),
        }
        title = f"{names[0].upper()}{names[1:]}"
        cards.append({"trial": trial, "title": title, "why": _why(run, same), "texts": texts, **_facts(run, trial)})
    return render("picks.html", cards=cards)


def _facts(run: Run, trial: Trial) -> dict[str, dict[str, str]]:
    """Return a trial's results, and the settings that the search chose."""
    chosen = [name for name in run.state.parameters() if name in trial.config]
    return {
        "metrics": outcome(run, trial),
        "settings": {name: format_setting(trial.config[name]) for name in chosen},
    }


def _why(run: Run, same: list[Pick]) -> str:
    trial = same[0].trial
    return " ".join([*lucky(run, trial), _sentence("; ".join(pick.why for pick in same)), *against(run, trial)])


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
