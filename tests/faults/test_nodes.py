"""A trial on one node or several of a Ray cluster, through the command line as a user has it."""

from __future__ import annotations

import itertools
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from search.record.events import Wait
from search.record.journal import FILE_NAME, read_journal
from search.results import Run, load
from search.space.parsing import parse_space
from tests.trainables.own_files import written
from trainables.contract import Resources

SPACE = """\
trainable: vgg19_cifar10
objectives:
  - {metric: val_accuracy, goal: maximize}
  - {metric: images_per_second, goal: maximize}
parameters:
  placement: {values: [pack, spread]}
fixed: {strategy: ddp, world_size: 2, threads: 1, batch_size: 64, width: 0.0625, conv_kernel: library}
data: {name: generated, train_images: 512, val_images: 64}
searcher: {name: grid}
budget: {epochs: 1, repeats: 0}
"""

ON_NODES = """\
import subprocess, sys, threading, time
from pathlib import Path
import ray
joined = []
from ray.core.generated import autoscaler_pb2
from ray.cluster_utils import Cluster
from ray.util import placement_group_table
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
labels = {"role": "train"} if "--labels" in sys.argv else None
others = [cluster.add_node(num_cpus=2, labels=labels) for _ in range(int(sys.argv[1]) - 1)]
if "--mixed" in sys.argv:
    for kind in ("A100", "H100"):
        cluster.add_node(num_cpus=2, num_gpus=8, labels={"ray.io/accelerator-type": kind})
cluster.wait_for_nodes()

def wait_for_a_measurement():
    journal = Path("results/run/journal.jsonl")
    while not (journal.exists() and '"measurement"' in journal.read_text()):
        time.sleep(0.05)

def used_node():
    groups = [group for group in placement_group_table().values() if group["state"] == "CREATED"]
    used = {node for group in groups for node in group["bundles_to_node_id"].values()}
    return next(node for node in others if node.node_id in used)

def lose_a_node():
    wait_for_a_measurement()
    cluster.remove_node(used_node(), allow_graceful=False)

def drain_a_node():
    wait_for_a_measurement()
    node, deadline = used_node(), time.time_ns() // 10**6 + 60_000
    client = ray._raylet.GcsClient(address=cluster.address)
    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    assert client.drain_node(node.node_id, reason, "preempted", deadline)[0]
    while '"retry"' not in Path("results/run/journal.jsonl").read_text():
        time.sleep(0.05)
    cluster.remove_node(node, allow_graceful=False)

def add_a_node():  # in a process of its own: Cluster.add_node works in the main thread only
    wait_for_a_measurement()
    program = str(Path(sys.executable).parent / "ray")
    command = [program, "start", "--block", "--address", cluster.address, "--num-cpus", "2"]
    joined.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

def lose_the_file():
    while not Path("results/run/source/rows.py").exists():
        time.sleep(0.005)
    Path("rows.py").unlink()

if "--lose-a-node" in sys.argv:
    threading.Thread(target=lose_a_node, daemon=True).start()
if "--drain-a-node" in sys.argv:
    threading.Thread(target=drain_a_node, daemon=True).start()
if "--add-a-node" in sys.argv:
    threading.Thread(target=add_a_node, daemon=True).start()
if "--lose-the-file" in sys.argv:
    threading.Thread(target=lose_the_file, daemon=True).start()
from search.run import main
chosen = ["--nodes", "role=train"] if labels else []
code = main(["space.yaml", "--address", cluster.address, "--name", "run", "--no-dashboard", *chosen])
for process in joined:
    process.terminate()
    process.wait(30)
cluster.shutdown()
sys.exit(code)
"""


def command_on_nodes(folder: Path, number: int, space: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command on a cluster."""
    (folder / "space.yaml").write_text(space)
    command = [sys.executable, "-c", ON_NODES, str(number), *options]
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # the same for all of its processes
    variables["TRAINING_SEARCH_TIMEOUT_SECONDS"] = "15"
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, timeout=350, check=False
    )


def run_on_nodes(folder: Path, number: int, space: str, *options: str) -> Run:
    """Run the command on a cluster; return its results. It must exit with 0."""
    ended = command_on_nodes(folder, number, space, *options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return load(folder / "results" / "run")


@pytest.mark.slow
def test_processes_are_packed_on_one_node_or_spread_over_two(tmp_path: Path) -> None:
    trials = run_on_nodes(tmp_path, 2, SPACE).trials.set_index("config.placement")
    assert trials.state.tolist() == ["complete", "complete"], trials.reason.tolist()
    assert (trials.nodes["pack"], trials.nodes["spread"]) == (1, 2)
    summary = " ".join((tmp_path / "results" / "run" / "summary.md").read_text().split())
    assert "- Nodes: 2 in the cluster; placement pack: trials on 1; placement spread: trials on 2" in summary


@pytest.mark.slow
def test_trials_run_on_the_nodes_with_the_wanted_label_alone(tmp_path: Path) -> None:
    """Four processes, spread over two of three nodes."""
    space = SPACE.replace("placement: {values: [pack, spread]}", "batch_size: {values: [64]}")
    space = space.replace("world_size: 2, ", "world_size: 4, placement: spread, ").replace("batch_size: 64, ", "")
    run = run_on_nodes(tmp_path, 3, space, "--labels")
    assert run.trials.state.tolist() == ["complete"], run.trials.reason.tolist()
    assert run.trials.nodes.tolist() == [2]
    assert run.info.machine.num_nodes == 2


@pytest.mark.slow
def test_nodes_of_several_kinds_are_refused_with_what_tells_them_apart(tmp_path: Path) -> None:
    ended = command_on_nodes(tmp_path, 1, SPACE, "--mixed")
    assert ended.returncode == 2
    assert re.search(
        r"nodes of 2 kinds: 1 of .* with A100 \(ray.io/accelerator-type=A100\); 1 of .* with H100 "
        r"\(ray.io/accelerator-type=H100\); choose one with --nodes LABEL=VALUE$",
        ended.stderr.strip(),
    ), ended.stderr
    assert not (tmp_path / "results").exists()


LOSING = (
    SPACE.replace("epochs: 1", "epochs: 3")
    .replace("train_images: 512", "train_images: 2000")
    .replace("{strategy", "{placement: spread, strategy")
)


@pytest.mark.slow
def test_a_trial_whose_node_is_gone_goes_on_from_its_checkpoint_on_others(tmp_path: Path) -> None:
    """Lost as by a cut cable: the raylet and all that ran there, when the trial has told of its first epoch."""
    space = LOSING.replace("placement: {values: [pack, spread]}", "seed: {values: [0, 1]}")
    run = run_on_nodes(tmp_path, 3, space, "--lose-a-node")
    assert run.trials.state.tolist() == ["complete", "complete"], run.trials.reason.tolist()
    assert run.trials.retries.tolist() == [1, 0]
    assert run.trials.epochs.tolist() == [3, 3]
    assert len(run.curves) == 6


@pytest.mark.slow
def test_a_trial_leaves_a_node_that_will_be_taken_away_before_it_is(tmp_path: Path) -> None:
    """As before a preemption, of which the cloud tells a minute or two before."""
    space = LOSING.replace("placement: {values: [pack, spread]}", "seed: {values: [0, 1]}")
    run = run_on_nodes(tmp_path, 3, space, "--drain-a-node")
    assert run.trials.state.tolist() == ["complete", "complete"], run.trials.reason.tolist()
    assert run.trials.epochs.tolist() == [3, 3]
    journal = (tmp_path / "results" / "run" / "journal.jsonl").read_text()
    assert journal.count("its node will soon be taken away") == 1


@pytest.mark.slow
def test_a_node_that_joins_runs_another_trial_at_the_same_time(tmp_path: Path) -> None:
    space = LOSING.replace("placement: {values: [pack, spread]}", "seed: {values: [0, 1, 2, 3, 4, 5]}")
    space = space.replace("placement: spread, ", "").replace("world_size: 2", "world_size: 1")
    run = run_on_nodes(tmp_path, 1, space, "--add-a-node")
    assert run.trials.state.tolist() == ["complete"] * 6, run.trials.reason.tolist()
    events = [
        event for event in read_journal(tmp_path / "results/run" / FILE_NAME) if event.event in ("start", "finish")
    ]
    running = list(itertools.accumulate(1 if event.event == "start" else -1 for event in events))
    assert max(running) == 2, running  # when the node is there
    assert len(run.curves) == 18


@pytest.mark.slow
def test_a_trial_that_needs_the_node_that_is_gone_fails_and_others_do_not(tmp_path: Path) -> None:
    space = LOSING.replace("placement: {values: [pack, spread]}", "world_size: {values: [2, 1]}")
    rows: Any = run_on_nodes(tmp_path, 2, space.replace("world_size: 2, ", ""), "--lose-a-node").trials.iloc
    wide, narrow = rows
    assert (wide.state, wide.retries) == ("failed", 2)  # the loss of the node costs no retry
    events = read_journal(tmp_path / "results/run" / FILE_NAME)
    waits = [event.reason for event in events if isinstance(event, Wait)]
    assert "waits for 2 processes with 2 cores each; the cluster has lost nodes, and 2 cores left" in waits
    assert 1 <= wide.epochs < 3  # those before its node was gone
    assert "2 processes with 2 cores each: more than the 2 cores that the cluster still has" in wide.reason
    assert (narrow.state, narrow.retries, narrow.epochs) == ("complete", 0, 3)


@pytest.mark.slow
def test_nodes_without_a_users_file_train_its_copy(tmp_path: Path) -> None:
    """The file is gone before a node could read it, as where only the driver's machine has it."""
    written(tmp_path, "rows.py")
    space = (
        SPACE.replace("vgg19_cifar10", "rows.py").replace("val_accuracy", "val_sign").replace("images_per", "rows_per")
    )
    space = space.replace("batch_size: 64, width: 0.0625, conv_kernel: library", "batch_size: 8")
    space = space.replace("data: {name: generated, train_images: 512, val_images: 64}\n", "")
    trials = run_on_nodes(tmp_path, 2, space, "--lose-the-file").trials.set_index("config.placement")
    assert not (tmp_path / "rows.py").exists()
    assert trials.state.tolist() == ["complete", "complete"], trials.reason.tolist()
    assert (trials.nodes["pack"], trials.nodes["spread"]) == (1, 2)


@pytest.mark.parametrize(
    ("trials", "whole", "each"),
    [
        (1, Resources(8, 2), Resources(8, 2)),
        (2, Resources(8, 2), Resources(4, 1)),
        (1, Resources(24, 6, 3), Resources(24, 6, 3)),
        (3, Resources(24, 6, 3), Resources(8, 2)),
        (2, Resources(32, 8, 4), Resources(16, 4, 2)),  # whole nodes
        (2, Resources(24, 6, 3), Resources(8, 2)),  # one node is left over
        (3, Resources(16, 4, 2), Resources(4, 1)),  # parts of a node
    ],
)
def test_concurrent_trials_share_nodes_before_they_share_cores(trials: int, whole: Resources, each: Resources) -> None:
    keys: dict[str, Any] = {
        "objectives": [{"metric": m, "goal": "maximize"} for m in "ab"],
        "parameters": {"x": {"values": [1]}},
    }
    keys |= {"budget": {"trials": 1}}
    assert parse_space({**keys, "concurrent_trials": trials}).resources_per_trial(whole) == each
