"""Short transactions that follow each other at once, by Kafka's own tool and by franz-go, with requests in flight.

    make short-transactions TRANSACTIONS=100000
    make short-transactions TRANSACTIONS=1000000 MINUTES=10 KILL_EVERY=25   # with brokers that are killed

Three brokers, each a process, three replicas. `kafka-producer-perf-test` ends a transaction every 20 ms; franz-go sends
20 records a transaction. Neither may meet an error. With `--kill-every` a broker gets SIGKILL every so many seconds and
is started again; only franz-go runs then, and makes a new client after an error. In the end each record of a committed
transaction must be read once by read_committed, all or none of one whose outcome its client does not know, and none of
an aborted one.
I/O: processes of brokers, of Java and of the Go program, one folder.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from stratalog.clients.admin.admin import Admin
from stratalog.server.admin.admin import NewTopic
from stratalog.server.view.cluster_view import ClusterView
from tests.lab.bench.peer.kafka import PeerError, fetch_jars, run_tool
from tests.lab.foreign.go.program import SOURCES
from tests.lab.foreign.served import Form, Served
from tests.lab.real.harness.broker_processes import BROKERS
from tests.lab.real.harness.faults import KILL, Faults

PROGRAM = Path(sys.prefix) / "foreign-go" / "shorttransactions"
PARTITIONS, RECORDS, RESTART_S = 4, 20, 4
PERF_RECORDS_A_SECOND, PERF_TRANSACTION_MS = 1_500, 20
PERF = "org.apache.kafka.tools.ProducerPerformance"
SETTINGS = {
    "broker.session.timeout.ms": 9_000,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 6,
    "transaction.state.log.num.partitions": 6,
}


def create(served: Served, topic: str) -> None:
    Admin(served.metadata_root).create_topics([NewTopic(topic, PARTITIONS, len(BROKERS))])


@contextmanager
def kills(served: Served, every_s: float) -> Iterator[Faults]:
    """A broker is killed every so many seconds while the block runs, and started again a moment later."""
    is_over, faults, rng = threading.Event(), Faults(), random.Random(1)

    def inject() -> None:
        faults.strike(served.process(rng.choice(BROKERS)), KILL, RESTART_S)

    working = threading.Thread(target=faults.run, args=(every_s, inject, is_over.is_set, every_s), daemon=True)
    if every_s:
        working.start()
    try:
        yield faults
    finally:
        is_over.set()
        if every_s:
            working.join()
        faults.repair(at_once=True)


def perf_test(served: Served, transactions: int) -> None:
    """Kafka's tool; it ends with its first error. AssertionError with what it printed."""
    create(served, "perf")
    records = transactions * PERF_RECORDS_A_SECOND * PERF_TRANSACTION_MS // 1_000
    begun = time.monotonic()
    try:
        printed = run_tool(
            PERF,
            *("--topic", "perf", "--num-records", records, "--record-size", 512),
            *("--throughput", PERF_RECORDS_A_SECOND, "--bootstrap-server", served.bootstrap),
            *("--transactional-id", "perf", "--transaction-duration-ms", PERF_TRANSACTION_MS),
            wait_s=600 + transactions * PERF_TRANSACTION_MS / 100,  # a slow machine takes ten times as long
        )
    except PeerError as reason:
        raise AssertionError(f"kafka-producer-perf-test: {reason}") from reason
    if "Exception" in printed:
        raise AssertionError(printed[-3_000:])
    view = ClusterView(served.metadata_root)
    ends = view.offsets.end_offsets(view.image.partitions_of("perf"))
    markers = sum(ends.values()) - records
    print(f"perf-test: {records} records, {markers} markers, {time.monotonic() - begun:.0f} s, no error", flush=True)


def franz_go(served: Served, transactions: int, producers: int, seconds: int, kill_every_s: float) -> None:
    """Transactions of 20 records, shared by so many producers. AssertionError for an error without kills, or for what
    is read."""
    create(served, "short")
    begun = time.monotonic()
    each = -(-transactions // producers)
    with kills(served, kill_every_s) as faults, ThreadPoolExecutor(producers) as pool:
        ids = [f"short{number}" for number in range(producers)]
        parts = pool.map(lambda own: _program("write", served, "short", own, each, seconds, RECORDS), ids)
        written = list(chain.from_iterable(parts))
    outcomes = [line.split(" ", 2) for line in written]
    counts = Counter(outcome for outcome, *_ in outcomes)
    errors = Counter(rest[0] for _, _, *rest in outcomes if rest)
    took_s = time.monotonic() - begun
    print(
        f"franz-go: {dict(counts)} in {took_s:.0f} s, {faults.counts[KILL]} SIGKILLs, errors {dict(errors)}", flush=True
    )
    served.await_ready()
    _judge(_program("read", served, "short"), outcomes)
    if errors and not kill_every_s:
        raise AssertionError(f"errors without a fault: {dict(errors)}")
    if any("OUT_OF_ORDER" in error or "INVALID_TXN_STATE" in error for error in errors):
        raise AssertionError(f"errors that Kafka does not give: {dict(errors)}")


def _program(program: str, served: Served, *arguments: object) -> list[str]:
    command = [str(PROGRAM), program, served.bootstrap, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{program}: {done.stderr}")
    return done.stdout.splitlines()


def _judge(read: Iterable[str], outcomes: Sequence[Sequence[str]]) -> None:
    seen: dict[str, list[int]] = {}
    for value in read:
        transaction, _, number = value.partition(":")
        seen.setdefault(transaction, []).append(int(number))
    wrong = {
        transaction: (outcome, sorted(seen.get(transaction, [])))
        for outcome, transaction, *_ in outcomes
        if not _is_right(outcome, sorted(seen.get(transaction, [])))
    }
    unasked = seen.keys() - {transaction for _, transaction, *_ in outcomes}
    assert not wrong, f"transactions that are read otherwise than they ended: {wrong}"
    assert not unasked, f"transactions that nobody began: {unasked}"
    print(f"read_committed: {len(seen)} transactions, each of their records once", flush=True)


def _is_right(outcome: str, numbers: list[int]) -> bool:
    is_whole, is_absent = numbers == list(range(RECORDS)), not numbers
    return {"committed": is_whole, "aborted": is_absent, "unknown": is_whole or is_absent}[outcome]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--transactions", type=int, default=10_000, help="of each client")
    parser.add_argument("--producers", type=int, default=1, help="of franz-go, at the same time")
    parser.add_argument("--minutes", type=float, default=600, help="of franz-go at most")
    parser.add_argument("--kill-every", type=float, default=0, help="seconds between two SIGKILLs; 0: none")
    parser.add_argument("--clients", choices=("both", "perf-test", "franz-go"), default="both")
    given = parser.parse_args(arguments)
    command = ["go", "build", "-o", str(PROGRAM), "./shorttransactions"]
    subprocess.run(command, cwd=SOURCES, check=True)
    with Served(Form.BROKERS, SETTINGS) as served:
        if given.clients != "perf-test":
            franz_go(served, given.transactions, given.producers, int(60 * given.minutes), given.kill_every)
        if given.clients != "franz-go" and not given.kill_every:
            fetch_jars()
            perf_test(served, given.transactions)


if __name__ == "__main__":
    main()
