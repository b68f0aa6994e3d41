"""Hooks into Ray's private interfaces: used with tested versions only; any other Ray runs without them and says so."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import ray
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.train import ControllerError
from ray.train.v2._internal.exceptions import WorkerGroupStartupFailedError, WorkerGroupStartupTimeoutError
from ray.train.v2._internal.execution.failure_handling import DefaultFailurePolicy, FailureDecision
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from search.execution import ray_hooks, trainer
from search.execution.group import START_TIMEOUT_SECONDS
from search.results import load
from tests.faults.processes import SPACE
from trainables.contract import Layout


def started_with(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the settings of `ray.init`, and what it finds in place of Ray's private names."""
    found: dict[str, Any] = {}

    def init(**settings: Any) -> None:
        found.update(settings, popen=ray._private.services.ConsolePopen)
        found["listens_on_all"] = ray._private.ray_constants.ENABLE_RAY_CLUSTER

    monkeypatch.setattr(ray, "init", init)
    ray_hooks.init_ray(num_cpus=1)
    return found


def test_the_range_in_pyproject_is_what_the_hooks_were_tested_on() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    major, minor = map(int, ray_hooks.TESTED_VERSIONS[-1].split("."))
    expected = f"ray[default,tune,train]>={ray_hooks.TESTED_VERSIONS[0]},<{major}.{minor + 1}"
    assert expected in project["dependencies"]


def test_a_tested_ray_is_started_with_the_hooks_and_gets_its_own_names_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "__version__", f"{ray_hooks.TESTED_VERSIONS[0]}.7")
    own_popen = ray._private.services.ConsolePopen
    found = started_with(monkeypatch)
    assert (found["num_cpus"], found["listens_on_all"]) == (1, False)
    assert found["popen"] is not own_popen
    assert ray._private.services.ConsolePopen is own_popen
    assert issubclass(ray_hooks.trainer_class(hooks=True), DataParallelTrainer)
    assert ray_hooks.trainer_class(hooks=True) is not DataParallelTrainer
    assert ray_hooks.notices() == []


@pytest.mark.parametrize("version", ["2.50.1", "2.61.0", "2.600.0", "3.0.0.dev0"])
def test_an_unknown_ray_is_used_by_its_public_interface_and_the_run_says_so(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "__version__", version)
    found = started_with(monkeypatch)
    assert found["listens_on_all"]
    assert found["popen"] is ray._private.services.ConsolePopen
    assert ray_hooks.trainer_class(ray_hooks.are_tested()) is DataParallelTrainer
    assert ray_hooks.session_folder() is None
    (notice,) = ray_hooks.notices()
    assert notice.startswith(f"Ray {version} is not tested")
    assert "slower" in notice


def test_tune_takes_an_actor_that_ray_ended_for_lack_of_memory_for_a_lost_one() -> None:
    manager, task = Mock(), Mock()
    full = ray.exceptions.OutOfMemoryError("the node is full")
    with pytest.raises(RuntimeError, match="unexpected"):
        RayActorManager._actor_task_failed(manager, tracked_actor_task=task, exception=full)
    with ray_hooks.actors_may_run_out_of_memory():
        RayActorManager._actor_task_failed(manager, tracked_actor_task=task, exception=full)
    ((actor, error), _) = task._on_error.call_args
    assert actor is task._tracked_actor
    assert isinstance(error, ray.exceptions.RayActorError)
    assert "the node is full" in str(error)


PASSED_ON = """
import search.execution.trainer
from ray.train.v2._internal.constants import get_env_vars_to_propagate
print(get_env_vars_to_propagate())
"""


def test_what_ray_train_reads_is_set_where_groups_are_started_which_may_not_have_the_drivers_environment() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_TRAIN_")}
    command = [sys.executable, "-c", PASSED_ON]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    off = ("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING")
    seconds = {"HEALTH_CHECK_INTERVAL": "1", "WORKER_GROUP_START_TIMEOUT": f"{START_TIMEOUT_SECONDS}"}
    expected = {**{f"RAY_TRAIN_{name}_S": value for name, value in seconds.items()}, **dict.fromkeys(off, "0")}
    assert ast.literal_eval(said.stdout.splitlines()[-1]) == expected


def test_a_group_that_does_not_start_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool starts another one, with which it would compete for the nodes."""
    made = Mock()
    monkeypatch.setattr(trainer, "trainer_class", lambda hooks: made)
    trainer.run_group(Mock(), 1, Layout(1), 1.0, None, "", 60.0, hooks=False)
    policy = DefaultFailurePolicy(made.call_args.kwargs["run_config"].failure_config)
    for error in (WorkerGroupStartupTimeoutError(num_workers=1), WorkerGroupStartupFailedError("a process died")):
        assert policy.make_decision(ControllerError(error)) is FailureDecision.RAISE


WITHOUT_HOOKS = """
import sys
from search.execution import ray_hooks
from search.run import main
ray_hooks.TESTED_VERSIONS = ("1.0",)
sys.exit(main(["space.yaml", "--name", "run", "--no-dashboard"]))
"""


@pytest.mark.slow
def test_a_search_without_the_hooks_finishes_and_says_what_is_slower(tmp_path: Path) -> None:
    """Trials have one process, or two, which need a process group."""
    space = SPACE.replace("trials: 8, epochs: 3", "trials: 4, epochs: 2")
    (tmp_path / "space.yaml").write_text(space.replace("parameters:\n", "parameters:\n  processes: {values: [1, 2]}\n"))
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_HOOKS], cwd=tmp_path, capture_output=True, text=True, timeout=350, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    trials = load(tmp_path / "results" / "run").trials
    assert trials.state.tolist() == ["complete"] * 4, trials.reason.tolist()
    (said,) = [line for line in ended.stdout.splitlines() if line.startswith(f"Ray {ray.__version__} is not tested")]
    assert "slower" in said
