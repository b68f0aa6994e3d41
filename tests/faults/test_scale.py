"""A long run: 1,000 trials of 50 epochs cost the driver less than 200 MB, and less than 20 ms a report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import io, json, resource, statistics, sys, time
from pathlib import Path
from rich.console import Console
from search.execution.dashboard import Metrics
from search.execution.trial_actor import Finished, Measured
from search.record.journal import FILE_NAME, Journal
from search.record.run_state import RunState
from search.terminal.progress import Progress
from search.advisor.proposal import Decision
from search.study.study import Study
from tests.faults.simulation import a_space, opening
from trainables.contract import Resources
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10

# of a trial on a GPU; the others are of certain strategies
REPORTED = [
    m
    for m in vgg19_cifar10.METRICS or ()
    if not m.startswith(("test_", "gradient_", "nodes")) and "imbalance" not in m
]

class Gauge:
    def set(self, value, tags):
        pass

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

trials, epochs, searcher = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
space = a_space(searcher={"name": searcher}, budget={"trials": trials, "epochs": epochs})
folder = Path(sys.argv[1])
(folder / "trials").mkdir()
reports, before = [], 0.0
console = Console(file=io.StringIO())
run_state = RunState()
progress, metrics = Progress(run_state, console), Metrics(run_state, lambda *about: Gauge())
with progress, Journal(folder / FILE_NAME, [progress, metrics], run_state=run_state) as journal:
    journal.append("run", **opening(space))
    study = Study(space, space.data, folder, journal, Resources(cpus=1), "pool")
    before = peak()
    while (proposal := study.propose()) is not None:
        for epoch in range(1, epochs + 1):
            measured = {name: 0.5 + 1e-6 * epoch for name in REPORTED}
            measured |= {"val_accuracy": epoch / (epoch + 5), "images_per_second": 1e3 + len(reports) % 977}
            asked = time.process_time()
            study.observe(proposal.trial_id, Measured(epoch, measured, float(epoch), 0.0))
            reports.append(time.process_time() - asked)
        asked = time.process_time()
        study.finish(proposal.trial_id, Finished("complete", None, 1.0, 0.0))
        reports.append(time.process_time() - asked)
tail = reports[-10 * epochs:]
print(json.dumps({"reports": len(reports), "mb": peak() - before, "ms_mean": 1e3 * statistics.mean(reports),
                  "ms_mean_of_the_last": 1e3 * statistics.mean(tail), "ms_worst": 1e3 * max(reports)}))
"""


def figures(folder: Path, trials: int, epochs: int, searcher: str = "random") -> dict[str, float]:
    command = [sys.executable, "-c", SCRIPT, str(folder), str(trials), str(epochs), searcher]
    done = subprocess.run(command, capture_output=True, text=True, timeout=290, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_a_thousand_trials_of_50_epochs_fit_into_the_driver(tmp_path: Path) -> None:
    """With all the metrics of the real network in each report, the live view and the gauges; time of the processor."""
    found = figures(tmp_path, trials=1000, epochs=50)
    assert found["reports"] == 51_000
    assert found["mb"] < 200, found
    assert found["ms_mean"] < 20, found
    assert found["ms_mean_of_the_last"] < 20, found
