# Every target makes what it needs from a bare Python 3.11+ with pip:  make demo | make test | make check | make bench
# Choose the interpreter with PYTHON=python3.12, the environment's folder with VENV=.venv312.
PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
MINUTES ?= 60

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
# The fourth APScheduler shares its import name with the third, so it lives in a folder of its own.
APSCHEDULER4 := $(VENV)/apscheduler4

.PHONY: help demo test conformance check format docs bench faults soak clean

help:
	@echo "make demo    watch example jobs on accelerated time, no server needed"
	@echo "make test    run the tests"
	@echo "make conformance  every backend against the whole contract, also over a lying line; long"
	@echo "make check   ruff, mypy, basedpyright, import-linter"
	@echo "make format  let ruff format and fix what it can"
	@echo "make docs    make the reference pages that come from the code"
	@echo "make bench   measure against the peers"
	@echo "make faults  kill, stop and cut off real nodes and servers, about 10 minutes"
	@echo "make soak    the same for longer: make soak MINUTES=60"
	@echo "make clean   remove environments and caches"

demo: $(VENV)/.demo
	@$(BIN)/rota demo

test: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

conformance: $(VENV)/.dev
	@ROTA_CONFORMANCE=1 $(BIN)/python -m pytest -n 2 tests/contracts $(PYTEST_ARGS)

check: $(VENV)/.dev
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo "not formatted: make format" >&2; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports --no-logo --no-cache # the cache does not see that a new module appeared

format: $(VENV)/.dev
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

docs: $(VENV)/.dev
	@$(BIN)/python -m docs._generate

bench: $(VENV)/.bench
	@ROTA_BENCH_APSCHEDULER4=$(APSCHEDULER4) $(BIN)/python -m tests.benchmarks $(BENCH_ARGS)

faults: $(VENV)/.dev
	@$(BIN)/python -m tests.faults $(FAULTS_ARGS)

soak: $(VENV)/.dev
	@$(BIN)/python -m tests.faults --minutes $(MINUTES) $(FAULTS_ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist

# A stamp says that the environment holds what pyproject.toml asks for.
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "installing rota into $(VENV)"
	@$(PIP) install --editable '.[cli]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing rota and its development tools into $(VENV)"
	@$(PIP) install --editable '.[dev]'
	@touch $@

$(VENV)/.bench: pyproject.toml Makefile | $(BIN)/python
	@echo "installing rota and the peers of the benchmarks into $(VENV)"
	@$(PIP) install --editable '.[bench]'
	@rm -rf $(APSCHEDULER4)
	@$(PIP) install --target $(APSCHEDULER4) 'apscheduler==4.0.0a6'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Rota needs Python 3.11 or newer; $(PYTHON) is: $$($(PYTHON) --version 2>&1 | head -n 1)" >&2; \
		echo "Choose another interpreter: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
