# `make demo` and `make test` set up everything themselves, in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

NATIVE := CMakeLists.txt $(shell find native -type f -name '*.[ch]pp' 2>/dev/null)

DOCS := build/site

.PHONY: setup setup-demo docs claim-tools demo wheel lock test test-all matrix fuzz lint types stub bench ptx-tools ptx-check ptx-table gpu-emulate \
  gpu-memcheck gpu-racecheck gpu-check fault-check judge-check test-aarch64 exhaustive clean help

help:
	@echo "make demo          train, audit, catch two cheats (sets up .venv first, with what this needs)"
	@echo "make test          the test suite (sets up .venv first)"
	@echo "make test-all      the same with every case of the tests that take a sample"
	@echo "make matrix        every attack, seat and number of parties, in memory (minutes)"
	@echo "make fuzz          every decoder of foreign bytes, coverage-guided (FUZZ_SECONDS=600)"
	@echo "make claim-tools   the tools of others that read claims (docs/CLAIMS.md), into build/claim-tools"
	@echo "make docs          the documentation, into build/site/index.html; without a network after the first time"
	@echo "make lint types    ruff, mypy --strict"
	@echo "make stub          src/tallystick/_core.pyi, from the native module"
	@echo "make bench         GEMM and whole-step ratios against PyTorch, as JSON"
	@echo "make ptx-check     the device kernels' compiled code, read for three architectures"
	@echo "make ptx-table     docs/proofs/ptxas.md, from the same"
	@echo "make gpu-emulate   every golden vector on the device kernels' sources, run on the host"
	@echo "make gpu-memcheck  the same, with a look at every address that a kernel reads or writes"
	@echo "make gpu-racecheck the same, with a look for accesses that nothing orders"
	@echo "make gpu-check     on a machine with a GPU: everything that needs one, in 8 minutes"
	@echo "make fault-check   a planted one-bit fault in each instruction set must fail the vectors"
	@echo "make judge-check   the judge in TypeScript: types, lint, tests (needs Node 20)"
	@echo "make test-aarch64  kernel vectors in an aarch64 build under qemu-user"
	@echo "make wheel         a wheel of this tree, and the check of a wheel in a fresh environment"
	@echo "make lock          requirements.lock, from pyproject.toml and constraints.txt"
	@echo "make exhaustive    all 2^32 inputs of every elementary function (needs MPFR; hours)"

setup: $(VENV)/.ready

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Tallystick needs Python 3.10 or newer; set PYTHON=/path/to/python3"; exit 3; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@touch $@

# What the package itself needs, and PyTorch: enough for the demo.
$(VENV)/.needs: $(VENV)/.python constraints.txt pyproject.toml
	@command -v cmake >/dev/null || { echo "cmake is missing: install it and run make again"; exit 3; }
	@command -v $${CXX:-c++} >/dev/null || { echo "No C++ compiler: install g++ or clang"; exit 3; }
	@echo "installing dependencies into $(VENV) (PyTorch is the large one) ..."
	$(PIP) install -q -c constraints.txt scikit-build-core nanobind ninja
	$(PIP) install -q -c constraints.txt torch xxhash numpy cryptography click rich
	@touch $@

$(VENV)/.built: $(VENV)/.needs $(NATIVE)
	@echo "building the C++ core ..."
	$(PIP) install -q --no-build-isolation --no-deps -e .
	@touch $@

# What the tests use besides.
$(VENV)/.ready: $(VENV)/.built constraints.txt
	@echo "installing the libraries that the tests take ..."
	$(PIP) install -q -c constraints.txt safetensors \
	  pytest pytest-xdist hypothesis mpmath jsonschema zstandard starlette uvicorn httpx2 openai trustme obstore cuda-bindings nvidia-cuda-nvrtc
	$(PIP) install -q -c constraints.txt transformers peft lightning onnx pyarrow pillow tokenizers datasets
	@touch $@

# The tools of others that read claims and curves (docs/CLAIMS.md): beside the environment, not into it.
# pyopenssl: model-signing imports it and does not ask for it. sqlalchemy, alembic: MLflow's own database.
CLAIM_TOOLS = build/claim-tools
claim-tools: setup $(CLAIM_TOOLS)/.ready
$(CLAIM_TOOLS)/.ready: constraints.txt | $(VENV)/.ready
	$(PIP) install -q -c constraints.txt --upgrade --target $(CLAIM_TOOLS) model-signing pyopenssl securesystemslib \
	  in-toto-attestation "cyclonedx-python-lib[json-validation]" tensorboard wandb mlflow-skinny sqlalchemy alembic
	@touch $@

setup-demo: $(VENV)/.built

demo: setup-demo
	$(BIN)/tallystick demo

# dist/ is emptied of older wheels: the check takes the one that fits this Python.
wheel: $(VENV)/.python
	rm -f dist/tallystick-*.whl
	$(PIP) wheel -q --no-deps -w dist .
	$(BIN)/python .ci/check_wheel.py dist

# Without torch, whose builds without CUDA are on another index: a digest of one index fits no other's file.
LOCKED := train zstd service objects answers data onnx
lock: $(VENV)/.python
	$(PIP) install -q -c constraints.txt uv
	$(BIN)/uv pip compile -q pyproject.toml --universal --python-version 3.10 $(LOCKED:%=--extra %) \
	  -c constraints.txt --override .ci/without_cuda.txt --no-emit-package torch --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" -o requirements.lock

# Two workers, a file to each in turn, in the order of their names. JOBS=0 runs everything in one process.
# Tests start some hundred processes: each would compile the package again without its bytecode. numpy's threads
# would spin on the processor that the other worker wants (tallystick/cli/__init__.py).
JOBS ?= 2
PYTEST = PYTHONDONTWRITEBYTECODE= OPENBLAS_THREAD_TIMEOUT=$${OPENBLAS_THREAD_TIMEOUT:-4} $(BIN)/python -m pytest
test: setup
	$(PYTEST) -n $(JOBS) --dist loadfile --no-loadscope-reorder

test-all: setup
	$(PYTEST) -n $(JOBS) --dist loadfile --no-loadscope-reorder --exhaustive

# Every attack in sessions of 2, 3 and 5 parties, both seats; 32 and 64 parties (docs/proofs/sessions.md).
matrix: setup
	PYTHONPATH=tests $(BIN)/python tests/adversary/session_matrix.py

# atheris is no part of the test environment. FUZZ keeps corpora and counts; the same command goes on.
FUZZ ?= build/fuzz
FUZZ_SECONDS ?= 600
fuzz: setup
	$(PIP) install -q -c constraints.txt atheris
	PYTHONPATH=tests $(BIN)/python tests/adversary/fuzzing/slices.py --work $(FUZZ) --seconds $(FUZZ_SECONDS)

lint: $(VENV)/.python
	$(PIP) install -q -c constraints.txt ruff
	$(BIN)/ruff check src tests benchmarks attacks examples native/tools docs/site .ci
	$(BIN)/ruff format --check src tests benchmarks attacks examples native/tools docs/site .ci

types: setup
	$(PIP) install -q -c constraints.txt mypy
	$(BIN)/mypy

# The tools of the site are installed once. The build itself loads nothing; a warning or a broken link ends it.
$(VENV)/.docs: docs/requirements.txt | $(VENV)/.ready
	$(PIP) install -q -c constraints.txt -r docs/requirements.txt
	@touch $@

docs: setup $(VENV)/.docs
	PYTHONDONTWRITEBYTECODE=1 $(BIN)/python -m sphinx -W --keep-going -q -c docs/site -b html . $(DOCS)
	@echo "open $(DOCS)/index.html"

# The types of the native module, after a change of its bindings.
stub: setup
	$(BIN)/python native/tools/make_stub.py

bench: setup
	$(BIN)/tallystick bench gemm --json
	$(BIN)/tallystick bench step --json

# The compiler has an environment of its own: the product does not need it.
build/nvcc/.ready: native/tools/device_code/toolkit.txt
	$(PYTHON) -m venv build/nvcc
	build/nvcc/bin/python -m pip --disable-pip-version-check install -q -r $<
	@touch $@

ptx-tools: build/nvcc/.ready

# The PTX for three architectures, machine code and registers for one; ptx-table assembles for all.
ptx-check: setup ptx-tools
	PYTHONPATH=native/tools $(BIN)/python -m device_code --toolkit build/nvcc

ptx-table: setup ptx-tools
	PYTHONPATH=native/tools $(BIN)/python -m device_code --toolkit build/nvcc --write

# The device kernels without a GPU: their sources run on the host.
gpu-emulate: setup
	PYTHONPATH=tests:tests/vectors $(BIN)/python tests/gpu/emulate.py

gpu-memcheck gpu-racecheck: setup
	$(BIN)/python -m pytest -q --exhaustive tests/gpu/test_watched.py -k $(@:gpu-%=%)
	PYTHONPATH=tests:tests/vectors $(BIN)/python tests/gpu/emulate.py --seeds 1 --watch $(@:gpu-%=%)

# The judge in TypeScript: types, lint, tests. Needs Node 20 and npm. Not `npm ci`: vite names an optional
# package for Windows that not every registry has, so the lock file cannot name it.
judge-check:
	cd judge && npm install --no-save --no-audit --no-fund --silent && npx tsc --noEmit && npx eslint . && npx prettier --check . && npx vitest run

# On a machine with a GPU, by its own Python, which has torch; nothing is installed.
gpu-check:
	$(PYTHON) tests/gpu/check/run.py

fault-check:
	sh native/tools/fault_check.sh

test-aarch64:
	sh native/tools/run_qemu_vectors.sh

exhaustive:
	sh native/tools/run_exhaustive.sh

clean:
	rm -rf $(VENV) build
