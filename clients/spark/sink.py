"""The Spark sink: `df.write.format("stratalog")` and `df.writeStream.format("stratalog")`, exactly once.

I/O: through `sink_task` on Spark's executors and `hand_over` on its driver. Columns, options and errors are the Kafka
connector's; batch writes need `.mode("append")`. The default of `kafka.acks` is `all`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from stratalog.clients.spark.hand_over import HandOver, SinkBatchId
from stratalog.clients.spark.options import SinkOptions
from stratalog.clients.spark.sink_rows import check_columns
from stratalog.clients.spark.sink_task import SentRows, SinkTask, WrittenFile
from stratalog.clients.spark.worker import freeze_modules, view_of
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import InvalidRequestError

QUERY_ID_PROPERTY = "sql.streaming.queryId"
BATCH_ID_PROPERTY = "streaming.sql.batchId"


@dataclass
class FilesWritten(WriterCommitMessage):
    """A task's result for the driver: files to hand over, or its few rows. `query_id` is empty in a batch write."""

    query_id: str
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
        self._batch = SinkBatchId(RandomIds().new_id(), 0, is_replayable=False)
        if options.txn_app_id is not None and options.txn_version is not None:
            self._batch = SinkBatchId(options.txn_app_id, options.txn_version, is_replayable=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        return _write(self._options, "", self._batch.batch_id, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _hand_over(self._options, self._batch, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: a pending hand-over may still name the files; those that no commit names are vacuumed."""


class StratalogStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write. Spark makes one for planning and another for the commit of every micro-batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        context = TaskContext.get()
        query_id = context.getLocalProperty(QUERY_ID_PROPERTY) if context else None
        if not query_id:
            raise InvalidRequestError(f"the task has no property {QUERY_ID_PROPERTY}: not a streaming query")
        batch_id = int(context.getLocalProperty(BATCH_ID_PROPERTY) or 0) if context else 0
        return _write(self._options, query_id, batch_id, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        query_id = next((m.query_id for m in messages if isinstance(m, FilesWritten)), None)
        if query_id is not None:
            _hand_over(self._options, SinkBatchId(query_id, batchId, is_replayable=True), messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: see `StratalogWriter.abort`; the batch comes again under the same id."""


def _hand_over(options: SinkOptions, batch: SinkBatchId, messages: Iterable[WriterCommitMessage | None]) -> None:
    freeze_modules()
    view = view_of(options.root, options.storage)
    view.refresh()
    written = [message for message in messages if isinstance(message, FilesWritten)]
    rest = SinkTask(view, options, 0)
    for message in written:
        if message.rows is not None:
            rest.add_sent(message.rows)
    HandOver(view, options, batch).run([*(file for message in written for file in message.files), *rest.finish()])


def _write(options: SinkOptions, query_id: str, batch_id: int, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
    freeze_modules()
    context = TaskContext.get()
    task = SinkTask(
        view_of(options.root, options.storage), options, batch_id + (context.partitionId() if context else 0)
    )
    for batch in iterator:
        task.add(batch)
    rows = task.send()
    return FilesWritten(query_id, task.finish(), rows)
