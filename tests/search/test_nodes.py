"""A trial on one node or several of a Ray cluster, through the command line as a user has it."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from search.execution.cluster import alike
from search.results import load
from search.space.space import parse_space
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
budget: {epochs: 1}
"""

TWO_NODES = """\
import sys, threading, time
from pathlib import Path
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
second = cluster.add_node(num_cpus=2)
cluster.wait_for_nodes()

def lose_the_second_node():
    journal = Path("results/run/journal.jsonl")
    while not (journal.exists() and '"measurement"' in journal.read_text()):
        time.sleep(0.05)
    cluster.remove_node(second, allow_graceful=False)

if "--lose-a-node" in sys.argv:
    threading.Thread(target=lose_the_second_node, daemon=True).start()
from search.run import main
code = main(["space.yaml", "--address", cluster.address, "--name", "run", "--no-dashboard"])
cluster.shutdown()
sys.exit(code)
"""


def run_on_two_nodes(folder: Path, space: str, *options: str) -> Path:
    """The run's folder; its command has ended well."""
    (folder / "space.yaml").write_text(space)
    command = [sys.executable, "-c", TWO_NODES, *options]
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # the same for all of its processes
    ended = subprocess.run(
        command, cwd=folder, env={**os.environ, **token}, capture_output=True, text=True, timeout=200, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder / "results" / "run"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_trial_whose_node_is_gone_goes_on_from_its_checkpoint_on_another(tmp_path: Path) -> None:
    """Killed as by a cut cable: the node's raylet and all that runs on it, in the second epoch of the first trial."""
    keys = {
        "placement: {values: [pack, spread]}": "seed: {values: [0, 1]}",
        "world_size: 2": "world_size: 2, placement: spread",
    }
    space = SPACE.replace("epochs: 1", "epochs: 3").replace("train_images: 512", "train_images: 4000")
    for old, new in keys.items():
        space = space.replace(old, new)
    run = load(run_on_two_nodes(tmp_path, space, "--lose-a-node"))
    assert run.trials.state.tolist() == ["complete", "complete"], run.trials.reason.tolist()
    assert run.trials.retries.tolist() == [1, 0]
    assert run.trials.epochs.tolist() == [3, 3]
    nodes = run.curves.groupby("trial_id").nodes
    assert (nodes.first()["t0001"], nodes.last()["t0001"], nodes.first()["t0002"]) == (2, 1, 1)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_processes_are_packed_on_one_node_or_spread_over_two(tmp_path: Path) -> None:
    run_on_two_nodes(tmp_path, SPACE)
    trials = load(tmp_path / "results" / "run").trials.set_index("config.placement")
    assert trials.state.tolist() == ["complete", "complete"], trials.reason.tolist()
    assert (trials.nodes["pack"], trials.nodes["spread"]) == (1, 2)
    summary = " ".join((tmp_path / "results" / "run" / "summary.md").read_text().split())
    assert "- Nodes: 2 in the cluster; placement pack: trials on 1; placement spread: trials on 2" in summary


def test_trials_run_on_nodes_that_are_alike() -> None:
    head, large = Resources(16), Resources(32, 8)
    assert alike([head]) == head
    assert alike([head, large, large]) == Resources(64, 16, 2)
    assert alike([head, large, large]).node == large


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
    assert parse_space({**keys, "concurrent_trials": trials}).share(whole) == each
