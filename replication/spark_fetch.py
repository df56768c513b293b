"""Follower fetch as Structured Streaming: a micro-batch is a fetch session that polls until its deadline.

I/O: Spark. The source's offset is a round counter, since Spark's checkpoint never goes back and a follower
must (DESIGN §6); a follower's position is the end of its own log. Each broker has two queries whose sessions
overlap, the second standing by, so that the gap between two micro-batches (about 280 ms) does not show.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery

from replication.config import BrokerConfig
from replication.fetch_runner import FetchJob, end_sessions, run_session
from replication.fetcher import stop_path
from replication.stores import DeltaStores
from storage.clock import RandomIds, SystemClock

_LOG = logging.getLogger("stratalog.fetcher")

FORMAT = "stratalog-fetch"
END_WAIT_MS = 15_000


class FetchSource(DataSource):
    """`format("stratalog-fetch")`: internal, one row per finished session."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "broker_id int, rounds bigint"

    def streamReader(self, schema: Any) -> FetchReader:  # noqa: N802, ARG002 - Spark's names
        return FetchReader(dict(self.options))


class FetchReader(DataSourceStreamReader):
    """Plans one task per fetcher and round; `read` is the session."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def _job(self) -> FetchJob:
        body = json.loads(self._options["job"])
        return FetchJob(**{**body, "config": BrokerConfig(**body["config"])})

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"round": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802, ARG002
        """The next round at once; the same round (no batch) when the broker stopped."""
        job = self._job()
        if DeltaStores(RandomIds()).objects(job.root).exists(stop_path(job.broker_epoch)):
            SystemClock().sleep_ms(200)
            return start
        return {"round": start["round"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        if start["round"] >= end["round"]:
            return []
        shares = range(self._job().config.num_replica_fetchers)
        return [InputPartition((end["round"], share)) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark's stand-in for an empty plan
            return
        job = self._job()
        slot = int(self._options["slot"])
        ids = RandomIds()
        session_ms = job.config.stratalog_fetch_session_ms
        # The second query's first session is half as long: from then on the two hand over half way.
        number, share = partition.value
        duration_ms = session_ms // 2 if slot == 1 and number == 1 else session_ms
        session = run_session(job, share, f"{slot}-{number}-{ids.new_id()[:8]}", duration_ms, ids)
        if session.is_over:
            end_sessions(job, ids)
        yield pa.RecordBatch.from_arrays(
            [pa.array([job.broker_id], pa.int32()), pa.array([session.copied_count], pa.int64())],
            names=["broker_id", "rounds"],
        )


class SparkFetchRunner:
    """Runs each broker's sessions as streaming queries of one Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._checkpoints = Path(tempfile.mkdtemp(prefix="stratalog-fetch-"))
        self._queries: list[tuple[FetchJob, StreamingQuery]] = []
        spark.dataSource.register(FetchSource)

    def start(self, job: FetchJob) -> None:
        self._reap()
        body = {**asdict(job), "config": asdict(job.config)}
        for slot in range(job.config.stratalog_fetch_sessions):
            name = f"stratalog-fetch-{job.broker_id}-{job.broker_epoch}-{slot}"
            query = (
                self._spark.readStream.format(FORMAT)
                .option("job", json.dumps(body))
                .option("slot", str(slot))
                .load()
                .writeStream.format("noop")
                .queryName(name)
                .option("checkpointLocation", str(self._checkpoints / name))
                .start()
            )
            self._queries.append((job, query))

    @property
    def queries(self) -> list[StreamingQuery]:
        return [query for _, query in self._queries]

    def _reap(self) -> None:
        """Stop the queries of registrations that are over and whose last session has ended."""
        for job, query in list(self._queries):
            objects = DeltaStores(RandomIds()).objects(job.root)
            if objects.exists(stop_path(job.broker_epoch)) and not query.status["isTriggerActive"]:
                query.stop()
                self._queries.remove((job, query))

    def stop(self) -> None:
        """End the sessions first: stopping a query while its task polls ends in a stack overflow inside Spark."""
        for job in {id(job): job for job, _ in self._queries}.values():
            end_sessions(job, RandomIds())
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + END_WAIT_MS
        for _, query in self._queries:
            while query.isActive and query.status["isTriggerActive"] and clock.monotonic_ms() < deadline_ms:
                clock.sleep_ms(50)
            query.stop()
        self._queries.clear()
        shutil.rmtree(self._checkpoints, ignore_errors=True)
