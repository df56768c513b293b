"""Follower fetch as Structured Streaming: a micro-batch is a fetch session that polls until its deadline.

I/O: Spark. The source's offset is a round counter, since Spark's checkpoint never goes back and a follower must; a
follower's position is the end of its own log. Each broker has two queries whose sessions overlap, the second on
standby, so that copying does not stop between two micro-batches.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery

from stratalog.replication.config import BrokerConfig
from stratalog.replication.follower.fetch_session import stop_path
from stratalog.replication.follower.partitions import FetchJob
from stratalog.replication.follower.runner import could_end_sessions, end_sessions, run_session
from stratalog.replication.stores import DeltaStores
from stratalog.replication.threads.interpreter import freeze_folds, share_interpreter
from stratalog.replication.threads.upkeep_thread import release_free_memory
from stratalog.storage.clock import RandomIds, SystemClock

_LOG = logging.getLogger("stratalog.fetcher")

FORMAT = "stratalog-fetch"
END_WAIT_MS = 15_000
SUPERVISE_MS = 2_000
AFTER_END_MS = 500
GOLDEN_RATIO = 0.6180339887
"""A factor whose multiples, modulo 1, lie far from each other however many there are."""
EARLY_SESSION_MS = 40_000
CHECKPOINT_INTERVAL_MS = 3_600_000
"""Interval of Spark's checkpoints of a fetch query. Nothing reads them: a query that died starts with a new one."""

QUIET_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.numRecentProgressUpdates": "1",
}
"""Settings of the fetch queries: compiling code for a micro-batch of one row costs more than it saves."""


class FetchSource(DataSource):
    """`format("stratalog-fetch")`: internal, one row per finished session."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "broker_id int, rounds bigint"

    def streamReader(self, schema: Any) -> FollowerSessionReader:  # noqa: N802, ARG002 - Spark's names
        return FollowerSessionReader(dict(self.options))


class FollowerSessionReader(DataSourceStreamReader):
    """Plans one task for each fetcher and round; `read` runs the session."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def _job(self) -> FetchJob:
        body = json.loads(self._options["job"])
        return FetchJob(**{**body, "config": BrokerConfig(**body["config"])})

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"round": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802, ARG002
        """The next round; the same round (no batch) when the broker stopped."""
        job = self._job()
        if DeltaStores(RandomIds()).objects(job.root).exists(stop_path(job.broker_epoch)):
            SystemClock().sleep_ms(200)
            return start
        return {"round": start["round"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        if start["round"] >= end["round"]:
            return []
        return [InputPartition((end["round"], fetcher)) for fetcher in range(self._job().config.num_replica_fetchers)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark's stand-in for an empty plan
            return
        _share_interpreter_once()
        job, slot = self._job(), int(self._options["slot"])
        number, fetcher_id = partition.value
        name = f"{slot}-{number}-{RandomIds().new_id()[:8]}"
        session = run_session(job, fetcher_id, name, session_length_ms(job, slot, number))
        if session.is_over:
            end_sessions(job)
        else:
            SystemClock().sleep_ms(after_end_ms(job.config))
        freeze_folds()
        release_free_memory()
        yield pa.RecordBatch.from_arrays(
            [pa.array([job.broker_id], pa.int32()), pa.array([session.followed.copied_count], pa.int64())],
            names=["broker_id", "rounds"],
        )


_share_interpreter_once = cache(share_interpreter)
"""The setting of a Python worker: the upkeep of its sessions runs in a thread beside them."""


def session_length_ms(job: FetchJob, slot: int, number: int) -> int:
    """How long session `number`, from 1 on, of a broker's query number `slot` takes.

    The second one where sessions are long, else the first, is such that from then on the sessions of the broker's
    queries end at even distances, and those of different brokers at different times: planning a micro-batch is a burst
    of CPU. Where sessions are long the first is as if they took `EARLY_SESSION_MS`, so that each query's worker was
    active once, and has loaded and folded what it needs, before there is much to fold.
    """
    long_ms, queries = job.config.stratalog_fetch_session_ms, job.config.stratalog_fetch_sessions
    early_ms = min(long_ms, EARLY_SESSION_MS)
    phase = (1 + job.broker_id * GOLDEN_RATIO % 1 + slot) / queries
    if number == 1:
        return round(early_ms * phase)
    if number == 2 and long_ms > early_ms:
        return round(early_ms + long_ms * phase - early_ms * phase)
    return long_ms


def after_end_ms(config: BrokerConfig) -> int:
    """How long a session that has ended keeps its task while another becomes active, so that Spark's planning does not
    meet the first work of that one. 0 where no other session follows meanwhile."""
    return min(AFTER_END_MS, config.stratalog_fetch_session_ms // 8) if config.stratalog_fetch_sessions > 1 else 0


@dataclass(slots=True)
class _FetchQuery:
    """One of a broker's queries, `query` None until Spark has accepted it; `tries` counts how often it was started."""

    job: FetchJob
    slot: int
    query: StreamingQuery | None = None
    tries: int = 0

    @property
    def name(self) -> str:
        return f"stratalog-fetch-{self.job.broker_id}-{self.job.broker_epoch}-{self.slot}"


def _quiet_session(spark: SparkSession) -> SparkSession:
    """A session of its own for the fetch queries, in the same context: its settings are not the user's, and the user's
    `spark.streams` does not list them."""
    session = spark.newSession()
    for name, value in QUIET_SETTINGS.items():
        session.conf.set(name, value)
    return session


class SparkFetchRunner:
    """Runs each broker's sessions as streaming queries of one Spark session, and starts one that died again."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = _quiet_session(spark)
        self._clock = SystemClock()
        self._stores = DeltaStores(RandomIds())
        self._checkpoints = Path(tempfile.mkdtemp(prefix="stratalog-fetch-"))
        self._queries: list[_FetchQuery] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.failure = ""
        self._register_lock = threading.Lock()
        self._supervisor = threading.Thread(target=self._supervise, name="fetch-supervisor", daemon=True)
        self._supervisor.start()

    def start(self, job: FetchJob) -> None:
        for slot in range(job.config.stratalog_fetch_sessions):
            each = _FetchQuery(job, slot)
            try:
                self._start_query(each)
            except Exception as reason:  # noqa: BLE001 - as in `_supervise`, which tries again
                _LOG.warning("%s did not start: %s", each.name, _first_line(reason))
            with self._lock:
                self._queries.append(each)

    def _start_query(self, each: _FetchQuery) -> None:
        body = {**asdict(each.job), "config": asdict(each.job.config)}
        each.tries += 1
        with self._register_lock:
            # A registration of its own for each query: they would share one Java map of environment variables, to which
            # Spark's Python runners write from all queries' threads, and a corrupted map fails every later task.
            self._spark.dataSource.register(FetchSource)
            reader = self._spark.readStream.format(FORMAT)
            frame = reader.option("job", json.dumps(body)).option("slot", str(each.slot)).load()
        each.query = (
            frame.writeStream.format("noop")
            .queryName(each.name)
            .option("checkpointLocation", str(self._checkpoints / f"{each.name}-{each.tries}"))
            .option("asyncProgressTrackingEnabled", "true")
            .option("asyncProgressTrackingCheckpointIntervalMs", str(CHECKPOINT_INTERVAL_MS))
            .start()
        )

    @property
    def queries(self) -> list[StreamingQuery]:
        with self._lock:
            return [each.query for each in self._queries if each.query is not None]

    def _supervise(self) -> None:
        while not self._stopped.wait(SUPERVISE_MS / 1000):
            if not _is_alive(self._spark):
                self.failure = "the Spark application has ended"
                _LOG.error("no fetch session can run any more: %s", self.failure)
                return
            with self._lock:
                running = list(self._queries)
            for each in running:
                try:
                    self._supervise_one(each)
                except Exception as reason:  # noqa: BLE001 - Spark's errors have no common root; the next round tries again
                    _LOG.warning("%s, trying again: %s", each.name, _first_line(reason))

    def _supervise_one(self, each: _FetchQuery) -> None:
        """Remove a query whose registration is over, once its last session has ended; start a dead one again."""
        is_over = self._stores.objects(each.job.root).exists(stop_path(each.job.broker_epoch))
        query = each.query
        if is_over and not (query is not None and query.isActive and query.status["isTriggerActive"]):
            if query is not None:
                query.stop()
            with self._lock:
                if each in self._queries:
                    self._queries.remove(each)
        elif not is_over and not (query is not None and query.isActive) and not self._stopped.is_set():
            reason = query.exception() if query is not None else None
            _LOG.warning("%s is not running, starting it again: %s", each.name, _first_line(reason))
            self._start_query(each)

    def stop(self) -> bool:
        """End the sessions first: stopping a query while its task polls ends in a stack overflow inside Spark."""
        self._stopped.set()
        self._supervisor.join(timeout=10)
        with self._lock:
            running, self._queries = self._queries, []
        were_asked = [could_end_sessions(job) for job in {id(each.job): each.job for each in running}.values()]
        deadline_ms = self._clock.monotonic_ms() + END_WAIT_MS
        have_ended = [self._has_ended(each, deadline_ms) for each in running]
        shutil.rmtree(self._checkpoints, ignore_errors=True)
        return all(were_asked) and all(have_ended)

    def _has_ended(self, each: _FetchQuery, deadline_ms: int) -> bool:
        """Wait for the query's session to end by itself. False when it may still run."""
        query = each.query
        if query is None:
            return True
        try:
            while query.isActive and query.status["isTriggerActive"] and self._clock.monotonic_ms() < deadline_ms:
                self._clock.sleep_ms(50)
            was_quiet = not query.status["isTriggerActive"]
            query.stop()
        except Exception as reason:  # noqa: BLE001 - Spark's errors have no common root, and its JVM may be gone
            _LOG.warning("%s cannot be stopped: %s", each.name, _first_line(reason))
            return False
        return was_quiet


def _is_alive(spark: SparkSession) -> bool:
    """False once the Spark application was stopped, or its JVM is gone."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:  # noqa: BLE001 - whatever it is, Spark answers nothing any more
        return False


def _first_line(reason: BaseException | None) -> str:
    """Spark's errors carry the stack of the JVM: that stays out of the terminal."""
    return str(reason).partition("\n")[0]
