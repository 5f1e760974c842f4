# Each target works alone on a fresh machine: it makes .venv, installs what it needs and runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint types picture results clean

demo: $(STAMP)
	$(BIN)/remanence demo

test: $(STAMP)
	$(BIN)/python -m pytest -q -n auto
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -q -n auto tests/engines/test_engines.py -k interpreted

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

picture: $(STAMP)
	$(BIN)/python docs/pictures/what_stays.py

results: $(STAMP)
	$(BIN)/python docs/results.py

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache build dist
