# Every target bootstraps .venv from python3 and the package registry; nothing happens again when nothing changed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
SITE_VENV := .venv-site

# 113, 114: our names for startable functions; 124: handlers that a framework awaits; 127: httpx is our client;
# 128: task_status that is handed on; 9xx: optional rules, off by default.
ASYNC_OFF := ASYNC113,ASYNC114,ASYNC124,ASYNC127,ASYNC128,ASYNC900,ASYNC910,ASYNC911,ASYNC912,ASYNC913

VERSIONS ?= 2.8 3.0 3.2 3.4
# Beside the one of .venv; 3.13 is the image's.
PYTHONS ?= 3.12 3.13

.DEFAULT_GOAL := help
# Where it is set, as in many containers, each worker would compile all test modules again: 10 s of CPU time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test-unit test-pythons test test-crashes test-chaos soak test-deep test-haproxy test-cluster conformance image test-image chart-golden lint format bench bench-cluster bench-page bench-requests bench-sync lock docs site recording screenshots release-check clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(STAMP): requirements/dev.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

# A part of the packages, for the first look at the program. The lock is complete, so pip need not resolve anything; what is
# imported is compiled then.
$(DEMO_STAMP): requirements/demo.txt pyproject.toml
	@test -x $(BIN)/python || { echo "Creating a Python environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing haptic-trio and its packages in $(VENV): half a minute, once"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes -r requirements/demo.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

demo: $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO_STAMP))  ## run the demo: real HAProxy over a directory of manifests (ARGS=--check drives the story by itself)
	@echo "Starting the demo"
	@$(BIN)/haptic-trio demo $(ARGS)

# Many tests wait for sockets: two workers for each processor.
test-unit: $(STAMP)  ## run the fast tests that start no process, in parallel, with few examples of each property (ARGS goes to pytest)
	@HYPOTHESIS_PROFILE=unit $(BIN)/python -m pytest -n $$(($$(getconf _NPROCESSORS_ONLN) * 2)) --no-processes -m "not slow and not process and not haproxy and not cluster and not crash and not chaos and not soak" $(ARGS)

# Each Python has an environment of its own.
test-pythons:  ## run test-unit on PYTHONS="3.12 3.13", those of PATH or pyenv (HAPTIC_REQUIRE_PYTHONS=1: fail where one is absent)
	@failed=; for version in $(PYTHONS); do \
	  if python=$$(.ci/find-python $$version 2>&1); then \
	    echo "Python $$version"; $(MAKE) --no-print-directory test-unit VENV=.venv-$$version PYTHON="$$python" || failed="$$failed $$version"; \
	  elif [ "$$CI" = true ] || [ "$$HAPTIC_REQUIRE_PYTHONS" = 1 ]; then echo "$$python"; failed="$$failed $$version"; \
	  else echo "Python $$version skipped: $$python"; fi; \
	done; \
	[ -z "$$failed" ] || { echo "failed on$$failed"; exit 1; }

test: $(STAMP)  ## run all tests but those of test-cluster, test-crashes and test-chaos (ARGS goes to pytest)
	@echo "All tests take 20 to 30 minutes on two cores. They need Linux; HAProxy 2.8 comes with .venv. Tests that need more (Go, openssl,"
	@echo "curl, a browser, tmux) are skipped with the reason. For a quick check: make test-unit (about 90 s)."
	@# The tests that count objects run alone, in a process of their own. 5: ARGS names no such test.
	@$(BIN)/python -m pytest -n auto -m "not soak and not crash and not chaos and not cluster" $(ARGS) || [ $$? -eq 5 ]
	@$(BIN)/python -m pytest -m "soak and not crash and not chaos and not cluster" $(ARGS) || [ $$? -eq 5 ]

test-crashes: $(STAMP)  ## kill -9 at random points of 200 deployments, and make many changes under a live client
	@$(BIN)/python -m pytest -m crash $(ARGS)

test-chaos: VERSIONS := 2.8 3.0 3.4
test-chaos: $(STAMP)  ## inject faults into running processes on VERSIONS="2.8 3.0 3.4", and print what was lost (HAPTIC_CHAOS_SEED=… repeats a run)
	@failed=; for version in $(VERSIONS); do \
	  if folder=$$($(BIN)/python -m tests.support.processes.haproxy_versions $$version); then \
	    echo "HAProxy $$version"; PATH="$$folder:$$PATH" $(BIN)/python -m pytest -n 2 -o faulthandler_timeout=1000 -m chaos tests/chaos $(ARGS) || failed="$$failed $$version"; \
	  elif [ $$? -eq 3 ]; then echo "HAProxy $$version skipped, see above"; \
	  else failed="$$failed $$version"; fi; \
	done; \
	[ -z "$$failed" ] || { echo "failed on$$failed"; exit 1; }

soak: $(STAMP)  ## make random changes with traffic for MINUTES=5, and write build/soak.md (VERSION=3.4 takes that HAProxy)
	@$(if $(VERSION),folder=$$($(BIN)/python -m tests.support.processes.haproxy_versions $(VERSION)) && PATH="$$folder:$$PATH") \
	  $(BIN)/python -m tests.chaos.soak $(addprefix --minutes ,$(MINUTES)) $(ARGS)

test-deep: $(STAMP)  ## run the property tests with twenty times the examples
	@HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest -o faulthandler_timeout=3600 $(ARGS)

# Long repetitions (`soak`) prove what no version changes: `make test` runs them once.
test-haproxy: $(STAMP)  ## run the tests that start HAProxy on each of VERSIONS="2.8 3.0 3.2 3.4", fetched where absent
	@failed=; for version in $(VERSIONS); do \
	  if folder=$$($(BIN)/python -m tests.support.processes.haproxy_versions $$version); then \
	    echo "HAProxy $$version"; PATH="$$folder:$$PATH" $(BIN)/python -m pytest -n auto -m "haproxy and not soak and not crash and not chaos and not cluster" $(ARGS) || failed="$$failed $$version"; \
	  elif [ $$? -eq 3 ]; then echo "HAProxy $$version skipped, see above"; \
	  else failed="$$failed $$version"; fi; \
	done; \
	[ -z "$$failed" ] || { echo "failed on$$failed"; exit 1; }

test-cluster: $(STAMP)  ## run the tests on a real Kubernetes control plane, which is built on first use (needs root, Go)
	@$(BIN)/python -m tests.cluster.control_plane.binaries >/dev/null || [ $$? -eq 3 ]
	@$(BIN)/python -m pytest -m cluster $(ARGS)

conformance: $(STAMP)  ## run the official Gateway API suite (PROFILE=…, RUN=test,pattern…; VERSION=3.4 takes that HAProxy; needs root, Go)
	@$(if $(VERSION),folder=$$($(BIN)/python -m tests.support.processes.haproxy_versions $(VERSION)) && PATH="$$folder:$$PATH") \
	  $(BIN)/python -m tests.conformance.run $(addprefix --profile ,$(PROFILE)) $(addprefix --run ,$(RUN)) $(ARGS)

image: $(STAMP)  ## build the container image (TAG=…, TARGET=agent, HAPROXY=3.0|3.2; BUILDER=buildah, podman or docker, else one that is fetched for a trial)
	@$(foreach name,BUILDER TARGET HAPROXY,$(if $($(name)),$(name)=$($(name)))) $(BIN)/python -m tests.chart.support.image $(TAG)

test-image: $(STAMP)  ## build both images with a builder that is fetched, and test what is in them (10 to 15 minutes; needs Debian and root)
	@HAPTIC_BUILD_IMAGE=1 $(BIN)/python -m pytest -n 0 -o faulthandler_timeout=3600 tests/chart/test_image.py $(ARGS)

chart-golden: $(STAMP)  ## regenerate the golden files of the rendered chart, for review (needs Go for helm)
	@$(BIN)/python -m tests.chart.support.golden_files

docs: $(STAMP)  ## write the generated parts of docs/ again
	@$(BIN)/python -m tools.docgen.configuration docs/configuration.md
	@$(BIN)/python -m tools.docgen.assertions docs/testing.md
	@$(BIN)/python -m tools.docgen.libraries docs/libraries
	@$(BIN)/python -m tools.docgen.metrics docs/metrics.md
	@$(BIN)/python -m tools.docgen.pages docs/reference
	@$(BIN)/python -m tools.docgen.modules docs/architecture.md

# An environment of its own, and the script for diagrams; the registries are needed here, and not to build.
$(SITE_VENV)/.installed: requirements/site.txt tools/site/mermaid.py
	@command -v npm >/dev/null || { echo "make site needs npm, for the script that draws diagrams"; exit 1; }
	@test -x $(SITE_VENV)/bin/python || $(PYTHON) -m venv $(SITE_VENV)
	@$(SITE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/site.txt
	@$(BIN)/python -m tools.site.mermaid $(SITE_VENV)/mermaid
	@touch $@

site: $(STAMP) $(SITE_VENV)/.installed  ## build the site in build/site/html, check its links (needs npm), and with SITES=… add it there as VERSION=…
	@$(BIN)/python -m tools.site.pages build/site/pages
	@mkdir -p build/site/pages/assets && cp $(SITE_VENV)/mermaid/* build/site/pages/assets/
	@SITE_VERSION="$(or $(VERSION),$$($(BIN)/python -c 'import haptic_trio; print(haptic_trio.__version__)'))" \
	  NO_MKDOCS_2_WARNING=true $(SITE_VENV)/bin/python -m mkdocs build --clean
	@$(BIN)/python -m tools.site.check build/site/html
	@$(if $(SITES),$(BIN)/python -m tools.site.versions build/site/html "$(SITES)" $(VERSION))
	@echo "The site is in build/site/html; to read it: $(SITE_VENV)/bin/python -m http.server --bind 127.0.0.1 --directory build/site/html"

screenshots: $(STAMP)  ## make the pictures of docs/console.md again (needs Chromium, or Debian to fetch it)
	@HAPTIC_SCREENSHOTS=$(CURDIR)/docs/images $(BIN)/python -m pytest -q -n 0 tests/features/console \
	  -k "test_page_shows_a_reconciliation or test_page_shows_tasks or fits_a_narrow_window or (three_actions and what_matches)"

recording: $(STAMP)  ## record the session of the README again (needs the ports 8000, 8080, 8443 and 9090)
	@$(BIN)/python -m tools.site.recording docs/images/session.svg

release-check: site  ## build a release in dist/ and verify it; publishes nothing (FINAL=1 also rejects what only a release must have)
	@$(BIN)/python -m tools.release.check dist $(if $(FINAL),--final)

lint: $(STAMP)  ## formatter, linters, types, import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/python -m tools.async_lint --disable $(ASYNC_OFF)
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP)  ## format and apply the linters' safe fixes
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(STAMP)  ## measure how long changes take to reach traffic (VERSION=3.4 takes that HAProxy; ARGS goes to the bench)
	@$(BIN)/python -m tools.bench.run --json bench/results/figures.json $(if $(VERSION),--version $(VERSION)) $(ARGS)

bench-requests: $(STAMP)  ## measure what a request costs HAProxy, for each kind of route (VERSION=3.4 takes that HAProxy)
	@$(BIN)/python -m tools.bench.requests.command $(if $(VERSION),--version $(VERSION)) $(ARGS)

# Steps that each write a file of bench/results: after a failure, the rest can be done by hand.
BENCH_28 := --sizes 1000,5000 --samples 25 --cold-starts 1 --configs 3 --interval-seconds 0 --case-seconds 8 --no-whole
bench-page: $(STAMP)  ## measure what docs/performance.md shows, and write it (20 to 25 minutes; needs a quiet machine)
	@$(BIN)/python -m tools.bench.run --version 3.4 --clusters api --samples 50 --cold-starts 1 --configs 3 \
	  --interval-seconds 12 --case-seconds 8 --json bench/results/changes-3.4.json $(ARGS)
	@$(BIN)/python -m tools.bench.requests.command --version 3.4 --hosts 100,1000,20000 --rounds 15 \
	  --json bench/results/requests-3.4.json
	@$(BIN)/python -m tools.bench.run --version 3.4 --clusters api --sizes 10000 --samples 10 --cold-starts 1 --configs 3 \
	  --interval-seconds 0 --case-seconds 4 --no-whole --profile bench/results/graphs --json bench/results/profile/profile.json
	@$(BIN)/python -m tools.bench.run --version 2.8 $(BENCH_28) --json bench/results/2.8/changes-2.8.json
	@$(BIN)/python -m tools.bench.sync --json bench/results/sync.json
	@$(BIN)/python -m tools.bench.page --figures bench/results/changes-3.4.json --figures bench/results/2.8/changes-2.8.json \
	  --requests bench/results/requests-3.4.json --sync bench/results/sync.json --profile bench/results/profile/profile.json

bench-cluster: $(STAMP)  ## measure on a real Kubernetes control plane (needs root, Go)
	@$(BIN)/python -m tests.cluster.control_plane.binaries >/dev/null
	@$(BIN)/python -m tests.cluster.workloads.figures $(ARGS)

bench-sync: $(STAMP)  ## measure what one deployment costs, local and through an agent, on HAProxy 2.8 and 3.4
	@$(BIN)/python -m tools.bench.sync $(ARGS)

lock: $(STAMP)  ## resolve the locked requirements again, with hashes
	@$(BIN)/uv pip compile pyproject.toml --group dev --extra haproxy --extra otel --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --quiet --upgrade -o requirements/dev.txt
	@$(BIN)/uv pip compile pyproject.toml --extra haproxy --extra otel --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --quiet -c requirements/dev.txt -o requirements/run.txt
	@$(BIN)/uv pip compile pyproject.toml --group editable --extra haproxy --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --quiet -c requirements/dev.txt -o requirements/demo.txt
	@$(BIN)/uv pip compile --group agent --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --quiet -c requirements/run.txt -o requirements/agent.txt
	@$(BIN)/uv pip compile --group site --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --quiet -c requirements/dev.txt -o requirements/site.txt

clean:  ## remove what make built
	@rm -rf $(VENV) $(SITE_VENV) build/site $(addprefix .venv-,$(PYTHONS)) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
