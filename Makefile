# The commands of the project. Everything is installed into .venv; caches live outside the tree.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo

.PHONY: help install demo test postgres test-unit test-processes test-cluster lint format generate images clean

help:
	@echo "make demo          install, then 32 recurrences of a real training on a simulated GPU (about a minute)"
	@echo "make test          everything: make test-unit, make test-processes and make test-cluster"
	@echo "make test-unit     no Kubernetes needed, about a minute"
	@echo "make test-processes  agents and local runs under kill -9, hangs and restarts"
	@echo "make test-cluster  on a real Kubernetes control plane, built on first use"
	@echo "make lint          ruff, mypy, import-linter, generated files up to date"
	@echo "make images        the images of operator and agent (IMAGE_BUILDER=docker, or buildah)"
	@echo "make generate      writes the generated files: CRDs, OpenAPI"

$(STAMP): pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@ $(DEMO_STAMP)

install: $(STAMP)

# The demo needs no development tools; where they are installed already, it takes that installation.
$(DEMO_STAMP): pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[operator,agent,examples]'
	touch $@

demo: $(DEMO_STAMP)
	$(BIN)/python -m nvml_simulator.build
	$(BIN)/wattloop run examples/digits/job.yaml --recurrences 32 --simulated-gpus 1 --output demo-output

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m wattloop_operator.api.crd --check
	$(BIN)/python -m wattloop_operator.api.reference --check
	$(BIN)/python -m wattloop_agent.telemetry.document --check
	$(BIN)/python -m wattloop_operator.reporting.openapi --check

generate: $(STAMP)
	$(BIN)/python -m wattloop_operator.api.crd
	$(BIN)/python -m wattloop_operator.api.reference
	$(BIN)/python -m wattloop_agent.telemetry.document
	$(BIN)/python -m wattloop_operator.reporting.openapi

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: test-unit test-processes test-cluster

test-unit: $(STAMP) postgres
	$(BIN)/pytest -n 2 -m 'not cluster and not processes'

# Agents, setters and local runs under kill -9, hangs and restarts, at every moment.
test-processes: $(STAMP)
	$(BIN)/pytest -n 2 -m processes tests/agent tests/operator

# The store's tests start a PostgreSQL server of their own. Where it is missing and may be installed, this installs
# Debian's package (without the cluster that the package would set up and start); elsewhere the tests skip it, and say so.
postgres:
	@if command -v initdb || ls /usr/lib/postgresql/*/bin/initdb 2> /dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get; then \
		mkdir -p /etc/postgresql-common && echo 'create_main_cluster = false' >> /etc/postgresql-common/createcluster.conf && \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends \
			-o Dpkg::Options::=--force-confold postgresql; \
	fi > /dev/null || echo "PostgreSQL could not be installed; its tests will be skipped" >&2

# Each of the two processes has a control plane of its own; docs/testing.md. Built here first, where progress is seen;
# what goes wrong there, the tests say again: they fail, or without Go are skipped and counted.
test-cluster: $(STAMP)
	-@$(BIN)/python tests/cluster/binaries/build.py
	$(BIN)/pytest -n 2 -m cluster tests/cluster

IMAGE_BUILDER ?= docker
IMAGE_BASE ?= python:$(shell $(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')-slim
IMAGE_TAG ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

images: $(STAMP)
	rm -rf build/images
	$(BIN)/pip wheel --quiet --constraint constraints.txt --wheel-dir build/images/wheels '.[operator,agent]'
	for role in operator agent; do \
		$(IMAGE_BUILDER) build $(IMAGE_OPTIONS) --build-arg BASE=$(IMAGE_BASE) --build-arg ROLE=$$role \
			--tag wattloop/$$role:$(IMAGE_TAG) --file images/Containerfile build/images || exit 1; \
	done

clean:
	rm -rf $(VENV) build dist
