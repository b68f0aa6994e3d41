"""The notebook from load to decision: it runs, and shows what it gives."""

import json
from pathlib import Path

import pytest

from search.pick.requirements import Requirements, best
from search.results import load

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOK = DOCS / "decide.ipynb"


def printed(notebook):
    """What each cell prints."""
    return [
        "".join("".join(o["text"]) for o in cell.get("outputs", []) if o["output_type"] == "stream")
        for cell in notebook["cells"]
    ]


def figures(notebook):
    return sum("image/png" in o.get("data", {}) for cell in notebook["cells"] for o in cell.get("outputs", []))


@pytest.fixture
def stored():
    return json.loads(NOTEBOOK.read_text())


def test_what_is_stored_names_the_choice_of_the_example_and_no_folder_of_a_machine(stored):
    text = "\n".join(printed(stored))
    choice = best(load(DOCS / "example"), Requirements()).trial.trial_id
    assert f"{choice} of example: the best compromise" in text
    assert figures(stored) == 4
    for output in (o for cell in stored["cells"] for o in cell.get("outputs", [])):
        output.get("data", {}).pop("image/png", None)  # its letters may be those of a path by chance
    assert not [path for path in ("/root", "/home", "/tmp", "/work", str(DOCS)) if path in json.dumps(stored)]


def test_the_example_is_of_the_recorded_tables(stored):
    run = load(DOCS / "example")
    assert run.state.counts()["complete"] == 40
    assert "docs/example/make.py" in " ".join(run.info.command)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the notebook's own machinery
def test_the_notebook_runs_and_prints_what_is_stored(stored, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.delenv("RUN", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(DOCS)}})
    client.execute()
    assert printed(notebook) == printed(stored)
    assert figures(notebook) == figures(stored)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_runs_on_any_other_run(tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    from tests.search.runs import write_run
    from tests.search.test_plots import many

    monkeypatch.setenv("RUN", str(write_run(tmp_path / "many", many())))
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(DOCS)}}).execute()
    assert "of many: the best compromise" in "\n".join(printed(notebook))
