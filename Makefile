# Everything runs in .venv, which is made on first use with plain pip and pinned versions.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# An environment variable, so that pip also pins what builds the package.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo postgres java test test-all check bench bench-all environments accuracy realdata peers hostile scaling timing groups experiments gallery screenshots tutorial fuzz fuzz-all docs wheel clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 13

demo: $(READY)  ## a private mean of real data by person, from a fresh machine
	@$(BIN)/python examples/demo.py

test: $(READY) postgres java  ## the test suite
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

test-all: $(READY) postgres java  ## the test suite with its slow statistical parts
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m ""

postgres:  ## the PostgreSQL server that tests start, from Debian's packages, unless there is one
	@scripts/install-postgres

java:  ## the Java that Spark runs on, from Debian's packages, unless there is one
	@scripts/install-java

check: $(READY)  ## format, lint, types, and who may import what
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY) environments  ## speed beside plain DuckDB, growth, other libraries, rough accuracy and scaling; short
	$(BIN)/python benchmarks/suite.py --quick
	$(BIN)/python benchmarks/location.py
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/ledger.py
	$(BIN)/python benchmarks/accuracy.py --quick
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/scaling.py --quick

bench-all: $(READY) environments  ## speed, growth and other libraries at full size, into benchmarks/RESULTS.md; hours
	$(BIN)/python benchmarks/suite.py --write benchmarks/RESULTS.md

environments: java  ## an environment for each other library; what cannot be made is left out
	-@$(PYTHON) benchmarks/peer_runners/make_environments.py

accuracy: $(READY)  ## error beside the non-private mean's, into docs/accuracy.md; half an hour
	$(BIN)/python benchmarks/accuracy.py --markdown docs/accuracy.md

realdata: $(READY)  ## real tables and simulated laws with defaults only, into docs/realdata.md; a quarter of an hour
	OPENBLAS_NUM_THREADS=1 PYTHONPATH=benchmarks $(BIN)/python -m realdata --markdown docs/realdata.md --images docs/img

hostile: $(READY)  ## what hostile users can do, into docs/img/hostile.svg
	$(BIN)/python benchmarks/hostile.py --plot docs/img/hostile.svg

scaling: $(READY)  ## time and memory against users and columns, into docs/scaling.md
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/scaling.py --markdown docs/scaling.md --plot docs/img/scaling.svg

timing: $(READY)  ## what the time of a release tells about the data, into docs/timing.md; five minutes
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/timing.py --markdown docs/timing.md

experiments: $(READY)  ## the paper's figures, every method, into experiments/; about an hour, and goes on after a stop
	$(BIN)/hubermean reproduce --out experiments

screenshots: $(READY)  ## pictures of example reports into docs/img; needs Chromium
	$(BIN)/python docs/tools/screenshots.py

peers: $(READY) environments  ## beside OpenDP, PipelineDP and diffprivlib, in environments of their own, into docs/peers.md; half an hour
	$(BIN)/python benchmarks/peers.py --markdown docs/peers.md

groups: $(READY)  ## 10,000 private means beside DuckDB's grouped average, in one process
	$(BIN)/python benchmarks/groups.py

gallery: $(READY)  ## the figures of docs/gallery.md, into docs/img/
	$(BIN)/python benchmarks/gallery.py docs/img

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
	rm -rf $(VENV) dist build site demo-data benchmarks/data benchmarks/peer_runners/.venv-* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hubermean needs Python 3.11 or newer; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@
