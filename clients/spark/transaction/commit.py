"""A batch of a sink as one transaction: its records, its group's offsets and the sink's note.

I/O: calls the coordinators of transactions and groups, and hands files over to the leaders.

Where Spark plans a batch, `begin` gets the producer id and epoch that its tasks write into their files.
That fences every other process of the transactional id and aborts what it left open. Tasks only write files; a
transaction is open only while the driver commits. So a task that fails, is repeated or runs twice leaves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache

from stratalog.clients.config import ConsumerConfig
from stratalog.clients.consumer.offsets import OffsetFetch
from stratalog.clients.coordinator_calls import InProcessCalls
from stratalog.clients.producer.transactions import TransactionSession
from stratalog.clients.records import ConsumerGroupMetadata, OffsetAndMetadata
from stratalog.clients.spark.group.commits import GroupCommits
from stratalog.clients.spark.group.options import GroupOptions
from stratalog.clients.spark.options import SinkOptions
from stratalog.clients.spark.sink.batches import (
    NOTE_PARTITION,
    Course,
    Noted,
    SinkBatchId,
    Stage,
    course_in_transaction,
    first_note,
    note_group,
    note_id,
)
from stratalog.clients.spark.sink.hand_over import HandOver, read_manifest, write_manifest
from stratalog.clients.spark.sink.rows import ProducerIdAndEpoch
from stratalog.clients.spark.sink.task import WrittenFile
from stratalog.clients.spark.transaction.options import TRANSACTIONAL_ID, TransactionOptions
from stratalog.clients.spark.transaction.positions import GroupPositions, decode_positions, positions_prefix
from stratalog.clients.spark.worker import StreamingBatch
from stratalog.replication.metadata.image import ClusterImage
from stratalog.server.bootstrap import RunningCluster
from stratalog.server.remote.remote_cluster import RemoteCluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

ABORT_TIMEOUT_MS = 2_000
"""Time for an abort after an error; a transaction that stays open is aborted when the next batch is planned."""
_FENCED = (errors.ProducerFencedError, errors.InvalidProducerEpochError, errors.InvalidProducerIdMappingError)
_NOT_A_MEMBER = (
    errors.UnknownMemberIdError,
    errors.IllegalGenerationError,
    errors.FencedInstanceIdError,
    errors.RebalanceInProgressError,
)


def reach(view: ClusterView, options: TransactionOptions) -> RemoteCluster:
    """The brokers whose coordinators a sink in transactions calls, kept in this process.

    BrokerNotAvailableError when none can be called.
    """
    return _reached(view, tuple(sorted(options.connection.items())), options.listener)


@lru_cache(maxsize=8)
def _reached(view: ClusterView, connection: tuple[tuple[str, str], ...], listener: str) -> RemoteCluster:
    cluster = RemoteCluster(view.root, dict(connection), listener=listener, stores=view.stores)
    try:
        cluster.check()
    except errors.BrokerNotAvailableError as reason:
        cluster.close()
        raise errors.BrokerNotAvailableError(
            f"{TRANSACTIONAL_ID}: a transaction needs its coordinator. {reason}. Without {TRANSACTIONAL_ID} a write "
            "needs no coordinator; a stream's is exactly once then, too, but partition by partition."
        ) from reason
    return cluster


def begin(view: ClusterView, options: TransactionOptions, cluster: RunningCluster) -> ProducerIdAndEpoch:
    """Id and epoch of the producer of the next batch. RequestTimedOutError, InvalidTransactionTimeoutError, …"""
    session = _session(view, options, cluster)
    session.init(options.producer.max_block_ms)
    return ProducerIdAndEpoch(session.transactions.producer_id, session.transactions.producer_epoch)


def _session(view: ClusterView, options: TransactionOptions, cluster: RunningCluster) -> TransactionSession:
    def image() -> ClusterImage:
        view.refresh()
        return view.image

    return TransactionSession(cluster, options.producer, view.clock, image)


def positions_of(view: ClusterView, batch: StreamingBatch) -> list[GroupPositions]:
    """What the tasks of this batch's sources in groups have left for its sink."""
    objects = view.stores.objects(view.root)
    found = []
    for each in objects.list(positions_prefix(batch.query_id, batch.run_id, batch.batch_id)):
        batch_id, positions = decode_positions(objects.get_register(each.path) or b"")
        if batch_id == batch.batch_id and positions.offsets:
            found.append(positions)
    return found


class BatchTransaction:
    """The transaction of one batch, whose files name `producer`."""

    def __init__(
        self, view: ClusterView, options: SinkOptions, cluster: RunningCluster, producer: ProducerIdAndEpoch
    ) -> None:
        assert options.transaction is not None
        self.producer = producer
        self._view = view
        self._options = options
        self._transactional_id = options.transaction.transactional_id
        self._timeout_ms = options.delivery_timeout_ms
        self._cluster = cluster
        self._session = _session(view, options.transaction, cluster)

    def course(self, batch: SinkBatchId) -> Course:
        """What to do with a batch. Raises as `course_in_transaction`, and RequestTimedOutError, …

        Nobody else can change the note and commit after `begin`: this producer would be fenced.
        """
        if not batch.is_replayable:
            return Course.WRITE
        noted, _ = read_manifest(self._view, batch.sink_id)
        config = ConsumerConfig(group_id=note_group(batch.sink_id))
        calls = InProcessCalls(self._cluster, self._view.clock, config.request_timeout_ms)
        reads = OffsetFetch(config, calls, self._view.clock, lambda: None)
        note = reads.committed([NOTE_PARTITION], self._timeout_ms)[NOTE_PARTITION]
        course = course_in_transaction(batch, None if note is None else note_id(note.offset, note.metadata), noted)
        if course is Course.WRITE and note is None:
            commits = GroupCommits(GroupOptions(config), calls, self._view.clock)
            commits.commit({NOTE_PARTITION: first_note(batch)})
            if not commits.wait(self._timeout_ms):
                raise errors.RequestTimedOutError(
                    f"group {config.group_id} has no first note after {self._timeout_ms} ms"
                )
        return course

    def commit(self, batch: SinkBatchId, files: Sequence[WrittenFile], positions: Iterable[GroupPositions]) -> None:
        """Make records, offsets and the note visible at once.

        After an error nothing of the batch is visible, unless the answer to the commit itself was lost: then the note
        shows it to the batch's next run. Errors of a fenced producer and of a group's former member say what to do.
        """
        self._session.continue_as(*self.producer)
        self._session.transactions.begin()
        try:
            self._write(batch, files, positions)
            self._note(batch, Stage.BEGUN)
            self._session.end(committed=True, timeout_ms=self._timeout_ms)
        except StratalogError as error:
            self._abort()
            raise self._explained(batch, error) from error
        self._note(batch, Stage.STORED)

    def _note(self, batch: SinkBatchId, stage: Stage) -> None:
        if batch.is_replayable:
            write_manifest(self._view, batch.sink_id, Noted(batch.batch_id, stage))

    def _write(self, batch: SinkBatchId, files: Sequence[WrittenFile], positions: Iterable[GroupPositions]) -> None:
        # of one producer epoch: the log knows a hand-over that is repeated, and no other batch has the same
        producer_id, epoch = self.producer
        handed = SinkBatchId(f"{self._transactional_id}/{producer_id}", epoch, is_replayable=False)
        HandOver(self._view, self._options, handed, self).run(files)
        for each in positions:
            offsets = {tp: OffsetAndMetadata(offset, each.metadata) for tp, offset in each.offsets.items()}
            self._session.send_offsets(offsets, each.group, self._timeout_ms)
        if batch.is_replayable:
            note = {NOTE_PARTITION: OffsetAndMetadata(batch.batch_id, self._transactional_id)}
            self._session.send_offsets(note, ConsumerGroupMetadata(note_group(batch.sink_id)), self._timeout_ms)

    def add(self, partitions: Sequence[TopicPartition], timeout_ms: int) -> None:
        """See `OpenTransaction`."""
        self._session.add_partitions(partitions, timeout_ms)

    def _abort(self) -> None:
        if self._session.transactions.is_ending:
            return  # its outcome is not known, and may not be changed
        with suppress(StratalogError):
            self._session.end(committed=False, timeout_ms=ABORT_TIMEOUT_MS)

    def _explained(self, batch: SinkBatchId, error: StratalogError) -> StratalogError:
        what = f"{TRANSACTIONAL_ID}={self._transactional_id}: nothing of batch {batch.batch_id} is visible"
        if isinstance(error, _FENCED):
            return type(error)(
                f"{what}, since another run of this query, or another query with the same id, has begun, or the "
                "transaction was open for longer than kafka.transaction.timeout.ms. Let one query alone have the id, "
                f"and start it again. ({error})"
            )
        if isinstance(error, _NOT_A_MEMBER):
            return type(error)(
                f"{what}, since the query's group has given its partitions to other members meanwhile, or has members "
                f"while this query is none. Start the query again: it goes on where the group stands. ({error})"
            )
        return error
