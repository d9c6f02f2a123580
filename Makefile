# Everything a person runs from a clone. Each target sets up what it needs in .venv first (tools/bootstrap.py);
# the second time that takes no time. Options: ARGS="..." goes to pytest, QUICK=1 shortens bench.

PYTHON ?= python3
VENV := .venv/bin
BOOTSTRAP := $(PYTHON) tools/bootstrap.py

.DEFAULT_GOAL := help
.PHONY: help demo test lint format snapshots requirements bench faults pins clean

help: ## this list
	@echo "Holdfast: what a service promised gets done. From a clone:"
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "Nothing outside this folder is changed, but for the cache of test servers (see CONTRIBUTING.md)."

demo: ## the whole story on the embedded default, with the proof printed (SCENARIO=outage, downtime, workflow, services)
	@$(BOOTSTRAP) $(if $(filter services,$(SCENARIO)),test,runtime)
	@$(if $(filter services,$(SCENARIO)),$(VENV)/python tools/demo_services.py,$(VENV)/holdfast demo $(if $(SCENARIO),--scenario $(SCENARIO)))

test: ## the tests, on SQLite and on PostgreSQL servers that are set up for it (ARGS="-k name", PG=both)
	@$(BOOTSTRAP) test
	@$(VENV)/python tools/run_tests.py $(if $(PG),--pg=$(PG)) $(ARGS)

lint: ## ruff (rules and format), mypy --strict, and what type checkers say to users (tests/typing)
	@$(BOOTSTRAP) lint
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check .
	@$(VENV)/mypy
	@$(VENV)/python tools/typing_test.py

format: ## let ruff put the code in form
	@$(BOOTSTRAP) lint
	@$(VENV)/ruff check --fix .
	@$(VENV)/ruff format .

snapshots: ## write what every command shows anew: tests/cli/snapshots (read the difference before you commit it)
	@$(BOOTSTRAP) test
	@HOLDFAST_SNAPSHOTS=write $(VENV)/pytest -q tests/cli/test_snapshots.py

requirements: ## which requirements no passing test covers (reads what the last whole `make test` and `make faults` left)
	@$(PYTHON) tools/requirements.py

bench: ## how fast it is here (QUICK=1: the main lines; AGAINST=REVISION: ours beside that revision's)
	@$(BOOTSTRAP) test
	@$(VENV)/python -m bench $(if $(filter 1,$(QUICK)),--quick) $(if $(AGAINST),--against $(AGAINST)) $(ARGS)

faults: ## the long proofs (PART=explorer, kills, storms, delivery, simulation, planted, recurrence, downtime, pythons, models; FULL=1, SEED=7)
	@$(BOOTSTRAP) test
	@$(VENV)/python tools/faults.py $(PART) $(if $(filter 1,$(FULL)),--full) $(if $(SEED),--seed $(SEED)) $(if $(ARGS),-- $(ARGS))

pins: ## write constraints/*.txt anew from pyproject.toml (needs uv; ARGS=--upgrade for newer versions)
	@$(PYTHON) tools/pin.py $(ARGS)

clean: ## remove what was made here: .venv, caches, reports
	rm -rf .venv .bootstrap.lock .requirements.json .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
