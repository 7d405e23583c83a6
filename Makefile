# Everything that a newcomer needs; each target sets up the environment it uses.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo quick test calls test-slow features flaky pythons soak lint audit bench image sbom release site pictures \
  setup clean

demo: setup        ## run the main job: a gang waits as one and starts as one
	@$(BIN)/phalanx demo

quick: setup       ## the core's tests, in half a minute
	@$(BIN)/pytest -n 2 -m "not slow and not thorough and not e2e" tests/model tests/cluster tests/dialects tests/execution tests/status tests/daemon

test: setup        ## all tests but the slow ones
	@$(BIN)/pytest -n 2 --dist loadfile -m "not slow"

test-slow: setup   ## the slow ones, and all random worlds of those of which `make test` tries a part
	@PHALANX_FULL=1 $(BIN)/pytest -n 2 --dist loadfile -m "slow or thorough"

features: setup    ## the tests of the scheduler once for each feature of the cycle, with that feature left out
	@$(BIN)/python -m tests.features

calls: setup       ## the table of function calls per pod (tests/calls) anew, for this Python
	@$(BIN)/python -m tests.calls

flaky: setup       ## the tests N times in random order on a loaded machine; N=5 SEED=0
	@$(BIN)/python -m tests.flaky --runs $(or $(N),5) --seed $(or $(SEED),0)

pythons: setup     ## the wheel and the core's tests with each Python that the machine has: 3.11, 3.12, 3.13
	@$(BIN)/python .ci/pythons.py

soak: setup        ## long random lives of clusters; STEPS=200000 SEED=0
	@$(BIN)/python -m tests.soak --steps $(or $(STEPS),200000) --seed $(or $(SEED),0)

lint: setup        ## style, types and layers; prints how plain the language is
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports --no-cache
	@$(BIN)/python .ci/plain_words.py

audit:             ## known vulnerabilities of what is pinned; says so where nobody can be asked
	@$(PYTHON) .ci/audit.py

bench: setup       ## all benchmarks: a table with ratios to the bare client, and build/bench.json
	@$(BIN)/python -m benchmarks

image: setup       ## the container image, as build/phalanx.oci.tar; wants Debian 12 and buildah
	@mkdir -p build && PYTHON=$(abspath $(BIN)/python) image/build.sh build/phalanx.oci.tar

sbom: setup        ## what the image is made of in Python, in CycloneDX, as build/phalanx.cdx.json
	@$(PYTHON) -m venv build/sbom && build/sbom/bin/pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0
	@build/sbom/bin/cyclonedx-py requirements image/requirements.txt --pyproject pyproject.toml --output-reproducible \
	  --output-file build/phalanx.cdx.json && echo build/phalanx.cdx.json

release: setup     ## wheels, sdists, chart, SBOM, notes, checksums, and the image where it can be built, checked, as dist/
	@$(BIN)/python .ci/release.py

site: build/site-venv/.ready   ## the documents as a site with search, links and anchors checked, as build/site
	@$(PYTHON) .ci/site_pages.py prepare
	@NO_MKDOCS_2_WARNING=1 build/site-venv/bin/mkdocs build --strict --quiet
	@$(PYTHON) .ci/site_pages.py check && echo build/site/index.html

build/site-venv/.ready: .ci/site-requirements.txt
	@$(PYTHON) -m venv build/site-venv
	@build/site-venv/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement .ci/site-requirements.txt
	@touch $@

pictures: setup    ## the pictures of the documents, anew; wants chromium and the extra `browser`
	@$(BIN)/python -m tests.pictures docs/pictures

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml packages/local/pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "phalanx: installing into $(VENV) (once, about half a minute)"
	@$(BIN)/pip install -qq --disable-pip-version-check --require-hashes --requirement constraints.txt
	@$(BIN)/pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable '.[dev,local]' --editable ./packages/local
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
