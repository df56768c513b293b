# stratalog: every target makes the one virtual environment first, once, and again when pyproject.toml changes.
#
#   make demo       three brokers, the real web log, a broker killed in the middle, a verdict
#   make demo-cloud the same in a simulated bucket: verdict, latency, requests, dollars on one screen; needs go
#   make test       every test but the longest; make quick: pure, contract and scenario tests, a minute
#   make test-long  storms over broker processes, spark-submit, every rule of the simulation under every mix of faults
#   make test-sessions  every test of source and sink in our Spark session, in one without a setting, over Spark Connect
#   make test-domains  the suites of clients, brokers and Spark with all topics in a storage domain: tests/domains.py
#   make test-stores  the tests of stores against an S3 server and Azure's emulator, which it installs; needs npm
#   make test-readers  Polars, DuckDB, Daft and DataFusion, which it installs, on replicas and committed records
#   make test-s3    those of them that know S3, with the server versitygw, which it builds; needs go
#   make clients    clients that others wrote, unchanged, against the Kafka listeners: docs/CLIENTS.md; needs mvn and java,
#                   and go for those in Go, npm for those in JavaScript, cargo for those in Rust, which it leaves
#                   out otherwise
#   make check      ruff, mypy --strict, the house rules (tests/test_tidy.py)
#   make storm      three broker processes, killed and paused for minutes: docs/STORM.md
#   make bucket-storm  the same on one bucket, and no object without a name afterwards: STORM_MINUTES=10; needs go
#   make hosts-storm  brokers on hosts of their own (network namespaces), whose links are cut: STORM_MINUTES=10; needs
#                   root and go
#   make region-loss  three clouds, of which the one that leads is lost under load: S3, Azure, a directory; needs go, npm
#   make power      300 power cuts under three broker processes: docs/POWER_CUTS.md; needs root, /dev/fuse and losetup
#   make fuzz       100,000 broken frames, then ten minutes of the most expensive valid ones, over eight connections
#                   beside a neighbour that must not notice
#   make client-storm  three broker processes, one killed every 20 s, under producers, groups and transactions of Kafka's
#                   Java clients, or STORM_CLIENTS=librdkafka; STORM_ACLS=1 with ACLs; needs mvn and java
#   make short-transactions  Kafka's tool and franz-go, a transaction every 20 ms: TRANSACTIONS=100000 PRODUCERS=1, or MINUTES=10 KILL_EVERY=25
#   make ecosystem  a table of Postgres as a Delta table by Debezium, its worker killed: docs/typed-tables.md; needs mvn, java
#                   and Postgres, which it runs on this machine (apt-get install postgresql, as root)
#   make many-connections  a thousand waiting fetches beside fifty producers: memory and latency
#   make exactly-once  a million records read, processed, written while processes are killed: docs/EXACTLY_ONCE.md
#   make simulate   the seeded simulation, SEEDS=20000 FIRST_SEED=0 HASH_SEED=random HASH_SEEDS=1
#   make bench      side by side with a real Kafka, about 20 minutes: docs/BENCHMARKS.md; needs mvn and java
#   make soak       100,000 commits, ten minutes under retention, half an hour of 400 commits/s: docs/BENCHMARKS.md
#   make bench-long the benches that take minutes each: memory, 500 partitions; needs mvn and java
#   make bench-cloud  latency, requests and dollars in a simulated bucket, about 80 minutes: docs/BENCHMARKS.md; needs go
#   make notebooks  runs every notebook and writes docs/notebooks, with outputs and pictures
#   make oracle     what Kafka's own classes answer, for tests/replication/oracle, and Avro's; needs mvn and java
#   make differential  hundreds of requests to a real Kafka and to stratalog, compared; needs mvn and java
#   make differential-random  random requests to both, 50 dialogues each about logs, groups, configs, moves and users; needs mvn and java
#   make differential-spark  one Spark script against a real Kafka and stratalog: equal results; needs mvn and java
#   make differential-values  10,000 random schemas with values in columns: what Avro's Java reader, Spark's from_avro,
#                   from_json and parse_json, protobuf's JSON mapping and the text have, by each way into a topic; SCHEMAS=10000; the first time needs Maven Central
#   make dashboards a Prometheus server scrapes three brokers and evaluates Strimzi's dashboards and alerts; needs
#                   prometheus (apt-get install prometheus)
#   make console-test  the console's pages in Chromium, by axe-core, and a user's tasks, counted; needs chromium (apt-get
#                   install chromium) and npm
#   make console-long  in Chromium: 10,000 hostile records, a killed broker, 10,000 partitions and 1,000 groups, a tail of
#                   10,000 records/s; its statements in Spark, dead letters put back; ten minutes
#   make conf       conf/cluster.toml and conf/topics.toml anew, from the settings in the code
#   make completions  the table of flags for completions of shells anew, from the tools
#   make cast       docs/start.cast: the first thirty seconds, recorded
#   make wheel      dist/stratalog-*.whl
#   make image      the broker's image as an OCI archive, TARGET=broker or spark: needs root and buildah, and debootstrap
#                   unless BASE names an image with Python
#   make chart      helm lint, helm template for each example, Kubernetes' schemas; needs helm, or go, which builds it
#   make rolling-restarts  three broker processes, each restarted ROLLS=20 times as the chart does it, under a Java producer
#                   and a group: docs/deploy.md; needs mvn and java
#   make release    dist: wheel, sdist, an SBOM of what the wheel brings, checksums; the same commit gives the same bytes. Nothing
#                   is published
#   make clean      what the targets made, the environment too

.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed
READERS_STAMP := $(VENV)/.readers-installed
DAFT := daft==0.7.26
STORES_STAMP := $(VENV)/.stores-installed
VERSITYGW_STAMP := $(VENV)/.versitygw-installed
CLIENTS_STAMP := $(VENV)/.clients-installed
CONSOLE_STAMP := $(VENV)/.console-installed
RELEASE_STAMP := $(VENV)/.release-installed
CYCLONEDX := cyclonedx-bom==7.5.0
PLAYWRIGHT := playwright==1.65.2
AXE := axe-core@4.14.1
AZURITE := azurite@3.37.0
VERSITYGW := github.com/versity/versitygw/cmd/versitygw@v1.8.0
# How many processes share the tests; two, and all that they start, were never seen to take more than 5.2 GiB.
TEST_PROCESSES ?= 2
DOMAIN_TESTS := $(addprefix tests/,clients spark server jobs lab/real lab/history)
SEEDS ?= 20000
FIRST_SEED ?= 0
HASH_SEED ?= random
HASH_SEEDS ?= 1
STORM_MINUTES ?= 5
STORM_CLIENTS ?= java
POWER_CUTS ?= 300
FUZZ_FRAMES ?= 100000
FUZZ_MINUTES ?= 10
TRANSACTIONS ?= 10000
PRODUCERS ?= 1
MINUTES ?= 600
KILL_EVERY ?= 0
DIALOGUES ?= 50
SCHEMAS ?= 10000
ROLLS ?= 20
TARGET ?= broker
PROFILE ?= fast
HELM ?= $(shell command -v helm || echo $(VENV)/helm/helm)
HELM_PACKAGE := helm.sh/helm/v3/cmd/helm@v3.22.0
# One seed of the simulation is one history in every process, whose pinned seeds are those of this hash seed.
export PYTHONHASHSEED := 0

.PHONY: help venv java demo demo-cloud test test-long test-sessions test-domains test-readers test-stores test-s3 clients quick check simulate storm bucket-storm hosts-storm region-loss power client-storm many-connections short-transactions ecosystem fuzz exactly-once bench bench-long bench-cloud soak notebooks oracle differential differential-random differential-spark differential-values dashboards console-test console-long conf completions cast wheel release image chart rolling-restarts clean

help:
	@sed -n 's/^#   //p' Makefile

venv: $(STAMP)

# A Python that pyproject.toml allows: python3.11 if there, else python3.12, else python3 if it is one of them.
$(STAMP): pyproject.toml
	@set -euo pipefail; \
	if [ ! -x $(PYTHON) ]; then \
	  for candidate in python3.11 python3.12 python3; do \
	    if $$candidate -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null; then found=$$candidate; break; fi; \
	  done; \
	  if [ -z "$${found:-}" ]; then \
	    echo "stratalog needs Python 3.11 or 3.12; found: $$(python3 --version 2>&1 || true)" >&2; exit 1; \
	  fi; \
	  echo "making $(VENV) with $$($$found --version)"; \
	  $$found -m venv $(VENV) || { echo "$$found cannot make a virtual environment (on Debian: the package python3-venv)" >&2; rm -rf $(VENV); exit 1; }; \
	fi; \
	echo "installing stratalog and its tools into $(VENV)"; \
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

# Spark's launcher takes JAVA_HOME before PATH; so does this look.
java:
	@set -euo pipefail; \
	java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	command -v "$$java" >/dev/null || { echo "Spark needs Java 17 or newer: $$java was not found (install a JDK or set JAVA_HOME)" >&2; exit 1; }; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
	[ "$${version:-0}" -ge 17 ] || { echo "Spark needs Java 17 or newer: $$java is version $${version:-unknown}" >&2; exit 1; }

demo: $(STAMP) java
	@$(PYTHON) -m stratalog demo --full

# In a bucket of versitygw, whose requests take as long as a cloud's; PROFILE=slow and PROFILE=express are others.
demo-cloud: $(VERSITYGW_STAMP)
	@$(PYTHON) -m tests.lab.demo_cloud --profile $(PROFILE)

test: $(STAMP) java
	@$(PYTHON) -m pytest -m "not long" --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

test-long: $(STAMP) java
	@$(PYTHON) -m pytest -m "long or hypothesis" --hypothesis-profile=random

test-sessions: $(STAMP) java
	@for kind in ours plain connect; do \
	  STRATALOG_TESTS_SESSION=$$kind $(PYTHON) -m pytest tests/spark/test_spark_source.py tests/spark/test_spark_sink.py tests/spark/test_storage_options.py || exit 1; \
	done
	STRATALOG_TESTS_SESSION=connect-delta $(PYTHON) -m pytest -m any_session tests/spark/test_typed_tables_over_connect.py

# Foreign clients: STRATALOG_TEST_DOMAIN=1 $(PYTHON) -m tests.lab.foreign.run
test-domains: $(STAMP) java
	@STRATALOG_TEST_DOMAIN=1 $(PYTHON) -m pytest -m "not long" --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(DOMAIN_TESTS)

# Daft's metadata wants pyarrow<26; it runs beside 26.
$(READERS_STAMP): $(STAMP)
	@set -euo pipefail; \
	echo "installing other readers of Delta and Arrow into $(VENV)"; \
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -e '.[dev,readers]'; \
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps $(DAFT)
	@touch $@

test-readers: $(READERS_STAMP)
	@$(PYTHON) -m pytest -m readers

# moto (S3) comes by pip, Azurite (Azure Blob) by npm.
$(STORES_STAMP): $(STAMP)
	@set -euo pipefail; \
	command -v npm >/dev/null || { echo "make test-stores needs npm: Azurite, Azure's emulator, is a package of it" >&2; exit 1; }; \
	echo "installing object store servers into $(VENV)"; \
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -e '.[dev,stores]'; \
	npm install --silent --no-audit --no-fund --prefix $(VENV)/azurite $(AZURITE)
	@touch $@

test-stores: $(STORES_STAMP)
	@$(PYTHON) -m pytest -m stores

# A server of S3 over a folder, licensed under Apache-2.0, and faster than moto; other tests of stores use it, too, when it is there.
$(VERSITYGW_STAMP): $(STAMP)
	@set -euo pipefail; \
	command -v go >/dev/null || { echo "make test-s3 needs Go 1.25 or newer, which builds versitygw: go was not found (on Debian: golang-go)" >&2; exit 1; }; \
	echo "building versitygw into $(VENV)"; \
	GOBIN="$$PWD/$(VENV)/versitygw" go install $(VERSITYGW)
	@touch $@

test-s3: $(VERSITYGW_STAMP)
	@$(PYTHON) -m pytest -m "stores and not long" -k versity_server

# Python's Kafka clients come by pip, those in Java by Maven; those in Go are built when go is there, those in JavaScript
# come by npm when node and npm are, and those in Rust are built when cargo is.
$(CLIENTS_STAMP): $(STAMP)
	@set -euo pipefail; \
	command -v mvn >/dev/null || { echo "make clients needs Apache Maven, which fetches Kafka's clients and tools: mvn was not found (on Debian: maven)" >&2; exit 1; }; \
	echo "installing Kafka clients into $(VENV)"; \
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -e '.[dev,clients]'
	@touch $@

clients: $(CLIENTS_STAMP) java
	@$(PYTHON) -m tests.lab.foreign.run --report docs

quick: $(STAMP)
	@$(PYTHON) -m tests.quick --processes $(TEST_PROCESSES)

check: $(STAMP)
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m mypy
	@$(PYTHON) -m pytest -q tests/test_tidy.py

# The order of a set of names is part of a run's history, so the hash seed is drawn, too, and printed with each finding.
simulate: $(STAMP)
	@PYTHONHASHSEED=$(HASH_SEED) $(PYTHON) -m tests.simulation --seeds $(SEEDS) --first-seed $(FIRST_SEED) --hash-seeds $(HASH_SEEDS)

storm: $(STAMP)
	@$(PYTHON) -m tests.lab.real.storm.run --minutes $(STORM_MINUTES) --report docs

bucket-storm: $(VERSITYGW_STAMP)
	@$(PYTHON) -m tests.lab.real.bucket_storm.run --minutes $(STORM_MINUTES)

hosts-storm: $(VERSITYGW_STAMP)
	@$(PYTHON) -m tests.lab.real.hosts.run --minutes $(STORM_MINUTES)

region-loss: $(VERSITYGW_STAMP) $(STORES_STAMP)
	@$(PYTHON) -m tests.lab.real.region_loss.run --seconds 60 --clouds

# Mounts file systems of its own by FUSE, without a library; says so when that cannot be done here.
power: $(STAMP) java
	@$(PYTHON) -m tests.lab.real.power.run --cuts $(POWER_CUTS) --report docs

# Needs confluent-kafka, as make clients does: it reads what was stored at the end.
client-storm: $(CLIENTS_STAMP) java
	@$(PYTHON) -m tests.lab.real.client_storm.run --minutes $(STORM_MINUTES) --clients $(STORM_CLIENTS) $(if $(STORM_ACLS),--acls)

short-transactions: $(STAMP) java
	@$(PYTHON) -m tests.lab.real.short_transactions.run --transactions $(TRANSACTIONS) --producers $(PRODUCERS) --minutes $(MINUTES) --kill-every $(KILL_EVERY)

ecosystem: $(STAMP) java
	@$(PYTHON) -m tests.lab.real.ecosystem.run

many-connections: $(STAMP)
	@$(PYTHON) -m tests.lab.real.many_connections.run --minutes 10

fuzz: $(STAMP)
	@$(PYTHON) -m tests.lab.real.fuzz.run --frames $(FUZZ_FRAMES)
	@$(PYTHON) -m tests.lab.real.fuzz.expensive_run --minutes $(FUZZ_MINUTES)

exactly-once: $(STAMP)
	@$(PYTHON) -m tests.lab.real.exactly_once.run --runs 3 --report docs

# Kafka comes by Maven into tests/lab/bench/peer/libs; the command itself says what is missing.
bench: $(STAMP) java
	@$(PYTHON) -m tests.lab.bench --report docs

bench-long: $(STAMP) java
	@$(PYTHON) -m tests.lab.bench --long --report docs

# In a bucket of versitygw, whose requests take as long as a cloud's.
bench-cloud: $(VERSITYGW_STAMP)
	@$(PYTHON) -m tests.lab.bench --cloud --report docs

soak: $(STAMP) java
	@$(PYTHON) -m tests.lab.bench --soak --report docs

notebooks: $(STAMP)
	@$(PYTHON) notebooks/render.py

# Records anew what tests compare with; unchanged files mean that Kafka still answers the same.
oracle: $(STAMP) java
	@$(PYTHON) -m tests.replication.oracle
	@$(PYTHON) -m tests.clients.schemas.oracle

# Writes what Kafka answers, for tests/lab/differential, and prints what differs from it.
differential: $(STAMP) java
	@$(PYTHON) -m tests.lab.differential

# Each dialogue stops at the first answer that differs; FIRST_SEED is the first one's.
differential-random: $(STAMP) java
	@$(PYTHON) -m tests.lab.differential.random_dialogues --seeds $(DIALOGUES) --first-seed $(FIRST_SEED)

# --write brings docs/spark-options.json up to date.
differential-spark: $(STAMP) java
	@$(PYTHON) -m tests.lab.differential.spark

differential-values: $(STAMP) java
	@$(PYTHON) -m tests.lab.differential.values --count $(SCHEMAS)

dashboards: $(STAMP)
	@$(PYTHON) -m tests.lab.dashboards

# playwright drives the chromium that is installed and downloads none.
$(CONSOLE_STAMP): $(STAMP)
	@set -euo pipefail; \
	command -v chromium > /dev/null || { echo "make console-test needs chromium: apt-get install chromium"; exit 1; }; \
	command -v npm > /dev/null || { echo "make console-test needs npm: apt-get install npm"; exit 1; }; \
	$(PYTHON) -m pip install --quiet --disable-pip-version-check $(PLAYWRIGHT); \
	npm install --silent --no-audit --no-fund --prefix $(VENV)/axe $(AXE)
	@touch $@

console-test: $(CONSOLE_STAMP)
	@$(PYTHON) -m tests.lab.console $(VENV)/axe/node_modules/axe-core/axe.min.js $(PICTURES)
	@$(PYTHON) -m tests.lab.console.tasks

console-long: $(CONSOLE_STAMP) java
	@for run in hostile failover many tail statements dead_letters; do echo "$$run:"; $(PYTHON) -m tests.lab.console.$$run || exit 1; done

conf: $(STAMP)
	$(PYTHON) -m stratalog.replication.conf_files

completions: $(STAMP)
	$(PYTHON) -m stratalog.jobs.completion_table

# A terminal of its own, in which the commands of the file are typed.
cast: $(STAMP) wheel
	@$(PYTHON) -m tests.lab.cast.record docs/start.cast

wheel: $(STAMP)
	@rm -rf dist
	@$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

image: wheel
	@deploy/image/build.sh $(TARGET)

$(VENV)/helm/helm: $(STAMP)
	@set -euo pipefail; \
	command -v go >/dev/null || { echo "make chart needs helm, or Go 1.26 or newer, which builds it: neither was found" >&2; exit 1; }; \
	echo "building helm into $(VENV)"; \
	GOBIN="$$PWD/$(VENV)/helm" go install $(HELM_PACKAGE)

chart: $(STAMP) $(HELM)
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check -e '.[dev,deploy]'
	@$(PYTHON) -m tests.deploy.chart --helm $(HELM)

rolling-restarts: $(STAMP) java
	@$(PYTHON) -m tests.lab.real.rolling_restarts.run --rolls $(ROLLS)
# What the SBOM is made with has a virtual environment of its own: its packages are not ours.
$(RELEASE_STAMP): $(STAMP)
	@set -euo pipefail; \
	echo "installing cyclonedx-bom into $(VENV)/release"; \
	$(PYTHON) -m venv $(VENV)/release; \
	$(VENV)/release/bin/python -m pip install --quiet --disable-pip-version-check $(CYCLONEDX)
	@touch $@

release: $(RELEASE_STAMP)
	@set -euo pipefail; \
	$(PYTHON) -m pytest -q tests/docs/test_changelog.py; \
	rm -rf dist $(VENV)/released; \
	export SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)}"; \
	$(PYTHON) -m hatchling build --directory dist; \
	$(PYTHON) -m venv --without-pip $(VENV)/released; \
	$(PYTHON) -m pip --python $(VENV)/released/bin/python install --quiet --disable-pip-version-check dist/*.whl; \
	wheel=$$(basename dist/*.whl -py3-none-any.whl); \
	$(VENV)/release/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml \
	  --output-file "dist/$$wheel.cdx.json" $(VENV)/released/bin/python; \
	cd dist; sha256sum * > SHA256SUMS; cat SHA256SUMS

clean:
	rm -rf $(VENV) tests/lab/bench/peer/libs tests/lab/bench/peer/spark-libs build dist data logs spark-warehouse .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
