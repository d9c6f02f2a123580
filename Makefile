# Everything a person runs from a clone. Each target sets up what it needs in .venv first (tools/bootstrap.py);
# the second time that takes no time. Options: ARGS="..." goes to pytest, QUICK=1 shortens bench.

PYTHON ?= python3
VENV := .venv/bin
BOOTSTRAP := $(PYTHON) tools/bootstrap.py

.DEFAULT_GOAL := help
.PHONY: help demo test lint format snapshots requirements bench faults pins clean

help: ## this list
	@echo "Holdfast, from a clone:"
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { \
		line = sprintf("  make %-13s", $$1); n = split($$2, words, " "); \
		for (i = 1; i <= n; i++) { \
			if (length(line) + 1 + length(words[i]) > 79) { print line; line = sprintf("%20s", "") } \
			line = line " " words[i] } \
		print line }' Makefile
	@echo
	@echo "Nothing outside this folder is changed, except for the cache of test servers"
	@echo "(see CONTRIBUTING.md)."

demo: ## run a shop on SQLite whose workers are killed, and print the proof (SCENARIO=outage, downtime, workflow or services: other stories)
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

format: ## format the code with ruff
	@$(BOOTSTRAP) lint
	@$(VENV)/ruff check --fix .
	@$(VENV)/ruff format .

snapshots: ## write tests/cli/snapshots, what every command prints, again (read the difference before you commit it)
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

pins: ## write constraints/*.txt again from pyproject.toml (needs uv; ARGS=--upgrade for newer versions)
	@$(PYTHON) tools/pin.py $(ARGS)

clean: ## remove what was made here: .venv, caches, reports
	rm -rf .venv .bootstrap.lock .requirements.json .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
