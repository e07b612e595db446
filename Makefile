# make env    the environment, in .venv
# make demo   a real study, end to end
# make check  the fast loop: lint, types, architecture, tests that compile little
# make test   every check but the longest simulations; make thorough runs these too

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
WORKERS ?= 2
BIN := .venv/bin
# Files in their order: otherwise those with few tests come last, which start processes and wait for them.
PYTEST = $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=40
INSTALLED := .venv/.installed

.PHONY: env demo check test thorough lint
.DEFAULT_GOAL := env

env: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "unpooled needs Python 3.11 or later: make env PYTHON=/path/to/python"; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv .venv
	@# Dependency groups need pip 25.1 or later, which a new environment may not have.
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dedupe,demo,nvflare,postgresql]' --group test
	@# Only tests/browser needs it, and asks again.
	@$(BIN)/python tests/browser/chromium.py || echo "No Chromium yet: all but tests/browser works."
	@touch $@

demo: env
	$(BIN)/unpooled demo

lint: env
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

check: lint
	$(PYTEST) -m 'not slow'

test: lint
	$(PYTEST) -m 'not thorough'

thorough: lint
	$(PYTEST)
