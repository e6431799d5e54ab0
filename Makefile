# Two commands matter: `make pair TASK=transfer-repair SEED=4242` and `make test`. Each sets up all that it needs.

PYTHON  ?= python3
TASK    ?= transfer-repair
SEED    ?= 4242
PROFILE ?= cpu-demo
ARGS    ?=

BIN := .venv/bin
# The binding takes the libraries that our own build of llama-server makes: nothing is compiled twice.
PIP_INSTALL := CMAKE_ARGS=-DLLAMA_BUILD=OFF $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Every command of the tests would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

# A fresh clone is type-checked by what the last one has learned.
export MYPY_CACHE_DIR ?= $(or $(AGENT_AB_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/agent-ab)/mypy

.DEFAULT_GOAL := help
.PHONY: help pair suite gate demo report chaos setup test test-long test-fast browser-deps live-opencode live-mini-swe live-vllm live-inspect verify lint format clean

help: ## show this list
	@echo "agent_ab: change one thing about your model server; does your agent still fix the bugs, and do you wait less?"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  TASK=$(TASK) SEED=$(SEED) PROFILE=$(PROFILE) ARGS=\"--json ...\""

pair: .venv/.run ## play one pair: both arms of PROFILE on TASK with SEED
	@$(BIN)/agent-ab pair --task "$(TASK)" --seed "$(SEED)" --profile "$(PROFILE)" $(ARGS)

suite: .venv/.run ## play PROFILE on every task with every seed, unattended; cut off, the same command goes on
	@$(BIN)/agent-ab run --profile "$(PROFILE)" $(ARGS)

gate: .venv/.run ## adopt or not, and why: the newest run (CI calls agent-ab gate: make hides its exit status)
	@$(BIN)/agent-ab gate $(ARGS)

demo: .venv/.run ## make the report of the published experiment: no engine, no model, no waiting
	@$(BIN)/agent-ab demo $(ARGS)

report: .venv/.run ## write the newest run's report as one page, report.html
	@$(BIN)/agent-ab report --html report.html $(ARGS)

setup: .venv/.run ## find or build llama-server, fetch the demo model
	@$(BIN)/agent-ab setup

test: lint ## lint, types, contracts, and the tests, on the real parts
	@$(BIN)/agent-ab setup
	@$(BIN)/python -m tests.browser.needs
	@$(BIN)/python -m pytest -n 3 --dist worksteal -m "not long" $(ARGS)

test-long: .venv/.dev ## the long tests, which `make test` leaves out, and the property tests with random seeds
	@$(BIN)/agent-ab setup
	@$(BIN)/python -m pytest -n 2 -m "long or hypothesis" --hypothesis-profile search $(ARGS)

test-fast: .venv/.dev ## the pure tests only, in seconds
	@$(BIN)/python -m pytest -m "not live and not browser" $(ARGS)

browser-deps: .venv/.dev ## get Chromium (with apt, as root) and axe-core (with npm) for the page's tests
	@$(BIN)/python -m tests.browser.needs

live-opencode: .venv/.dev ## the divergence tests with the real OpenCode as well, a minute each
	@AGENT_AB_LIVE_OPENCODE=1 $(BIN)/python -m pytest tests/live/test_opencode.py tests/live/test_divergence.py $(ARGS)

live-mini-swe: .venv/.dev ## install mini-swe-agent into the cache (700 MB, once) and play a pair with it
	@AGENT_AB_LIVE_MINI_SWE=1 $(BIN)/python -m pytest tests/live/test_command_agent.py $(ARGS)

live-inspect: .venv/.dev ## install inspect-ai into the cache (300 MB, once) and read a log of ours with it
	@AGENT_AB_LIVE_INSPECT=1 $(BIN)/python -m pytest tests/live/test_inspect.py $(ARGS)

chaos: .venv/.dev ## kill -9 suites at 50 random moments and compare with a quiet one (ARGS="--kills 200 --seed 2")
	@$(BIN)/agent-ab setup
	@$(BIN)/python -m tests.chaos $(ARGS)

live-vllm: .venv/.dev ## install vLLM's CPU build into the cache (3.5 GB, once) and play none against ngram on it
	@program=$$($(BIN)/python scripts/install_vllm.py) && AGENT_AB_VLLM="$$program" AGENT_AB_LIVE_VLLM=1 \
	  $(BIN)/python -m pytest -rP tests/live/test_vllm.py $(ARGS)

verify: .venv/.run ## prove every task five times over: reference, starting code, mutants
	@$(BIN)/agent-ab task verify --repeat 5 $(ARGS)

lint: .venv/.dev ## ruff, mypy, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: .venv/.dev ## let ruff rewrite what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean: ## remove the environment and caches; runs.db and runs/ stay
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis *.egg-info build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is older than Python 3.11; name another with PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv .venv || \
	  { rm -rf .venv; echo "error: no venv module; on Debian or Ubuntu: apt install python3-venv" >&2; exit 2; }

.venv/.run: .venv/bin/python pyproject.toml constraints.txt
	@echo "installing the Python packages into .venv (once, 1 to 2 minutes)"
	@$(PIP_INSTALL) -e .
	@touch $@

.venv/.dev: .venv/.run
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@
