# Every target sets up what it needs: a virtual environment in .venv, brought up to date when
# pyproject.toml or the lock changes; the demo installs what the README's commands take, the others
# what development takes.
# PYTHON names the interpreter it is made from (3.11.4 or newer), LOCK the versions of development;
# with LOCK= they are the newest.
PYTHON ?= python3
LOCK ?= requirements-dev.lock
# Of `make mutate` and `make fuzz`: a seed's run goes on where it stopped, and every day has another.
SEED ?= $(shell date +%Y%m%d)
COUNT ?= 60
FAST := not (network or e2e or stress)
VENV := .venv
BIN := $(VENV)/bin
DEV_READY := $(VENV)/.ready-dev
DOCS := .venv-docs

.PHONY: demo test test-smoke test-random test-slow test-stress mutate fuzz explore inputs faults \
  hardships check docs docs-links format bench lock hooks protos \
  sample-corpus recipes-table clean

demo: $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[corpus,plot,train]'
	$(BIN)/mlgo-gym demo --jobs 2

test: $(DEV_READY)
	$(BIN)/pytest -n auto --dist worksteal -m "$(FAST)" --durations 15

# The run prints the seed of its order first; ORDER= repeats it.
test-random: $(DEV_READY)
	$(BIN)/pytest -n auto --dist worksteal -m "$(FAST)" \
	  --random-order $(ORDER:%=--random-order-seed=%)

# One whole way through each command, some of which need PyPI.
test-smoke: $(DEV_READY)
	$(BIN)/pytest -n auto --dist worksteal -m smoke --durations 15 tests

test-slow: $(DEV_READY)
	$(BIN)/pytest -n auto --dist worksteal -m "(network or e2e) and not stress" --durations 15

test-stress: $(DEV_READY)
	$(BIN)/pytest -m stress --timeout 3600

mutate: $(DEV_READY)
	$(BIN)/python scripts/mutate.py --seed $(SEED) --count $(COUNT)

# SECONDS= for each reader in place of COUNT= inputs, `COUNT=` for the millions of a whole run; a
# seed's run goes on where it stopped. JOBS= readers at once.
fuzz: COUNT = 2000
fuzz: JOBS = 1
fuzz: $(DEV_READY)
	$(BIN)/python -m tests.fuzz --seed $(SEED) --jobs $(JOBS) $(COUNT:%=--count %) \
	  $(SECONDS:%=--seconds %) $(if $(TARGET),--target "$(TARGET)")

explore: $(DEV_READY)
	$(BIN)/pytest -n auto --dist worksteal -m hypothesis --hypothesis-profile explore \
	  --timeout 7200 --durations 15

# Goes on where it stopped, as `make mutate` does; LAST= is the last call of a kind that fails, ONLY=
# the scenarios, KIND= what happens.
inputs: $(DEV_READY)
	$(BIN)/python -m tests.faults.inputs $(ONLY)

hardships: $(DEV_READY)
	$(BIN)/python -m tests.faults.hardships $(ONLY)

faults: $(DEV_READY)
	$(BIN)/python -m tests.faults $(LAST:%=--last %) $(if $(ONLY),--only $(ONLY)) $(if $(KIND),--kind $(KIND))

# The documentation's site, in an environment of its own: build/site/index.html.
docs: $(DOCS)/.ready
	$(DOCS)/bin/python -m scripts.docs_site

docs-links: $(DOCS)/.ready
	$(DOCS)/bin/python -m scripts.docs_site linkcheck

check: $(DEV_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/reuse lint --quiet

format: $(DEV_READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The measurements that need no arguments; the others are commands of their own (benchmarks/).
bench: $(DEV_READY)
	$(BIN)/python -m benchmarks

# Newer versions for development: whatever pyproject.toml allows today, for every Python.
lock: $(DEV_READY)
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11.4 --upgrade \
	  --custom-compile-command "make lock" --quiet --output-file requirements-dev.lock

hooks: $(DEV_READY)
	$(BIN)/pre-commit install

protos: $(DEV_READY)
	$(BIN)/python protos/generate.py

sample-corpus: $(DEV_READY)
	$(BIN)/python scripts/sample_corpus.py

recipes-table: $(DEV_READY)
	$(BIN)/python -m scripts.recipes_table docs/guides/recipes.md docs/environments/workloads.md

clean:
	rm -rf $(VENV) build dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("mlgo_gym needs Python 3.11.4 or newer, found " + sys.version.split()[0] + "; name another: make PYTHON=...") if sys.version_info < (3, 11, 4) else None'
	$(PYTHON) -m venv $(VENV)

$(DOCS)/.ready: docs/requirements.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $< \
	  --editable '.[corpus,datasets,grpc,plot]' || \
	  { echo "make docs: expected the packages of $< from an index, found none of them" >&2; exit 1; }
	touch $@

$(DEV_READY): pyproject.toml $(LOCK) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  $(LOCK:%=--constraint %) --editable '.[dev]'
	touch $@
