# Two commands: `make search` finds a configuration, `make test` proves the tree. Both set up .venv first, the second with
# the tools of the tests; `make gpu` uses PYTHON as it is, because a machine with a GPU has its own PyTorch.
PYTHON ?= python3
SPACE ?= spaces/quickstart.yaml
VENV := .venv/bin
IN_PARALLEL := -n 2 --dist loadfile

.PHONY: search test check slow faults gpu docs setup tools
search: setup
	$(VENV)/python -m search.run $(SPACE)

test: check
	$(VENV)/python -m pytest $(IN_PARALLEL)

slow: tools
	$(VENV)/python -m pytest -m slow

faults: tools
	$(VENV)/python -m pytest -m "not gpu" tests/faults

gpu:
	PYTHONPATH=$(CURDIR):$$PYTHONPATH $(PYTHON) benchmarks/gpu.py $(ARGS)

docs: tools
	$(VENV)/sphinx-build -q -W --keep-going -c docs . build/site

check: tools
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/mypy
	$(VENV)/lint-imports

setup: .venv/installed
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(VENV)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

tools: .venv/tools
.venv/tools: .venv/installed
	$(VENV)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@
