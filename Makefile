# The commands of the project. Everything is installed into .venv, and what runs beside PyTorch into .venv-integrations;
# caches that take long to fill are outside the tree.
PYTHON ?= python3
# Tests start some thousands of processes. Without bytecode each of them would compile every module of the project again,
# and each process of pytest all test modules and plugins.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
INTEGRATIONS := .venv-integrations
INTEGRATIONS_STAMP := $(INTEGRATIONS)/.installed

.PHONY: help install install-runtime demo test test-needs test-exhaustive test-share postgres chromium faketime test-unit test-processes test-cluster test-integrations test-e2e
.PHONY: integrations node-packages programs cluster cluster-image cluster-down fuzz lint site format pictures generate constraints images dist release clean

help:
	@echo "make demo          install, then 32 recurrences of a real training on a simulated GPU (two minutes on two cores)"
	@echo "make install-runtime  the commands alone, without tools for development, into .venv"
	@echo "make test          each behaviour once: test-unit, test-processes, test-cluster, test-integrations and test-e2e"
	@echo "make test-exhaustive  what make test leaves out: further versions, moments, sizes and seeds"
	@echo "make test-share    the tenth of that which a commit draws (COMMIT=..., by default the present one)"
	@echo "make test-unit     no Kubernetes needed"
	@echo "make test-processes  agents and local runs under kill -9, hangs and restarts"
	@echo "make test-cluster  on a real Kubernetes control plane, built on first use"
	@echo "make test-integrations  trainings with PyTorch, Hugging Face, Lightning, Accelerate and Keras: 5 GB on the disk on first use"
	@echo "make test-e2e      installed by Helm on a real node with simulated GPUs: root, on a machine that you may change"
	@echo "make cluster       such a node to play with, until make cluster-down"
	@echo "make cluster-image ARCHIVE=image.tar  loads your image on that node, as docker save wrote it"
	@echo "make fuzz          fuzzes what others send: sockets, APIs, manifests, templates and plans, SECONDS each (default: 60)"
	@echo "make lint          ruff, mypy, import-linter, no name that nothing reaches, not too many fields, generated files up to date, no broken link"
	@echo "make site          the docs site: build/site/index.html, which needs no server"
	@echo "make pictures      the pictures of README and docs: the demo's live page in Chromium, and its plots"
	@echo "make images        the images of operator, live page, agent and the example training (IMAGE_BUILDER=docker, or buildah)"
	@echo "make dist          source archive, wheel and chart package in dist/, to install elsewhere"
	@echo "make release       the images, pushed to REGISTRY, and in dist/ the chart that names them, for helm install"
	@echo "make constraints   the versions and hashes of all that is installed: the files constraints*.txt"
	@echo "make generate      writes the generated files: CRDs, OpenAPI, the pages of the API, the commands and the metrics"

# Every distribution is checked against a hash, also those that build Wattloop itself.
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check
# --no-deps, because constraints.txt leaves out one distribution (below); it names all others. pip keeps what an earlier
# list had and this one leaves out, so uv removes it.
PIP_INSTALL_LOCKED := $(PIP_INSTALL) --no-deps --require-hashes --requirement
OURSELVES := --no-deps --no-build-isolation --editable .

$(STAMP): pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL_LOCKED) constraints.txt
	$(BIN)/uv pip sync --quiet --python $(VENV) --require-hashes constraints.txt
	$(PIP_INSTALL) $(OURSELVES)
	touch $@ $(DEMO_STAMP)

install: $(STAMP)

# The demo needs no development tools; it uses a complete installation if there is one.
$(DEMO_STAMP): pyproject.toml setup.py constraints-runtime.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --require-hashes --requirement constraints-runtime.txt
	$(PIP_INSTALL) $(OURSELVES)
	touch $@

install-runtime: $(DEMO_STAMP)

# Training frameworks are in an environment of their own, since PyTorch needs gigabytes. uv unpacks each of them once
# for all clones of a machine. --no-deps, because constraints-integrations.txt leaves Triton out.
$(INTEGRATIONS_STAMP): $(STAMP) pyproject.toml setup.py constraints-integrations.txt
	$(PYTHON) -m venv --without-pip $(INTEGRATIONS)
	$(UV_INSTALL) --require-hashes --requirement constraints-integrations.txt
	$(UV_INSTALL) --no-build-isolation --editable .
	touch $@

UV_INSTALL := $(BIN)/uv pip install --quiet --no-deps --python $(INTEGRATIONS)/bin/python

integrations: $(INTEGRATIONS_STAMP)

# Keeps the present versions where they still fit; UPGRADE=--upgrade takes the newest. For every platform and Python from 3.11 on.
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links $(UPGRADE)
# rfc3987-syntax, which only cyclonedx-bom asks for, parses a grammar for a second of processor time in every process that
# imports jsonschema: in each pytest, operator and run of the tests. jsonschema does without it, as in production.
# MLflow needs an older cachetools. Triton compiles kernels for GPUs, which the tests have not, and is a fifth of it all.
constraints: $(STAMP)
	$(LOCK) pyproject.toml --extra dev --no-emit-package rfc3987-syntax --output-file constraints.txt
	printf 'pip\nsetuptools>=80\n' | $(LOCK) pyproject.toml - --extra operator --extra agent --extra examples \
		--constraint constraints.txt --output-file constraints-runtime.txt
	$(LOCK) pyproject.toml --extra fuzz --constraint constraints.txt --output-file constraints-fuzz.txt
	sed '/^cachetools==/,/[^\]$$/d' constraints.txt | $(LOCK) pyproject.toml --extra test-integrations \
		--constraint - --no-emit-package triton --output-file constraints-integrations.txt

demo: $(DEMO_STAMP)
	$(BIN)/python -m nvml_simulator.build
	$(BIN)/wattloop run examples/digits/job.yaml --recurrences 32 --simulated-gpus 1 --output demo-output

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/unreached_names.py
	$(BIN)/python tests/api_fields.py
	$(BIN)/python -m wattloop_operator.generated --check
	$(BIN)/python docs/reference/generate.py --check
	$(SPHINX) --builder dummy docs build/site-check

# A broken link or anchor, or a page that is in no navigation, is an error. Every page is read again each time, since a
# page that has not changed may link to one that has.
SPHINX := $(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --jobs 2 --doctree-dir build/site-pages

site: $(STAMP)
	$(SPHINX) --builder html docs build/site

# tests/test_pictures.py compares the names of what this makes with those that the pages show.
pictures: $(STAMP) chromium
	$(BIN)/python -m nvml_simulator.build
	PYTHONPATH=tests $(BIN)/python -m support.pictures

generate: $(STAMP)
	$(BIN)/python -m wattloop_operator.generated
	$(BIN)/python docs/reference/generate.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The node's tests, trainings and processes wait more than they compute, so they run beside the others, which run in
# sequence: those that only compute are last, and occupy both processors when the waiting ones have ended. Shared packages
# are installed before; the programs of the control plane and the node are built beside the parts that need none. Every
# part runs even if another fails; the end names the failed ones.
test: test-needs
	@$(RUN_PARTS)

test-needs: $(STAMP) postgres chromium faketime node-packages
	-@$(MAKE) --no-print-directory integrations
	@echo "Four parts at a time; the first time it builds programs and images, which doubles its time."
	@echo "The parts test-processes, test-integrations and test-e2e are shown when all have ended."

RUN_PARTS := $(BIN)/python tests/run_parts.py test-cluster test-unit \
	--beside test-processes --beside test-integrations --beside test-e2e

# What `make test` leaves out. PYTEST_ADDOPTS and each part by itself work as there: make test-cluster SET=exhaustive.
test-exhaustive: test-needs
	@$(RUN_PARTS) --set exhaustive

# The tenth of it that a commit draws, as continuous integration runs it.
COMMIT ?= $(shell git rev-parse HEAD)
test-share: test-needs
	@$(RUN_PARTS) --set exhaustive --share $(COMMIT)

# Of which set a part runs its tests, and of which commit's share.
SET ?= usual
SHARE ?=
# A share may have none of a part's tests, which pytest ends with 5.
SELECTED := --set=$(SET) $(if $(SHARE),--share=$(SHARE))
UNLESS_NONE := $(if $(SHARE),|| [ $$? = 5 ])

# A process gets whole files, so that what a file sets up is set up once; tests/conftest.py has their order. Where tests
# wait, more processes than cores: docs/internals/test-times.md has the ratio of processor time to wall time.
PARALLEL := --dist loadfile --no-loadscope-reorder $(SELECTED)
FEW := -n 2 $(PARALLEL)
MANY := -n 3 $(PARALLEL)

# The folders without such tests are left out, since each of three processes would import their modules.
test-unit: $(STAMP) postgres chromium
	$(BIN)/pytest $(MANY) -m 'not cluster and not processes and not node and not integrations' \
		--ignore=tests/cluster --ignore=tests/integrations $(UNLESS_NONE)

# Agents, power controllers and local runs under kill -9, hangs and restarts, at every moment.
# Only the files that have such tests: to collect the others takes six seconds of processor time in each of two processes.
test-processes: $(STAMP) faketime
	$(BIN)/pytest $(FEW) -m processes $$(grep --recursive --files-with-matches --include='test_*.py' 'mark\.processes' tests) $(UNLESS_NONE)

# The store's tests start a PostgreSQL server. If it is missing and root may install it, this installs Debian's package
# without the package's own database cluster. Otherwise the tests skip PostgreSQL and print that.
postgres:
	@if command -v initdb || ls /usr/lib/postgresql/*/bin/initdb 2> /dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get; then \
		mkdir -p /etc/postgresql-common && echo 'create_main_cluster = false' >> /etc/postgresql-common/createcluster.conf && \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends \
			-o Dpkg::Options::=--force-confold postgresql; \
	fi > /dev/null || echo "PostgreSQL could not be installed; its tests will be skipped" >&2

# The live page's tests look at it in Chromium. If it cannot be installed, they are skipped and print that.
chromium:
	@if command -v chromium; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium; \
	fi > /dev/null || echo "Chromium could not be installed; its tests will be skipped" >&2

# Tests set the wall clock of running agents with it. If it cannot be installed, they are skipped and print that.
faketime:
	@if ls /usr/lib/*/faketime/libfaketime.so.1 2> /dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends libfaketime; \
	fi > /dev/null || echo "libfaketime could not be installed; tests of a wall clock that jumps will be skipped" >&2

# Built before a part's tests, to show progress. The tests report an error again: they fail, or without Go are skipped and
# counted. Without the controllers few tests are skipped. The node's programs are built only where a node can run.
programs: $(STAMP)
	-@$(BIN)/python tests/support/binaries/build.py
	-@$(BIN)/python tests/support/binaries/build.py --controllers $(if $(filter exhaustive,$(SET)),--further-versions)
	-@if [ "$$(id -u)" = 0 ] && command -v containerd > /dev/null; then \
		$(BIN)/python tests/support/binaries/build.py kubelet kube-proxy coredns; \
	fi

# Each of the test processes has its own control plane; docs/internals/testing.md.
test-cluster: programs
	$(BIN)/pytest $(MANY) -m cluster tests/cluster $(UNLESS_NONE)

# Real trainings with the real frameworks on the processor and simulated GPUs; docs/internals/testing.md.
test-integrations: $(INTEGRATIONS_STAMP)
	$(INTEGRATIONS)/bin/python -m pytest $(FEW) -m integrations tests/integrations $(UNLESS_NONE)

# The chart on a node: containerd, kubelet, the product's images, simulated GPUs; docs/internals/testing.md. Needs root; otherwise
# its tests are skipped and counted.
test-e2e: $(STAMP) node-packages programs
	$(BIN)/pytest -n 0 -m node $(SELECTED) tests/node $(UNLESS_NONE)

SECONDS ?= 60
# Some of the targets of docs/internals/fuzzing.md; all by default.
TARGETS ?=
# A failing input of one target, to replay it.
INPUT ?=
FUZZ_STAMP := $(VENV)/.installed-fuzz

# Without a build of Atheris for this machine, the mutations of tests/support/fuzzing are the engine; docs/internals/fuzzing.md.
$(FUZZ_STAMP): $(STAMP) constraints-fuzz.txt
	$(PIP_INSTALL) --require-hashes --requirement constraints-fuzz.txt || \
		echo "Atheris could not be installed; inputs will be mutated without regard to coverage" >&2
	touch $@

fuzz: $(FUZZ_STAMP)
	$(BIN)/python -m nvml_simulator.build
	PYTHONPATH=tests $(BIN)/python -m support.fuzzing $(TARGETS) --seconds $(SECONDS) $(if $(INPUT),--replay $(INPUT))

cluster: $(STAMP) node-packages
	@$(NODE) up

# Loads your image on the node of make cluster, as docker save or buildah push docker-archive: wrote it.
cluster-image: $(STAMP)
	@$(NODE) load "$(ARCHIVE)"

cluster-down:
	@$(NODE) down

NODE := PYTHONPATH=tests $(BIN)/python -m support.kubernetes_node
NODE_PACKAGES := containerd runc containernetworking-plugins iptables conntrack iproute2 buildah mmdebstrap

# Installs the missing packages of a node, if root may. The packages' daemons stay off: the tests start their own.
node-packages:
	@if dpkg --status $(NODE_PACKAGES); then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get; then \
		if [ ! -e /usr/sbin/policy-rc.d ]; then \
			printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d && \
			trap 'rm -f /usr/sbin/policy-rc.d' EXIT; \
		fi; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends \
			-o Dpkg::Options::=--force-confold $(NODE_PACKAGES); \
	fi > /dev/null 2>&1 || echo "the packages of a node could not be installed; its tests will be skipped" >&2

IMAGE_BUILDER ?= docker
# See images/build.py --help: --base, --tag, the names of images.
IMAGE_OPTIONS ?=

# Host and path of a registry that the cluster's nodes pull from, such as registry.example/team.
REGISTRY ?=
OF_REGISTRY = $(if $(REGISTRY),--registry '$(REGISTRY)')

images: $(STAMP)
	$(BIN)/python images/build.py --builder '$(IMAGE_BUILDER)' $(OF_REGISTRY) $(IMAGE_OPTIONS)

dist: $(STAMP)
	$(BIN)/python images/distributions.py $(OF_REGISTRY)

# All that `helm install` needs: images in the registry, and in dist/ the chart that names them.
release:
	@test -n '$(REGISTRY)' || { echo 'name the registry: make release REGISTRY=registry.example/team' >&2; exit 2; }
	@$(MAKE) --no-print-directory images dist

clean:
	rm -rf $(VENV) $(INTEGRATIONS) build dist
