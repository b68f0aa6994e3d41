"""The driver killed at any moment, again and again within one run: nothing finished is lost, nothing is done twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from search.record.events import Measurement
from search.record.journal import FILE_NAME, read_journal
from search.results import load
from search.space.space import Space
from tests.faults.processes import SPACE, descendants, gone, measured, named, running, wait_for
from tests.faults.simulation import Killed, a_space, facts, killing, simulate
from tests.forks import context

TRIALS = 12  # more than the processes can do before the last of them is killed


@pytest.mark.parametrize(("searcher", "trials"), [("gp", 8), ("tpe", 14), ("nsga2", 24), ("random", 6)])
def test_a_search_killed_after_every_event_is_the_search_that_was_never_killed(
    searcher: str, trials: int, tmp_path: Path
) -> None:
    """A run that is killed 30 times or more proposes the same trials as one that is not.

    The run has more trials than each sampler draws at random before it uses the measurements: only a sampler that has
    been told all of them proposes the same.
    """
    space = a_space(searcher={"name": searcher}, budget={"trials": trials, "epochs": 3})
    whole = facts(simulate(tmp_path / "whole", space))
    kills = 0
    while True:
        try:
            events = simulate(tmp_path / "killed", space, [killing(lambda number: number == 2)])
            break
        except Killed:
            kills += 1
            assert kills < 10 * trials
    assert kills >= 30
    assert facts(events) == whole


def test_a_trial_that_was_told_to_stop_does_not_go_on_after_a_kill(tmp_path: Path) -> None:
    space = a_space(searcher={"name": "gp"}, stopping={"name": "forecast"}, budget={"trials": 12, "epochs": 3})
    whole = facts(simulate(tmp_path / "whole", space))
    assert sum(fact[-1] == "stopped" for fact in whole) >= 3
    stopped = [number for number, fact in enumerate(whole) if fact[-1] == "stopped"]

    def between(number: int) -> bool:
        *_, last = read_journal(tmp_path / "killed" / FILE_NAME)
        return isinstance(last, Measurement) and last.decision == "stop"

    for _ in stopped:
        with pytest.raises(Killed):
            simulate(tmp_path / "killed", space, [killing(between)])
    assert facts(simulate(tmp_path / "killed", space)) == whole


@pytest.mark.parametrize("seed", range(4))
def test_a_search_killed_at_random_bytes_of_its_journal_loses_and_repeats_nothing(seed: int, tmp_path: Path) -> None:
    """As the kernel leaves a file whose writer is killed, or the disk one whose power is cut: 20 times in one run."""
    generator = random.Random(seed)
    space, folder = a_space(), tmp_path / "killed"
    whole = facts(simulate(tmp_path / "whole", space))
    for _ in range(20):
        with pytest.raises(Killed):
            simulate(folder, space, [killing(generator.randrange(2, 5).__eq__)])
        content = (folder / FILE_NAME).read_bytes()
        last_line = content.rstrip(b"\n").rpartition(b"\n")[0]
        if len(read_journal(folder / FILE_NAME)) > 1:  # within the last record, or behind it
            cut = generator.randrange(len(last_line) + 1, len(content) + 1)
            (folder / FILE_NAME).write_bytes(content[:cut])
    events = simulate(folder, space)
    assert facts(events) == whole
    assert load(folder).trials["config.learning_rate"].is_unique


def slowly(folder: Path, space: Space) -> None:
    """In a process and a session of its own, 5 ms an event."""
    os.setsid()
    simulate(folder, space, [lambda event: time.sleep(0.005)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_process_killed_25_times_loses_and_repeats_nothing(seed: int, tmp_path: Path) -> None:
    """Kill -9 for real, at any moment, also while it writes: 100 in all. Without Ray, which takes seconds to start."""
    generator = random.Random(seed)
    space, folder = a_space(budget={"trials": 50, "epochs": 3}), tmp_path / "killed"
    whole = facts(simulate(tmp_path / "whole", space))
    journal, before = folder / FILE_NAME, dict[tuple[str, int], object]()
    for _ in range(25):
        seen = journal.stat().st_size if journal.exists() else 0
        process = context.Process(target=slowly, args=(folder, space))
        process.start()
        while not journal.exists() or journal.stat().st_size <= seen:  # so that each gets somewhere
            assert process.is_alive()
            time.sleep(0.001)
        time.sleep(generator.uniform(0.0, 0.03))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        now = measured(folder)
        assert before.items() <= now.items()
        before = now
    assert facts(simulate(folder, space)) == whole
    assert load(folder).trials["config.learning_rate"].is_unique


def killed_at_random(folder: Path, cwd: Path, kills: int, seed: int, arguments: tuple[str, ...] = ()) -> None:
    """Run, kill -9 at some moment of the work, check, resume; in the end let it come to its end, and check all."""
    generator = random.Random(seed)
    before: dict[tuple[str, int], object] = {}
    command: tuple[str, ...] = ("space.yaml", "--name", folder.name, *arguments)
    for number in range(kills):
        with running(*command, cwd=cwd) as process:
            opened = 1 if number == 0 else number + 1
            wait_for(folder / FILE_NAME, rf'(?s)("event":"(run|resume)".*){{{opened}}}', process)
            seen = len(before)
            while len(measured(folder)) <= seen:  # so that each process gets somewhere
                assert process.poll() is None
                time.sleep(0.01)
            time.sleep(generator.uniform(0.0, 0.5))
            workers = named(descendants(process), "ray::RayTrain")
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            assert gone(workers, 30) == [], "nobody trains on for a driver that is dead"
        now = measured(folder)
        assert before.items() <= now.items()
        before = now
        command = ("--resume", str(folder))
    with running(*command, cwd=cwd) as process:
        assert process.wait(300) == 0, (cwd / "printed").read_text()
    assert before.items() <= measured(folder).items()
    trials = load(folder).trials
    assert trials.state.tolist() == ["complete"] * TRIALS
    assert trials.epochs.tolist() == [3] * TRIALS
    assert trials["config.learning_rate"].is_unique
    counts = Counter((e.event, getattr(e, "trial_id", None)) for e in read_journal(folder / FILE_NAME))
    assert {counts[event, t] for event in ("start", "finish") for t in trials.trial_id} == {1}
    assert "measurement resume measurement" in " ".join(e.event for e in read_journal(folder / FILE_NAME))


@pytest.mark.slow
@pytest.mark.timeout(900)  # on a busy machine
def test_a_run_killed_three_times_is_the_run_that_was_never_killed(tmp_path: Path) -> None:
    """In processes, at random moments; the choices are those of the same search simulated, so the sampler saw all."""
    slow = SPACE.replace("seconds_per_epoch: 0.1", "seconds_per_epoch: 0.3")
    (tmp_path / "space.yaml").write_text(slow.replace("trials: 8", f"trials: {TRIALS}"))
    killed_at_random(tmp_path / "results" / "run", tmp_path, kills=3, seed=0)
    trials = load(tmp_path / "results" / "run").trials
    space = a_space(
        parameters={"learning_rate": {"min": 0.001, "max": 0.5, "log": True}},
        fixed={"seconds_per_epoch": 0.3},
        budget={"trials": TRIALS, "epochs": 3},
    )
    simulate(tmp_path / "simulated", space)
    expected = load(tmp_path / "simulated").trials
    assert trials["config.learning_rate"].tolist() == expected["config.learning_rate"].tolist()
    assert trials.val_accuracy.tolist() == expected.val_accuracy.tolist()
