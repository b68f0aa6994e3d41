"""Which configuration of a run to take, by what one wishes of it, and the command that trains it in full.

    python -m search.pick RUN                                    # what the summary recommends
    python -m search.pick RUN --accuracy-within 0.005            # the fastest that is nearly as accurate as any
    python -m search.pick RUN --at-least images_per_second=4000 --at-most peak_memory_fraction=0.5

--yaml prints it as a space file of its own, --json for programs.
Exit codes: 0 done, 1 no trial is like that (the nearest is named), 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from search.commandline import answered, opened
from search.front.objective import Constraint
from search.outcome import InputError, Parser
from search.pick.wishes import Wishes, best, sureness
from search.record.history import Trial
from search.report.as_yaml import as_yaml, trained_for, value_of
from search.report.command import FULL_EPOCHS, continued, full_command
from search.report.picks import Pick, against, merged, picks
from search.results import Run
from search.text.markdown import wrapped
from search.text.wording import about, count, metric_label, percent, setting

HALF = "±: half of a 95% interval."
LUCK = (
    "That of an accuracy is the luck of which pictures it was validated on; each configuration was trained once, and "
    "another seed would add to it."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the pick; the exit code."""
    return answered("search.pick", lambda: _answer(_parser().parse_args(arguments)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m search.pick", description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder, finished or not")
    parser.add_argument("--accuracy-within", type=float, metavar="X", help="at most X less accurate than the best")
    parser.add_argument("--at-least", action="append", default=[], metavar="METRIC=VALUE", help="may be repeated")
    parser.add_argument("--at-most", action="append", default=[], metavar="METRIC=VALUE", help="may be repeated")
    parser.add_argument("--knee", action="store_true", help="the compromise between all objectives (the default)")
    parser.add_argument("--epochs", type=int, default=FULL_EPOCHS, help="of the command; default: %(default)s")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--yaml", action="store_true", help="print a space file that has this configuration alone")
    form.add_argument("--json", action="store_true", help="print it for programs")
    return parser


def _answer(options: argparse.Namespace) -> str:
    wishes = _wishes(options)
    run = opened(options.run)
    pick = best(run, wishes)
    if options.yaml:
        return as_yaml(run, pick)
    words = full_command(options.run, pick.trial, options.epochs)
    if options.json:
        return as_json(run, pick, wishes, " ".join(words))
    return as_text(run, pick, wishes, continued(words), options.epochs)


def _wishes(options: argparse.Namespace) -> Wishes:
    within = options.accuracy_within
    if within is not None and not 0 <= within < math.inf:
        raise InputError(f"--accuracy-within {within:g}: expected a fraction, as in --accuracy-within 0.005")
    if options.epochs < 1:
        raise InputError(f"--epochs {options.epochs}: at least one is needed")
    least = [_bound("--at-least", text) for text in options.at_least]
    return Wishes((*least, *(_bound("--at-most", text) for text in options.at_most)), within, options.knee)


def _bound(option: str, text: str) -> Constraint:
    metric, equals, value = text.partition("=")
    try:
        bound = float(value.replace(",", ""))
    except ValueError:
        bound = math.nan
    if not (metric and equals and math.isfinite(bound)):
        raise InputError(f"{option} {text}: expected METRIC=NUMBER, as in {option} images_per_second=4000")
    return Constraint(metric, ">=" if option == "--at-least" else "<=", bound)


# --- how it is told ---------------------------------------------------------------------------------------------------


def as_text(run: Run, pick: Pick, wishes: Wishes, told: str, epochs: int) -> str:
    """For people, in at most 80 columns where words allow."""
    trial = pick.trial
    groups = merged(picks(run))
    settings = ", ".join(f"{key} {setting(value)}" for key, value in run.history.ordered(trial).items())
    sure = sureness(run, trial, wishes)
    takes = _takes(run, trial, epochs)
    blocks = [
        wrapped(f"{trial.trial_id} of {run.name}: {_name(run, pick)}"),
        "\n".join(_lines(run, trial, wishes)),
        *_uncertain(run, trial),
        wrapped(" ".join([f"Why: {pick.why}.", *against(run, trial, groups)])),
        *([wrapped(f"How sure that it meets the wish: {'; '.join(sure)}.")] if sure else []),
        *_unfinished(run),
        wrapped(f"Configuration: {settings}."),
        f"To train it in full{takes}:\n{told}",
    ]
    return "\n\n".join(blocks)


def as_json(run: Run, pick: Pick, wishes: Wishes, told: str) -> str:
    """For programs; what was not measured is null, `low` and `high` bound a 95% interval."""
    trial, units = pick.trial, run.info.get("metrics", {})
    content = {
        "run": run.name,
        "trial": trial.trial_id,
        "pick": pick.name,
        "why": pick.why,
        "config": run.history.ordered(trial),
        "epochs": trial.epochs,
        "metrics": {
            name: {"value": _finite(value), "unit": units.get(name), **_interval(run, trial, name)}
            for name, value in trial.metrics.items()
            if not (name.endswith(("_low", "_high")) and name.rpartition("_")[0] in trial.metrics)
        },
        "front_probability": run.certainty[trial.trial_id],
        "compared": len(run.history.candidates()),
        "wishes": [str(bound) for bound in wishes.bounds],
        "accuracy_within": wishes.accuracy_within,
        "command": told,
    }
    return json.dumps(content, indent=2, allow_nan=False)


def _name(run: Run, pick: Pick) -> str:
    """`knee`, with what else the trial is, as the summary calls it."""
    names = [p.name for p in picks(run) if p.trial is pick.trial and p.name != pick.name]
    also = f" (also: {', '.join(names)})" if names else ""
    return f"the {'best compromise' if pick.name == 'knee' else pick.name}{also}"


def _lines(run: Run, trial: Trial, wishes: Wishes) -> Iterator[str]:
    """A metric a line: the objectives, what the test set says, what was wished of."""
    of_tests = [name for name in trial.tested if "accuracy" in name]
    names = [*(o.metric for o in run.history.objectives), *of_tests, *(bound.metric for bound in wishes.bounds)]
    labels = {name: metric_label(name, run.info["data"]) for name in names}
    width = max(map(len, [*labels.values(), "on the front"]))
    for name, label in labels.items():
        yield f"  {label:<{width}}  {value_of(run, trial, name)}"
    yield f"  {'on the front':<{width}}  {percent(run.certainty[trial.trial_id])} probable"
    yield f"  {'trained for':<{width}}  {trained_for(trial)}"


def _uncertain(run: Run, trial: Trial) -> list[str]:
    """What is behind ±, where there is one."""
    known = [o.metric for o in run.history.objectives if run.history.deviation(trial, o.metric)]
    luck = [LUCK] if "val_accuracy" in known else []
    return [wrapped(" ".join([HALF, *luck]))] if known else []


def _interval(run: Run, trial: Trial, name: str) -> dict[str, float]:
    half = 1.96 * run.history.deviation(trial, name)
    value = trial.metrics[name]
    return {"low": value - half, "high": value + half} if half and math.isfinite(value) else {}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _takes(run: Run, trial: Trial, epochs: int) -> str:
    """How long that would be on the machine of the run; nothing where it would be on other pictures."""
    of_all = run.info.get("space", {}).get("data", {}).get("train_images") is None
    if not (of_all and trial.epochs and math.isfinite(trial.seconds) and trial.seconds > 0):
        return ""
    return f", {about(epochs * trial.seconds / trial.epochs)} on that machine"


def _unfinished(run: Run) -> list[str]:
    running = run.history.counts()["running"]
    if run.history.end is not None and not running:
        return []
    compared = count(len(run.history.candidates()), "trial")
    return [wrapped(f"The run is not finished: this is out of the {compared} compared so far.")]


if __name__ == "__main__":
    sys.exit(main())
