"""One finished search, decided several times; the orders that were decided, measured again later.

    python benchmarks/deciding.py RUN [--times 5] [--minutes-later 60] [--rounds 40]

The journal of a copy of RUN is cut where deciding began, and `python -m search.run --resume` decides it anew. A point
of its front is settled if it is at least 90% probable that it, or a trial that is named as not told apart from it, is
on the front; it is named if it is not settled and trials are named than which it may be no better. After the pause the
pairs whose order was decided in any copy have turns once more, in new processes. An order turns if the fresh ratio
surely points the other way. The last line is one JSON object.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from command_line import conditions, parser_of

from search.front.differences import MOST_ROUNDS, Estimate, log_ratio
from search.record.dataframes import Run
from search.record.front_places import SETTLED, FrontPlace, front_places
from search.results import load
from search.text.configurations import assignments
from search.text.numbers import format_number, format_percent, format_ratio
from search.train.arguments import same_data
from search.train.turn_group import TurnGroup

AFTER_THE_SEARCH = ("repeat", "turn", "neighbour", "again", "test", "end")

Decided = dict[tuple[str, str], Estimate]


def main() -> None:
    """Print the front of each copy, the decided pairs with their fresh ratios, and the figures as JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--minutes-later", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=MOST_ROUNDS)
    options = parser.parse_args()

    print(f"{options.run.name}; {conditions()}")
    print("| time | point | rate | probability | not told apart from | together | may be no better than |")
    print("| ---: | --- | ---: | ---: | --- | ---: | --- |")
    places: list[FrontPlace] = []
    decided: list[Decided] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, options.times + 1):
            run = _decided_anew(options.run, Path(folder) / f"{number}")
            places += _points(number, run)
            decided.append(_orders(run))
    time.sleep(60 * options.minutes_later)
    fresh = _measured_again({pair for orders in decided for pair in orders}, options)
    turned = 0
    print("\n| pair | decided | measured again | turned |\n| --- | ---: | ---: | --- |")
    for pair, estimate in ((pair, estimate) for orders in decided for pair, estimate in orders.items()):
        again = fresh[pair]
        turns = again.high < 0 < estimate.mean or estimate.mean < 0 < again.low
        turned += turns
        cells = (" / ".join(pair), format_ratio(*estimate.ratio), format_ratio(*again.ratio), "yes" if turns else "no")
        print("| " + " | ".join(cells) + " |")
    orders = sum(map(len, decided))
    settled = sum(place.together >= SETTLED for place in places)
    named = sum(place.together < SETTLED and bool(place.superior) for place in places)
    figures = {"points": len(places), "settled": settled, "named": named, "orders": orders, "turned": turned}
    print(json.dumps({"deciding": figures}))


def _decided_anew(folder: Path, copy: Path) -> Run:
    """Copy a run, forget what came after its search, and have it decided again."""
    shutil.copytree(folder, copy)
    journal = copy / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["event"] not in AFTER_THE_SEARCH]
    journal.write_text("".join(kept))
    command = [sys.executable, "-m", "search.run", "--resume", str(copy), "--no-dashboard"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return load(copy)


def _points(number: int, run: Run) -> list[FrontPlace]:
    """Print the points of a front and return them."""
    state = run.state
    for place in (places := front_places(state)):
        cells = (
            f"{number}",
            place.point.trial_id,
            format_number(place.point.metrics[state.rate_metric]),
            format_percent(place.probability),
            ", ".join(trial.trial_id for trial in place.alternatives),
            format_percent(place.together),
            ", ".join(trial.trial_id for trial in place.superior),
        )
        print("| " + " | ".join(cells) + " |", flush=True)
    return places


def _orders(run: Run) -> Decided:
    """Return the pairs that had turns and of which one is surely faster."""
    found = {(a.trial_id, b.trial_id): run.state.rate_ratio(a, b) for a, b in run.state.pairs}
    return {pair: ratio for pair, ratio in found.items() if ratio and ratio.is_decided and not ratio.is_tie}


def _measured_again(pairs: set[tuple[str, str]], options: Any) -> Mapping[tuple[str, str], Estimate]:
    """Return the ratio of each pair from turns in new processes."""
    run, found = load(options.run), {}
    for pair in sorted(pairs):
        one, other = (run.state.trials[name].config for name in pair)
        with ExitStack() as stack:
            group = TurnGroup([*same_data(run, options.run), *assignments(one)], [{}, other])
            stack.callback(group.close)
            rates = [group.round() for _ in range(options.rounds)]
        estimate = log_ratio([(each[0], each[1]) for each in rates])
        assert estimate is not None
        found[pair] = estimate
    return found


if __name__ == "__main__":
    main()
