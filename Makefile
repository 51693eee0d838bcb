# Every target works on a fresh clone: it makes .venv first, with the versions of constraints.txt.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help sweep billion figures test test-all docs lint bench compare-aiconfigurator bench-other-tools mutants dist clean

help:  ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
		|| { echo "cheetah_xr needs Python 3.11 to 3.13; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[dev]'
	@touch $@

sweep: $(READY)  ## Run every sweep in sweeps/ into outputs/ and show what each answered (ARGS=--overwrite starts anew)
	$(BIN)/cheetah-xr sweep $(ARGS) sweeps/*.yaml

billion: $(READY)  ## Run the sweep of a billion points in processes (ARGS="--workers 4")
	$(BIN)/cheetah-xr sweep --processes $(ARGS) sweeps/large/billion.yaml

figures: $(READY)  ## Make every figure and table into outputs/figures/ (open index.html; ARGS="--model qwen3-32b" redraws)
	$(BIN)/cheetah-xr figures $(ARGS)

# Idle workers take tests from busy ones; neighbours in a file mostly stay together and share what they prepare.
PYTEST := $(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal

test: $(READY)  ## Run the fast tests in parallel: every formula, no clusters, object stores or killed processes (ARGS=tests/unit)
	$(PYTEST) -m "not slow" $(ARGS)

test-all: $(READY)  ## Run every test with coverage and more random examples
	$(PYTEST) --hypothesis-profile thorough --cov --cov-report=term --cov-fail-under=95 $(ARGS)

docs: $(READY)  ## Build the documentation into outputs/site/ (open index.html); a warning is an error
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[dev,docs]'
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

lint: $(READY)  ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)  ## Measure imports, and speed beside memory, file writes and the scalar oracle (ARGS=--billion adds 1e9 points)
	$(BIN)/python benchmarks/imports.py
	$(BIN)/python benchmarks/speed.py $(ARGS)

# Other tools, each in an environment of its own; llm-analysis needs wheels that exist up to Python 3.11.
TOOLS := aiconfigurator==0.12.0 genz-llm==0.0.16 llm-analysis==0.2.2
PREDICTIONS := outputs/other-tools
SETTINGS ?= benchmarks/other_tools/aiconfigurator_settings.csv

.venv-%/.ready: | $(READY)
	$(BIN)/uv venv --quiet --clear --python 3.11 .venv-$*
	$(BIN)/uv pip install --quiet --python .venv-$*/bin/python $(filter $*==%,$(TOOLS))
	@touch $@

compare-aiconfigurator: $(READY) .venv-aiconfigurator/.ready  ## Predict every measured row with aiconfigurator 0.12.0 and show its errors
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[dev,validation]'
	@mkdir -p $(PREDICTIONS)
	$(BIN)/python benchmarks/other_tools/compare.py inputs $(PREDICTIONS)/inputs.csv
	.venv-aiconfigurator/bin/python benchmarks/other_tools/aiconfigurator_rows.py \
		$(SETTINGS) $(PREDICTIONS)/inputs.csv $(PREDICTIONS)/aiconfigurator.csv
	$(BIN)/python benchmarks/other_tools/compare.py report aiconfigurator=$(PREDICTIONS)/aiconfigurator.csv

bench-other-tools: $(READY) $(foreach tool,$(TOOLS),.venv-$(firstword $(subst ==, ,$(tool)))/.ready)  ## Measure points per second of this engine and of other tools
	$(BIN)/python benchmarks/other_tools/points_per_second.py

mutants: $(READY)  ## Show that one-token changes of the formulas fail the fast tests (ARGS=kv_cache runs those of one file)
	$(BIN)/python tests/mutants.py $(ARGS)

dist: $(READY)  ## Build wheel and source archive into dist/
	$(BIN)/python -m build --installer uv

clean:  ## Remove the environment and everything built
	rm -rf $(VENV) .venv-* dist build *.egg-info .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
