"""A driver of micro-batches as Spark's, without a JVM: it copies a topic in transactions until standard input ends.

    python -m tests.lab.real.processes.micro_batches <metadata root> <from> <to> <id> <folder> [<option>=<value> ...]

It calls the format's readers and writers as Spark 4.2 does (`MicroBatchExecution` and Spark's Python worker modules):
an offset log before a batch and a commit log behind it, a writer for the plan of each batch, which is pickled for the
tasks, and another one for the commit, in a process of its own. Some tasks run twice, as under speculation. `id` names
the group and the transactions. A query that fails is started again from its checkpoint.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import random
import sys
import threading
import traceback
import uuid
from collections.abc import Iterator, Mapping
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.types import BinaryType, StructField, StructType

from stratalog.clients.spark.source.source import StratalogDataSource
from stratalog.clients.spark.source.stream_reader import StratalogStreamReader
from stratalog.clients.spark.worker import BATCH_ID_PROPERTY, PLANS_WRITES, QUERY_ID_PROPERTY, RUN_ID_PROPERTY
from tests.lab.real.processes.query_process import STARTED

COLUMNS = ["key", "value"]
SCHEMA = StructType([StructField(name, BinaryType()) for name in COLUMNS])
TWICE = 0.2
"""Share of the tasks that run twice."""
Options = dict[str, str]


def commit_batches(options: Options, calls: Connection) -> None:
    """The process that commits: a new writer for each batch."""
    while True:
        messages, batch_id = calls.recv()
        try:
            StratalogDataSource(options).streamWriter(SCHEMA, False).commit(messages, batch_id)
            calls.send(None)
        except Exception as reason:  # noqa: BLE001 - whatever it is, the driver's query fails with it
            calls.send("".join(traceback.format_exception(reason))[-600:])


class Committer:
    """The driver's connection to the process that commits."""

    def __init__(self, options: Options) -> None:
        context = multiprocessing.get_context("spawn")
        self._calls, theirs = context.Pipe()
        self._process = context.Process(target=commit_batches, args=(options, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def commit(self, messages: list[WriterCommitMessage], batch_id: int) -> None:
        self._calls.send((messages, batch_id))
        failure = self._calls.recv()
        if failure is not None:
            raise RuntimeError(failure)

    def close(self) -> None:
        self._process.kill()
        self._process.join()


class Checkpoint:
    """Offset log, commit log and query id, as Spark's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        if not (folder / "metadata").exists():
            self._put(folder / "metadata", json.dumps({"id": str(uuid.uuid4())}))
        self.query_id: str = json.loads((folder / "metadata").read_text())["id"]

    def newest(self, log: str) -> int:
        return max((int(path.name) for path in (self._folder / log).glob("[0-9]*")), default=-1)

    def end_of(self, batch_id: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self._folder / "offsets" / str(batch_id)).read_text().splitlines()[-1])
        return found

    def begin(self, batch_id: int, end: Mapping[str, Any]) -> None:
        self._put(self._folder / "offsets" / str(batch_id), f"v1\n{{}}\n{json.dumps(end)}")

    def commit(self, batch_id: int) -> None:
        self._put(self._folder / "commits" / str(batch_id), "v1\n{}")

    def _put(self, path: Path, text: str) -> None:
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.write_text(text)
        beside.rename(path)


class Query:
    """One run of the query."""

    def __init__(self, source: Options, sink: Options, checkpoint: Checkpoint) -> None:
        self._sink = sink
        self._checkpoint = checkpoint
        self._run_id = str(uuid.uuid4())
        self._committer = Committer(sink)
        self._reader = _reader_of(source)
        self._tasks_reader = pickle.loads(cloudpickle.dumps(_reader_of(source)))

    def run(self, is_over: threading.Event) -> None:
        batch_id = self._checkpoint.newest("offsets")
        if batch_id > self._checkpoint.newest("commits"):
            start = self._checkpoint.end_of(batch_id - 1) if batch_id else self._reader.initialOffset()
            self._run(batch_id, start, self._checkpoint.end_of(batch_id))
        start = self._checkpoint.end_of(batch_id) if batch_id >= 0 else self._reader.initialOffset()
        while not is_over.is_set():
            end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
            if end != start:
                batch_id += 1
                self._checkpoint.begin(batch_id, end)
                self._run(batch_id, start, end)
                start = end

    def _run(self, batch_id: int, start: Mapping[str, Any], end: Mapping[str, Any]) -> None:
        partitions = self._reader.partitions(start, end)
        writer = cloudpickle.dumps(StratalogDataSource(self._sink).streamWriter(SCHEMA, False))
        messages = [self._task(writer, batch_id, each) for each in enumerate(partitions)]
        self._committer.commit(messages, batch_id)
        self._checkpoint.commit(batch_id)

    def _task(self, writer: bytes, batch_id: int, numbered: tuple[int, InputPartition]) -> WriterCommitMessage:
        number, partition = numbered
        context = TaskContext._getOrCreate()
        context._partitionId = number
        context._localProperties = {
            QUERY_ID_PROPERTY: self._checkpoint.query_id,
            BATCH_ID_PROPERTY: str(batch_id),
            RUN_ID_PROPERTY: self._run_id,
        }
        runs = 2 if random.random() < TWICE else 1
        return [pickle.loads(writer).write(self._rows(partition)) for _ in range(runs)][-1]

    def _rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in self._tasks_reader.read(partition):
            yield batch.select(COLUMNS)

    def close(self) -> None:
        self._reader.stop()
        self._committer.close()


def _reader_of(source: Options) -> StratalogStreamReader:
    data_source = StratalogDataSource(source)
    return data_source.streamReader(data_source.schema())


def main(root: str, source: str, target: str, name: str, folder: str, *settings: str) -> None:
    is_over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
    import_module(PLANS_WRITES)  # this process plans writes, as one of Spark's that runs this module
    given = {"stratalog.root": root, "subscribe": source, "startingOffsets": "earliest", "kafka.group.id": name}
    options = given | {"maxOffsetsPerTrigger": "200"} | dict(setting.split("=", 1) for setting in settings)
    sink = {"stratalog.root": root, "topic": target, "kafka.transactional.id": name}
    checkpoint = Checkpoint(Path(folder) / "checkpoint")
    while not is_over.is_set():
        query = Query(options, sink, checkpoint)
        print(STARTED, flush=True)
        try:
            query.run(is_over)
        except Exception as reason:  # noqa: BLE001 - as Spark ends the query
            print(f"failed: {''.join(traceback.format_exception(reason))[-900:]}", flush=True)
        query.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
