# Every target is one line or two; each calls what a person could type.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PORT ?= 8321
SEED ?= 0

.PHONY: demo test fast long live-vllm check setup bench docs up reset
.DEFAULT_GOAL := help

help:
	@sed -n 's/^## //p' Makefile

## make demo    set up everything and run the product on a live demo fleet (PORT=..., SEED=...)
demo: $(VENV)/.run
	@$(PY) manage.py up --demo --port $(PORT) --seed $(SEED)

## make up      run the product without a demo fleet
up: $(VENV)/.run
	@$(PY) manage.py up --port $(PORT)

## make test    set up everything and run every tier that fits 25 minutes on 2 cores
test: $(VENV)/.dev
	@$(PY) -m tools.run_tests standard

## make fast    the unit tier
fast: $(VENV)/.dev
	@$(PY) -m tools.run_tests fast

## make long    what does not fit: chaos at every instant, a soak of 20 min, the story with more seeds, all themes
long: $(VENV)/.dev
	@$(PY) -m tools.run_tests long

## make live-vllm  the tests against a real vLLM, if there is one on PATH
live-vllm: $(VENV)/.dev
	@$(PY) -m tools.run_tests optional

## make check   format, types, layers, unused dependencies, templates, migrations, API snapshot
check: $(VENV)/.dev
	@$(PY) -m tools.run_checks

## make bench   the benchmarks, as JSON rows
bench: $(VENV)/.dev
	@$(PY) -m benchmarks

## make docs    write the generated reference pages and the API snapshot
docs: $(VENV)/.dev
	@$(PY) -m tools.write_docs

## make setup   the .venv with everything for development
setup: $(VENV)/.dev

## make reset   forget the state of earlier runs
reset:
	@rm -rf var

$(VENV)/.python: tools/setup_venv.py
	@$(PYTHON) tools/setup_venv.py create
	@touch $@

$(VENV)/.run: $(VENV)/.python requirements/demo.txt $(wildcard locale/*/LC_MESSAGES/*.po)
	@$(PYTHON) tools/setup_venv.py install requirements/demo.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.python requirements/dev.txt $(wildcard locale/*/LC_MESSAGES/*.po)
	@$(PYTHON) tools/setup_venv.py install requirements/dev.txt
	@touch $@ $(VENV)/.run
