# Everything runs in .venv, which is made on first use with plain pip and pinned versions.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH := PYTHONPATH=$(CURDIR)/benchmarks $(BIN)/python
# An environment variable, so that pip also pins what builds the package.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start Python some hundred times; without bytecode on disk, each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo postgres java chromium flower test test-all check bench bench-all environments accuracy realdata figure peers federated hostile scaling timing groups wide experiments gallery screenshots tutorial fuzz fuzz-all docs wheel clean realgroups

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 13

demo: $(READY)  ## a private mean of real data by person, from a fresh machine
	@$(BIN)/python examples/demo.py

# One thread of linear algebra for each of two workers: more would wait for each other in a loop that takes both cores.
# `make test-all` leaves the number of threads as users have it.
test: $(READY) postgres java chromium  ## the test suite
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q

test-all: $(READY) postgres java chromium flower  ## the test suite with its slow statistical parts
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m ""

postgres:  ## the PostgreSQL server that tests start, from Debian's packages, unless there is one
	@scripts/install-postgres

flower:  ## the environment of Flower, for its tests and examples/flower; about a gigabyte
	-@$(PYTHON) scripts/make_flower_environment.py

java:  ## the Java that Spark runs on, from Debian's packages, unless there is one
	@scripts/install-java

chromium:  ## the browser that tests of the page open, from Debian's packages, unless there is one
	@scripts/install-chromium

check: $(READY)  ## format, lint, types, and who may import what
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY) environments  ## speed beside plain DuckDB, growth, other libraries, rough accuracy and scaling; short
	$(BENCH) -m speed.suite --quick
	$(BENCH) -m speed.huber_location
	$(BENCH) -m speed.noise
	$(BENCH) -m speed.ledger
	$(BENCH) -m speed.sources --rows 300000 --users 30000 --repeats 3
	$(BENCH) -m accuracy.run --quick
	OPENBLAS_NUM_THREADS=1 $(BENCH) -m scaling.run --quick

bench-all: $(READY) environments  ## speed, growth and other libraries at full size, into benchmarks/RESULTS.md; hours
	$(BENCH) -m speed.suite --write benchmarks/RESULTS.md

environments: java  ## an environment for each other library; what cannot be made is left out
	-@$(PYTHON) benchmarks/peers/runners/make_environments.py

accuracy: $(READY)  ## error beside the non-private mean's, into docs/evidence/accuracy.md; half an hour
	$(BENCH) -m accuracy.run --markdown docs/evidence/accuracy.md

realdata: $(READY)  ## real tables and simulated laws with defaults only, into docs/evidence/realdata.md; a quarter of an hour
	OPENBLAS_NUM_THREADS=1 $(BENCH) -m realdata --markdown docs/evidence/realdata.md --images docs/img
	$(BENCH) -m realdata.plots docs/evidence/realdata.md docs/img/comparison.svg

figure: $(READY)  ## the figure of the README, drawn from docs/evidence/realdata.md
	$(BENCH) -m realdata.plots docs/evidence/realdata.md docs/img/comparison.svg

hostile: $(READY)  ## what hostile users can do, into docs/img/hostile.svg
	$(BENCH) -m accuracy.hostile --plot docs/img/hostile.svg

scaling: $(READY)  ## time and memory against users and columns, into docs/evidence/scaling.md
	OPENBLAS_NUM_THREADS=1 $(BENCH) -m scaling.run --markdown docs/evidence/scaling.md --plot docs/img/scaling.svg

timing: $(READY)  ## what the time of a release tells about the data, into docs/evidence/timing.md; five minutes
	OPENBLAS_NUM_THREADS=1 $(BENCH) -m speed.timing --markdown docs/evidence/timing.md

experiments: $(READY)  ## the paper's figures, every method, into experiments/results; about an hour, and goes on after a stop
	$(BIN)/hubermean reproduce --out experiments/results

screenshots: $(READY) chromium  ## pictures of example reports and of the page into docs/img
	$(BIN)/python docs/tools/screenshots.py

peers: $(READY) environments  ## beside OpenDP, PipelineDP and diffprivlib, in environments of their own, into docs/evidence/peers.md; half an hour
	$(BENCH) -m peers.run --markdown docs/evidence/peers.md

federated: $(READY) flower  ## private rounds under attack, beside Flower and byzfl, into docs/evidence/federated.md; hours, and goes on after a stop
	-@$(PYTHON) benchmarks/peers/runners/make_environments.py byzfl
	$(BENCH) -m federated.fetch
	OPENBLAS_NUM_THREADS=1 $(BENCH) -m federated --missing --markdown docs/evidence/federated.md --images docs/img

groups: $(READY)  ## 10,000 private means beside DuckDB's grouped average, in one process
	$(BENCH) -m speed.groups

wide: $(READY)  ## exact sums of 16 and 100 columns, and of one, beside DuckDB's averages, in one process
	$(BENCH) -m speed.wide

realgroups: $(READY)  ## means by group on real tables beside other libraries, into docs/evidence/groups.md; ten minutes
	OPENBLAS_NUM_THREADS=1 $(BENCH) -m groups --markdown docs/evidence/groups.md --images docs/img

gallery: $(READY)  ## the figures of docs/evidence/gallery.md, into docs/img/
	$(BENCH) -m accuracy.gallery docs/img

tutorial: $(READY)  ## what the examples of the documentation print, into its pages
	$(BIN)/python docs/tools/run_examples.py --write

TARGET ?= files
SECONDS ?= 3600

fuzz: $(READY)  ## hostile input: make fuzz TARGET=files SECONDS=600; see fuzz/README.md
	$(BIN)/python -m fuzz $(TARGET) --seconds $(SECONDS)

fuzz-all: $(READY)  ## every target, two at a time, an hour each, into fuzz/RESULTS.md
	$(BIN)/python -m fuzz all --seconds $(SECONDS) --at-once 2 --write fuzz/RESULTS.md

docs: $(READY)  ## the documentation site, into site/; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: $(READY)  ## build the package into dist/
	$(BIN)/python -m build

clean:  ## remove what make made
	rm -rf $(VENV) .venv-flower dist build site demo-data benchmarks/data benchmarks/peers/runners/.venv-* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(READY): pyproject.toml experiments/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hubermean needs Python 3.11 or newer; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -e '.[dev]' -e experiments
	@touch $@
