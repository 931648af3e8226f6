# The commands of the project. Everything is installed into .venv; caches live outside the tree.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install demo test test-unit test-cluster lint format generate clean

help:
	@echo "make demo          install, then 24 recurrences of a real training on simulated GPUs (under 2 minutes)"
	@echo "make test          everything: make test-unit and make test-cluster"
	@echo "make test-unit     no Kubernetes needed"
	@echo "make test-cluster  on a real Kubernetes control plane, built on first use"
	@echo "make lint          ruff, mypy, import-linter, generated files up to date"
	@echo "make generate      writes the generated files: CRDs, OpenAPI"

$(STAMP): pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

install: $(STAMP)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m wattloop_operator.api.crd --check

generate: $(STAMP)
	$(BIN)/python -m wattloop_operator.api.crd

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: test-unit test-cluster

test-unit: $(STAMP)
	$(BIN)/pytest -n 2 -m 'not cluster'

# Each of the two processes has a control plane of its own; docs/testing.md.
test-cluster: $(STAMP)
	$(BIN)/pytest -n 2 -m cluster tests/cluster

clean:
	rm -rf $(VENV) build dist
