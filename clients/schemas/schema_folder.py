"""A schema registry without a server: the schemas lie in a compacted topic of the cluster.

I/O: reads the topic from storage, as any consumer; writes it by a transactional producer. Every change is decided on a
fold of the whole topic that the transaction allows nobody else to overtake: beginning a producer with the folder's
transactional id ends the transaction of its predecessor, whose commit is then refused and decided again. So two
registrations at a time, in any processes, get one id or two versions, never one number for two schemas.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Self, TypeVar

from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.schemas.errors import RegistryUnavailableError, SchemaRegistryError
from stratalog.clients.schemas.folded_schemas import FoldedSchemas
from stratalog.clients.schemas.registry_state import Change, RegistryState
from stratalog.clients.schemas.schema import RegisteredSchema, Schema
from stratalog.replication.controller.topics import NOT_GIVEN
from stratalog.server.admin.admin import MetadataAdmin, NewTopic
from stratalog.server.bootstrap import Cluster
from stratalog.storage import errors
from stratalog.storage.clock import Clock, SystemClock
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

SCHEMAS_TOPIC = "_schemas"
PAUSE_MS_MAX = 200
POLL_MS = 100
_OVERTAKEN = (
    errors.ProducerFencedError,
    errors.InvalidProducerEpochError,
    errors.InvalidTxnStateError,
    errors.TransactionAbortableError,
)

T = TypeVar("T")


class SchemaFolder(FoldedSchemas):
    """The schemas of a topic. Thread-safe. Close it, or use a `with` block.

    cluster     a running `Cluster`, a `RemoteCluster`, or the URL or path of the metadata root. Look-ups read storage
                alone; changes need the brokers, as a transactional producer does.
    topic       made by `SchemaFolder.create`; UnknownTopicOrPartitionError without it.
    timeout_ms  for one look-up, and for one change with all its retries: RegistryUnavailableError after that.

    Deletions are Confluent's soft ones: what data may name stays readable by its id.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str = SCHEMAS_TOPIC,
        *,
        timeout_ms: int = 30_000,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__()
        self._cluster, self._topic, self._timeout_ms = cluster, topic, timeout_ms
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._partition = TopicPartition(topic, 0)
        self._consumer = Consumer(
            cluster, isolation_level="read_committed", auto_offset_reset="earliest", exclude_internal_topics=False
        )
        try:
            self._consumer.assign([self._partition])
        except errors.UnknownTopicOrPartitionError as reason:
            self._consumer.close()
            raise errors.UnknownTopicOrPartitionError(f"{reason}: make it by SchemaFolder.create(cluster)") from reason
        self._consumer.seek_to_beginning()

    @classmethod
    def create(
        cls, cluster: Cluster, topic: str = SCHEMAS_TOPIC, *, replication_factor: int = NOT_GIVEN
    ) -> SchemaFolder:
        """The folder of a topic, which is made if it is not there: one partition, compacted."""
        wanted = NewTopic(topic, 1, replication_factor, {"cleanup.policy": "compact"})
        try:
            MetadataAdmin(cluster).create_topics([wanted])
        except errors.TopicAlreadyExistsError:
            MetadataAdmin(cluster).await_leaders(topic)
        return cls(cluster, topic)

    @property
    def cluster(self) -> Cluster:
        """The cluster, as it was given."""
        return self._cluster

    @property
    def topic(self) -> str:
        return self._topic

    def close(self) -> None:
        """End reading."""
        with self._lock:
            self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- schemas -------------------------------------------------------------------------------------------

    def register(self, subject: str, schema: Schema) -> RegisteredSchema:
        """The schema as a version of the subject. IncompatibleSchemaError, InvalidSchemaError."""
        return self._change(lambda state: state.register(subject, schema))

    def lookup(self, subject: str, schema: Schema) -> RegisteredSchema:
        """The version of the subject that has this schema. SubjectNotFoundError, SchemaNotFoundError."""
        return self._ask(lambda state: state.find(subject, schema).as_registered())

    def delete_version(self, subject: str, version: int | None = None) -> int:
        """Delete a version, the latest if None; its number. ReferenceExistsError."""
        return self._change(lambda state: state.delete_version(subject, version))

    def delete_subject(self, subject: str) -> list[int]:
        """Delete all versions of a subject; their numbers. ReferenceExistsError."""
        return self._change(lambda state: state.delete_subject(subject))

    # -- compatibility -------------------------------------------------------------------------------------

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the level of a subject, or the global one. InvalidCompatibilityLevelError."""
        self._change(lambda state: state.set_level(level, subject))

    def delete_compatibility(self, subject: str) -> None:
        """Let the global level count for a subject again."""
        self._change(lambda state: state.delete_level(subject))

    # -- the topic -----------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Fold the topic up to its end; from the start if the log lost its end (an unclean election).
        RegistryUnavailableError after `timeout_ms`."""
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        end = self._consumer.end_offsets([self._partition])[self._partition]
        if self._consumer.position(self._partition) > end:
            self._state = RegistryState()
            self._consumer.seek_to_beginning()
        while (position := self._consumer.position(self._partition)) < end:
            if self._clock.monotonic_ms() >= deadline_ms:
                raise RegistryUnavailableError(
                    f"{self._partition} could be read up to offset {position} of {end} within {self._timeout_ms} ms: "
                    "check that its leader runs"
                )
            for record in self._consumer.poll(timeout_ms=POLL_MS):
                self._state.apply(record.key, record.value)

    def _change(self, decide: Callable[[RegistryState], Change[T]]) -> T:
        with self._lock:
            self._refresh()
            change = decide(self._state)
            if not change.records:
                return change.answer
            deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
            while True:
                try:
                    return self._commit(decide)
                except SchemaRegistryError:
                    raise
                except StratalogError as reason:
                    if not (reason.retriable or isinstance(reason, _OVERTAKEN)):
                        raise
                    if self._clock.monotonic_ms() >= deadline_ms:
                        raise RegistryUnavailableError(
                            f"{self._topic} could not be written within {self._timeout_ms} ms ({reason}); "
                            "check that its leader and the transaction coordinator run"
                        ) from reason
                    self._clock.sleep_ms(self._rng.random() * PAUSE_MS_MAX)

    def _commit(self, decide: Callable[[RegistryState], Change[T]]) -> T:
        with Producer(self._cluster, transactional_id=f"stratalog-schemas-{self._topic}") as producer:
            producer.init_transactions(self._timeout_ms / 1000)
            self._refresh()
            change = decide(self._state)
            if change.records:
                producer.begin_transaction()
                sent = [producer.send(self._topic, value, key, partition=0) for key, value in change.records]
                producer.commit_transaction(self._timeout_ms / 1000)
                self._await(sent[-1].result().offset)
        return change.answer

    def _await(self, offset: int) -> None:
        """Fold until the record at `offset` is in: the marker of its transaction comes after the commit's answer.

        RequestTimedOutError after `timeout_ms`.
        """
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        while self._consumer.position(self._partition) <= offset:
            if self._clock.monotonic_ms() >= deadline_ms:
                raise errors.RequestTimedOutError(
                    f"{self._partition}: offset {offset} is committed but not readable yet"
                )
            for record in self._consumer.poll(timeout_ms=POLL_MS):
                self._state.apply(record.key, record.value)
