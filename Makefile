# Each target works alone on a fresh machine: it makes .venv, installs what it needs and runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Tests start hundreds of processes. Without compiled files each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-gpu attack attack-gpu lint types package docs tutorial irregular picture campaign results clean

demo: $(STAMP)
	$(BIN)/remanence demo

# One process per core, and each has as many threads: threads that spin while they wait take the cores of the other
# processes (on two cores, `make test` then takes 1.4 times as long). Long tests wait for processes, files and signals
# much of the time, so they get a process more.
TESTS := OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -q --dist worksteal
MORE := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

# A part of every folder of tests, in a few minutes.
test: $(STAMP)
	$(TESTS) -n auto -m "not long"

# What `make test` leaves out.
test-all: $(STAMP)
	$(TESTS) -n $(MORE) -m "long and not slow"
	TRITON_INTERPRET=1 $(TESTS) -n auto tests/engines -k interpreted

# Tests that need a GPU, side by side: minutes. GPU_PYTHON has torch for CUDA, pytest, pytest-xdist and hypothesis. If it
# has pytest-benchmark, that warns next to xdist, and warnings are errors.
GPU_PYTHON ?= python3
WORKERS ?= 12
test-gpu:
	PYTHONPATH=src:$$PYTHONPATH OMP_NUM_THREADS=1 $(GPU_PYTHON) -m pytest -q --dist worksteal -p no:benchmark -m gpu -n $(WORKERS)

# Attacks: random layers on every engine, kills at random moments, random damage to the files of runs, the C++ engine
# under sanitizers, gradients of long sequences. Two hours or so on two cores.
CASES ?= 10000
KILLS ?= 1000
attack: $(STAMP)
	$(BIN)/python tests/attack/differential.py --cases $(CASES)
	$(BIN)/python tests/attack/soak.py --kills $(KILLS)
	$(BIN)/python -m pytest -q tests/attack -m slow

# The same for the kernels of a GPU: random layers, then some under each tool of compute-sanitizer; racecheck takes minutes
# for a few.
attack-gpu:
	PYTHONPATH=src $(GPU_PYTHON) tests/attack/differential.py --device cuda --cases 2000
	for tool in memcheck:100 synccheck:100 racecheck:12; do for engine in cuda triton; do \
		PYTHONPATH=src compute-sanitizer --tool $${tool%:*} --error-exitcode 1 \
			$(GPU_PYTHON) tests/attack/differential.py --device cuda --engine $$engine --cases $${tool#*:} || exit 1; \
	done; done

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

# Source distribution and wheel, in dist: complete, installable, and with metadata that PyPI takes.
package: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python .ci/package.py

# The site, in build/site. NO_MKDOCS_2_WARNING silences a notice of the theme's about its successor.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

tutorial: $(STAMP)
	$(BIN)/python docs/tutorial.py

# The table and the plot of docs/tutorials/irregular.md.
irregular: $(STAMP)
	$(BIN)/python docs/irregular.py

picture: $(STAMP)
	$(BIN)/python docs/pictures/what_stays.py
	$(BIN)/python docs/pictures/gates.py
	$(BIN)/python docs/pictures/forgetting.py
	$(BIN)/python docs/pictures/kernels.py
	$(BIN)/python docs/pictures/house.py

# The next unfinished runs of results/campaign.yaml, on a GPU; then `make results`, once their verdicts are written.
BUDGET ?= 9m
TOGETHER ?= 1
campaign: $(STAMP)
	$(BIN)/python -m remanence.experiments.campaign run --budget $(BUDGET) --together $(TOGETHER)
	$(BIN)/python -m remanence.experiments.campaign collect

results: $(STAMP)
	$(BIN)/python docs/results.py
	$(BIN)/python docs/figures.py
	$(BIN)/python docs/reproduce.py
	$(BIN)/python docs/performance.py

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache build dist
