"""The Spark sink: `df.write.format("stratalog")` and `df.writeStream.format("stratalog")`, exactly once.

I/O: through `task` on Spark's executors and `hand_over` on its driver. Columns, options and errors are the Kafka
connector's; batch writes need `.mode("append")`. The default of `kafka.acks` is `all`. With `kafka.transactional.id`
a batch is one transaction (`transaction.commit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from stratalog.clients.spark.options import SinkOptions
from stratalog.clients.spark.sink.batches import Course, SinkBatchId
from stratalog.clients.spark.sink.hand_over import HandOver
from stratalog.clients.spark.sink.rows import NO_PRODUCER, ProducerIdAndEpoch, check_columns
from stratalog.clients.spark.sink.task import SentRows, SinkTask, WrittenFile
from stratalog.clients.spark.worker import (
    QUERY_ID_PROPERTY,
    StreamingBatch,
    freeze_modules,
    loading,
    plans_writes,
    sentence_first,
    streaming_batch,
    view_of,
)
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import InvalidRequestError
from stratalog.storage.log_lines import line_logger

_LOG = line_logger("stratalog.sink")


@dataclass
class FilesWritten(WriterCommitMessage):
    """A task's result for the driver: files to hand over, or its few rows.

    batch     None in a batch write
    producer  that of the batch's transaction, which the files name
    """

    batch: StreamingBatch | None
    producer: ProducerIdAndEpoch
    files: tuple[WrittenFile, ...] = ()
    rows: SentRows | None = None


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Raises InvalidRecordError when the query's columns do not fit."""
    types = {column.name: column.dataType.simpleString() for column in schema.fields}
    check_columns(types, options.topic, options.timestamp_column)


class StratalogWriter(DataSourceArrowWriter):
    """A batch write, under a sink id of its own or that of `txnAppId` and `txnVersion`."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidRequestError(
                'Save mode Overwrite not allowed for stratalog: a log only grows. Write with .mode("append")'
            )
        check_schema(schema, options)
        self._options = options
        self._producer = _planned_producer(options)
        self._batch = SinkBatchId(RandomIds().new_id(), 0, is_replayable=False)
        if options.txn_app_id is not None and options.txn_version is not None:
            self._batch = SinkBatchId(options.txn_app_id, options.txn_version, is_replayable=True)

    @sentence_first()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        return _write(self._options, self._producer, None, iterator)

    @sentence_first()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _commit(self._options, self._batch, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: a pending hand-over may still name the files; those that no commit names are vacuumed."""


class StratalogStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write. Spark makes one for planning and another for the commit of every micro-batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options
        self._producer = _planned_producer(options)

    @sentence_first()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        batch = streaming_batch()
        if batch is None:
            raise InvalidRequestError(f"the task has no property {QUERY_ID_PROPERTY}: not a streaming query")
        return _write(self._options, self._producer, batch, iterator)

    @sentence_first()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        query_id = next((m.batch.query_id for m in messages if isinstance(m, FilesWritten) and m.batch), None)
        if query_id is not None:
            _commit(self._options, SinkBatchId(query_id, batchId, is_replayable=True, is_stream=True), messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: see `StratalogWriter.abort`; the batch comes again under the same id."""


def _planned_producer(options: SinkOptions) -> ProducerIdAndEpoch:
    """The producer of the transaction of a batch that is planned here. It is what fences older runs: so only one
    process begins it for each batch, and passes it on with the tasks. Before that, root and topic have to be there."""
    if not plans_writes():
        return NO_PRODUCER
    with loading():
        from stratalog.clients.spark.offsets import check_sink
    check_sink(options)
    if options.transaction is None:
        return NO_PRODUCER
    with loading():
        from stratalog.clients.spark.transaction.commit import begin, reach
    view = view_of(options.root, options.storage)
    return begin(view, options.transaction, reach(view, options.transaction))


def _write(
    options: SinkOptions,
    producer: ProducerIdAndEpoch,
    streaming: StreamingBatch | None,
    iterator: Iterator[pa.RecordBatch],
) -> FilesWritten:
    freeze_modules()
    context = TaskContext.get()
    first_partition = (streaming.batch_id if streaming else 0) + (context.partitionId() if context else 0)
    task = SinkTask(view_of(options.root, options.storage), options, first_partition, producer)
    for batch in iterator:
        task.add(batch)
    rows = task.send()
    return FilesWritten(streaming, producer, task.finish(), rows)


def _commit(options: SinkOptions, batch: SinkBatchId, messages: Iterable[WriterCommitMessage | None]) -> None:
    freeze_modules()
    view = view_of(options.root, options.storage)
    view.refresh()
    written = [message for message in messages if isinstance(message, FilesWritten)]
    if options.transaction is not None and written:
        _commit_in_transaction(view, options, batch, written)
    else:
        HandOver(view, options, batch).run(_files(view, options, written))


def _commit_in_transaction(
    view: ClusterView, options: SinkOptions, batch: SinkBatchId, written: Sequence[FilesWritten]
) -> None:
    with loading():
        from stratalog.clients.spark.transaction.commit import BatchTransaction, positions_of, reach
    assert options.transaction is not None
    first = written[0]
    transaction = BatchTransaction(view, options, reach(view, options.transaction), first.producer)
    course = transaction.course(batch)
    if course is Course.WRITE:
        positions = positions_of(view, first.batch) if first.batch else []
        files = _files(view, options, written)
        if files or positions:
            transaction.commit(batch, files, positions)
    elif course is Course.FINISH:
        HandOver(view, options, batch).run([])
    else:
        _LOG.info("batch %d of sink %s was stored before", batch.batch_id, batch.sink_id)


def _files(view: ClusterView, options: SinkOptions, written: Sequence[FilesWritten]) -> list[WrittenFile]:
    """The tasks' files, and those of the rows that they have sent."""
    rest = SinkTask(view, options, 0, written[0].producer if written else NO_PRODUCER)
    for message in written:
        if message.rows is not None:
            rest.add_sent(message.rows)
    return [*(file for message in written for file in message.files), *rest.finish()]
