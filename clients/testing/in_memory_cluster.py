"""A cluster in the memory of this process, and failures on demand.

I/O: sockets on 127.0.0.1, threads, a folder of this machine for locks and text logs, which `stop` removes.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from typing import Any, Self

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import ConsumerRecord
from stratalog.replication.broker_root import temporary_folder
from stratalog.replication.controller.election.preferred_leaders import ElectionType
from stratalog.server.cluster import Cluster
from stratalog.server.view.read_committed import ReadCommittedView
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.errors import InvalidRequestError, StoreUnavailableError
from stratalog.storage.objects.memory import SCHEME, MemoryStore, forget_memory, memory_store
from stratalog.storage.records import TopicPartition

REPLICAS_MAX = 3
FEW_BYTES = 8 << 20
POLL_MS = 100

SETTINGS: Mapping[str, object] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "broker.session.timeout.ms": 2_000,
    "broker.heartbeat.interval.ms": 400,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "stratalog.tail.cache.bytes": FEW_BYTES,
    "stratalog.encoded.tail.cache.bytes": FEW_BYTES,
    "stratalog.reading.process.bytes": 0,
}
"""What differs from the defaults: tests are short, and have few records and groups. A broker that was killed is noticed
after 2 to 3 seconds."""


class InMemoryCluster(Cluster):
    """A `Cluster` whose roots are in memory. Use `InMemoryCluster.start_new`, then `stop` (or a `with` block).

    Any Kafka client of this machine connects to `bootstrap_servers`; our own take the cluster itself.
    """

    @classmethod
    def start_new(
        cls, brokers: int = 3, config: Mapping[str, object] | None = None, racks: Mapping[int, str] | None = None
    ) -> Self:
        """An empty cluster with brokers from 1 on; `config` by Kafka's names, over `SETTINGS`; `racks` by broker id.
        Raises as `start`."""
        replicas = min(brokers, REPLICAS_MAX)
        internal = {
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": 1,
        }
        url = f"{SCHEME}{RandomIds().new_id()}"
        return cls.start(url, brokers, fetcher="thread", config={**SETTINGS, **internal, **(config or {})}, racks=racks)

    # -- clients -------------------------------------------------------------------------------------------

    def admin(self) -> Admin:
        """Our admin client, which calls the brokers in this process."""
        return Admin(self)

    def producer(self, **settings: Any) -> Producer:
        """Our producer, likewise; `settings` as Kafka's with underscores: `transactional_id="orders"`."""
        return Producer(self, **settings)

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        """Our consumer of all partitions of these topics, from the beginning unless `auto_offset_reset` says otherwise;
        with `group_id` it subscribes instead."""
        settings.setdefault("auto_offset_reset", "earliest")
        made = Consumer(self, **settings)
        if "group_id" in settings:
            made.subscribe(list(topics))
        else:
            for topic in topics:
                made.assign_all(topic)
        return made

    def records(self, topic: str) -> list[ConsumerRecord]:
        """All records of a topic that readers of committed records see now, by partition and offset."""
        found: list[ConsumerRecord] = []
        with self.consumer(topic, isolation_level="read_committed") as consumer:
            ends = ReadCommittedView(self).offsets.end_offsets(consumer.assignment())
            while any(consumer.position(partition) < end for partition, end in ends.items()):
                found += consumer.poll(POLL_MS)
        return sorted(found, key=lambda each: (each.partition, each.offset))

    # -- failures on demand --------------------------------------------------------------------------------

    def slow_store(self, delay_ms: int, broker_id: int | None = None) -> None:
        """From now on each call to a broker's store takes `delay_ms` longer; to the stores of all brokers without
        `broker_id`. 0: no longer. As with a slow disk, the broker's loop waits, so its clients do, too."""
        for store in self._stores_of(broker_id):
            store.access = partial(SystemClock().sleep_ms, delay_ms) if delay_ms else _at_once

    def fail_store(self, broker_id: int | None = None) -> None:
        """From now on each call to a broker's store raises StoreUnavailableError, until `heal`."""
        for store in self._stores_of(broker_id):
            store.access = partial(_refuse, store.url)

    def fence_producer(self, transactional_id: str) -> None:
        """What another producer of the same transactional id does: its open transaction is aborted, and the next call
        of the producer that had the id gets PRODUCER_FENCED (KIP-588; before it, INVALID_PRODUCER_EPOCH)."""
        with Producer(self, transactional_id=transactional_id) as successor:
            successor.init_transactions()

    def move_leader(self, topic: str, partition: int = 0) -> int:
        """Have another member of the ISR lead the partition; its id. Clients get NOT_LEADER_OR_FOLLOWER and go there.

        InvalidRequestError when no other member is alive.
        """
        admin = self.admin()
        state = admin.describe_topics([topic])[topic].partitions[partition]
        others = [each for each in state.isr if each != state.leader and each in self.brokers()]
        if not others:
            raise InvalidRequestError(f"{topic}-{partition}: no member of its ISR {state.isr} but {state.leader} runs")
        named, order = TopicPartition(topic, partition), [others[0], *(x for x in state.replicas if x != others[0])]
        admin.alter_partition_reassignments({named: order})
        admin.elect_leaders(ElectionType.PREFERRED, [named])
        return others[0]

    def heal(self) -> None:
        """Undo what the calls above did: stores answer at once, and brokers that were killed run again."""
        self.slow_store(0)
        for broker_id in self.stopped_brokers():
            self.restart(broker_id)

    def _stores_of(self, broker_id: int | None) -> list[MemoryStore]:
        known = list(self._host.hosted.identities)
        if broker_id is not None and broker_id not in known:
            raise InvalidRequestError(f"broker {broker_id} is not one of this cluster's: {known}")
        return [memory_store(self._place.broker_root(each)) for each in known if broker_id in (None, each)]

    def stop(self) -> None:
        """Stop the brokers; the cluster's content is gone."""
        try:
            self.slow_store(0)
            super().stop()
        finally:
            forget_memory(self._place.root)
            roots = [self.root, *map(self._place.broker_root, self._host.hosted.identities)]
            for folder in (self._place.folder, *map(temporary_folder, roots)):
                shutil.rmtree(folder, ignore_errors=True)


def _at_once() -> None:
    """The access of a store that answers."""


def _refuse(url: str, *_given: Any) -> None:
    raise StoreUnavailableError(f"{url} does not answer: a test asked for that")
