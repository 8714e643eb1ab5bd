# Everything runs in .venv, which these verbs make by themselves from nothing but Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
# One test more at once than there are processors: on two of them, three took 506 s, four 531 s (2026-11-24).
WORKERS = $(shell $(PYTHON) -c 'import os; print(min(4, 1 + (os.cpu_count() or 1)))')

# Python compiles cafcat and the tests once, not for each process.
export PYTHONDONTWRITEBYTECODE :=

# Of the random examples of explore, fuzz and nightly. A failure prints the seed.
SEED := $(shell $(PYTHON) -c 'import random; print(random.randrange(10**9))')

# Which part of the slow tests.
PART := 0/1

.PHONY: help demo test-fast test test-slow test-all test-all-pythons test-newest-python test-s3 check fmt bench bench-quick bench-catalog bench-s3 bench-scattered bench-doors crash together explore fuzz nightly schema sanitized wheel clean

help:  ## list these targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 20

# Whoever has seen the demo tries `cafcat serve` and `mount`, and not the tools of the tests, which take longer.
$(INSTALLED): pyproject.toml $(wildcard cafcat/native/source/*.c cafcat/native/source/*.h)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cafcat needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[mount,serve]'
	@touch $@

$(READY): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(INSTALLED)  ## ingest a real folder, read a file back, compare it, see the rows in SQL
	@sh tests/demo.sh $(BIN)

test-fast: $(READY)  ## the unit tests, and every verb once
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not slow and not s3" \
		tests/e2e/test_every_verb.py tests/unit

test: $(READY)  ## the tests, without the slow ones
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not slow"

test-slow: $(READY)  ## the tests that `make test` leaves out: all kill steps, formats and servers, 300,000 files, 6 GB; PART=0/3 for a third
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m slow --part $(PART)

test-all: test test-slow  ## all tests

test-all-pythons: $(READY)  ## the tests on every Python from 3.11 on that is found, on PATH or by pyenv
	$(BIN)/python -m tests.pythons

test-newest-python: $(READY)  ## unit and conformance tests, and every verb once, on the newest Python that is found
	$(BIN)/python -m tests.pythons --newest -- tests/unit tests/conformance tests/e2e/test_every_verb.py \
		tests/e2e/test_start_up.py tests/e2e/test_cli_manners.py

test-s3: $(READY)  ## the S3 suites against eight kinds of S3 servers; KIND="rclone moto" for some of them
	$(BIN)/python -m tests.s3_servers.suites $(KIND)

check: $(READY)  ## format, lint, types, import directions
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fmt: $(READY)  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## every target against its peers, in turn, as a table of ratios; two hours, 40 GB of disk
	$(BIN)/python -m tests.bench

bench-quick: $(READY)  ## a part of the benchmarks in two minutes, compared with tests/bench/baseline.json
	$(BIN)/python -m tests.bench --quick

bench-catalog: $(READY)  ## time of each verb in catalogs of ten thousand and of a million files; five minutes
	$(BIN)/python -m tests.bench.catalog

bench-s3: $(READY)  ## S3 reads against boto3 and obstore, ingest against aws s3 sync, as ratios
	$(BIN)/python -m tests.bench.s3_against_peers

bench-scattered: $(READY)  ## scattered files from a bucket behind 30 ms, against obstore; half a minute, needs nginx
	$(BIN)/python -m tests.bench --only scattered --rows 1000 --scale 0.01

bench-doors: $(READY)  ## servers, batches, mounts and data sets against their peers; half an hour, needs nginx and wrk
	$(BIN)/python -m tests.bench --only serving streams seaweed batches reading epochs --rows 1000 --files 1000

crash: $(READY)  ## SIGKILL before and after every write, request and statement of every verb; then a check of the remains
	$(BIN)/python -m tests.crash.campaign

together: $(READY)  ## several commands at the same time, some of them killed; then every byte is compared; SEED=n
	$(BIN)/python -m tests.crash.together --seed $(SEED)

explore: $(READY)  ## property tests with random examples; SEED=n repeats a run
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -q -n $(WORKERS) --hypothesis-seed=$(SEED) \
		-m "hypothesis and not slow"

fuzz: $(READY)  ## property tests with 10,000 examples each, a million damaged chunks, 200,000 odd requests; 40 minutes
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -q -n $(WORKERS) --hypothesis-seed=$(SEED) \
		--ignore tests/property/test_state_machine.py tests/property
	$(BIN)/python -m tests.fuzz
	$(BIN)/python -m tests.fuzz.native --seed $(SEED)
	$(BIN)/python -m tests.fuzz.server --seed $(SEED)

nightly: $(READY)  ## random histories against a dict: 10,000 steps of a state machine, with kills
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -q -p no:xdist --hypothesis-seed=$(SEED) \
		tests/property/test_state_machine.py

schema: $(READY)  ## write migrations/schema.sql from the migrations
	$(BIN)/python -m tests.migrations.snapshot

sanitized: $(READY)  ## tests of hostile indexes with the native part under AddressSanitizer and UBSan (needs gcc)
	sh tests/sanitized.sh $(BIN)

wheel: $(READY)  ## wheels with the native part for x86-64 and arm64, and one without, in dist/
	for target in x86_64 aarch64; do \
		CAFCAT_BUILD=zig CAFCAT_BUILD_TARGET=$$target $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist . || exit 1; \
	done
	CAFCAT_BUILD=none $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:  ## remove what these targets made: .venv with the installation, .demo and caches
	rm -rf $(VENV) .venvs .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
