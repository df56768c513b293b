"""A neighbour of strangers: it produces, asks for ApiVersions, beats as a group's member if there is a group, and
tells how long each answer took. I/O: sockets.

    python -m tests.lab.real.fuzz.steady_neighbour HOST PORT TOPIC [GROUP]

Each line on its standard input ends a phase: it prints what it saw in it, as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stratalog.storage.records import NewRecordBatch, payload_table
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.batches.record_batches import encode_batch
from tests.lab.real.fuzz.clients import SOFTWARE, Address, OneConnection

COORDINATOR_S = 30
MEMBER = "neighbour-member"
RATES = {"produce": 100.0, "heartbeat": 10.0, "api_versions": 10.0}
"""Requests a second."""
SHARE_99, SHARE_50 = 0.99, 0.5


@dataclass(slots=True)
class Phase:
    """Times in ms by kind of request, and what went wrong."""

    times_ms: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in RATES})
    errors: list[str] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        kinds = {kind: summary(times) for kind, times in self.times_ms.items()}
        return {**kinds, "errors": self.errors[:20], "error_count": len(self.errors)}


def summary(times_ms: list[float]) -> dict[str, float]:
    """Count, median, 99th percentile and the longest."""
    ordered = sorted(times_ms)
    if not ordered:
        return {"count": 0, "p50_ms": 0.0, "p99_ms": 0.0, "longest_ms": 0.0}
    at = {name: ordered[int(share * (len(ordered) - 1))] for name, share in (("p50", SHARE_50), ("p99", SHARE_99))}
    rounded = {f"{name}_ms": round(value, 1) for name, value in at.items()}
    return {"count": len(ordered), **rounded, "longest_ms": round(ordered[-1], 1)}


class SteadyNeighbour:
    """Threads with a connection each. `phase` is the present one; replaced at the end of each."""

    def __init__(self, address: Address, topic: str, group: str = "") -> None:
        self.phase = Phase()
        self._address = address
        self._topic = topic
        self._group = group
        self._epoch = 0
        asks: dict[str, Callable[[OneConnection], str]] = {"produce": self._produce, "api_versions": self._probe}
        if group:
            _await_coordinator(address, group)
            asks["heartbeat"] = self._beat
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=each, daemon=True) for each in asks.items()]
        for thread in self._threads:
            thread.start()

    def finish(self) -> Phase:
        """End the connections; what was seen since the last phase."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        return self.phase

    def _run(self, kind: str, ask: Callable[[OneConnection], str]) -> None:
        connection, due_s = OneConnection(self._address), time.monotonic()
        while not self._is_over.is_set():
            begun_s = time.monotonic()
            try:
                error = ask(connection)
            except (OSError, TimeoutError) as reason:
                error = f"{type(reason).__name__}: {reason}"
                connection.close()
                connection = OneConnection(self._address)
            ended_s = time.monotonic()
            self.phase.times_ms[kind].append(1_000 * (ended_s - begun_s))
            if error:
                self.phase.errors.append(f"{kind}: {error}")
            due_s = max(due_s + 1 / RATES[kind], ended_s - 1)
            self._is_over.wait(max(0.0, due_s - ended_s))
        connection.close()

    def _produce(self, connection: OneConnection) -> str:
        records = encode_batch(NewRecordBatch(payload_table([(1_700_000_000_000, b"k", b"v" * 100, None)])))
        topic = {"name": self._topic, "partition_data": [{"index": 0, "records": records}]}
        answer = connection.ask(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 5_000, "topic_data": [topic]})
        (partition,) = answer.responses[0].partition_responses
        return f"{partition.error_code.name}: {partition.error_message}" if partition.error_code else ""

    def _beat(self, connection: OneConnection) -> str:
        """A member that was removed, because its session expired, is an error."""
        joins = self._epoch == 0
        values = {
            "group_id": self._group, "member_id": MEMBER, "member_epoch": self._epoch,
            "rebalance_timeout": 60_000 if joins else -1,
            "subscribed_topic_names": [self._topic] if joins else None, "topic_partitions": [] if joins else None,
        }  # fmt: skip
        answer = connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, values)
        if answer.error_code:
            self._epoch = 0
            return f"{answer.error_code.name}: {answer.error_message}"
        self._epoch = answer.member_epoch
        return ""

    def _probe(self, connection: OneConnection) -> str:
        return "error" if connection.ask(ApiKey.API_VERSIONS, 3, SOFTWARE).error_code else ""


def _await_coordinator(address: Address, group: str) -> None:
    """The first question has the topic of groups created."""
    connection, end_s = OneConnection(address), time.monotonic() + COORDINATOR_S
    while time.monotonic() < end_s:
        values = {"key_type": 0, "coordinator_keys": [group]}
        if not connection.ask(ApiKey.FIND_COORDINATOR, 4, values).coordinators[0].error_code:
            connection.close()
            time.sleep(1)
            return
        time.sleep(0.2)
    raise TimeoutError(f"no coordinator of {group} within {COORDINATOR_S} s")


if __name__ == "__main__":
    neighbour = SteadyNeighbour((sys.argv[1], int(sys.argv[2])), sys.argv[3], sys.argv[4])
    for _ in sys.stdin:
        ended, neighbour.phase = neighbour.phase, Phase()
        print(json.dumps(ended.told()), flush=True)
