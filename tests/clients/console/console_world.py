"""A cluster with a past, for questions of the console: a failover, transactions, an erasure, a compaction, hidden
topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from stratalog import Admin, ClusterView, TopicPartition
from stratalog.clients.console.asker import Asker
from stratalog.clients.testing.in_memory_cluster import InMemoryCluster
from stratalog.jobs.command.opened import OpenedCluster
from stratalog.replication.metadata.acls import (
    AclBinding,
    Authorizer,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourceType,
)
from tests.waiting import wait_until

HIDDEN = "secret"
"""A part of the name of all that alice may not see."""
ORDERS = TopicPartition("orders", 0)
CONFIG = {"stratalog.lag.interval.ms": 100, "stratalog.lag.history.interval.ms": 200}


def allow(operation: Operation, kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, "User:alice", "*", operation, Permission.ALLOW)


ALICE = (
    allow(Operation.READ, ResourceType.TOPIC, "orders"),
    allow(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "orders"),
    allow(Operation.READ, ResourceType.TOPIC, "absent-topic"),
    allow(Operation.READ, ResourceType.GROUP, "billing"),
)


@dataclass(frozen=True, slots=True)
class World:
    """before_ms: after the first records, before the configs were altered and the first leader was killed."""

    cluster: InMemoryCluster
    opened: OpenedCluster
    before_ms: int
    first_leader: int
    erase_id: int

    def asker(self, *, is_alice: bool = False) -> Asker:
        """Alice, or one who may do everything."""
        now_ms = int(time.time() * 1_000)
        if is_alice:
            return Asker(self.opened, Principal("User:alice"), Authorizer(ALICE), now_ms)
        return Asker(self.opened, Principal("User:admin"), None, now_ms)


def _commit_all(cluster: InMemoryCluster, group: str, topics: tuple[str, ...]) -> None:
    """The group reads something of each topic, and commits."""
    seen: set[str] = set()
    with cluster.consumer(*topics, group_id=group) as consumer:

        def has_read() -> bool:
            seen.update(record.topic for record in consumer.poll(100))
            return seen >= set(topics)

        wait_until(has_read, "records of each topic")
        consumer.commit_sync()


@contextmanager
def running_world() -> Iterator[World]:
    """Offsets of orders-0: 0 to 4 idempotent, 5 aborted, 6 its marker, 7 committed, 8 its marker, 9 to 11 after the
    failover; bob's, 1 and 3, are erased. `secret-log` and `orders` have the group billing."""
    with InMemoryCluster.start_new(3, CONFIG) as cluster:
        admin = cluster.admin()
        admin.create_topic("orders", 2, 3)
        admin.create_topic(f"{HIDDEN}-log", 1, 3)
        with cluster.producer() as producer:
            for number in range(5):
                producer.send("orders", key=("ann", "bob")[number % 2], value=f'{{"n": {number}}}', partition=0)
            producer.send(f"{HIDDEN}-log", key=f"{HIDDEN}-key", value=f"{HIDDEN}-value")
        with cluster.producer(transactional_id=f"{HIDDEN}-tx") as producer:
            producer.init_transactions()
            for commits in (False, True):
                producer.begin_transaction()
                producer.send("orders", key="t", value="in a transaction", partition=0)
                producer.flush()
                (producer.commit_transaction if commits else producer.abort_transaction)()
        for group, topics in (("billing", ("orders", f"{HIDDEN}-log")), (f"{HIDDEN}-group", ("orders",))):
            _commit_all(cluster, group, topics)
        view = ClusterView(cluster)
        opened = OpenedCluster(view, Admin(cluster, view=view), {})
        objects = view.stores.objects(view.root)
        wait_until(lambda: list(objects.list("__consumer_lag/_delta_log/")), "a measurement of lags")
        before_ms = int(time.time() * 1_000)
        wait_until(lambda: time.time() * 1_000 > before_ms + 1, "another millisecond")
        admin.alter_configs("orders", {"retention.ms": "100000"})
        admin.alter_configs(f"{HIDDEN}-log", {"retention.ms": "77777"})
        first = view.leader(ORDERS)
        cluster.kill(first)
        with cluster.producer() as producer:
            for number in range(3):
                producer.send("orders", key="after", value=str(number), partition=0)
        cluster.restart(first)
        wait_until(lambda: view.refresh() is None or len(view.image.partition(ORDERS).isr) == 3, "a whole ISR")
        erase_id = admin.delete_where("orders", {"key": {"equals": "bob"}})
        admin.delete_where(f"{HIDDEN}-log", {"key": {"equals": f"{HIDDEN}-person"}})
        wait_until(lambda: admin.describe_erasure("orders", erase_id).is_erased, "an erasure")
        yield World(cluster, opened, before_ms, first, erase_id)
