"""The short demo, without Spark: a web log is sent, a broker is killed in the middle, and the records are compared.

I/O: a cluster of this process below one folder, its clients; the verdict on standard output.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from stratalog import Admin, Cluster, ClusterView, NewTopic, Producer, ReplicaVerification
from stratalog.jobs.command.progress import progress
from stratalog.jobs.demo.clients import Tail, now_ms
from stratalog.jobs.demo.log import BROKERS, TOPIC, chunks, client_of, read_lines
from stratalog.jobs.demo.verdict import Check, KeyedLine, differences
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.storage.errors import RequestTimedOutError

PARTITIONS = 6
CHUNK = 500
KILL_AT = 0.4
"""Share of the log that is acknowledged when the broker is killed."""
WAIT_S = 60
POLL_S = 0.1
DURABLE = {"min.insync.replicas": 2}


def quick_demo(path: Path) -> list[Check]:
    """Run the demo below `path`; every claim with what was found. The data stays."""
    logging.getLogger("stratalog").setLevel(logging.ERROR)  # the killed broker is no news here
    lines = read_lines()
    with Cluster.start(path, BROKERS, fetcher="thread", progress=None) as cluster:
        admin = Admin(cluster)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS, DURABLE)])
        tail = Tail(cluster.root, TOPIC)
        tail.start()
        sent, failover_ms, killed = _send(cluster, admin, lines)
        _until(lambda: tail.count >= len(lines), "all records to be consumed")
        cluster.restart(killed)
        _until(lambda: _is_in_sync(admin), "the killed broker to be in sync again")
        tail.end()
        view = ClusterView(cluster.root)
        findings = [each.findings for each in ReplicaVerification(view, view.partitions(TOPIC)).run()]
    differing = sum(map(len, findings))
    return _verdict(len(lines), sent, tail.consumed(), lines, failover_ms, killed, differing)


def _send(cluster: Cluster, admin: Admin, lines: Sequence[str]) -> tuple[int, float, int]:
    """Send the log and kill a broker in the middle: how many records were acknowledged, how long the first of them
    waited after the kill, and the broker."""
    acknowledged, killed, kill_ms, back_ms = 0, NO_LEADER, 0.0, 0.0
    with progress("records acknowledged", len(lines)) as bar, Producer(cluster, acks="all") as producer:
        for chunk in chunks(lines, CHUNK):
            for future in [producer.send(TOPIC, line, key=client_of(line)) for line in chunk]:
                future.result(WAIT_S)
                acknowledged += 1
            bar.set(acknowledged)
            if killed == NO_LEADER and acknowledged >= KILL_AT * len(lines):
                killed = _busiest(admin)
                kill_ms = now_ms()
                cluster.kill(killed)
            elif killed != NO_LEADER and not back_ms:
                back_ms = now_ms()
    return acknowledged, back_ms - kill_ms, killed


def _busiest(admin: Admin) -> int:
    """The broker that leads most partitions of the topic."""
    led = Counter(each.leader for each in admin.describe_topics([TOPIC])[TOPIC].partitions)
    return led.most_common(1)[0][0]


def _is_in_sync(admin: Admin) -> bool:
    return all(len(each.isr) == BROKERS for each in admin.describe_topics([TOPIC])[TOPIC].partitions)


def _until(holds: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > end_s:
            raise RequestTimedOutError(f"waited {WAIT_S} s for {what}")
        time.sleep(POLL_S)


def _verdict(
    count: int,
    acknowledged: int,
    consumed: Sequence[KeyedLine],
    lines: Sequence[str],
    failover_ms: float,
    killed: int,
    differing: int,
) -> list[Check]:
    found = differences([KeyedLine(client_of(line), line) for line in lines], consumed)
    doubled = found.duplicated + found.never_sent
    return [
        Check("sent", f"{count:,}", count > 0, "lines of a real web log"),
        Check("acknowledged", f"{acknowledged:,}", acknowledged == count, "acks=all, min.insync.replicas=2"),
        Check(
            "killed", f"broker {killed}", killed != NO_LEADER, f"at {KILL_AT:.0%} of the log; it led most partitions"
        ),
        Check("failover", f"{failover_ms / 1_000:.1f} s", failover_ms > 0, "until all partitions acknowledged again"),
        Check("lost", f"{found.lost:,}", found.lost == 0),
        Check("duplicated", f"{doubled:,}", doubled == 0),
        Check("order per key", f"{found.reordered_keys:,} keys differ", found.reordered_keys == 0),
        Check("replicas", f"{differing:,} records differ", differing == 0, f"{BROKERS} replicas of each partition"),
    ]


def verdict_lines(checks: Sequence[Check], path: Path) -> list[str]:
    """The claims, and what to do with the data."""
    lines = [f"{'ok' if each.holds else 'FAILED':<7}{each.name:<15}{each.value:<17}{each.note}" for each in checks]
    ends = "The verdict holds." if all(each.holds for each in checks) else "THE VERDICT FAILS."
    return [
        *(line.rstrip() for line in lines),
        ends,
        "",
        "Each replica is a Delta table, for DuckDB, Polars, Spark and others:",
        f"  duckdb -c \"FROM delta_scan('{path}/broker-1/{TOPIC}-0') LIMIT 3\"",
        "The cluster once more, and its topic:",
        f"  strata cluster {path}",
        f"  strata consume --root {path}/metadata {TOPIC} --from-beginning --max-messages 3",
        "All of it, with Structured Streaming queries and a chart: pip install 'stratalog[demo]'; strata demo --full",
    ]
