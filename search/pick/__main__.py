"""Choose a configuration of a run by requirements on its metrics, and print the command that trains it in full.

    python -m search.pick RUN                                    # what the summary recommends
    python -m search.pick RUN --accuracy-within 0.005            # the fastest that is nearly as accurate
    python -m search.pick RUN --within val_loss=0.02             # the same for any objective
    python -m search.pick RUN --at-least images_per_second=4000 --at-most peak_memory_fraction=0.5

--yaml prints a space file with this configuration alone, --json prints JSON.
Exit codes: 0 done, 1 no trial meets the requirements (the nearest is named), 2 bad input.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence

from search.commandline import load_run, run_command, run_parser
from search.exit_codes import InputError
from search.front.intervals import interval
from search.front.objective import Constraint
from search.front.roles import is_interval_end, sounds_learned
from search.pick.requirements import Requirements, best, probabilities, within_of_accuracy
from search.record.dataframes import Run
from search.record.run_end import is_wanted_end
from search.report.as_yaml import as_yaml, trained_for
from search.report.command import full_command, full_epochs
from search.report.doubts import doubts_about
from search.report.picks import TEST_FAILED, Pick, against, lucky, outcome, picks
from search.text.configurations import format_setting
from search.text.durations import rough_duration
from search.text.markdown import wrap
from search.text.numbers import PLUS_MINUS, format_probability, plural, unknown_intervals
from search.text.shell import continued

FEW_TRIALS = 10
LUCK = "What is best of many trials is partly so by luck, which this does not count."
EXAMPLES = {"--within": "val_loss=0.05", "--at-least": "val_accuracy=0.9", "--at-most": "peak_memory_gib=8"}
VALIDATION_INTERVAL = (
    "The interval of a validation metric covers the choice of validation samples. It does not cover the random seed: "
    "each configuration was trained once."
)
WITH_SEEDS = (
    "The interval of a validation metric covers the choice of validation samples and the variation between random "
    "seeds, as estimated from trainings with other seeds or, without any, from trials with nearly the same settings."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the pick and return the exit code."""
    return run_command("search.pick", lambda: _answer(arguments))


def _answer(arguments: Sequence[str] | None) -> str:
    parser = run_parser("search.pick", __doc__)
    parser.add_argument(
        "--within",
        action="append",
        default=[],
        metavar="METRIC=X",
        help="at most X worse than the best",
    )
    parser.add_argument("--accuracy-within", type=float, metavar="X", help="--within the objective that is an accuracy")
    parser.add_argument("--at-least", action="append", default=[], metavar="METRIC=VALUE", help="may be repeated")
    parser.add_argument("--at-most", action="append", default=[], metavar="METRIC=VALUE", help="may be repeated")
    parser.add_argument("--knee", action="store_true", help="the compromise between all objectives (the default)")
    parser.add_argument(
        "--epochs",
        type=int,
        help="epochs of the printed command; default: the usual ones (VGG19: 200), or as in the search",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--yaml", action="store_true", help="print a space file with this configuration alone")
    form.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if options.epochs is not None and options.epochs < 1:
        raise InputError(f"--epochs {options.epochs}: at least one is needed")
    constraints = [Constraint(name, ">=", bound) for name, bound in _bounds("--at-least", options.at_least)]
    constraints += [Constraint(name, "<=", bound) for name, bound in _bounds("--at-most", options.at_most)]
    within = dict(_bounds("--within", options.within, low=0.0))
    slack = options.accuracy_within
    if slack is not None and not 0 <= slack <= 1:
        raise InputError(f"--accuracy-within {slack:g}: expected a fraction from 0 to 1, as in --accuracy-within 0.005")
    run = load_run(options.run)
    if slack is not None:
        within |= within_of_accuracy(run, slack)
    requirements = Requirements(tuple(constraints), within, options.knee)
    pick = best(run, requirements)
    if options.yaml:
        return as_yaml(run, pick)
    epochs = full_epochs(run.info, pick.trial) if options.epochs is None else options.epochs
    command = full_command(options.run, pick.trial, epochs)
    if options.json:
        return as_json(run, pick, requirements, " ".join(command))
    return as_text(run, pick, requirements, continued(command), epochs)


def _bounds(option: str, texts: Sequence[str], low: float = -math.inf) -> list[tuple[str, float]]:
    """Return the metric and the number of each text, which is METRIC=NUMBER."""
    found = []
    for text in texts:
        metric, equals, value = text.partition("=")
        grouped = re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", value)  # 12,000 is a number, 0,9 is none
        try:
            bound = float(value.replace(",", "") if grouped else value)
        except ValueError:
            bound = math.nan
        if not (metric and equals and math.isfinite(bound) and bound >= low):
            number = "NUMBER" if low == -math.inf else f"NUMBER of at least {low:g}"
            raise InputError(f"{option} {text}: expected METRIC={number}, as in {option} {EXAMPLES[option]}")
        found.append((metric, bound))
    return found


def as_text(run: Run, pick: Pick, requirements: Requirements, command: str, epochs: int) -> str:
    """Return the pick as text, in at most 80 columns where words allow."""
    trial = pick.trial
    names = [p.name for p in picks(run) if p.trial is trial and p.name != pick.name]
    name = "best compromise" if pick.name == "knee" else pick.name
    also = f" (of all trials: {', '.join(names)})" if names else ""
    required = [constraint.metric for constraint in requirements.constraints]
    cells = outcome(run, trial) | {run.state.label(name): run.state.format_metric(trial, name) for name in required}
    cells["on the front"] = f"{format_probability(run.front_probabilities[trial.trial_id])} probable"
    cells["trained for"] = trained_for(trial)
    failed = cells.pop(TEST_FAILED, None)
    width = max(map(len, cells))
    table = "\n".join(f"  {label:<{width}}  {cell}" for label, cell in cells.items())
    blocks = [wrap(f"{trial.trial_id} of {run.name}: the {name}{also}"), table]
    blocks += [wrap(f"{TEST_FAILED} {failed}")] if failed else []
    if known := [o.metric for o in run.state.objectives if run.state.half_interval(trial, o.metric)]:
        seeds = WITH_SEEDS if run.state.knows_seeds else VALIDATION_INTERVAL
        learned = [seeds] * any(map(sounds_learned, known))
        blocks.append(wrap(" ".join([PLUS_MINUS, *unknown_intervals(table), *learned])))
    blocks.append(wrap(" ".join([*lucky(run, trial), f"Why: {pick.why}.", *against(run, trial)])))
    if doubtful := doubts_about(run, trial):
        blocks.append(wrap(" ".join(doubtful)))
    if found := probabilities(run, trial, requirements):
        text = "; ".join(f"{words}: {format_probability(probability)}" for words, probability in found.items())
        is_counted = all(trial.seed_deviation(each.metric) for each in requirements.constraints)
        luck = "" if is_counted or len(run.state.candidates()) <= FEW_TRIALS else f" {LUCK}"
        blocks.append(wrap(f"Probability of meeting the requirement: {text}.{luck}"))
    if not is_wanted_end(run.state.end):
        compared = plural(len(run.state.candidates()), "trial")
        blocks.append(wrap(f"The run has not ended; this is the result so far, of {compared}."))
    settings = ", ".join(f"{key} {format_setting(value)}" for key, value in run.state.ordered_config(trial).items())
    all_samples = run.info.data_settings.get("train_images") is None
    takes = ""  # unknown on other samples than those of the search
    if all_samples and trial.epochs and math.isfinite(trial.seconds) and trial.seconds > 0:
        takes = f", {rough_duration(epochs * trial.seconds / trial.epochs)} on that machine"
    return "\n\n".join([*blocks, wrap(f"Configuration: {settings}."), f"To train it in full{takes}:\n{command}"])


def as_json(run: Run, pick: Pick, requirements: Requirements, command: str) -> str:
    """Return the pick as JSON; null was not measured, `low` and `high` are the ends of a 95% interval."""
    trial, units, metrics = pick.trial, run.info.metrics, {}
    for name, value in trial.metrics.items():
        if is_interval_end(name, trial.metrics):
            continue
        finite, half = math.isfinite(value), run.state.half_interval(trial, name)
        ends = dict(zip(("low", "high"), interval(trial.metrics, name, half), strict=True)) if half and finite else {}
        metrics[name] = {"value": value if finite else None, "unit": units.get(name), **ends}
    content = {
        "run": run.name,
        "trial": trial.trial_id,
        "pick": pick.name,
        "why": pick.why,
        "config": run.state.ordered_config(trial),
        "epochs": trial.epochs,
        "metrics": metrics,
        "front_probability": run.front_probabilities[trial.trial_id],
        "compared": len(run.state.candidates()),
        "wishes": [str(constraint) for constraint in requirements.constraints],  # the key's name in earlier versions
        "within": dict(requirements.within),
        "command": command,
    }
    return json.dumps(content, indent=2, allow_nan=False)


if __name__ == "__main__":
    sys.exit(main())
