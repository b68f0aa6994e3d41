"""The files of deploy/ and the commands of docs/cluster.md: what can be checked without a cluster."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
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


def pods() -> list[dict[str, Any]]:
    """The pods of the job, each as Kubernetes would be asked for it alone."""
    cluster = yaml("rayjob.yaml")["spec"]["rayClusterSpec"]
    templates = [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}, **template} for template in templates]


def test_the_pods_are_as_the_schema_of_kubernetes_has_them() -> None:
    for pod in pods():
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
        pod["spec"]["containers"][0]["volumeMount"] = pod["spec"]["containers"][0].pop("volumeMounts")
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


# the fields of https://docs.ray.io/en/master/kuberay/references/api.html (ray.io/v1, KubeRay 1.6) that a search may use
KUBERAY: dict[str, dict[str, type]] = {
    "job": {
        "activeDeadlineSeconds": int,
        "backoffLimit": int,
        "deletionStrategy": dict,
        "entrypoint": str,
        "entrypointNumCpus": float,
        "preRunningDeadlineSeconds": int,
        "rayClusterSpec": dict,
        "runtimeEnvYAML": str,
        "shutdownAfterJobFinishes": bool,
        "submissionMode": str,
        "submitterPodTemplate": dict,
        "suspend": bool,
        "ttlSecondsAfterFinished": int,
    },
    "cluster": {
        "authOptions": dict,
        "autoscalerOptions": dict,
        "enableInTreeAutoscaling": bool,
        "gcsFaultToleranceOptions": dict,
        "headGroupSpec": dict,
        "headServiceAnnotations": dict,
        "rayVersion": str,
        "workerGroupSpecs": list,
    },
    "auth": {"mode": str, "secretName": str},
    "head": {"labels": dict, "rayStartParams": dict, "resources": dict, "serviceType": str, "template": dict},
    "workers": {
        "groupName": str,
        "idleTimeoutSeconds": int,
        "labels": dict,
        "maxReplicas": int,
        "minReplicas": int,
        "numOfHosts": int,
        "rayStartParams": dict,
        "replicas": int,
        "resources": dict,
        "template": dict,
    },
}


def faults(manifest: dict[str, Any]) -> list[str]:
    """Fields of a RayJob that KubeRay's API reference does not have, or has with another type; pods not included."""
    spec = manifest["spec"]
    cluster = spec["rayClusterSpec"]
    parts = [(spec, "job"), (cluster, "cluster"), (cluster.get("authOptions", {}), "auth")]
    parts += [(cluster["headGroupSpec"], "head"), *((group, "workers") for group in cluster["workerGroupSpecs"])]
    return [
        f"{part}.{name}"
        for fields, part in parts
        for name, value in fields.items()
        if type(value) is not KUBERAY[part].get(name)
    ]


def test_the_job_has_only_fields_of_kuberay() -> None:
    assert faults(yaml("rayjob.yaml")) == []
    misspelled = yaml("rayjob.yaml")
    misspelled["spec"]["backofflimit"] = misspelled["spec"].pop("backoffLimit")
    misspelled["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] = "2"
    assert faults(misspelled) == ["job.backofflimit", "workers.replicas"]


def test_the_image_is_as_hadolint_wants_it() -> None:
    program = Path(sys.executable).parent / "hadolint"
    for text, code in ((content("Dockerfile"), 0), (content("Dockerfile").replace("3.11-slim", "latest"), 1)):
        assert subprocess.run([program, "-"], input=text, text=True, capture_output=True).returncode == code


def test_each_volume_that_a_pod_mounts_is_declared_and_the_results_are_everywhere() -> None:
    for pod in (each["spec"] for each in pods()):
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
