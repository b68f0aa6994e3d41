"""The files of deploy/ and the commands of docs/cluster.md: what can be checked without a cluster."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from search.run_options import parser

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
WITH_SEARCHES = {"search.sbatch", "sky.yaml", "rayjob.yaml", "cluster.md"}


def content(name: str) -> str:
    return (ROOT / "docs" / name if name.endswith(".md") else DEPLOY / name).read_text()


def yaml(name: str) -> Any:
    return YAML(typ="safe", pure=True).load(content(name))


def commands(text: str) -> list[list[str]]:
    """Words of each search in a text, without the program; lines that end in a backslash or are folded go on."""
    joined = re.sub(r"\\\n\s*|(?<=--go-on)\n\s+(?=--nodes)", " ", text)
    found = re.findall(r"-m search\.run ([^\n`]*--go-on[^\n`]*)", joined)
    return [shlex.split(words, comments=True) for words in found]


@pytest.mark.parametrize("name", sorted(WITH_SEARCHES))
def test_each_search_is_a_command_that_may_be_started_again(name: str) -> None:
    searches = commands(content(name))
    assert searches
    for words in searches:
        options = parser().parse_args(words)
        assert (ROOT / options.space).is_file()
        assert options.go_on
        assert options.name
        assert options.address == "auto"


def test_the_image_the_job_and_the_package_are_of_one_version() -> None:
    version = re.search(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert version is not None
    assert yaml("rayjob.yaml")["spec"]["rayClusterSpec"]["rayVersion"] == version[1]
    copied = re.findall(r"^COPY (.*) \S+$", content("Dockerfile"), re.MULTILINE)
    assert all((ROOT / path).exists() for line in copied for path in line.split())


def test_each_volume_that_a_pod_mounts_is_declared_and_the_results_are_everywhere() -> None:
    cluster = yaml("rayjob.yaml")["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        declared = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            assert set(mounted) <= declared
            assert mounted["results"] == "/results"


def test_the_batch_script_is_valid_and_takes_its_directives_first() -> None:
    assert subprocess.run(["bash", "-n", DEPLOY / "search.sbatch"], check=False).returncode == 0
    lines = content("search.sbatch").splitlines()
    directives = [i for i, line in enumerate(lines) if line.startswith("#SBATCH")]
    assert all(line.startswith("#") for line in lines[: directives[-1]])
