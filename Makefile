# Every target installs what it needs into .venv: a fresh clone needs only Python 3.11 and make.
# Debian's own build of Python is optimised by profile; one compiled on the spot often is not, and
# needs a third more CPU for everything.
PY      ?= $(shell for found in /usr/bin/python3.11 python3.11 python3; do \
             $$found -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null \
             && echo $$found && break; done)
VENV    := .venv
BIN     := $(VENV)/bin
SEEDS   ?= 500
CLUSTER_SEEDS ?= 50
WORKERS ?= 2
PORT    ?= 4327

# Bytecode is compiled at set-up; an instance that has to compile its imports starts slowly.
export PYTHONDONTWRITEBYTECODE=

.PHONY: setup demo demo-core demo-check test test-all check sim sim-mutants chaos fuzz soak sanitize bench bench-raft \
        bench-cluster bench-growing bench-large bench-sql bench-clients bench-spark profile dist deb

setup: $(VENV)/.dev
	@$(BIN)/python -m compileall -q src

NATIVE := $(wildcard src/cairn/native/*.c src/cairn/native/*.h)
$(VENV)/.dev: requirements/dev.txt pyproject.toml setup.py $(NATIVE)
	$(PY) -m venv $(VENV)
	$(BIN)/pip install -q --require-hashes -r requirements/dev.txt
	$(BIN)/pip install -q --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q -j 2 $(VENV)/lib > /dev/null || true
	touch $@

# PySpark is large: only what uses it waits for it.
$(VENV)/.spark: requirements/spark.txt $(VENV)/.dev
	$(BIN)/pip install -q --require-hashes -r requirements/spark.txt
	touch $@

# Copies of tables as Delta Lake; its tests are skipped without it.
$(VENV)/.delta: requirements/delta.txt $(VENV)/.spark
	$(BIN)/pip install -q --require-hashes --no-deps -r requirements/delta.txt
	touch $@

# The console is tested in a browser where there is one.
CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
$(VENV)/.browser: requirements/browser.txt $(VENV)/.dev
	$(BIN)/pip install -q --require-hashes -r requirements/browser.txt
	touch $@

# Sampling needs the right to look into other processes of the same user.
$(VENV)/.profile: requirements/profile.txt $(VENV)/.dev
	$(BIN)/pip install -q --require-hashes -r requirements/profile.txt
	touch $@

# Java starts in half of the time with an archive of Spark's classes; it is made once.
$(VENV)/.classes: $(VENV)/.spark
	$(BIN)/python -m cairn.spark.class_archive && touch $@ || true

demo: setup $(VENV)/.classes
	$(BIN)/cairn demo --base-port $(PORT) --sample examples/orders.csv

demo-core: setup
	$(BIN)/cairn demo --base-port $(PORT)

demo-check: setup
	$(BIN)/cairn demo --base-port $(PORT) --exec "$(BIN)/cairn status"

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: check $(VENV)/.spark $(if $(CHROMIUM),$(VENV)/.browser)
	$(BIN)/python -m tests.second_look -m "not slow" -n $(WORKERS)

test-all: check $(VENV)/.spark $(VENV)/.delta $(if $(CHROMIUM),$(VENV)/.browser)
	$(BIN)/pytest -n $(WORKERS)

sim: setup
	$(BIN)/cairn simulate --seeds $(SEEDS) --workers $(WORKERS)
	$(BIN)/python -m cairn.sim.cluster --seeds 1-$(CLUSTER_SEEDS) --workers $(WORKERS)
	$(BIN)/python -m cairn.sim.cluster --kind mix --seeds 1-$(CLUSTER_SEEDS) --workers $(WORKERS)
	$(BIN)/python -m tests.moves.model large
	$(BIN)/python -m cairn.sim.cluster --queue-kills --every $(or $(KILLS_EVERY),20) --workers $(WORKERS)

sim-mutants: setup
	$(BIN)/python -m tests.sim.run_mutants

# BLOWS real blows in each mode of replication, every answer judged; then the slow tests of clusters.
chaos: setup $(VENV)/.spark
	$(BIN)/python -m tests.chaos --mode sync --blows $(or $(BLOWS),100) --minutes 600
	$(BIN)/python -m tests.chaos --mode async --blows $(or $(BLOWS),100) --minutes 600
	$(BIN)/python -m tests.chaos.bank --mode sync --seconds 300
	$(BIN)/python -m tests.chaos.bank --mode async --seconds 300
	$(BIN)/pytest -m slow tests/cluster tests/chaos

# MINUTES, SEED and KIND bound it; the same seed does the same again.
fuzz: setup $(VENV)/.spark
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) \
	  $(if $(KIND),--kind $(KIND))

# Whether an instance levels off when its caches are full: the slope of the second half is judged.
soak: setup
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),20)

# The compiled part under gcc's sanitizers, beside the normal build: its tests, then hostile input.
sanitize: setup $(VENV)/.spark
	$(BIN)/python -m tests.native.sanitized --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

bench: bench-raft bench-cluster bench-sql bench-clients

bench-raft: setup
	$(BIN)/python bench/raft_core.py
	$(BIN)/python bench/raft_cluster.py

bench-cluster: setup
	$(BIN)/python bench/cluster.py
	$(BIN)/python bench/failover.py
	$(BIN)/python bench/migrations.py
	$(BIN)/python bench/replication.py

bench-growing: setup $(VENV)/.spark
	$(BIN)/python bench/growing.py --picture growing.svg

# ROWS rows, schema changes and a restart beside a client; then many tables, columns, global rows.
bench-large: setup
	$(BIN)/python bench/large_table.py
	$(BIN)/python bench/large_counts.py

bench-sql: setup
	$(BIN)/python bench/sql.py
	$(BIN)/python bench/sql_more.py
	$(BIN)/python bench/sql_two.py
	$(BIN)/python bench/sql_wide.py
	$(BIN)/python bench/sql_tpch.py
	$(BIN)/python bench/sql_apps.py

bench-clients: setup
	$(BIN)/python bench/clients_driver.py
	$(BIN)/python bench/clients_routing.py
	$(BIN)/python bench/clients_snapshot.py
	$(BIN)/python bench/clients_fanout.py

bench-spark: setup $(VENV)/.spark
	$(BIN)/python bench/spark.py

# Where the CPU of reads, writes, COPY and scans goes: SECONDS and ROWS change the loads.
profile: setup $(VENV)/.profile $(VENV)/.spark
	$(BIN)/python bench/cpu_profile.py

# Sdists and wheels of cairn-db, and of cairn-client: the driver without the server.
dist: setup
	$(BIN)/python packages/build.py dist

# A package for Debian 12, with the program and its libraries in /opt/cairn.
deb: setup
	$(BIN)/python packages/deb.py dist
