# Everything a person does with a checkout. Needs only python3 (3.11 or newer), g++ and make; the rest comes through pip into .venv.
#
# The one idea: each line under .venv/stamps says that a costly step was done for the files it depends on, so nothing is installed twice.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check
MODEL := smollm2:135m
HOST := 127.0.0.1
PORT := 8000
NATIVE := $(shell find native -type f \( -name '*.cpp' -o -name '*.h' \) 2>/dev/null)
CHECKERS := layers sizes names words docs

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help serve test build check check-style check-native check-own check-types check-page format bench docs prove clean model

help: ## Say what each verb does
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | awk -F'|' '{printf "  make %-8s %s\n", $$1, $$2}'

serve: build model ## Serve the default model on 127.0.0.1:8000
	@echo "Serving $(MODEL). When it is ready, open http://$(HOST):$(PORT)/ (Ctrl-C ends it)."
	@$(BIN)/paceline serve $(MODEL) --host $(HOST) --port $(PORT)

test: $(STAMPS)/test build model ## Run the test suite
	@$(BIN)/python -m pytest -m "not slow"

build: $(STAMPS)/build ## Build the native core and install the package, editable

check: check-style check-native check-own check-page check-types ## Run formatters, type checkers and the project's own checks

check-style: $(STAMPS)/check
	@$(BIN)/ruff check --quiet . && echo "ruff: ok"
	@$(BIN)/ruff format --check --quiet . && echo "ruff format: ok"

check-native: $(STAMPS)/check
	@$(BIN)/clang-format --dry-run -Werror $(NATIVE) && echo "clang-format: ok"

check-own: build
	@for checker in $(CHECKERS); do $(BIN)/python -m tools.check_$$checker || failed=1; done; test -z "$$failed"

check-types: $(STAMPS)/test $(STAMPS)/check build
	@$(BIN)/mypy

check-page:
	@if command -v npm >/dev/null; then cd web && npm install --silent --no-audit --no-fund --no-package-lock && npm run --silent check && echo "tsc: ok"; \
	else echo "tsc: left out, there is no node here"; fi

format: $(STAMPS)/check ## Format Python and C++
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet . ; $(BIN)/clang-format -i $(NATIVE)

bench: build model ## Measure the engine on this machine; a table, and JSON under benchmarks/results/
	@$(BIN)/python -m benchmarks.run bench

docs: build ## Generate docs/reference from the code
	@$(BIN)/python -m tools.generate_docs

prove: $(STAMPS)/test build model ## Run the long checks; results under benchmarks/results/
	@$(BIN)/python -m pytest -m slow --timeout 3600
	@$(BIN)/python -m benchmarks.run prove

clean: ## Remove what the other verbs made
	rm -rf $(VENV) build dist web/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis

model: build
	@$(BIN)/paceline pull $(MODEL)

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Paceline needs Python 3.11 or newer.")'
	@$(PYTHON) -m venv $(VENV) && mkdir -p $(STAMPS) && touch $@

$(STAMPS)/build: $(STAMPS)/venv pyproject.toml CMakeLists.txt $(NATIVE)
	@echo "Building the native core and installing Paceline into $(VENV) ..."
	@$(PIP) --editable . && touch $@

$(STAMPS)/test: $(STAMPS)/venv pyproject.toml
	@echo "Installing what the tests need ..."
	@$(BIN)/python tools/requirements.py test | $(PIP) --requirement /dev/stdin && touch $@

$(STAMPS)/check: $(STAMPS)/venv pyproject.toml
	@$(BIN)/python tools/requirements.py check | $(PIP) --requirement /dev/stdin && touch $@
