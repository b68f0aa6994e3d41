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
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
cluster.add_node(num_cpus=2)
cluster.wait_for_nodes()
from search.run import main
code = main(["space.yaml", "--address", cluster.address, "--name", "run", "--no-dashboard"])
cluster.shutdown()
sys.exit(code)
"""


@pytest.mark.long
def test_processes_are_packed_on_one_node_or_spread_over_two(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    command = [sys.executable, "-c", TWO_NODES]
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # the same for all of its processes
    ended = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **token}, capture_output=True, text=True, timeout=150, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
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
