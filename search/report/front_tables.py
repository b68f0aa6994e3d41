"""Pareto front as tables, with a legend and the uncertainty of its numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from search.front.differences import FEWEST_ROUNDS
from search.front.intervals import half_interval
from search.front.roles import wanted_test_metrics
from search.record.dataframes import Run
from search.record.trial import Trial
from search.report.doubts import doubts
from search.report.range_ends import at_ends
from search.text.configurations import format_setting
from search.text.markdown import fits, format_tables, wrap
from search.text.metrics import ARROWS, CONTENDED
from search.text.numbers import PLUS_MINUS, format_probability, format_ratio, join_words, plural, unknown_intervals

MEANING = {"maximize": "higher is better", "minimize": "lower is better"}
RATE = """\
`{rate}` is the end-to-end rate of the whole job (loading, transfer, forward, backward, update), over
windows after the warm-up, without evaluation and checkpoints."""
DEVIATION = "The number after ± is the standard deviation between those windows, within one run."

ONE_RUN = "Each configuration was {} once (n = 1)."
NO_SEEDS = "The variation between random seeds is not included."
SEEDS = (
    "The variation between random seeds is included, as estimated from trainings with other seeds or, without any, "
    "from trials with nearly the same settings."
)
ON_FRONT = "on the front"
PROBABILITY = (
    f"{ON_FRONT.capitalize()}: the probability that a point belongs to the front and meets the constraints. It is "
    "computed from the 95% intervals and from the ratios of rates that were measured in turns; a rate without an "
    "interval counts as known to 15%, another value as exact."
)
LUCK = "Of many nearly equal trials it is too high, because the lucky ones are on the front"
TOO_GOOD = ", with values that are rather too good"  # where seeds have no known spread, which tells how much
LEAST_NAMED = 0.01  # probability of a trial whose turns are named


def front_section(run: Run) -> list[str]:
    """Return the front as tables, the settings that its points share, and the legend."""
    state, front, objectives = run.state, run.state.front(), run.state.objectives
    titles = {o.metric: f"{state.label(o.metric)} ({ARROWS[o.goal]})" for o in objectives}
    measured = {title: [state.format_metric(t, metric) for t in front] for metric, title in titles.items()}
    known = dict.fromkeys(name for t in front for name in t.test_metrics)
    names = wanted_test_metrics((o.metric for o in objectives), known)
    tested = {state.label(name): [state.format_metric(t, name) for t in front] for name in names}
    tested[ON_FRONT] = [format_probability(run.front_probabilities[t.trial_id]) for t in front]
    varying = state.varying_parameters(front)
    chosen = {name: [format_setting(t.config[name]) if name in t.config else "" for t in front] for name in varying}
    first = {"trial": [t.trial_id for t in front]}
    groups = (measured | tested, chosen) if fits(first | measured | tested) else (measured, tested | chosen)
    config = state.ordered_config(front[0])
    shared = [f"{key}={format_setting(value)}" for key, value in config.items() if key not in varying]
    legend = " ".join(f"{ARROWS[goal]}: {MEANING[goal]}." for goal in dict.fromkeys(o.goal for o in objectives))
    same = f" The same for all of them: {', '.join(shared)}." if len(front) > 1 and shared else ""
    most = max(len(t.repeats) for t in front)
    repeats = f" The front was then probed {plural(most, 'time')} more, in turn." if most else ""
    doubtful = " ".join(doubts(run))
    several = [f"{t.trial_id} ({1 + len(t.again)} seeds)" for t in state.trials.values() if t.again]
    once = ONE_RUN.format("probed" if state.is_probe_run else "trained")
    trained = f"Trained several times: {join_words(several)}; all others once." if several else once
    trained += "".join(
        f" {t.trial_id} failed with seed {failed.seed}: {failed.reason}." for t in front for failed in t.failed_again
    )
    seeds = "" if state.is_probe_run else SEEDS if state.knows_seeds else NO_SEEDS
    luck = LUCK + TOO_GOOD * (not state.knows_seeds)
    odds = f"{PROBABILITY} {luck}. {seeds}".strip()
    notes = [legend + same, at_ends(run), doubtful, f"{trained}{repeats}", _turns(run, front), odds]
    text = " ".join(itertools.chain(*measured.values(), *tested.values()))
    earlier_version = any(f"{trial.rate_metric}_std" in trial.metrics for trial in front)
    is_rated = state.rate_metric in titles and any(half_interval(t.metrics, t.rate_metric) for t in front)
    legends = [RATE.format(rate=state.rate_metric)] if is_rated else []
    legends += [DEVIATION if is_rated and earlier_version else PLUS_MINUS] if "±" in text else []
    notes.append(" ".join([*legends, *unknown_intervals(text)]))
    if contended := [trial.trial_id for trial in front if trial.metrics.get("contended")]:
        notes.append(f"{CONTENDED[0].upper()}{CONTENDED[1:]}: {join_words(contended)}.")
    return [*format_tables(first, *groups), *map(wrap, filter(None, notes))]


def _turns(run: Run, front: Sequence[Trial]) -> str:
    """Return the ratios of rates that turns have measured, of the front's points to others; empty: there are none."""
    state, odds = run.state, run.front_probabilities
    others = [trial for trial in state.candidates() if odds[trial.trial_id] >= LEAST_NAMED or trial in front]
    found = []
    for one, other in itertools.combinations(sorted(others, key=lambda t: t not in front), 2):
        if one not in front or state.num_rounds(one, other) < FEWEST_ROUNDS:
            continue
        if (ratio := state.rate_ratio(one, other)) is not None:
            tie = " (a tie)" if ratio.is_tie else ""
            found.append(f"{one.trial_id} {format_ratio(*ratio.ratio)} times the rate of {other.trial_id}{tie}")
    return f"In turns of half a second beside each other: {'; '.join(found)}." if found else ""
