# Every target installs what it needs into .venv; a fresh clone needs only Python 3.11 and make.
PY      ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
SEEDS   ?= 200
export PYTHONDONTWRITEBYTECODE=

.PHONY: setup demo demo-core demo-check test test-all check sim sim-mutants chaos bench bench-raft \
        bench-cluster bench-sql bench-clients bench-spark dist

setup: $(STAMP)

$(STAMP): requirements/dev.txt pyproject.toml
	$(PY) -m venv $(VENV)
	$(BIN)/pip install -q --require-hashes -r requirements/dev.txt
	$(BIN)/pip install -q --no-deps --no-build-isolation -e . || $(BIN)/pip install -q --no-deps -e .
	$(BIN)/python -m compileall -q src $(VENV)/lib >/dev/null || true
	touch $(STAMP)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: setup check
	$(BIN)/python -m compileall -q src
	$(BIN)/pytest -m "not slow and not spark"

test-all: setup check
	$(BIN)/pytest
