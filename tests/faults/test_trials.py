"""Trials that hang, say nothing, run out of memory or lose a process; all of them fail; Ray itself is killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from filelock import FileLock

from search.execution import worker_loop
from search.execution.hang_detector import Work, hang_detector, measure_work
from search.execution.ray_watchdog import watchdog
from search.record.events import Event, Finish, Measurement, Retry, Start
from search.record.journal import FILE_NAME, read_journal
from search.results import Run, load
from search.study.shutdown import finish_run
from tests.faults.processes import SPACE, descendants, measured, named, printed, running, wait_for
from tests.faults.simulation import a_space, opening
from tests.search.test_study_on_ray import study
from trainables.contract import TIMEOUT_VARIABLE, HelperLostError, waiting
from trainables.machine.locks import locked

ONE_AFTER_THE_OTHER: dict[str, Any] = {"searcher": {"name": "grid"}, "budget": {"epochs": 2}}
IDLE = Work(0.0, 0.0)

Left = tuple[list[psutil.Process], dict[str, list[psutil.Process]]]


def left_behind() -> list[psutil.Process]:
    """The processes that the trainable `replay` starts to be left behind."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found += [process] * ("time.sleep(1e6)" in " ".join(process.cmdline()))
    return found


@pytest.fixture(scope="module")
def hung(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Left]:
    """A trial that starts a process and hangs, one that starts one and is over, one that takes all memory, a good one.

    With the processes found within the first, and at the end of each.
    """
    started: list[psutil.Process] = []
    at_end: dict[str, list[psutil.Process]] = {}

    def look(event: Event) -> None:
        if isinstance(event, Measurement) and event.trial_id == "t0001":
            threading.Timer(1.0, lambda: started.extend(left_behind())).start()
        if isinstance(event, Finish):
            at_end[event.trial_id] = left_behind()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TIMEOUT_VARIABLE, "3")
        run = study(
            cluster,
            tmp_path_factory.mktemp("results") / "hung",
            [look],
            trainable="tests.faulty_replay",
            parameters={
                "fail_at_epoch": {"values": [2, 0]},
                "fail_with": {"values": ["child", "silence", "memory"], "when": {"fail_at_epoch": 2}},
            },
            **ONE_AFTER_THE_OTHER,
        )
    return run, (started, at_end)


def row(run: Run, fail_with: str) -> Any:
    return run.trials[run.trials["config.fail_with"] == fail_with].squeeze()


@pytest.mark.slow
def test_a_trial_that_does_nothing_for_long_is_ended_and_says_so(hung: tuple[Run, Left]) -> None:
    trial = row(hung[0], "child")
    assert (trial.state, trial.reason, trial.epochs) == ("failed", "rank 0 did nothing for 3 s", 1)
    assert trial.seconds < 20


@pytest.mark.slow
def test_a_trial_that_returns_too_early_has_failed(hung: tuple[Run, Left]) -> None:
    trial = row(hung[0], "silence")
    assert trial.state == "failed"
    assert trial.reason == "it returned without having reported more than epoch 1 of 2"


@pytest.mark.slow
def test_want_of_host_memory_is_infeasible_is_not_tried_again_and_leaves_the_memory_to_the_next(
    hung: tuple[Run, Left],
) -> None:
    trial = row(hung[0], "memory")
    assert (trial.state, trial.retries) == ("infeasible", 0)
    assert trial.reason.startswith("out of host memory")
    assert hung[0].trials.state.tolist()[-1] == "complete"


@pytest.mark.slow
def test_within_5_seconds_no_process_of_an_ended_trial_lives(hung: tuple[Run, Left]) -> None:
    _, (started, at_end) = hung
    assert len(started) == 1, "the trial had started one"
    _, alive = psutil.wait_procs(started, timeout=5)
    assert not alive
    assert at_end["t0002"] == [], "whose worker lives on"
    assert not left_behind()


def hangs(work: list[Work], timeout: float = 0.2, seconds: float = 0.4, waits: bool = False) -> bool:
    """Whether a task whose work grows like this is taken to hang."""
    found = threading.Event()
    steps = iter(work)
    last = [IDLE]

    def next_work() -> Work:
        last[0] = next(steps, last[0])
        return last[0]

    with hang_detector(timeout, found.set, next_work), waiting() if waits else contextlib.nullcontext():
        found.wait(seconds)
    return found.is_set()


def test_a_task_hangs_if_it_neither_computes_nor_reads_nor_waits_for_an_answer() -> None:
    assert hangs([IDLE])
    assert not hangs([Work(float(i), 0.0) for i in range(100)])
    assert not hangs([Work(0.0, 1e6 * i) for i in range(100)])
    assert not hangs([Work(float(i // 3), 0.0) for i in range(100)], seconds=0.8), "it rested now and then"
    assert not hangs([IDLE], waits=True)
    assert not hangs([IDLE, IDLE, IDLE, *[Work(float(i), 0.0) for i in range(100)]]), "it was slow, and went on"


def test_a_task_that_reports_now_and_then_does_not_hang() -> None:
    found = threading.Event()
    with hang_detector(0.2, found.set, lambda: IDLE):
        for _ in range(15):
            time.sleep(0.04)
            with waiting():
                pass
    assert not found.is_set()


def test_a_task_that_waits_for_what_another_process_prepares_does_not_hang(tmp_path: Path) -> None:
    def take() -> None:
        with locked(tmp_path / "pictures.lock"):
            pass

    found, waiter = threading.Event(), threading.Thread(target=take)
    holder = FileLock(tmp_path / "pictures.lock")
    holder.acquire()
    waiter.start()
    with hang_detector(0.2, found.set, lambda: IDLE):
        assert not found.wait(0.6)
        holder.release()
        waiter.join()
        assert found.wait(5), "it has what it waited for, and does nothing"


def test_all_trials_fail_is_exit_1_with_reasons_grouped_and_files_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from search.record.journal import Journal

    with Journal(tmp_path / FILE_NAME) as journal:
        journal.append("run", **opening(a_space()))
        for number in range(1, 7):
            name = f"t{number:04d}"
            journal.append("start", trial_id=name, config={"learning_rate": 0.1, "batch_size": 64}, kind="train")
            reason = f"RuntimeError: no luck with {number}" if number < 5 else "ValueError: another thing"
            journal.append("finish", trial_id=name, state="failed", reason=reason, seconds=1.0, setup_seconds=0.0)
        journal.append("end", reason="budget.trials is spent")
    assert finish_run(tmp_path, "the command") == 1
    out = capsys.readouterr().out
    assert "failed, 4 trials (t0001, t0002, t0003 and t0004): RuntimeError: no luck with 1" in out
    assert "failed, 2 trials (t0005 and t0006): ValueError: another thing" in out
    assert {"summary.md", "trials.csv", "trials.parquet"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("locked", [False, True])
def test_a_loader_process_that_is_killed_is_not_the_configurations_fault(locked: bool) -> None:
    """It is told apart from what is raised in such a process, which is. It may have held a lock of all of them."""
    import numpy as np
    import torch

    from trainables.plan import Plan
    from trainables.samples.loaders import training_batches
    from trainables.samples.picture_source import Pictures
    from trainables.stages import Timeline

    images, labels = np.zeros((600, 32, 32, 3), dtype=np.uint8), np.zeros(600, dtype=np.int64)
    plan = Plan(np.arange(600), batch_size=4, seed=0)
    device = torch.device("cpu")
    batches = training_batches("workers", Pictures(images, labels, 10), plan, device, num_workers=1, pin_memory=False)
    before = signal.getsignal(signal.SIGCHLD)
    try:
        with contextlib.closing(batches):
            epoch = batches.epoch(1, Timeline(device))
            next(epoch)
            (loader,) = multiprocessing.active_children()
            if locked:
                cast(Any, batches)._iterator._workers_done_event._shared._cond.acquire()
            # PyTorch's raises in the main thread, wherever that is; a search trains in another, where none does
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            loader.kill()
            with pytest.raises(HelperLostError, match=r"DataLoader worker \(pid"):
                for _ in epoch:
                    pass
    finally:
        signal.signal(signal.SIGCHLD, before)


class LoaderKiller:
    """Kills the loader processes of some trials, `times` each, a moment after their first epoch."""

    def __init__(self, times: dict[str, int]) -> None:
        self._left = dict(times)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Measurement | Retry) and self._left.get(event.trial_id, 0):
            self._left[event.trial_id] -= 1
            threading.Thread(target=self._kill, daemon=True).start()

    def _kill(self) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if process.name().startswith("pt_data_worker"):
                        process.kill()
                        return
            time.sleep(0.05)


@pytest.mark.slow
def test_a_lost_loader_process_costs_a_retry_from_the_checkpoint_and_a_second_one_the_trial(
    cluster: Any, tmp_path: Path
) -> None:
    run = study(
        cluster,
        tmp_path / "loaders",
        [LoaderKiller({"t0001": 1, "t0002": 2})],
        trainable="vgg19_cifar10",
        parameters={"seed": {"values": [0, 1, 2]}},
        fixed={
            **{"batch_size": 64, "width": 0.0625, "conv_kernel": "library", "learning_rate": 0.01},
            **{"loader": "workers", "num_workers": 1},
        },
        data={"name": "generated", "train_images": 1500, "val_images": 100},
        searcher={"name": "grid"},
        budget={"epochs": 2},
    )
    assert run.trials.state.tolist() == ["complete", "failed", "complete"], run.trials.reason.tolist()
    assert run.trials.retries.tolist() == [1, 1, 0]
    assert run.trials.epochs.tolist()[0] == 2
    assert run.trials.reason[1].startswith("DataLoader worker (pid")
    assert run.trials.reason[1].endswith("(after 1 retry)")


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["raylet", "gcs_server"])
def test_where_ray_is_killed_the_command_that_goes_on_is_told_within_60_seconds(tmp_path: Path, victim: str) -> None:
    """No trial is blamed for it: the one that was running goes on, also where more trials are asked for."""
    (tmp_path / "space.yaml").write_text(SPACE.replace("seconds_per_epoch: 0.1", "seconds_per_epoch: 0.5"))
    folder = tmp_path / "results" / "run"
    with running("space.yaml", "--name", "run", cwd=tmp_path) as process:
        wait_for(folder / FILE_NAME, r'"measurement",[^\n]*"t0002"', process)
        for each in named(descendants(process), victim):
            os.kill(each.pid, signal.SIGKILL)
        killed_at = time.monotonic()
        assert process.wait(90) == 1, printed(tmp_path)
        assert time.monotonic() - killed_at < 60
    lines = printed(tmp_path)
    assert lines[-1].strip() == f"python -m search.run --resume {Path('results') / 'run'} --no-dashboard", lines
    assert "Ray is gone: its" in lines[-2]
    assert "failed" not in load(folder).trials.state.tolist()
    before = measured(folder)
    if victim == "raylet":
        with running("--resume", folder, "--set", "budget.trials=9", cwd=tmp_path) as process:
            assert process.wait(300) == 0, printed(tmp_path)
        assert any("continues" in line for line in printed(tmp_path))
        assert before.items() <= measured(folder).items()
        assert load(folder).trials.state.tolist() == ["complete"] * 9
        assert (folder / "summary.md").exists()
        assert sorted(path.stem for path in folder.glob("*.parquet")) == ["curves", "differences", "front", "trials"]
        starts = [e.trial_id for e in read_journal(folder / FILE_NAME) if isinstance(e, Start)]
        assert len(starts) == len(set(starts)) == 9


def test_the_work_of_children_that_have_ended_counts() -> None:
    before = measure_work()
    work = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-S", "-c", work], check=True)
    assert measure_work().cpu_seconds - before.cpu_seconds >= 0.4


def test_a_watchdog_goes_on_after_a_question_that_fails() -> None:
    answers: Iterator[OSError | str | None] = iter([OSError("too many open files"), None, "gone"])
    found = threading.Event()

    def question() -> str | None:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    with watchdog(question, lambda answer: found.set(), poll_seconds=0.01):
        assert found.wait(5)


def test_an_error_with_a_name_that_is_no_text_keeps_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(config: object, worker: object) -> None:
        raise RuntimeError("cannot read \udcff.png")

    monkeypatch.setattr(worker_loop, "load_trainable", lambda name: SimpleNamespace(train=fail))
    task: Any = SimpleNamespace(trainable_here="x", function="train", config={}, rivals=())
    ended = worker_loop._run_task(task, cast(Any, SimpleNamespace(folder=tmp_path, rank=0)))
    assert ended.reason is not None
    assert ended.reason.startswith("RuntimeError: cannot read \udcff.png")
    assert (tmp_path / "error-rank0.txt").is_file()
