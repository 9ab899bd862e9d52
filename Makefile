# make demo    set up, train on the bundled phrasebook for a few minutes, translate, score
# make test    the default tests                     make test-slow   those that take minutes
# make lint    format, style, types, layers          make bench       speed of training and translating
# make venv    only the set-up, in .venv             make test-compiled    those that compile a model's decoding
# make clean   remove what can be made again (runs stay)

VENV := .venv
BIN := $(VENV)/bin
DEMO_MODEL := outputs/demo/latest/bundle
PHRASEBOOK := data/phrasebook_en_de
READY := $(VENV)/.ready

# The first Python found that the package supports. Another one: make PYTHON=/path/to/python3.12 ...
CAN := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(firstword $(foreach python,python3 python3.13 python3.12 python3.11,\
	$(shell $(python) -c '$(CAN)' >/dev/null 2>&1 && echo $(python))))

# jaxtyping checks shape annotations while the tests of a layer run (tests/conftest.py)
PYTEST := $(BIN)/python -m pytest --jaxtyping-packages=seq2seq,beartype.beartype

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-compiled test-slow lint bench clean

help:
	@sed -n 's/^# make/make/p' $(firstword $(MAKEFILE_LIST))

venv: $(READY)

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11, 3.12 or 3.13 with venv found; give make PYTHON=..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	bash scripts/demo.sh $(BIN)

test: $(READY)
	$(PYTEST) -n 2 -m "not slow and not gpu"

test-compiled: $(READY)
	$(PYTEST) -m slow tests/system/test_compiled_command.py

test-slow: $(READY)
	$(PYTEST) -m "slow and not gpu"

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python scripts/bench_train.py
	@if test -d $(DEMO_MODEL); then \
		$(BIN)/python scripts/bench_translate.py $(DEMO_MODEL) --input $(PHRASEBOOK)/test.en --reference $(PHRASEBOOK)/test.de; \
	else \
		echo "no $(DEMO_MODEL): speed of translating is not measured; make demo trains that model" >&2; \
	fi

clean:
	rm -rf build dist *.egg-info outputs/demo
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
