# make repro   data → tokenize → train → evaluate → report; EXPERIMENT=smoke, SET='key=value …'
# make check   make lint: formatter, linter, types; and fast tests
# make test    all tests but those of make test-cluster, on Ray
# make mutants all wrong versions of our code, the test that notices each, and the survivors: none;
#              some of them: MUTANTS='KL encoder'
# make ui      MLflow, on this machine only  make format  apply the formatter
# make bench   speed and memory beside others: bench/benchmarks.md; BENCHMARKS='mapper decoding'
EXPERIMENT ?= quickstart
SET ?=
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PORT ?= 5000
BENCHMARKS ?=
MUTANTS ?=
TESTS := pytest -n 2 --dist worksteal
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export MLFLOW_DISABLE_TELEMETRY := true

.PHONY: repro check lint test test-fast test-cluster mutants format ui bench

repro: .venv/installed
	@python -m pipelines.compose experiment=$(EXPERIMENT) $(SET)
	@dvc --wait-for-lock repro
	@cat report/$(EXPERIMENT)/summary.txt

check:
	@$(MAKE) --jobs=2 lint test-fast # mypy has one process

lint: .venv/installed-dev
	ruff format --check .
	ruff check .
	mypy

test: .venv/installed-dev
	$(TESTS) -m "not cluster"

test-fast: .venv/installed-dev
	$(TESTS) -m "not slow and not cluster"

test-cluster: .venv/installed-dev # in one process, which has one cluster for all of them
	pytest -m cluster

mutants: .venv/installed-dev
	python -m tests.mutants $(MUTANTS)

format: .venv/installed-dev
	ruff format .
	ruff check --fix .

ui: .venv/installed
	@python -m pipelines.ui $(PORT)

bench: .venv/installed-bench
	PYTHONPATH=$(CURDIR)/.venv/peers python -m benchmarks $(BENCHMARKS)

.venv/bin/pip: # the last file that venv makes
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: Python 3.11 or later is needed; name one with PYTHON=…" >&2; exit 2; }
	"$(PYTHON)" -m venv --clear .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/pip
	.venv/bin/pip install --quiet --editable .
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt | .venv/bin/pip
	.venv/bin/pip install --quiet --editable '.[dev]'
	@touch $@ .venv/installed

# peers whose own pins contradict ours: without what they depend on, where nothing else sees them
.venv/installed-bench: benchmarks/peers.txt .venv/installed-dev
	.venv/bin/pip install --quiet --editable '.[dev,bench]'
	.venv/bin/pip install --quiet --no-deps --upgrade --target .venv/peers -r benchmarks/peers.txt
	@touch $@
