# Everything on a fresh machine with Python 3.11 or newer: `make demo`, `make test`.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-fast test-extras test-versions test-sanitize lint docs picture bundle paper bench bench-scale validity fuzz clean

# Each kind of environment is installed once, and again when pyproject.toml or the C++ sources change.
CORE := CMakeLists.txt packaging/backend.py $(wildcard src/groundmetric/transport/_core/*)
.venv/.%: pyproject.toml $(CORE)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) -e '.[$*]'
	touch $@

demo: .venv/.single-cell
	$(BIN)/groundmetric demo --output demo --jobs -1

# The report is opened in a browser: where none can be installed, its tests are skipped, and that is said.
# If a process of the tests dies, the run ends with its name: pytest-xdist waits for ever once it has started another.
test: .venv/.test
	@command -v chromedriver > /dev/null || \
	  (timeout 600 sh -c "apt-get update -qq && apt-get install -y -qq chromium chromium-driver" > .venv/chromium.log 2>&1) || \
	  echo "chromium could not be installed (.venv/chromium.log says why): tests that open the report in a browser are skipped"
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart=0 $(if $(COVERAGE),--cov --cov-report=term:skip-covered)

# For the edit loop, under a minute: the core without slow files, ten examples per law.
SLOW_TESTS := tests/_internal/test_full_disk.py tests/ensemble/test_fit.py tests/ensemble/test_landmarks.py \
  tests/learning/test_checkpoints.py
FAST_TESTS := tests/transport tests/learning tests/metrics tests/ensemble tests/_internal tests/test_distributions.py \
  tests/test_layers.py tests/test_import.py
test-fast: .venv/.test
	GROUNDMETRIC_EXAMPLES=10 $(BIN)/python -m pytest -n 2 $(FAST_TESTS) $(addprefix --ignore=,$(SLOW_TESTS))

# Tests and doctests that need torch, patpy or pertpy, in an environment of their own: these packages are large.
# uv resolves the dependencies of pertpy in seconds, pip in many minutes.
EXTRAS_PYTHON := .venv-extras/bin/python
.venv-extras/.ready: pyproject.toml $(CORE)
	test -x $(EXTRAS_PYTHON) || $(PYTHON) -m venv .venv-extras
	$(EXTRAS_PYTHON) -m pip install --quiet --disable-pip-version-check torch==2.13.0 uv
	$(EXTRAS_PYTHON) -m uv pip install --quiet --python $(EXTRAS_PYTHON) -e '.[mudata,pot,patpy,pertpy,neural]' pytest hypothesis
	touch $@
test-extras: .venv-extras/.ready
	$(EXTRAS_PYTHON) -m pytest tests/integrations tests/neural src/groundmetric/integrations src/groundmetric/neural.py

# The C++ core with sanitizers: memory errors and undefined behaviour in the transport tests and a short fuzz, data races
# in the threaded tests. Each kind has its own environment and build. TESTS=… for some tests. Tests of other processes, which
# depend on their speed, and of real data, which need anndata, are left out.
SANITIZED_TESTS = $(or $(TESTS),tests/transport)
THREADED_TESTS := tests/transport/test_parallel.py tests/transport/test_lines.py tests/transport/test_binding.py
.venv-sanitize/%/.ready: pyproject.toml $(CORE)
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps \
	  -C build-dir=build/sanitize-$* -C cmake.define.GROUNDMETRIC_SANITIZE=$(if $(filter address,$*),address$(comma)undefined,$*) .
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check 'groundmetric[pot]' pytest hypothesis networkx
	touch $@
comma := ,
libraries = $(foreach name,$(1),$(shell $(CXX) -print-file-name=lib$(name).so))

test-sanitize: .venv-sanitize/address/.ready .venv-sanitize/thread/.ready
	LD_PRELOAD="$(call libraries,asan ubsan stdc++)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	  GROUNDMETRIC_EXAMPLES=10 OMP_NUM_THREADS=1 .venv-sanitize/address/bin/python -m pytest $(SANITIZED_TESTS) \
	    -k 'not instruction_sets and not killed and not real_patients'
	for subject in problems chains bases; do \
	  LD_PRELOAD="$(call libraries,asan ubsan stdc++)" ASAN_OPTIONS=detect_leaks=0 \
	    .venv-sanitize/address/bin/python fuzz/run.py --minutes 1 --jobs 1 --subject $$subject || exit 1; done
	@if LD_PRELOAD="$(call libraries,tsan)" .venv-sanitize/thread/bin/python -c "import numpy" 2> /dev/null; then \
	  LD_PRELOAD="$(call libraries,tsan)" TSAN_OPTIONS=report_signal_unsafe=0 GROUNDMETRIC_EXAMPLES=10 OMP_NUM_THREADS=1 \
	    .venv-sanitize/thread/bin/python -m pytest $(THREADED_TESTS); \
	else echo "ThreadSanitizer does not run on this system: threaded tests were not checked for data races"; fi

# Every Python of pyenv that is supported, and the lowest versions of all libraries. `make test-versions TESTS=tests/transport`
# runs some tests, SESSIONS=lowest one of both.
TESTS ?=
SESSIONS ?= tests lowest
PYENV ?= $(or $(PYENV_ROOT),$(HOME)/.pyenv)
test-versions:
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) 'nox[uv]'
	PATH="$$(printf '%s:' $(PYENV)/versions/*/bin)$$PATH" $(BIN)/nox -s $(SESSIONS) -- $(TESTS)

# Docstrings are those of the imported package, so that its extras must be there.
lint: .venv/.lint .venv/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --strict --config-file= tests/test_types.py
	$(BIN)/python tests/check_docstrings.py

# The site, in docs/_build/html. Pages are run, warnings are errors, and nothing is downloaded.
docs: .venv/.docs
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -a -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# Pictures of docs/images: the figure of the README, and the report (needs chromium).
picture: .venv/.test
	$(BIN)/python docs/images/overview.py
	$(BIN)/python docs/images/make.py

# The wheel and all that it needs, for this system and Python, to install where there is no internet: docs/installation.md.
EXTRAS ?= single-cell,cluster,pot
bundle: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	rm -rf dist/bundle
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --wheel-dir dist/bundle '.[$(EXTRAS)]'
	cp packaging/install.sh dist/bundle/
	echo '$(EXTRAS)' > dist/bundle/extras
	tar -czf dist/bundle-$$($(BIN)/python -c "import sysconfig, sys; print(sysconfig.get_platform() + '-py%d.%d' % sys.version_info[:2])").tar.gz -C dist bundle
	@ls -sh dist/bundle-*.tar.gz

# The paper's tables and figures, docs/results.md; hours. `make paper SECTIONS=timing` runs one section.
SECTIONS ?=
paper: .venv/.test
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m paper $(SECTIONS) --jobs -1 -o docs

# One core, one thread: ratios are measured side by side in one run.
bench: .venv/.bench
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python benchmarks/run.py

bench-scale: .venv/.bench
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python benchmarks/run.py scale

# Error rates, optimism and coverage of every reported number: docs/validity.md. `make validity QUICK=1` takes a twelfth of
# the cohorts.
QUICK ?=
validity: .venv/.test
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python benchmarks/validity.py $(if $(QUICK),--quick)

# Random attacks, outside of the tests: docs/certified.md. A failure prints the line that repeats it.
MINUTES ?= 60
fuzz: .venv/.test
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python fuzz/run.py --minutes $(MINUTES)

clean:
	rm -rf .venv .venv-extras .venv-sanitize build .nox benchmarks/.venv-* benchmarks/work demo docs/_build docs/generated
