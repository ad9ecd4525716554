# Everything sets itself up: `make demo` and `make test` are all that a fresh machine needs.
# Wants: Linux, Python >= 3.11 with venv, Go (see localcluster/tools/go.mod). `make test` also wants
# root on Debian 12, for a real kubelet and containerd.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Made first, with progress, so that neither the demonstration nor a test waits for a compiler.
DEMO_BINARIES := kube-apiserver etcd kube-controller-manager kube-scheduler
TEST_BINARIES := $(DEMO_BINARIES) kubelet helm helm4 base-image
TESTS_FAST := tests/unit
# Tests against a cluster wait for half of their time: more at once than there are processors, but not
# so many that an engine among them serves too few requests to be judged. In the order of tests/conftest.py:
# xdist would begin with those of many tests, and end with all engines at once.
WAITERS := 5

.DEFAULT_GOAL := help
.PHONY: help ready demo test test-fast test-long bench lint docs pictures format generate snapshots constraints clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: supported-python demo-binaries test-binaries
supported-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "evictune needs Python 3.11 or newer, this is " + sys.version.split()[0])'

$(READY): requirements/dev.txt constraints/dev.txt constraints/overrides.txt operator/pyproject.toml policies/pyproject.toml | supported-python
	@echo "Setting up .venv (once; about a minute, 6 GB with vLLM and torch) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints/dev.txt uv
	$(BIN)/uv pip install --python $(BIN)/python --requirement requirements/dev.txt \
	    --constraint constraints/dev.txt --override constraints/overrides.txt \
	    --editable operator --editable 'policies[replay]'
	@touch $@

# Compiling and downloading do not need each other.
demo-binaries: supported-python
	@$(PYTHON) -m localcluster.prepare build $(DEMO_BINARIES)

test-binaries: supported-python
	@$(PYTHON) -m localcluster.prepare install-packages prometheus chromium
	@$(PYTHON) -m localcluster.prepare build $(TEST_BINARIES)

ready: ## what the demonstration and the tutorial need: .venv and a control plane, built once
	@$(MAKE) --no-print-directory -j2 $(READY) demo-binaries

demo: ## a real vLLM, stock LRU against the closed loop: no root, no cluster needed (KEEP=1 leaves it up)
	@$(MAKE) --no-print-directory -j2 $(READY) demo-binaries
	$(BIN)/python -m demo

# Memory is there for the garbage of clusters' programs, the processors are what is short.
test: export GOGC = 400
test: ## everything: unit, property, integration, end to end on a real node (root)
	@$(MAKE) --no-print-directory -j2 $(READY) test-binaries
	@$(MAKE) --no-print-directory -j2 test-unit test-images
	$(BIN)/python -m pytest -n $(WAITERS) --dist loadfile --no-loadscope-reorder -m "not quiet" tests/integration tests/e2e
	$(BIN)/python -m pytest -m quiet tests/e2e tests/integration

# Before the tests of the node: they would wait for one that builds.
.PHONY: test-unit test-images
test-unit:
	$(BIN)/python -m pytest -n 2 $(TESTS_FAST) tests/property tests/cases

test-images:
	@$(BIN)/python -m tests.support.images

test-fast: $(READY) ## unit tests: under a minute
	$(BIN)/python -m pytest -n 2 $(TESTS_FAST)

test-long: $(READY) ## what takes longer than CI allows
	$(BIN)/python -m pytest tests/long

bench: $(READY) ## what we cost, as ratios to peers, into build/bench.json
	VLLM_LOGGING_LEVEL=ERROR $(BIN)/python -m tests.perf

lint: $(READY) ## ruff, mypy --strict, layers, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m evictune.generate --check
	$(BIN)/python -m dashboards --check
	$(BIN)/python scripts/chart_files.py --check
	$(BIN)/python -m scripts.reference_pages --check

docs: $(READY) ## the documentation site, into build/site (open index.html)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

pictures: $(READY) ## the documentation's pictures of the dashboards, drawn by a real Chromium
	$(BIN)/python -m pytest -q tests/integration/test_dashboards_in_browser.py
	cp build/dashboards/*.png docs/pictures/

format: $(READY) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: $(READY) ## CRD, reference pages, dashboards, the chart's schema, table of values and copies
	$(BIN)/python -m evictune.generate
	$(BIN)/python -m dashboards
	$(BIN)/python scripts/chart_files.py
	$(BIN)/python -m scripts.reference_pages

snapshots: $(READY) ## keep what Helm makes of the chart now: look at the difference
	$(BIN)/python -m tests.support.chart_snapshots

constraints: $(READY) ## pin anew what requirements/ and the distributions ask for
	{ echo "# Exact versions of a checkout's environment, for python 3.11. Made by: make constraints"; \
	  $(BIN)/uv pip compile --quiet --no-header --no-annotate --python $(BIN)/python \
	    --override constraints/overrides.txt --extra replay requirements/dev.txt operator/pyproject.toml policies/pyproject.toml; \
	} > constraints/dev.txt.new && mv constraints/dev.txt.new constraints/dev.txt
	{ echo "# Exact versions in the operator's image, for any python from 3.11. Made by: make constraints"; \
	  $(BIN)/uv pip compile --quiet --no-header --no-annotate --universal --python-version 3.11 \
	    --constraint constraints/dev.txt operator/pyproject.toml; \
	} > constraints/operator.txt.new && mv constraints/operator.txt.new constraints/operator.txt

clean: ## remove the environment and everything built in the checkout
	rm -rf .venv build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
