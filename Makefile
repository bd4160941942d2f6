# Everything on a fresh machine: a virtual environment of its own, the package, then the job.
PYTHON ?= python3
VENV := .venv
# Which build of Paddle 2.6.2 it gets: cpu or gpu (which runs on a machine without a GPU, too).
BUILD := cpu
EXTRAS = $(BUILD),demo,test
BIN := $(VENV)/bin

# The versions of everything, but for Paddle's own, which the extras name: a file for each Python. The whole suite has passed with those of
# the Python of continuous integration, the ten lines with the others'. LOCK= leaves it out, `make lock` and `make lock-python` write them anew.
LOCK = $(wildcard .ci/lock/python$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt)

# Where Paddle 3 is, and where `make lock-python` installs.
VENV3 := .venv3
LOCKING := .venv-lock

# What the tests of Paddle 3 say while those of 2.6.2 run.
OUTPUT3 := .venv3.txt

# Versions of Paddle 3 that `make test-all` tests besides the one of the extra `cpu3`.
OLDER_PADDLE3 := 3.0.0 3.2.2
OLDER =

# Tests of what needs no Paddle.
CORE := tests/ir tests/analysis tests/passes tests/planning tests/verify tests/assignment tests/test_without_paddle.py tests/test_row_hints.py tests/backends/text tests/backends/test_base.py tests/test_worked_examples.py

.PHONY: install lock lock-python release docs demo newcomer test test-paddle2 test-all test-more test-core test-paddle3 test-paddle3-older test-gpu-build paddlenlp format clean

$(VENV)/.installed: setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 8) <= sys.version_info[:2] <= (3, 12))' || \
	  { echo "This needs Python 3.8 to 3.12; $(PYTHON) is `$(PYTHON) -V 2>&1`. Name another: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(addprefix --constraint ,$(LOCK)) -e '.[$(EXTRAS)]'
	touch $@

install: $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/python -m demos.machine_translation

# What the README says, in its order, and the gallery, in a fresh clone of what is committed here.
newcomer:
	$(PYTHON) -m tests.newcomer

# Where the repository is, for the package's metadata: where this clone is from, if that is an address of the web.
URL = $(filter http://% https://%,$(patsubst %.git,%,$(shell git remote get-url origin 2>/dev/null)))

# A wheel and an sdist, checked, installed in a fresh environment, in which the ten lines of the README run.
release: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet build twine
	rm -rf dist build
	@test -n "$(URL)" || echo 'The package will name no repository: make release URL=https://...'
	PROJECT_URL='$(URL)' $(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv --clear $(VENV)-release
	$(VENV)-release/bin/python -m pip install --quiet "`ls dist/*.whl`[$(BUILD)]"
	cd dist && ../$(VENV)-release/bin/python ../.ci/ten_lines.py ../README.md
	cd dist && ../$(VENV)-release/bin/paddle-memory-transpiler --version

# The pages of docs/ and the API from its docstrings, as a site in site/.
docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -e '.[docs]'
	$(BIN)/python -m mkdocs build --strict

# Paddle orders the inputs of a loop by the hash of their names: a fixed seed builds the same programs each time. Set here and not in
# front of a command, which would be a shell's child then, and outlive it when make is ended.
test-paddle2 test-paddle3 test-paddle3-older test-more test-core: export PYTHONHASHSEED := 0
test-paddle2 test-paddle3 test-paddle3-older test-more test-core: export OMP_NUM_THREADS := 1
test-more: export MORE_PROGRAMS := 40

# Both halves, side by side. What Paddle 3's says goes to a file, shown once the first one is through; what ends this ends both.
test: $(VENV)/.installed
	$(MAKE) install VENV=.venv3 EXTRAS=cpu3,core
	@$(MAKE) test-paddle3 > $(OUTPUT3) 2>&1 & paddle3=$$!; \
	$(MAKE) test-paddle2 & paddle2=$$!; \
	trap 'kill $$paddle2 $$paddle3; wait; exit 130' HUP INT TERM; \
	wait $$paddle2; failed2=$$?; \
	echo 'Paddle 3 ($(OUTPUT3)):'; \
	wait $$paddle3; failed3=$$?; \
	cat $(OUTPUT3); \
	echo "Paddle 2.6.2's half ended with $$failed2, Paddle 3's with $$failed3."; \
	test $$failed2$$failed3 = 00

test-paddle2: $(VENV)/.installed
	$(BIN)/python -m pytest

# Many more generated programs than `make test` runs: some hours.
test-more: $(VENV)/.installed
	$(BIN)/python -m pytest tests/test_generated.py
	$(BIN)/python -m tests.wild --seeds 300..3300 --jobs 2

# The back end of Paddle 3, in an environment of its own.
test-paddle3:
	$(MAKE) install VENV=.venv3 EXTRAS=cpu3,core
	# One process, for the other half has two beside it.
	.venv3/bin/python -m pytest -n 1 tests/backends/paddle3 tests/backends/test_base.py

# `make test`, and the back end of Paddle 3 on the oldest and another version that it is for, each in an environment of its own.
test-all: test
	$(foreach version,$(OLDER_PADDLE3),$(MAKE) test-paddle3-older OLDER=$(version) &&) true

test-paddle3-older:
	$(MAKE) install VENV=.venv$(OLDER) EXTRAS=core
	.venv$(OLDER)/bin/python -m pip install --quiet setuptools paddlepaddle==$(OLDER)
	.venv$(OLDER)/bin/python -m pytest -n 1 tests/backends/paddle3

# In an environment without Paddle: the graph, its passes and plans, the verifier and the solvers; what needs a program is skipped.
test-core:
	$(MAKE) install VENV=.venv-core EXTRAS=core
	.venv-core/bin/python -m pytest $(CORE)

# The same suite on paddlepaddle-gpu, in an environment of its own.
test-gpu-build:
	$(MAKE) test-paddle2 VENV=.venv-gpu BUILD=gpu

# What is installed for the tests of both Paddles, for LOCK. First `make clean`, and `make test LOCK=`.
lock:
	{ $(BIN)/python -m pip freeze --exclude-editable; test ! -d $(VENV3) || $(VENV3)/bin/python -m pip freeze --exclude-editable; } | \
	  grep -v '^paddlepaddle' | sort -u > .ci/lock/python`$(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'`.txt

# The same for another Python (`make lock-python PYTHON=python3.9`), in environments that go again: what setup.cfg allows there. Checked by
# the ten lines on each Paddle that there is for it; 3.8 has no Paddle 3.3.
lock-python:
	rm -rf $(LOCKING) $(LOCKING)3
	$(MAKE) install VENV=$(LOCKING) LOCK=
	test "`$(PYTHON) -c 'import sys; print(sys.version_info[1])'`" = 8 || $(MAKE) install VENV=$(LOCKING)3 EXTRAS=cpu3,core LOCK=
	for each in $(LOCKING) $(LOCKING)3; do test ! -d $$each || { $$each/bin/python -m pip check && $$each/bin/python .ci/ten_lines.py README.md; } || exit 1; done
	$(MAKE) lock VENV=$(LOCKING) VENV3=$(LOCKING)3
	rm -rf $(LOCKING) $(LOCKING)3

# PaddleNLP's BERT, ERNIE and GPT, untouched and optimized, in an environment of their own: PaddleNLP wants old versions of much.
paddlenlp:
	$(MAKE) install VENV=.venv-paddlenlp EXTRAS=cpu,paddlenlp LOCK=
	.venv-paddlenlp/bin/python -m benchmarks.wild 'paddlenlp bert' 'paddlenlp ernie' 'paddlenlp gpt'

format: $(VENV)/.installed
	$(BIN)/yapf -ir transpiler tests demos benchmarks

clean:
	rm -rf dist site .venv-release .venv .venv3 $(LOCKING) $(LOCKING)3 $(OUTPUT3) $(OLDER_PADDLE3:%=.venv%) .venv-core .venv-gpu .venv-paddlenlp build *.egg-info
