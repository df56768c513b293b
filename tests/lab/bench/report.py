"""docs/BENCHMARKS.md as text: how it was measured, on what, and every row, also those that the peer wins. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.lab.bench.measures import Row, Spread, plain

HEAD = """stratalog beside a real Apache Kafka of three brokers, on one machine, in one run. Written by {commands};
medians of the rounds, whose least and most are in [results.json](benchmarks/results.json) with all versions.

A ratio above 1 means that stratalog is better. Brokers, clients and Spark of both sides share the machine's cores. The
two sides are measured in turns; the one that waits stays up and idle. Rows that Kafka wins stay in the tables."""

SECTIONS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "produce": (
        "Producing and consuming",
        """Six partitions, three replicas, acks=all, `min.insync.replicas=2`, the same random values; neither side
syncs before it acknowledges. Ours: one producer **in the brokers' process**, Arrow tables of 10,000 rows. Kafka:
`producer-perf`, **a client over TCP** in a process of its own, with its defaults, measured when it is warm. So
the ratio is not one of two network protocols. p99 is the time from `send` to the acknowledgement at full load,
mostly spent in the producer's buffer.""",
        {
            "consume": """Consuming is `poll_table` against `consumer-perf`, which counts the time to join its group,
too.""",
            "producers_8": "`producers_8`: eight producers at once, each with an eighth of the records, against one.",
        },
    ),
    "latency": (
        "Latency",
        """Open loop: requests of one record of 100 bytes on a fixed schedule, latency from the scheduled time to the
acknowledgement by all in-sync replicas, linger 0; a stall counts for every request that waits behind it. Ours
runs with fetch sessions of 20 s (300 s by default), so that followers hand over every ten seconds. The peer's
client is `tests/lab/bench/peer/OpenLoop.java`.""",
        {
            "partitions_500": "`partitions_500`: 500 partitions with one record a second each.",
            "time_to_table": """`time_to_table`: until a deltalake reader in another process has read the row from the
leader's table (`update_incremental`); 100 records/s, three partitions.""",
        },
    ),
    "spark": (
        "Spark",
        """One Spark application, `local[2]`, beside both clusters; 2,000,000 rows with keys and values of 100 bytes.
Rows `_tuned`: the Kafka connector with `kafka.fetch.max.wait.ms=10` instead of 500, and for writes with
`kafka.batch.size=262144` and `kafka.linger.ms=20`. Our sink compresses.""",
        {
            "spark_read": "`spark_read`: count and sum of lengths.",
            "spark_stream": "`spark_stream`: AvailableNow from the beginning into `noop`.",
            "spark_trigger": """`spark_trigger`: the time of one micro-batch, topic to foreachBatch, while 100 rows/s
come in; the writing query beside it.""",
            "delta_append": """`delta_append`: `spark_write` against a plain append of the same rows to one Delta
table, neither partitioned nor replicated.""",
            "spark_view": """`spark_view`: the same sum through a committed view, made for each query, against a read
of the source, both timed from before `load`.""",
            "spark_plain": """`spark_plain`: ours in a session without a single setting against ours in the session of
`stratalog_session`; `registered`: after `register_data_source`.""",
            "typed_table": """`typed_table`: 1,000,000 Avro orders of five schema versions, 1 % of a schema that is not
registered, into a typed table and its dead letters, beside Kafka's connector with `foreachBatch`, `from_avro` of
the known schemas and two Delta tables, each once by `txnAppId`; the rate behind the first batch, CPU time of the
query.""",
        },
    ),
    "standing": (
        "Standing",
        "",
        {
            "idle_cpu": """`idle_cpu`: 300 partitions with three replicas and nothing to do; all processes of a side,
Spark's included, over 10 s.""",
            "disk_bytes": """`disk_bytes`: 10,000 lines of a web log, zstd on both sides; disk blocks on three
replicas, commit logs and indexes included, after our merges; `one sealed replica`: one partition whose segment
was rolled, ours with its commit log against the peer's `.log` file alone.""",
            "memory": """`memory`: resident memory at 20,000 records/s over ten minutes, least squares from the second
minute on (`Pss`; in the last line shared pages count in each process).""",
        },
    ),
    "group": (
        "Groups",
        """100 consumers of one process, each in a thread of its own, share ten topics of 100 partitions with three
replicas; heartbeats every 300 ms, `group.initial.rebalance.delay.ms=0`. `group_rebalance`: from the change until
every partition has its new owner and every member knows; `kill` counts from the end of the silent member's
session (6 s).""",
        {},
    ),
    "clients": (
        "Kafka's clients",
        """`kafka-producer-perf-test`, `kafka-consumer-perf-test` and `kafka-e2e-latency`, unchanged, each in a JVM of
its own, against Kafka and against three processes of `jobs.broker` whose followers fetch in threads; defaults
except acks=all and the batch size named; six partitions, three replicas. Consuming is the fetch rate, without the
group's join. Latency is one record of 100 bytes at a time, from `send` to the consumer's `poll`.""",
        {},
    ),
    "soak": (
        "After 100,000 commits",
        """`make soak`: one log with its upkeep takes 100,000 commits of ten records of 100 bytes as fast as it goes.
The last tenth, or the most from the second tenth on, against the first or the second tenth: what became worse.
Look-ups and `soak_reopen` are of a fresh reader.""",
        {
            "soak_disk": """`soak_disk`: ten minutes of 200,000 records/s over six partitions with three replicas,
`retention.bytes` 32 MiB, `segment.bytes` 8 MiB; disk blocks, the second half's most against the first half's.""",
        },
    ),
    "busy": (
        "A busy log",
        """`make soak`: half an hour of 400 commits a second to one partition with two replicas, one record of 100
bytes each, acks=1; shorter fetch sessions, so that the follower hands over more than ten times. What became
worse from the first half to the second; memory is `Pss` of the process with brokers and producer, and of the sessions'
Python workers.""",
        {},
    ),
    "simulated": (
        "In a simulated bucket",
        """`make bench-cloud`: everything in these rows is simulated. Three brokers of ours in one process, all roots in
one bucket of versitygw behind a relay that draws the time of each request from a published distribution
(`tests/stores/cloud/profiles.toml`, with what is assumed): S3 Standard `fast` and `slow`, S3 `express`. acks=all, three
replicas, records of 100 bytes; closed loop: one record at a time in one partition; 20/s and 200/s: open loops over six.
Outside reader: until deltalake and obstore in another process have read the row from the leader's table, at 20/s.
Requests an acknowledgement: those of the closed loop beyond an idle cluster's. Dollars: requests and moved bytes, not
storage, by the dated lists of `conf/prices.toml`, for each GiB of values at full load, and for a month of an idle
cluster.""",
        {"simulated_fast_domain": "`…_domain`: the topic lies in a storage domain, one table for all brokers."},
    ),
}
"""Sections by the first part of a bench's name: title, how it was measured, and what belongs to single benches."""

SHOWN = ("cores", "data on", "Apache Kafka", "Java", "pyspark")
"""What of a machine the document names."""
_SECTION_OF = {
    "produce": "produce", "consume": "produce", "producers": "produce", "latency": "latency", "partitions": "latency",
    "time": "latency",
    "spark": "spark", "delta": "spark", "idle": "standing", "disk": "standing", "memory": "standing",
    "typed": "spark", "soak": "soak", "busy": "busy", "group": "group", "clients": "clients",
    "simulated": "simulated",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the benches: the command, the day, how long it took, the machine, its rows and notes."""

    command: str
    day: str
    took_s: int
    machine: Mapping[str, str]
    rows: Sequence[Row]
    notes: Sequence[str]


def report(runs: Sequence[Run], ratios_chart: str, charts: Mapping[str, Sequence[str]]) -> str:
    """The whole document. `charts`: by a section's name, paths relative to the document."""
    rows = [row for run in runs for row in run.rows]
    commands = " and ".join(f"`{run.command}`" for run in runs)
    parts = [
        "# Benchmarks",
        HEAD.format(commands=commands),
        f"![ratios]({ratios_chart})",
        *[section(name, rows, charts.get(name, ())) for name in SECTIONS],
        kafka_wins(rows),
        "## Machine and notes\n\n" + "\n".join(map(machine_text, runs)),
        "\n".join(f"- {note}" for run in runs for note in run.notes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def section(name: str, rows: Sequence[Row], charts: Sequence[str]) -> str:
    """A title, what was measured, a table, charts; empty when there are no rows.

    Of what is compared with itself the table has what became worse.
    """
    own = [row for row in rows if section_of(row.bench) == name]
    if not own:
        return ""
    title, text, of_benches = SECTIONS[name]
    is_beside_kafka = any(row.peer is not None and row.peer_is == "Kafka" for row in own)
    rows_shown = [row for row in own if is_beside_kafka or row.peer is None or is_lost(row)]
    measured = {row.bench for row in own}
    texts = " ".join([text, *(words for bench, words in of_benches.items() if bench in measured)]).strip()
    return "\n\n".join([f"## {title}", texts, table(rows_shown), *[f"![{title.lower()}]({chart})" for chart in charts]])


def section_of(bench: str) -> str:
    """The section of a bench's row. KeyError for a bench without a section."""
    return _SECTION_OF[bench.partition("_")[0]]


def table(rows: Sequence[Row]) -> str:
    """A Markdown table of the medians."""
    lines = ["| bench | unit | stratalog | Kafka | ratio |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        peer = "" if row.peer is None else median(row.peer) + ("" if row.peer_is == "Kafka" else f" ({row.peer_is})")
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        lines.append(f"| {_named(row)} | {row.unit} | {median(row.ours)} | {peer} | {ratio} |")
    return "\n".join(lines)


def median(of: Spread) -> str:
    """
    >>> median(Spread(1.0, 2.5, 1234.0, 3))
    '2.5'
    """
    return f"{plain(of.median):,}"


def is_lost(row: Row) -> bool:
    """Whether the other side is better."""
    return row.ratio is not None and row.ratio < 1


def kafka_wins(rows: Sequence[Row]) -> str:
    """The rows with a ratio below 1, by name; separately those compared with something other than Kafka."""
    lost = [row for row in rows if is_lost(row)]
    kafka = by_bench([row for row in lost if row.peer_is == "Kafka"])
    others = dict.fromkeys(row.peer_is for row in lost if row.peer_is != "Kafka")
    behind = [f"{peer}: {by_bench([row for row in lost if row.peer_is == peer])}" for peer in others]
    texts = [f"Kafka is better in: {kafka}." if kafka else "In this run there is no such row."]
    if behind:
        texts.append("Below 1, but not against Kafka:\n\n" + "\n".join(f"- behind {each}" for each in behind))
    return "## Where Kafka wins\n\n" + "\n\n".join(texts)


def by_bench(rows: Sequence[Row]) -> str:
    """The names of rows, a bench's together: "`latency_acks_all` p50, p99; `memory`"."""
    benches = dict.fromkeys(row.bench for row in rows)
    of = {bench: ", ".join(row.of for row in rows if row.bench == bench and row.of) for bench in benches}
    return "; ".join(f"`{bench}` {figures}".strip() for bench, figures in of.items())


def _named(row: Row) -> str:
    return f"`{row.bench}` {row.of}".strip()


def machine_text(run: Run) -> str:
    """The machine of a run in a line, with what decides the figures most; the rest is in results.json."""
    named = "; ".join(f"{name}: {run.machine[name]}" for name in SHOWN if name in run.machine)
    return f"- `{run.command}`, {run.day}, {run.took_s // 60} min {run.took_s % 60} s. {named}."
