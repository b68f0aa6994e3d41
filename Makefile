# Two commands: `make search` finds a configuration, `make test` proves the tree. Both set up .venv first; `make gpu` uses
# PYTHON as it is, because a machine with a GPU has its own PyTorch.
PYTHON ?= python3
SPACE ?= spaces/quickstart.yaml
VENV := .venv/bin

.PHONY: search test check slow faults gpu setup
search: setup
	$(VENV)/python -m search.run $(SPACE)

test: setup check
	$(VENV)/python -m pytest

slow: setup
	$(VENV)/python -m pytest -m slow

faults: setup
	$(VENV)/python -m pytest -m "not gpu" tests/faults

gpu:
	PYTHONPATH=$(CURDIR):$$PYTHONPATH $(PYTHON) benchmarks/gpu.py $(ARGS)

check: setup
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/mypy
	$(VENV)/lint-imports

setup: .venv/installed
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(VENV)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@
