# Every target makes the environment it needs: .venv, filled by pip from constraints.txt. A second call finds it ready.
PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
# torch comes first and by its exact version, so that no later requirement can bring another build of it.
TORCH := torch==2.13.0

.PHONY: help demo test check bench docs clean

help: ## show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

demo: .venv/run.stamp ## record, train, stop, resume, compare: the whole road in a few minutes
	$(BIN)/penstock demo --out out/demo

test: .venv/dev.stamp ## every test, the examples in docstrings, README and docs
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --doctest-modules src tests README.md CONTRIBUTING.md docs

check: .venv/dev.stamp ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: .venv/dev.stamp ## every script in benchmarks/, one after the other
	@set -e; for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script; done

docs: .venv/dev.stamp ## the site, in .build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

clean: ## remove the environment and everything built
	rm -rf .venv .build out

.venv/run.stamp: constraints.txt pyproject.toml
	@echo "installing what the demo needs into .venv"
	$(PYTHON) -m venv .venv
	$(PIP) pip hatchling editables
	$(PIP) $(TORCH)
	$(PIP) --no-build-isolation -e '.[demo]'
	@touch $@

.venv/dev.stamp: .venv/run.stamp
	@echo "installing what tests, checks and docs need into .venv"
	$(PIP) --no-build-isolation -e '.[all]' --group dev --group docs
	@touch $@
