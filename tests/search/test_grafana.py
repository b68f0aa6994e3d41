"""The Grafana dashboard: what its panels ask for, and that a real Prometheus has it while a real run goes on."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from search.execution.grafana import DASHBOARD, INSTALLED_AS, LAST_OF_RAYS, install
from search.record.journal import FILE_NAME, read_journal
from search.record.run_state import RunState
from search.record.trial import Trial

ROOT = Path(__file__).parents[2]
BOARD = json.loads((ROOT / "search/execution" / DASHBOARD).read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
VARIABLES = {v["name"]: v["definition"] for v in BOARD["templating"]["list"] if v["type"] == "query"}
OF_GPUS = ("ray_node_gpus_utilization", "ray_node_gram_used")  # Ray has them where there is a GPU
SPACE = """
trainable: replay
evaluation: decoupled
objectives:
  - {metric: val_accuracy, goal: maximize}
  - {metric: images_per_second, goal: maximize}
parameters:
  batch_size: {values: [64, 128, 256, 512]}
  learning_rate: {min: 0.001, max: 0.5, log: true, affects: trained}
fixed: {seconds_per_epoch: 1.0}
budget: {trials: 200, epochs: 2}
"""


def expressions() -> dict[str, list[str]]:
    """Return the queries of each panel by its title."""
    return {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in PANELS}


def test_every_panel_has_a_place_a_number_and_a_word_on_what_it_shows() -> None:
    numbers = [panel["id"] for panel in BOARD["panels"]]
    assert len(numbers) == len(set(numbers))
    places = [tuple(panel["gridPos"][key] for key in "xy") for panel in BOARD["panels"]]
    assert len(places) == len(set(places))
    assert all(panel["description"] and panel["targets"] for panel in PANELS)


def test_every_variable_that_a_panel_uses_is_there() -> None:
    named = {v["name"] for v in BOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(BOARD["panels"]))) <= named


def test_the_dashboard_is_among_what_is_installed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert DASHBOARD in settings["tool"]["setuptools"]["package-data"]["search.execution"]


def test_series_of_the_machine_are_named_as_in_rays_own_dashboards() -> None:
    """Series of GPUs cannot be scraped on a machine without one."""
    ray = importlib.util.find_spec("ray")
    assert ray is not None
    assert ray.origin is not None
    theirs = Path(ray.origin).parent / "dashboard" / "modules" / "metrics" / "dashboards"
    known = set(re.findall(r"ray_node_\w+", (theirs / "default_dashboard_panels.py").read_text()))
    known |= set(re.findall(r"ray_node_\w+", (theirs / "train_dashboard_panels.py").read_text()))
    asked = set(re.findall(r"ray_node_\w+", json.dumps(expressions())))
    assert {*OF_GPUS, "ray_node_mem_used"} <= asked <= known


def test_it_is_put_beside_rays_own_once_those_are_there(tmp_path: Path) -> None:
    assert not install(tmp_path)
    assert not install(tmp_path / "nowhere")
    (tmp_path / LAST_OF_RAYS).write_text("{}")
    assert install(tmp_path)
    assert json.loads((tmp_path / INSTALLED_AS).read_text()) == BOARD


def test_what_a_person_changed_in_it_stays_and_what_ray_removed_is_put_there_again(tmp_path: Path) -> None:
    (tmp_path / LAST_OF_RAYS).write_text("{}")
    (tmp_path / INSTALLED_AS).write_text("changed")
    assert install(tmp_path)
    assert (tmp_path / INSTALLED_AS).read_text() == "changed"
    (tmp_path / INSTALLED_AS).unlink()
    assert install(tmp_path)
    assert (tmp_path / INSTALLED_AS).exists()


def test_ray_can_be_told_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "grafana" / "dashboards").mkdir(parents=True)
    (tmp_path / "grafana" / "dashboards" / LAST_OF_RAYS).write_text("{}")
    monkeypatch.setenv("RAY_METRICS_OUTPUT_ROOT", str(tmp_path))
    assert install()
    assert (tmp_path / "grafana" / "dashboards" / INSTALLED_AS).exists()
    monkeypatch.setenv("RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR", str(tmp_path))
    assert not install()


# --- a real Prometheus and a real run ---------------------------------------------------------------------------------


class Prometheus:
    """Its HTTP API."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def query(self, expression: str) -> list[Any]:
        """The series of an expression, each with labels and value."""
        found: list[Any] = self._get("query", query=expression)["result"]
        return found

    def label_values(self, definition: str) -> list[str]:
        """Query of Grafana for a variable: `label_values(series, label)`."""
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", definition)
        assert match is not None
        found: list[str] = self._get(f"label/{match[2]}/values", **{"match[]": match[1]})
        return found

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"{self._url}/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{parameters}: {error.read().decode()}") from None


def eventually(condition: Callable[[], Any], what: str, seconds: float = 120.0) -> Any:
    """The first true answer of it; meanwhile connections may be refused."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if found := condition():
                return found
        except (urllib.error.URLError, ConnectionError):
            pass
        time.sleep(0.5)
    raise AssertionError(f"not within {seconds:.0f} s: {what}")


class Watched(NamedTuple):
    """A run that goes on: the folder of its results, and that of Ray's session."""

    results: Path
    session: Path


@pytest.fixture(scope="module")
def run() -> Iterator[Watched]:
    """Uses its own temporary folder: other Rays on this machine have theirs."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as name:  # sockets: short
        folder = Path(name)
        (folder / "space.yaml").write_text(SPACE)
        command = [sys.executable, "-m", "search.run", "space.yaml", "--name", "watched"]
        with (folder / "printed").open("w") as printed:
            environment = {**os.environ, "RAY_TMPDIR": name}
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=printed, stderr=subprocess.STDOUT)
        try:
            session = eventually(lambda: next(folder.glob("ray/session_2*"), None), "Ray's session")
            yield Watched(folder / "results" / "watched", session)
        finally:
            process.terminate()
            process.wait(timeout=60)


@pytest.fixture(scope="module")
def prometheus(run: Watched, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Started as Ray configured it, but on a port that is free."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no Prometheus here: apt-get install prometheus")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = run.session / "metrics" / "prometheus" / "prometheus.yml"
    eventually(config.exists, "Ray's own prometheus.yml")
    store = ["--storage.tsdb.path", str(tmp_path_factory.mktemp("store"))]
    command = [program, "--config.file", str(config), "--web.listen-address", f"127.0.0.1:{port}", *store]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.mark.slow
def test_a_run_puts_the_dashboard_where_rays_grafana_looks(run: Watched) -> None:
    provider = run.session / "metrics" / "grafana" / "provisioning" / "dashboards" / "default.yml"
    eventually(provider.exists, "Ray's Grafana configuration")
    match = re.search(r"path: (.+)", provider.read_text())
    assert match is not None
    eventually((Path(match[1]) / INSTALLED_AS).exists, INSTALLED_AS)
    assert json.loads((Path(match[1]) / INSTALLED_AS).read_text()) == BOARD


@pytest.mark.slow
def test_each_panel_asks_for_series_that_prometheus_has_of_a_run_that_goes_on(prometheus: Prometheus) -> None:
    eventually(lambda: prometheus.query("ray_search_hypervolume"), "a front in Prometheus")
    eventually(lambda: prometheus.query("ray_node_mem_used"), "the node in Prometheus")
    assert prometheus.label_values(VARIABLES["run"]) == ["watched"]
    objectives = prometheus.label_values(VARIABLES["objective"])
    assert objectives == ["ray_search_images_per_second", "ray_search_val_accuracy"]
    gpus = bool(prometheus.query("ray_node_gpus_available > 0"))
    for title, asked in expressions().items():
        for expression in asked:
            if not gpus and any(name in expression for name in OF_GPUS):
                continue
            for objective in objectives if "$objective" in expression else [""]:
                filled = expression.replace("$objective", objective).replace("$run", "watched")
                assert "$" not in filled
                assert prometheus.query(filled), f"{title}: {filled}"


@pytest.mark.slow
def test_figures_in_prometheus_are_those_of_the_journal(prometheus: Prometheus, run: Watched) -> None:
    """Return the last measurement of a trial that is over."""

    def first() -> Trial | None:
        run_state = RunState(read_journal(run.results / FILE_NAME))
        return next((trial for trial in run_state.trials.values() if trial.epochs == 2), None)

    trial = eventually(first, "the end of a trial")
    for name in ("val_accuracy", "images_per_second"):
        asked = f'ray_search_{name}{{run="watched", trial_id="{trial.trial_id}"}}'

        def shown(asked: str = asked, value: float = trial.metrics[name]) -> bool:
            return any(float(series["value"][1]) == pytest.approx(value) for series in prometheus.query(asked))

        eventually(shown, f"{asked} as measured")
