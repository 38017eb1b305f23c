# make repro   data → tokenize → train → evaluate → report; EXPERIMENT=smoke, SET='key=value …';
#              JOBS=2 runs two stages side by side (by default as many as fit), JOBS=ray on Ray;
#              another one in this folder is waited for, unless WAIT=0
# make check   in two minutes: make lint (formatter, linter, schemas, types) and the quick half of the tests
# make doctor  what this machine lacks, and what that costs
# make test    all tests but those of make test-slow, which take long: whole trainings, servers; and those
#              of make test-cluster, on Ray
# make mutants each mistake that a test declares with @rejects is made, and that test must fail; some of
#              them: MUTANTS='KL encoder', or MUTANTS=--only-recent
# make mutation  mistakes made by rule that no test notices: hours, but a call goes on where the one before
#              ended; MODULES='train model' for some packages, or MODULES='--only-recent --minutes=3'
# make golden  freezes the curves of tests/golden/ anew, and says which moved
# make ui      MLflow, on this machine only  make format  apply the formatter
# make docs    the site with all pages and the gallery, to be read without a network: site/index.html
# make plots   the training curves, drawn by DVC without a network: dvc_plots/index.html
# make experiments   DVC's experiments: each run's bound, and what was overridden
# make bench   speed and memory beside others: bench/perf.md; MEASURE='mapper decoding'
# make gpu     on a machine with a GPU: PyTorch for it, tests, speed targets, a slice of training, in
#              MINUTES=50 at most: bench/gpu/<date>_<device>.md; called again, it goes on
EXPERIMENT ?= quickstart
SET ?=
JOBS ?=
WAIT ?= 1
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PORT ?= 5000
MEASURE ?=
MINUTES ?= 50
MUTANTS ?=
MODULES ?=
# make would ignore a name that it does not know, such as experiment=tiny, and run quickstart
SETTINGS := EXPERIMENT SET JOBS WAIT PYTHON PORT MEASURE MINUTES MUTANTS MODULES INSTALL TESTS QUICK
$(foreach word,$(MAKEOVERRIDES),$(foreach name,$(firstword $(subst =, ,$(word))),\
	$(if $(and $(filter command,$(origin $(name))),$(filter-out $(SETTINGS),$(name))),\
	$(error $(name)= is no setting of this Makefile: $(wordlist 1,10,$(SETTINGS)). A variable of the \
	environment stands before `make`))))
# not compiled: Python compiles what is imported, a part, in seconds; setuptools warns of editable
INSTALL := PYTHONWARNINGS=ignore .venv/bin/pip install --quiet --no-compile --editable
TESTS := pytest -n 2 --dist worksteal
marked = $(shell grep -rl --include='test_*.py' 'mark\.$1' tests | sort) # seconds less than collecting all
# packages whose tests train nothing and compose little
QUICK := analysis artifacts common compare conversion data designs evaluate hydra_plugins inference \
	kernels model parallel synthetic tokenize examples test_layers.py test_library.py test_mutants.py test_scaling.py
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# relative, as pip takes a space for the end of a path
export PIP_CONSTRAINT := constraints.txt
# an account's pip.conf may say `user = true`, which fails in .venv
export PIP_USER := 0
export MLFLOW_DISABLE_TELEMETRY := true
# they would bind the tests' processes to the same core
unexport GOMP_CPU_AFFINITY KMP_AFFINITY OMP_PLACES OMP_PROC_BIND
# containers often set it: each process would compile all that it imports
export PYTHONDONTWRITEBYTECODE :=

.PHONY: repro doctor check lint quick test test-slow test-cluster mutants mutation golden format ui \
	plots experiments bench gpu docs

repro: .venv/installed
	@python -m pipelines.cli repro $(if $(filter 0,$(WAIT)),--no-wait) $(JOBS:%=--jobs %) \
		experiment=$(EXPERIMENT) $(SET)

doctor: .venv/installed
	@python -m pipelines.cli doctor

check: .venv/installed-dev
	@$(MAKE) --jobs=2 lint quick # mypy has one process

lint: .venv/installed-dev
	ruff format --check .
	ruff check .
	pre-commit validate-config
	check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	check-jsonschema --builtin-schema vendor.github-issue-forms \
		$(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	mypy

quick: .venv/installed-dev
	$(TESTS) -m "not slow and not cluster" $(QUICK:%=tests/%)

test: .venv/installed-dev
	$(TESTS) -m "not slow and not cluster"

test-slow: .venv/installed-dev
	$(TESTS) -m "slow and not cluster" $(call marked,slow)

test-cluster: .venv/installed-dev # in one process, which has one cluster for all of them
	pytest -m cluster $(call marked,cluster)

mutants: .venv/installed-dev
	python -m tests.mutants $(MUTANTS)

mutation: .venv/installed-dev
	python -m tests.mutation $(MODULES)

golden: .venv/installed-dev
	python -m tests.golden

format: .venv/installed-dev
	ruff format .
	ruff check --fix .

ui: .venv/installed
	@python -m pipelines.cli ui --port $(PORT)

docs: .venv/installed-dev
	@NO_MKDOCS_2_WARNING=1 mkdocs build
	@echo site/index.html

plots: .venv/installed
	@.venv/bin/pip install --quiet vl-convert-python
	@python -m pipelines.cli plots

experiments: .venv/installed
	@python -m pipelines.cli experiments

bench: .venv/installed-dev
	python -m perf $(MEASURE)

gpu: # PyTorch for it before what depends on PyTorch; `==` would leave 2.13.0+cpu where 2.13.0 is due
	@nvidia-smi -L 2>&1 | grep -q '^GPU' || { echo "error: no GPU on this machine, by nvidia-smi;" \
		"\`python -m perf.gpu --rehearse\` goes through it on a CPU" >&2; exit 2; }
	@$(MAKE) --no-print-directory .venv/bin/pip
	@torch=$$(sed -n 's/^torch==//p' constraints.txt); \
	case $$(nvidia-smi | sed -nE 's/.*CUDA[A-Za-z ]* Version: *([0-9]+).*/\1/p') in \
		1[3-9] | [2-9]?) set "torch===$$torch" ;; \
		12) set "torch===$$torch+cu126" --extra-index-url https://download.pytorch.org/whl/cu126 ;; \
		*) echo "error: PyTorch $$torch needs a driver that supports CUDA 12 or later," \
			"and nvidia-smi names none" >&2; exit 2 ;; \
	esac; echo "installing $$1, unless it is there"; .venv/bin/pip install --quiet "$$@"
	@$(MAKE) --no-print-directory .venv/installed-dev
	@python -m perf.gpu --minutes $(MINUTES)

.venv/bin/pip: # the last file that venv makes; the newer pip of constraints.txt takes half the time
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: Python 3.11 or later is needed; name one with PYTHON=…" >&2; exit 2; }
	"$(PYTHON)" -m venv --clear .venv
	@.venv/bin/pip install --quiet --upgrade pip

.venv/installed: pyproject.toml constraints.txt | .venv/bin/pip
	$(INSTALL) '.[lab,cluster,suite,export]'
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt | .venv/bin/pip
	$(INSTALL) '.[dev]'
	@touch $@ .venv/installed
