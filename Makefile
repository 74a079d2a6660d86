# Every target does all the set-up it needs: python3 (3.11 or newer), make and git are enough.

PYTHON ?= python3
UV ?= uv
BIN := .venv/bin
# An environment knows the directory it was made in; a moved or copied checkout makes its own.
HERE := $(shell pwd -P | cksum | cut -d ' ' -f 1)
MADE := .venv/.made-$(HERE)
RUN := .venv/.run-$(HERE)
DEV := .venv/.dev-$(HERE)

# The lock files are complete, so nothing is left to resolve (and pip would stumble over extras).
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps
# Quiet when it goes well, whole output when it does not.
check = @printf '%s\n' '$(1)'; out=$$($(BIN)/$(2) 2>&1) || { printf '%s\n' "$$out"; exit 1; }
compile = $(UV) pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate --quiet --upgrade

unexport PYTHONPATH PYTHONHOME
export PIP_USER := 0

.PHONY: demo test test-long bench docs format lock clean
.NOTPARALLEL:
.DEFAULT_GOAL := test

demo: $(RUN)  ## an agent reads, edits, runs and answers: no key, no network
	@$(BIN)/cookie demo

test: $(DEV)  ## everything a change must pass
	$(call check,format,ruff format --check)
	$(call check,lint,ruff check)
	$(call check,import contracts,lint-imports)
	$(call check,types,mypy)
	$(call check,dependencies,deptry .)
	@echo tests
	@$(BIN)/python -m pytest -q -n 2 -m 'not long'

test-long: $(DEV)  ## the tests that kill and cut for minutes
	@$(BIN)/python -m pytest -q -n 2 -m long -rP --timeout 1800 -o faulthandler_timeout=1800

bench: $(DEV)  ## one number each
	@for script in benchmarks/*.py; do $(BIN)/python "$$script" || exit 1; done

docs: $(DEV)  ## map.md, events.md and protocol.md, from the code
	@$(BIN)/python docs/generate.py

format: $(DEV)
	@$(BIN)/ruff format --quiet
	@$(BIN)/ruff check --fix --quiet

lock:  ## newer versions of what we depend on (needs uv)
	$(compile) --group build -o requirements.lock
	$(compile) --group build --group dev -c requirements.lock -o requirements-dev.lock

clean:
	rm -rf .venv .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find cookie workers ipc tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

$(MADE):
	@command -v $(PYTHON) >/dev/null || { echo 'cookie needs python3, 3.11 or newer, on the PATH' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "cookie needs Python 3.11 or newer and this is $$($(PYTHON) -V 2>&1); say: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo 'this Python has no venv module; on Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	@echo 'setting up .venv (once)'
	@$(PYTHON) -m venv --clear .venv
	@touch $@

$(RUN): $(MADE) requirements.lock pyproject.toml
	@$(INSTALL) --require-hashes -r requirements.lock
	@$(INSTALL) --no-build-isolation -e .
	@touch $@

$(DEV): $(MADE) requirements-dev.lock pyproject.toml
	@$(INSTALL) --require-hashes -r requirements-dev.lock
	@$(INSTALL) --no-build-isolation -e .
	@touch $@
