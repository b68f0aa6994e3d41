"""A search that asks the autoscaler of a Ray cluster for nodes; Ray starts them on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from search.record.events import Finish, Start
from search.record.journal import FILE_NAME, read_journal

HEAD_ID = "f" * 51 + "00000"  # as Ray's provider of made-up nodes wants it
SPACE = """\
trainable: replay
objectives:
  - {metric: val_accuracy, goal: maximize}
  - {metric: images_per_second, goal: maximize}
parameters:
  learning_rate: {min: 0.01, max: 0.3, log: true}
fixed: {seconds_per_epoch: 4.0}
searcher: {name: random}
budget: {trials: 8, epochs: 3, repeats: 0, deciding: 0}
"""
NODES_LEFT = """\
import sys, time
import ray
ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)  # else also what the autoscaler says
deadline = time.monotonic() + 90
while (left := [n for n in ray.nodes() if n["Alive"] and "role" in n["Labels"]]) and time.monotonic() < deadline:
    time.sleep(0.5)
print(len(left))
"""


def cluster_config(port: int) -> dict[str, Any]:
    """A head that runs no trials, and at most two nodes with one core each, which go when they are idle for 6 s."""
    empty_lists = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
    return {
        "cluster_name": "made-up",
        "max_workers": 2,
        "provider": {
            "type": "external",
            "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "launch_multiple": True,
            "head_node_id": HEAD_ID,
            "gcs_address": f"127.0.0.1:{port}",
        },
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {
                "resources": {"CPU": 1, "object_store_memory": 10**8},
                "labels": {"role": "train"},
                "node_config": {},
                "min_workers": 0,
                "max_workers": 2,
            },
        },
        "head_node_type": "ray.head.default",
        "auth": {},
        "docker": {},
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 0.1,
        **{f"{name}_commands": [] for name in empty_lists},
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
    }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Address of a cluster of a head alone, and the environment of its programs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "cluster.json").write_text(json.dumps(cluster_config(port)))
    variables = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": "1",
        "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    }
    environment = {**os.environ, **variables}
    program = str(Path(sys.executable).parent / "ray")
    options = ["--head", "--block", "--port", f"{port}", "--num-cpus", "0", "--include-dashboard", "false"]
    options += ["--node-ip-address", "127.0.0.1", "--autoscaling-config", str(tmp_path / "cluster.json")]
    head = subprocess.Popen([program, "start", *options], env=environment, stdout=subprocess.DEVNULL)
    try:
        while subprocess.run(
            [program, "status", "--address", f"127.0.0.1:{port}"], env=environment, capture_output=True
        ).returncode:
            assert head.poll() is None
            time.sleep(0.5)
        yield f"127.0.0.1:{port}", {**os.environ, **{k: v for k, v in variables.items() if "OVERRIDE" not in k}}
    finally:
        head.terminate()
        head.wait(60)
        for process in psutil.process_iter():  # the nodes that the autoscaler started
            with contextlib.suppress(psutil.Error):
                if any(f":{port}" in word for word in process.cmdline()):
                    process.kill()


@pytest.mark.slow
def test_a_search_asks_for_nodes_from_none_on_and_gives_them_back(
    tmp_path: Path, cluster: tuple[str, dict[str, str]]
) -> None:
    address, environment = cluster
    (tmp_path / "space.yaml").write_text(SPACE)
    nodes = ["--nodes", "role=train", "--ask-for-nodes", "2", "--wait-for-nodes", "2"]
    command = [sys.executable, "-m", "search.run", "space.yaml", "--address", address, "--name", "run", *nodes]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=350, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    running, most, finished = 0, 0, 0
    for event in read_journal(tmp_path / "results" / "run" / FILE_NAME):
        running += isinstance(event, Start) - isinstance(event, Finish)
        most, finished = max(most, running), finished + isinstance(event, Finish)
    assert (finished, most) == (8, 2)
    left = subprocess.run(
        [sys.executable, "-c", NODES_LEFT, address], env=environment, capture_output=True, text=True, timeout=150
    )
    assert left.stdout.splitlines()[-1] == "0", left.stdout + left.stderr
