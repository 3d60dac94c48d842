# Every target sets itself up in .venv first: Python 3.11 or newer with venv and pip is all it needs.
#
#   make lab        the notebooks, in JupyterLab
#   make demo       train LeNet with four ranks and say what was measured (under a minute)
#   make serve      the web app, on this machine's own address only
#   make test       every law on a sample of cases; the browser; the notebooks
#   make test-all   the same, on the full product of cases
#   make test-launchers  ranks of a real Slurm, Ray and Spark
#   make test-image  the container's steps in a clean root file system (root, Debian)
#   make check      format, lint, types, the tests of the JavaScript
#   make bench      speed against Gloo (and MPI, where mpi4py is installed); frames of the picture
#   make soak       an hour of runs that are killed, frozen and cut off: nothing may be left of them
#   make fuzz       five minutes of input that nobody would write: specs, links, forms, saved runs ...
#   make picture    the README's moving picture, taken again from a real run
#   make notebooks  run the notebooks and keep what they show
#   make site       the documentation site, in build/site: chapters, replays, guides, reference
#   make wheels     wheels for x86-64 and aarch64, with the mover compiled
#   make mover      compile the C sources again; every other target does it, when they have changed
#   make clean      remove .venv and the caches; runs/ stays
#
#   PYTHON=python3.12           which Python makes .venv
#   TORCH="torch==2.11.0"       which torch: words for `pip install`, such as
#   TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cu130"
#   WORKERS=0                   tests one by one; otherwise three files at a time

PYTHON ?= python3
PINNED := torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TORCH ?= $(shell cat $(READY) 2>/dev/null)
CPU_WHEELS := https://download.pytorch.org/whl/cpu
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest -q -p no:nbval
ALONE = $(shell grep -rl --include='test_*.py' mark.alone tests)
NBVAL := --nbval-lax --nbval-current-env --nbval-cell-timeout=900
CHAPTERS = $(sort $(wildcard notebooks/*.ipynb))
# Chapters that expect of what they measure to within a few percent: they want idle cores (03, 04, 06
# and 14 were seen to fail on busy ones). And long ones.
FINE = $(wildcard $(patsubst %,notebooks/%*,03 04 06 09 10 13 14))
LONG = $(wildcard $(patsubst %,notebooks/%*,05 07 08 11 16 17 18 19 21))
FORMATTED = 'assets/**/*.js' 'tests/js/**/*.{js,mjs}' 'workbench/**/*.js'

NODE = command -v node >/dev/null || \
	{ echo "make $@: the tests of the JavaScript need node 20 or newer, and there is none on PATH"; exit 1; }

# What every target needs: .venv, and the mover compiled from the sources as they are.
NATIVE := workbench/native
COMPILED := build/mover
SET_UP := $(READY) $(COMPILED)

.PHONY: lab demo serve test test-all test-launchers test-image check bench soak fuzz picture notebooks site wheels mover clean again
.DEFAULT_GOAL := demo

lab demo serve: $(SET_UP)
	@$(BIN)/workbench $@

# Three files at a time, because most of what tests do is wait; then, one by one, those that would
# disturb each other. WORKERS=0: all of them one by one. So too with the notebooks; every number that
# FINE and LONG ones assert is a test's subject elsewhere, so that they run under make test-all only.
# Python keeps what it compiled (the tests, above all), whatever the environment says.
test test-all: export PYTHONDONTWRITEBYTECODE :=
test: MARKS := not benchmark and not full and not cluster
test: PROFILE := sample
test: NOTEBOOKS = $(filter-out $(FINE) $(LONG),$(CHAPTERS))
test-all: MARKS := not benchmark and not cluster
test-all: PROFILE := full
test-all: NOTEBOOKS = $(filter-out $(FINE),$(CHAPTERS))
test-all: ONE_BY_ONE = $(FINE)
test test-all: $(SET_UP)
	@$(NODE)
	@$(BIN)/python -m tests.browser.install
	$(if $(filter test-all,$@),$(BIN)/pip install --quiet -e ".[site]")
	$(if $(filter test-all,$@),$(BIN)/python -m tests.attaching.install)
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "$(MARKS) and not alone" --hypothesis-profile=$(PROFILE) tests
	$(PYTEST) -m "$(MARKS) and alone" --hypothesis-profile=$(PROFILE) $(ALONE)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile $(NBVAL) $(NOTEBOOKS)
	$(if $(ONE_BY_ONE),$(BIN)/python -m pytest -q $(NBVAL) $(ONE_BY_ONE))

# Sets up what it needs as far as it can (pip; as root also apt); a test says why it is not run.
test-launchers: $(SET_UP)
	$(BIN)/python -m tests.launchers.install
	$(PYTEST) -m cluster tests/launchers tests/drop_in/test_restarts.py tests/runs/test_attach.py

# TORCH: as above, where the index of the Dockerfile cannot be reached.
test-image: $(SET_UP)
	command -v debootstrap >/dev/null || apt-get install --yes debootstrap
	$(BIN)/python -m tests.image $(if $(filter command,$(word 1,$(origin TORCH))),--arg "TORCH=$(TORCH)")

check: $(SET_UP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(NODE)
	npx --yes prettier@3.6.2 --check --log-level warn $(FORMATTED)
	npx --yes -p typescript@5.9.3 tsc -p tests/js/tsconfig.json
	node tests/js/all.js
	$(BIN)/python -m tests.words
	@$(BIN)/python -m tests.notebooks --stale

bench: $(SET_UP)
	$(BIN)/python -m tools.benchmarks

soak: $(SET_UP)
	$(BIN)/python -m tools.soak --minutes 60

# From new seeds each time; a case that fails is kept in runs/fuzz, and said how to have it again.
fuzz: $(SET_UP)
	$(BIN)/python -m tools.fuzz --seconds 300

picture: $(SET_UP)
	$(BIN)/python -m tests.browser.picture

notebooks: $(SET_UP)
	$(BIN)/python -m tests.notebooks

site: $(SET_UP)
	$(BIN)/pip install --quiet -e ".[site]"
	$(BIN)/python -m docs.site build/site

# For processors of both kinds, and C libraries from 2.17 on, whatever this machine is.
wheels: $(SET_UP)
	WORKBENCH_WHEEL=x86_64 $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	WORKBENCH_WHEEL=aarch64 $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp holds the torch that was asked for; asking for another one sets up again.
ifneq ($(TORCH),$(shell cat $(READY) 2>/dev/null))
$(READY): again
endif

# Without an NVIDIA driver PyTorch's CPU wheels do: 200 MB instead of 3 GB. Where their index cannot
# be reached (a mirror, no network), pip decides.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
	"make: the workbench needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0] + "; name another one: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@set -e -f; want='$(TORCH)'; \
	if [ -z "$$want" ]; then \
	  want='$(PINNED)'; \
	  if ! command -v nvidia-smi >/dev/null && ! [ -e /proc/driver/nvidia/version ] && \
	    $(BIN)/python -c 'import urllib.request as u; u.urlopen("$(CPU_WHEELS)/torch/", timeout=5)' 2>/dev/null; \
	  then want='$(PINNED) --index-url $(CPU_WHEELS)'; fi; \
	fi; \
	pip="$(BIN)/python -m pip install --quiet --disable-pip-version-check"; \
	echo "Setting up $(VENV), once, in a few minutes: $$want"; $$pip $$want; \
	echo "Setting up $(VENV): the workbench and what it stands on"; \
	WORKBENCH_ZIG=1 $$pip -e '.[all]' || $$pip -e '.[all]'; \
	echo "$$want" >$@

# In a second where there is a C compiler. Where there is none, pip brings zig's for the build, 98 MB;
# where it cannot, Python does the mover's work. The stamp says what there was.
ifeq ($(wildcard $(NATIVE)/_mover.abi3.so)$(filter none,$(file <$(COMPILED))),)
$(COMPILED): again
endif

$(COMPILED): $(wildcard $(NATIVE)/*.[ch]) $(NATIVE)/build.py | $(READY)
	@mkdir -p build
	@$(BIN)/python $(NATIVE)/build.py && echo compiled >$@ || \
	{ WORKBENCH_ZIG=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e . && \
	test -e $(NATIVE)/_mover.abi3.so && echo compiled >$@; } || echo none >$@

mover:
	@$(firstword $(wildcard $(BIN)/python) $(PYTHON)) $(NATIVE)/build.py
	@mkdir -p build && echo compiled >$(COMPILED)
