# Every target makes the environment it needs: .venv, filled by pip from constraints.txt. A second call finds it ready.
PYTHON ?= python3
PYTHONS ?= $(PYTHON)
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
MINUTES ?= 5
CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
BIN := .venv/bin
REFERENCE := .build/reference/bin/python
PEERS := .build/peers/bin/python
LEROBOT := .build/lerobot/bin/python
TRAINERS := .build/trainers/bin/python
# Of what is installed most is never imported, so modules are compiled when they are. The libraries of MAGICAL are compiled
# at once, for Python warns where it compiles them.
INSTALL := -m pip install -qq --disable-pip-version-check --no-compile
PIP := $(BIN)/python $(INSTALL) -c constraints.txt
# torch comes first and by its exact version, so that no later requirement can bring another build of it.
TORCH := torch==2.13.0
# The frameworks whose training programs are in examples/trainers, in the versions of its constraints.txt.
TRAINED := accelerate cpprb d3rlpy datasets equinox flax grain keras lightning megatron-core optax orbax-checkpoint ray[train] \
	stable-baselines3 tianshou torchdata torchrl transformers trl

# Tests start Python hundreds of times, and pytest rewrites each of their files: what was compiled is kept.
unexport PYTHONDONTWRITEBYTECODE

# The distributions beside the core, which `penstock[all]` requires.
PACKAGES := $(wildcard packages/*)

# The pages, whose code is run, beside the READMEs of packages.
PAGES := README.md CONTRIBUTING.md docs

# The core, which most changes need. Tests whose names say that processes start or are killed are left out.
QUICK := core files flow kernels plan data $(patsubst %,loading/test_%.py,batches engine iterators order ranks ticket)

# Tests of the core are those in folders with the names of its packages; the others in tests/ are of all distributions.
CORE := $(wildcard $(patsubst src/penstock/%/__init__.py,tests/%,$(wildcard src/penstock/*/__init__.py))) tests/programs

CALLING_KERNELS := tests/kernels tests/plan tests/data tests/containers packages/penstock-chess/tests packages/penstock-driving/tests

EXAMPLES := $(basename $(notdir $(shell grep -l -- --out examples/*.py)))

.PHONY: help demo examples test quick alone trainers browser check fuzz kernels bounds figures docs outputs wheels dist tried bench clean

help: ## show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

demo: .venv/run.stamp ## record, train, stop, resume, compare: the whole road in a few minutes
	$(BIN)/python -m examples.demo --out out/demo

examples: .venv/examples.stamp ## the learners in examples/, in full, with their curves in out/examples: some minutes each
	@mkdir -p out/examples
	@set -e; for name in $(EXAMPLES); do echo "examples/$$name.py -> out/examples/$$name.png"; \
		$(BIN)/python examples/$$name.py --out out/examples/$$name.png; done

test: .venv/dev.stamp ## every test, the examples in docstrings, README and docs
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart 1 --doctest-modules src tests packages $(PAGES)

quick: .venv/dev.stamp ## tests of the core, which most changes need: a minute or so
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile -k "not kill and not process" $(addprefix tests/,$(QUICK))

alone: .venv/dev.stamp ## tests of each distribution, while those that it does not require cannot be imported
	@set -e; for package in penstock $(notdir $(PACKAGES)); do echo "$$package alone"; \
		tests="packages/$$package/tests"; if [ $$package = penstock ]; then tests="$(CORE)"; fi; \
		PENSTOCK_ALONE=$$package PYTEST_PLUGINS=tests.alone $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile $$tests; done

trainers: .build/trainers.stamp ## the programs of examples/trainers inside the frameworks of others, in an environment of their own
	$(TRAINERS) -m pytest -q -n $(JOBS) --dist loadfile tests/trainers

check: .venv/dev.stamp ## lint, format, plain English, types, and the measures of readability
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/measures.py
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/pyright --pythonpath $(BIN)/python $$($(BIN)/python tools/pasted.py CONTRIBUTING.md)

fuzz: .venv/dev.stamp ## edited files of every format, for MINUTES=5 a format, in JOBS processes (one a core); FORMAT=lc0 takes one
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --jobs $(JOBS) $(if $(FORMAT),--format $(FORMAT),--all)

kernels: .venv/dev.stamp ## tests of all that calls kernels, by numba and on each level of machine code that this machine has: half an hour
	@set -e; for level in numba $$($(BIN)/python -c "from penstock.kernels.library import machine_levels; print(*machine_levels())"); do \
		echo "kernels: $$level"; PENSTOCK_KERNELS=$$level $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile $(CALLING_KERNELS); done

bounds: .venv/dev.stamp ## tests of all that calls kernels, with every index of compiled code checked: an hour
	PENSTOCK_KERNELS=numba NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CURDIR)/.build/numba-bounds $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile \
		-o faulthandler_timeout=3600 --hypothesis-profile random $(CALLING_KERNELS)

bench: .venv/dev.stamp ## twelve things that people wait for, of penstock, NumPy and what else is installed: three minutes
	$(BIN)/python benchmarks/bench.py $(if $(AGAINST),--against $(AGAINST))

figures: .venv/browser.stamp .build/reference.stamp .build/peers.stamp .build/lerobot.stamp .build/tfds.stamp .build/zarr3.stamp ## measure every figure of README and docs, other libraries as well
	$(BIN)/python benchmarks/measure.py --peers

browser: .venv/browser.stamp docs ## tests of the viewer and of the search of the site in a real browser; needs Chromium (CHROMIUM=path, by default the one on PATH)
	@test -n "$(CHROMIUM)" || { echo "no Chromium found: install the package chromium, or set CHROMIUM=path"; exit 1; }
	PENSTOCK_CHROMIUM=$(CHROMIUM) $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal packages/penstock-studio/tests/browser

docs: .venv/dev.stamp ## the site, in .build/site; a warning is an error
	$(BIN)/python docs/build.py

outputs: .venv/dev.stamp ## run the pages and keep their outputs in docs/outputs; tests compare with them
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --outputs $(PAGES) packages/*/README.md
	$(BIN)/python docs/page_outputs.py
	$(BIN)/python docs/pictures/info.py

wheels: .venv/dev.stamp ## wheels of all distributions, with compiled kernels, in dist; for arm64 and macOS as well where ziglang is installed
	$(BIN)/python tools/wheels.py --out dist

dist: .venv/dev.stamp ## wheels and sdists of all distributions, in dist; tried in empty environments of PYTHONS="python3.11 python3.14"
	rm -rf dist
	@set -e; for folder in . $(PACKAGES); do (cd $$folder && $(CURDIR)/$(BIN)/python -m hatchling build -t sdist -d $(CURDIR)/dist); done
	$(MAKE) --no-print-directory wheels
	$(BIN)/python tools/wheels.py --out dist --check
	@set -e; for python in $(PYTHONS); do \
		$(MAKE) --no-print-directory tried PYTHON=$$python TRIED="--compiled" FILES="$$(echo dist/penstock-*manylinux*x86_64.whl)"; \
		$(MAKE) --no-print-directory tried PYTHON=$$python TRIED="--compiled" FILES="$$(echo dist/*none-any.whl dist/*manylinux*x86_64.whl)"; \
		$(MAKE) --no-print-directory tried PYTHON=$$python FILES="$$(echo dist/*.tar.gz) numba"; done

tried:
	@echo "$(PYTHON): $(FILES)"
	@rm -rf .build/tried && $(PYTHON) -m venv .build/tried
	@.build/tried/bin/python $(INSTALL) -c constraints.txt $(FILES)
	@.build/tried/bin/penstock formats >/dev/null
	@.build/tried/bin/python tools/installed.py $(TRIED)

.venv/browser.stamp: .venv/dev.stamp
	$(PIP) --no-build-isolation --group browser
	@touch $@

.build/reference.stamp:
	@echo "installing the released Minari into .build/reference, to be measured beside"
	$(PYTHON) -m venv .build/reference
	$(REFERENCE) $(INSTALL) 'minari[hdf5,arrow,create]==0.5.4' pillow 'gymnasium[mujoco]'
	@touch $@

.build/peers.stamp:
	@echo "installing other loaders into .build/peers, to be measured beside"
	$(PYTHON) -m venv .build/peers
	$(PEERS) $(INSTALL) $(TORCH)
	$(PEERS) $(INSTALL) grain==0.2.18 jax torchdata==0.11.0 litdata==0.2.76 \
		mosaicml-streaming==0.13.0 webdataset==1.0.2 datasets==5.0.1 zarr==2.18.7 numcodecs==0.15.1 \
		torchrl==0.14.1 cpprb==11.0.0 stable-baselines3==2.9.2 flashbax==0.1.3
	$(PEERS) $(INSTALL) --no-deps trl==1.16.0 axolotl==0.19.0
	@touch $@

.build/trainers.stamp: examples/trainers/constraints.txt pyproject.toml
	@echo "installing the frameworks of examples/trainers into .build/trainers"
	$(PYTHON) -m venv .build/trainers
	$(TRAINERS) $(INSTALL) -c $< pip hatchling editables
	$(TRAINERS) $(INSTALL) -c $< $(TORCH)
	$(TRAINERS) $(INSTALL) -c $< --no-build-isolation -e '.[grain,gymnasium,jax,jit,plot,torch]' \
		-e packages/penstock-mirrors $(TRAINED) hypothesis pytest pytest-xdist sybil
	@touch $@

.build/tfds.stamp:
	@echo "installing TensorFlow Datasets into .build/tfds, to be measured beside"
	$(PYTHON) -m venv .build/tfds
	.build/tfds/bin/python $(INSTALL) tensorflow-cpu==2.21.0 tensorflow-datasets==4.9.10
	@touch $@

.build/zarr3.stamp:
	@echo "installing zarr 3 into .build/zarr3, to be measured beside"
	$(PYTHON) -m venv .build/zarr3
	.build/zarr3/bin/python $(INSTALL) zarr==3.1.6 numcodecs==0.16.6
	@touch $@

.build/lerobot.stamp:
	@echo "installing LeRobot into .build/lerobot, to be measured beside"
	$(PYTHON) -m venv .build/lerobot
	$(LEROBOT) $(INSTALL) $(TORCH)
	$(LEROBOT) $(INSTALL) --no-deps --ignore-requires-python \
		lerobot==0.6.1 torchvision==0.28.0 torchcodec==0.13.0
	$(LEROBOT) $(INSTALL) datasets==4.8.5 'huggingface_hub>=1.6,<2' 'av<16' \
		'draccus<0.12' jsonlines einops numpy==2.2.6 'pandas<3' 'pillow<13' pyarrow 'setuptools<82' 'packaging<26' \
		safetensors termcolor gymnasium opencv-python-headless deepdiff pytest
	$(LEROBOT) benchmarks/lerobot_for_python_311.py
	@touch $@

clean: ## remove the environment and everything built
	rm -rf .venv .build out

.venv/run.stamp: constraints.txt pyproject.toml packages/penstock-imitation/pyproject.toml
	@echo "installing what the demo needs into .venv"
	$(PYTHON) -m venv .venv
	$(PIP) pip hatchling editables
	$(PIP) $(TORCH)
	$(PIP) --no-build-isolation -e '.[demo]' -e packages/penstock-imitation
	@touch $@

.venv/examples.stamp: .venv/run.stamp
	@echo "installing JAX, which one of the examples needs, into .venv"
	$(PIP) --no-build-isolation -e '.[demo,jax]' -e packages/penstock-imitation
	@touch $@

.venv/dev.stamp: .venv/run.stamp magical-requirements.txt $(PACKAGES:%=%/pyproject.toml)
	@echo "installing what tests, checks and docs need into .venv"
	$(PIP) --no-build-isolation -e '.[all,demo,jit]' $(PACKAGES:%=-e %) --group dev --group docs
	$(PIP) --compile --no-build-isolation --no-deps -r magical-requirements.txt
	@touch $@
