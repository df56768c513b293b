"""A group of 100 members over 1,000 partitions: how long until every member has its partitions; ours alone.

I/O: a cluster of ours, and a thread for each `Consumer` of this process, as an application would have it. Heartbeats
are 300 ms apart: members of both protocols learn of a rebalance from their answers, so with Kafka's defaults (3 s, 5 s)
the bench would measure the heartbeats.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from stratalog.clients.consumer.consumer import Consumer
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import SystemClock
from tests.clients.cut_calls import CutCalls
from tests.lab.bench.lab import Lab, Outcome
from tests.lab.bench.measures import Row, Spread

MEMBERS, TOPICS, PARTITIONS = 100, 10, 100
HEARTBEAT_MS = 300
SESSION_MS = 6_000
SETTLE_S = 1.0
"""The pause between two measurements, in which joining members read their offsets."""
PROTOCOLS: Mapping[str, Mapping[str, object]] = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
    "KIP-848": {"group.protocol": "consumer"},
}
CLUSTER_CONFIG: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.assignment.interval.ms": 0,
}


class Member:
    """One consumer that polls in a thread of its own until `leave` or `kill`."""

    def __init__(self, cluster: Cluster, topics: Sequence[str], settings: Mapping[str, object]) -> None:
        self._calls = CutCalls(cluster, SystemClock())
        self.consumer = Consumer(cluster, settings, calls=self._calls)
        self.consumer.subscribe(topics)
        self._is_over = self._is_killed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            self.consumer.poll(100)
        if not self._is_killed:
            self.consumer.close()

    def leave(self) -> None:
        """Let the consumer close, without waiting for it."""
        self._is_over = True

    def kill(self) -> None:
        """Stop without leaving the group: no heartbeat arrives any more."""
        self._is_killed = self._is_over = self._calls.is_cut = True

    def join(self) -> None:
        self._thread.join()


class BusyGroup:
    """Members of one group, and the partitions that they share."""

    def __init__(self, cluster: Cluster, topics: Sequence[str], group_id: str, protocol: str) -> None:
        own = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
        self._settings = {"group.id": group_id, **PROTOCOLS[protocol], **({} if protocol == "KIP-848" else own)}
        self._cluster = cluster
        self._topics = topics
        view = ClusterView(cluster)
        self._all = {partition for topic in topics for partition in view.partitions(topic)}
        self.members: list[Member] = []

    def add(self, count: int = 1) -> None:
        self.members += [Member(self._cluster, self._topics, self._settings) for _ in range(count)]

    def is_assigned(self) -> bool:
        """True when every partition has one owner, and every member at least one partition."""
        shares = [member.consumer.assignment() for member in self.members]
        return all(shares) and sum(map(len, shares)) == len(self._all) and set().union(*shares) == self._all

    def assigned_after_ms(self, change: Callable[[], object], limit_ms: int = 60_000) -> float:
        """How long from `change` until all partitions are assigned again. TimeoutError names the members' counts."""
        clock = SystemClock()
        began = time.perf_counter()
        change()
        while not self.is_assigned():
            if time.perf_counter() - began > limit_ms / 1000:
                sizes = sorted(len(member.consumer.assignment()) for member in self.members)
                raise TimeoutError(f"not assigned within {limit_ms} ms; partitions of members: {sizes}")
            clock.sleep_ms(5)
        return (time.perf_counter() - began) * 1000

    def leave(self) -> None:
        self.members.pop(0).leave()

    def kill(self) -> None:
        self.members.pop(0).kill()

    def close(self) -> None:
        for member in self.members:
            member.leave()
        for member in self.members:
            member.join()


def rebalances_ms(group: BusyGroup, rounds: int, members: int = MEMBERS) -> dict[str, list[float]]:
    """How long each rebalance took: a member joins, one leaves, one is killed (counted from the end of its session)."""
    clock, took = SystemClock(), {"join": list[float](), "leave": list[float](), "kill": list[float]()}
    group.assigned_after_ms(lambda: group.add(members - 1))
    for _ in range(rounds):
        for name, change in (("join", group.add), ("leave", group.leave), ("join", group.add), ("kill", group.kill)):
            clock.sleep_ms(SETTLE_S * 1000)
            spent_ms = group.assigned_after_ms(change)
            took[name].append(max(0.0, spent_ms - SESSION_MS) if name == "kill" else spent_ms)
    return took


def group(lab: Lab) -> Outcome:
    """100 members in one process, 10 topics of 100 partitions."""
    rows: list[Row] = []
    with lab.cluster(**{name.replace(".", "_"): value for name, value in CLUSTER_CONFIG.items()}) as cluster:
        topics = [lab.topic(cluster, "shared", PARTITIONS) for _ in range(TOPICS)]
        for protocol in PROTOCOLS:
            members = BusyGroup(cluster, topics, lab.fresh("group"), protocol)
            took = rebalances_ms(members, lab.rounds)
            members.close()
            rows += [
                Row("group_rebalance", f"{protocol}, {n}", "ms", True, Spread.of(t), None) for n, t in took.items()
            ]
    return Outcome(rows)
