"""The recommended configuration with its certainty and reasons, and a card with ready commands for each pick."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from markupsafe import Markup

from search.page.front_status import FrontStatus
from search.page.prose import prose
from search.page.render import render
from search.record.run_state import Trial
from search.report.as_yaml import as_yaml
from search.report.command import command, continued, full_command
from search.report.picks import Pick, against, merged, no_front
from search.text.configurations import format_setting
from search.text.metrics import metric_label
from search.text.numbers import format_percent, join_words, plural

MAX_TIES = 4  # trials that are named


def answer(status: FrontStatus, summary: Mapping[str, list[str]]) -> Markup:
    """Render the recommendation, or the reason why there is none. `summary`: blocks by section."""
    run = status.run
    knee = next((pick.trial for pick in status.picks if pick.name == "knee"), None)
    if knee is None:
        reasons = prose([block for block in summary["Trials"] if block.startswith("- ")])
        return render("answer.html", trial=None, why=no_front(run), reasons=reasons)
    others = any(pick.trial is not knee for pick in status.picks)
    same = [pick for pick in status.picks if pick.trial is knee]
    why = _why(status, same, merged(status.picks))
    verdict = f" {_sentence(knee.verdict.why)}" if knee.verdict else ""
    which = "the best compromise" if others else "best in everything"
    certainty, facts = _certainty(status, knee), _facts(status, knee)
    return render("answer.html", trial=knee, which=which, why=why + verdict, certainty=certainty, **facts)


def pick_cards(status: FrontStatus) -> Markup:
    """Render a card for each trial that is picked, the recommended one first."""
    run, groups = status.run, merged(status.picks)
    cards = []
    for same in sorted(groups, key=lambda same: not any(pick.name == "knee" for pick in same)):
        trial, names = same[0].trial, join_words([pick.name for pick in same])
        texts = {
            "Train in full": continued(full_command(Path("results", run.name), trial)),
            "Train as in the search": command(run, trial),
            "YAML": as_yaml(run, same[0]),
        }
        title, why = f"{names[0].upper()}{names[1:]}", _why(status, same, groups)
        cards.append({"trial": trial, "title": title, "why": why, "texts": texts, **_facts(status, trial)})
    return render("picks.html", cards=cards)


def _facts(status: FrontStatus, trial: Trial) -> dict[str, dict[str, str]]:
    """Return a trial's objectives, its measured test accuracies, and the settings that the search chose."""
    run_state = status.run.state
    data = run_state.info.data.name
    metrics = [o.metric for o in run_state.objectives] + [name for name in trial.test_metrics if "accuracy" in name]
    chosen = [name for name in run_state.parameters() if name in trial.config]
    return {
        "metrics": {metric_label(name, data): run_state.format_metric(trial, name) for name in metrics},
        "settings": {name: format_setting(trial.config[name]) for name in chosen},
    }


def _certainty(status: FrontStatus, trial: Trial) -> str:
    percent = format_percent(status.probability[trial.trial_id])
    times = f", and its rate was probed {plural(len(trial.repeats), 'more time')}" if trial.repeats else ""
    words = [
        f"It belongs to the Pareto front with a probability of {percent}, computed from the 95% intervals.",
        f"It was {'trained' if trial.epochs else 'probed'} once (n = 1){times}.",
    ]
    if ties := status.ties():
        more = [f"{len(ties) - MAX_TIES} more"] if len(ties) > MAX_TIES else []
        words.append(f"Not distinguishable from the front: {join_words([*ties[:MAX_TIES], *more])}.")
    if status.run.state.end is None:
        words.append("The run has not ended; this is the result so far.")
    if trial.metrics.get("contended"):
        words.append("Other processes used the CPU while its rate was measured, so the rate may be too low.")
    return " ".join(words)


def _why(status: FrontStatus, same: list[Pick], groups: list[list[Pick]]) -> str:
    reasons = _sentence("; ".join(pick.why for pick in same))
    return " ".join([reasons, *against(status.run, same[0].trial, groups)])


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
