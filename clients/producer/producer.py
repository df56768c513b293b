"""The producer: records or Arrow tables in, acknowledged offsets out; Kafka's producer semantics.

I/O: through the sender thread; `send` only puts a record into a batch. With idempotence (the default) each
record is stored once and in order per partition, whatever brokers fail within `delivery.timeout.ms` (promise 20).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Self

import pyarrow as pa

from stratalog.clients.client_view import ClientView
from stratalog.clients.config import PRODUCER_CONFIGS, ProducerConfig, split_connection_configs
from stratalog.clients.connected_cluster import CalledBrokers, connection_of_root
from stratalog.clients.producer.accumulator import Accumulator
from stratalog.clients.producer.batch import checked_time, record_size_bytes
from stratalog.clients.producer.partitioner import Partitioner, StickyPartitioner, check_partition
from stratalog.clients.producer.sender import Sender
from stratalog.clients.producer.table_batches import TableDelivery, TablePart, table_parts
from stratalog.clients.producer.transactions import TransactionalTransport, TransactionSession
from stratalog.clients.producer.transport import Transport
from stratalog.clients.records import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    RecordFuture,
    RecordMetadata,
    TableMetadata,
)
from stratalog.clients.serialization import KEY, VALUE, SerializationContext
from stratalog.replication.metadata.image import ClusterImage
from stratalog.server.bootstrap import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import Header, TopicPartition, as_payload

METADATA_POLL_MS = 100
OF_A_ROOT: dict[str, object] = {"batch.size": 1_048_576}
"""Default of a producer that is given a metadata root: each request costs some operations on the store."""

_log = line_logger(__name__)

Bytes = bytes | bytearray | memoryview | str | None
Headers = Mapping[str, Bytes] | Iterable[tuple[str, Bytes]] | None
OnDelivery = Callable[[RecordMetadata | None, StratalogError | None], None]


class Producer:
    """Thread-safe. Use as a context manager, or `close` it: records not yet sent would be lost.

    cluster      a running `Cluster` or `RemoteCluster` (batches go to the brokers as it calls them), or the URL or path
                 of its metadata root (batches go through the leaders' inboxes, from any process that reaches the
                 storage; with a `transactional.id`, a `security.protocol` or another `stratalog.transport`, brokers are
                 called as a RemoteCluster does).
    config       Kafka's producer configs by their dotted names; `settings` the same as keywords
                 (`acks="all"`, `linger_ms=5`, `max_in_flight=1`). InvalidConfigError for an unknown or bad one. With a
                 metadata root also those of connections (`security.protocol`, `stratalog.transport`).
    partitioner  where records without partition go; Kafka's default (key hash, else sticky) if None.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: Mapping[str, object] | None = None,
        *,
        partitioner: Partitioner | None = None,
        view: ClientView | None = None,
        rng: random.Random | None = None,
        **settings: object,
    ) -> None:
        given = {**(config or {}), **settings}
        own, connection = split_connection_configs(PRODUCER_CONFIGS, given) if isinstance(cluster, str) else (given, {})
        self.config = ProducerConfig.from_settings(own, {})
        rng = rng or random.Random()
        self._view: ClientView = view or ClusterView(cluster)
        if isinstance(cluster, str) and not self.config.transactional_id:
            self.config = ProducerConfig.from_settings(OF_A_ROOT | own, {})
            connection = connection_of_root(connection)
        shared = {"client.id": self.config.client_id, "request.timeout.ms": self.config.request_timeout_ms}
        self._brokers = CalledBrokers(cluster, self._view.stores, shared | connection)
        self._partitioner = partitioner or StickyPartitioner(self.config.batch_size, rng)
        self._session = self._session_with(self._brokers.cluster)
        self._accumulator = Accumulator(self.config, self._producer_ids())
        transport = self._transport()
        failed = self._session.transactions.failed if self._session else None
        self._sender = Sender(self.config, self._view, transport, self._accumulator, rng, failed)
        self._lock = self._sender.lock
        self._is_closed = False
        self._sender.start()

    def _transport(self) -> Transport:
        if self.config.transactional_id:
            return TransactionalTransport(self._brokers, self._view, self.config.transactional_id)
        return Transport(self._brokers)

    def _producer_ids(self) -> Callable[[], int]:
        if not self.config.enable_idempotence or self.config.transactional_id:
            return lambda: -1

        return self._view.producer_ids().__next__

    # -- transactions ------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float | None = None) -> None:
        """Get the producer id of `transactional.id`. Its previous producer is fenced, an open transaction aborted.

        Once, before the first record. `timeout` in seconds, here and below; else `max.block.ms`. RequestTimedOutError
        (may be called again), InvalidTransactionTimeoutError, IllegalStateError.
        """
        self._check_open()
        session = self._transactional()
        session.init(self._timeout_ms(timeout))
        self._continue_as(session)

    def begin_transaction(self) -> None:
        """Records from now on become visible to readers of committed records all together, or never."""
        self._check_open()
        self._transactional().transactions.begin()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Commit a consumer's offsets with the transaction: read, process and write each record exactly once.

        CommitFailedError and similar errors after a rebalance of the group: abort then.
        """
        self._check_open()
        if offsets:
            self._transactional().send_offsets(offsets, group_metadata, self._timeout_ms(None))

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Send all records, wait for their outcomes, and make them visible.

        TransactionAbortableError when a record failed: abort then. ProducerFencedError: another producer uses the
        transactional id; close this one. RequestTimedOutError: call it again.
        """
        self._check_open()
        self._end_transaction(committed=True, timeout=timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort: no record since `begin_transaction` becomes visible. Errors as of `commit_transaction`."""
        self._check_open()
        self._end_transaction(committed=False, timeout=timeout)

    def _end_transaction(self, *, committed: bool, timeout: float | None) -> None:
        session, timeout_ms = self._transactional(), self._timeout_ms(timeout)
        self.flush(timeout_ms / 1000)
        session.end(committed=committed, timeout_ms=timeout_ms)
        self._continue_as(session)

    def _continue_as(self, session: TransactionSession) -> None:
        with self._lock:
            self._accumulator.continue_as(session.transactions.producer_id, session.transactions.producer_epoch)

    def _session_with(self, cluster: Cluster) -> TransactionSession | None:
        if not self.config.transactional_id:
            return None
        return TransactionSession(cluster, self.config, self._view.clock, self._refreshed_image)

    def _refreshed_image(self) -> ClusterImage:
        self._view.refresh()
        return self._view.image

    def _transactional(self) -> TransactionSession:
        if self._session is None:
            raise errors.IllegalStateError("Transactional method invoked on a non-transactional producer.")
        return self._session

    def _timeout_ms(self, timeout: float | None) -> int:
        return self.config.max_block_ms if timeout is None else int(1_000 * timeout)

    # -- sending -----------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordFuture:
        """Put a record into a batch; the future gives its `RecordMetadata` or raises its error.

        `key.serializer` and `value.serializer` make bytes of any data; without them, it is bytes, or a string that is
        sent as UTF-8. `timestamp_ms` defaults to now. `on_delivery(metadata, error)` runs on the sender thread. Blocks
        up to `max.block.ms` for the topic to appear and for buffer memory. A record that cannot be sent returns a
        failed future: RecordTooLargeError, InvalidRecordError, SerializationError, InvalidTimestampError,
        UnknownTopicOrPartitionError, RequestTimedOutError. With a `transactional.id` it raises unless a transaction is
        open and without an error.
        """
        self._check_sending()
        try:
            data = self._serialized(topic, key, value, headers)
            time_ms = self._view.clock.wall_ms() if timestamp_ms is None else checked_time(timestamp_ms)
            future = self._append(topic, partition, time_ms, *data)
        except StratalogError as error:
            future = RecordFuture.failed(TopicPartition(topic, -1 if partition is None else partition), error)
        if on_delivery is not None:
            future.notify(on_delivery)
        return future

    def _serialized(
        self, topic: str, key: Any, value: Any, headers: Headers
    ) -> tuple[bytes | None, bytes | None, list[Header] | None]:
        of_keys, of_values = self.config.key_serializer, self.config.value_serializer
        if of_keys is None and of_values is None:
            return _as_bytes("key", key), _as_bytes("value", value), _as_headers(headers)
        pairs: list[tuple[str, bytes | None]] = list(_as_headers(headers) or ())
        if of_keys is not None:
            key = of_keys(key, SerializationContext(topic, KEY, pairs))
        if of_values is not None:
            value = of_values(value, SerializationContext(topic, VALUE, pairs))
        return _as_bytes("key", key), _as_bytes("value", value), _as_headers(pairs) if pairs else None

    def _append(
        self,
        topic: str,
        partition: int | None,
        time_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header] | None,
    ) -> RecordFuture:
        size_bytes = record_size_bytes(key, value, headers)
        self._check_size(size_bytes)
        count = self._partition_count(topic)
        if partition is not None:
            check_partition(partition, count)
        available = self._view.available_partitions(topic)
        with self._lock:
            self._await_memory(size_bytes)
            chosen = self._partitioner.partition(topic, key, count, available) if partition is None else partition
            topic_partition = TopicPartition(topic, chosen)
            now_ms = self._view.clock.monotonic_ms()
            queue, batch, index = self._accumulator.append(
                topic_partition, now_ms, time_ms, key, value, headers, size_bytes
            )
            if key is None and partition is None:
                # When batches grow, the sticky partition lasts as much longer.
                self._partitioner.appended(topic, chosen, size_bytes * self.config.batch_size // queue.room_bytes())
            if index == 0:  # a record that joins a batch does not change when that is sent
                self._sender.appended(queue, now_ms)
        return RecordFuture(topic_partition, time_ms, batch.delivery, index)

    def send_table(self, topic: str, table: pa.Table) -> Future[TableMetadata]:
        """Send every row of an Arrow table: the fast way to write.

        table  columns `value` and, if wanted, `key`, `headers`, `timestamp` (null: now) and `partition` (null:
               by key, or sticky). Rows of one partition keep their order; they are sent in batches of about
               `max.request.size` instead of `batch.size`.

        The future gives a `TableMetadata` once every row is stored, or raises the first error; some rows may
        then be stored. A row that is too large or a partition that does not exist fails it before anything
        is sent. Blocks up to `max.block.ms` for buffer memory, batch by batch.
        """
        self._check_sending()
        delivery = TableDelivery(topic, table.num_rows)
        try:
            for part in self._parts_of(topic, table):
                self._send_part(part, delivery)
        except StratalogError as error:
            delivery.fail(error)
        delivery.end()
        return delivery.future

    def _parts_of(self, topic: str, table: pa.Table) -> Sequence[TablePart]:
        partition_column = table["partition"] if "partition" in table.column_names else None
        count = self._partition_count(topic)
        return table_parts(
            topic,
            as_payload(table),
            partition_column,
            partition_count=count,
            available=self._view.available_partitions(topic),
            partitioner=self._partitioner,
            max_request_size=self.config.max_request_size,
            now_ms=self._view.clock.wall_ms(),
        )

    def _send_part(self, part: TablePart, delivery: TableDelivery) -> None:
        with self._lock:
            self._await_memory(part.size_bytes)
            now_ms = self._view.clock.monotonic_ms()
            queue, batch, first_index = self._accumulator.append_payload(
                part.topic_partition, now_ms, part.payload, part.size_bytes
            )
            if first_index == 0:
                self._sender.appended(queue, now_ms)
        delivery.add(part.topic_partition, batch.delivery, first_index, part.payload.num_rows)

    # -- waiting and ending ------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Send everything now and wait until all of it has an outcome; RequestTimedOutError after `timeout` s."""
        if self._sender.is_current_thread():
            raise errors.InvalidRequestError("flush inside a delivery callback would wait for itself")
        clock = self._view.clock
        deadline_ms = None if timeout is None else clock.monotonic_ms() + 1000 * timeout
        with self._lock:
            deliveries = {id(batch.delivery): batch.delivery for batch in self._accumulator.batches()}
            self._sender.flushes += 1
            self._sender.flush()
        try:
            for delivery in deliveries.values():
                left = None if deadline_ms is None else max(0.0, (deadline_ms - clock.monotonic_ms()) / 1000)
                if not delivery.wait(left):
                    raise errors.RequestTimedOutError(f"flush: records are still under way after {timeout} s")
        finally:
            with self._lock:
                self._sender.flushes -= 1

    def close(self, timeout: float | None = None) -> None:
        """Flush, then stop the sender. Records that have no outcome after `timeout` seconds fail.

        Inside a delivery callback it does not wait: records under way fail.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if not self._sender.is_current_thread():
                self.flush(timeout)
        except errors.RequestTimedOutError as left:
            # Kafka's close does not raise: the futures of these records have the error.
            _log.warning("closing with records under way: %s", left)
        finally:
            self._sender.stop(timeout)
            self._brokers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def metrics(self) -> dict[str, float]:
        """Running totals under Kafka's metric names."""
        total = self.config.buffer_memory
        memory = {"buffer-total-bytes": total, "buffer-available-bytes": total - self._accumulator.used_bytes}
        return self._sender.counters.as_metrics() | memory

    # -- checks ------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._is_closed:
            raise errors.UnknownServerError("Cannot perform operation after producer has been closed")

    def _check_sending(self) -> None:
        self._check_open()
        if self._session is not None:
            self._session.transactions.check_sending()

    def _check_size(self, size_bytes: int) -> None:
        for limit, name in (
            (self.config.max_request_size, "max.request.size"),
            (self.config.buffer_memory, "buffer.memory"),
        ):
            if size_bytes > limit:
                raise errors.RecordTooLargeError(
                    f"The message is {size_bytes} bytes when serialized which is larger than {limit}, "
                    f"which is the value of the {name} configuration."
                )

    def _partition_count(self, topic: str) -> int:
        """The topic's number of partitions, waiting up to `max.block.ms` for the topic to be created."""
        try:
            return len(self._view.partitions(topic))
        except errors.UnknownTopicOrPartitionError:
            return self._await_topic(topic)

    def _await_topic(self, topic: str) -> int:
        clock, limit_ms = self._view.clock, self.config.max_block_ms
        deadline_ms = clock.monotonic_ms() + limit_ms
        while clock.monotonic_ms() < deadline_ms:
            clock.sleep_ms(min(METADATA_POLL_MS, limit_ms))
            with suppress(errors.UnknownTopicOrPartitionError):
                return len(self._view.partitions(topic))
        raise errors.UnknownTopicOrPartitionError(f"Topic {topic} not present in metadata after {limit_ms} ms.")

    def _await_memory(self, size_bytes: int) -> None:
        """Wait, with the lock held, until `size_bytes` more fit into `buffer.memory`."""
        limit, limit_ms = self.config.buffer_memory, self.config.max_block_ms
        if self._accumulator.used_bytes + size_bytes <= limit:
            return

        def fits() -> bool:
            return self._accumulator.used_bytes + size_bytes <= limit or self._accumulator.used_bytes == 0

        if not self._lock.wait_for(fits, limit_ms / 1000):
            raise errors.RequestTimedOutError(
                f"Failed to allocate {size_bytes} bytes within the configured max blocking time {limit_ms} ms. "
                f"Total memory: {limit} bytes. Available memory: {limit - self._accumulator.used_bytes} bytes."
            )


def _as_bytes(what: str, data: Bytes) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError as reason:
            raise errors.InvalidRecordError(f"the {what} is no text: {reason}; send it as bytes") from reason
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise errors.InvalidRecordError(f"the {what} is {type(data).__name__}, needed bytes, str or None")


def _as_headers(headers: Headers) -> list[Header] | None:
    if headers is None:
        return None
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    for key, _ in pairs:
        if not isinstance(key, str):
            raise errors.InvalidRecordError(f"a header's key is {type(key).__name__}, needed str")
        _as_bytes("header's key", key)
    return [Header(key, _as_bytes("header value", value)) for key, value in pairs]
