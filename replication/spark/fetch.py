"""Follower fetch as Structured Streaming: a micro-batch is a fetch session that polls until its deadline.

I/O: Spark. The source's offset is a round counter, since Spark's checkpoint never goes back and a follower must; a
follower's position is the end of its own log. Each broker has two queries whose sessions overlap, the second on
standby, so that copying does not stop between two micro-batches.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery

from stratalog.replication import cadence
from stratalog.replication.config import BrokerConfig
from stratalog.replication.follower.metrics import ThreadFetch, thread_fetch_path
from stratalog.replication.follower.partitions import FetchJob
from stratalog.replication.follower.sessions.fetch_place import (
    FAILURES_MAX,
    Event,
    FetchPlace,
    FetchTask,
    Place,
    QueryFailed,
    SessionPublished,
    TimePassed,
    decide,
)
from stratalog.replication.follower.sessions.fetch_session import stop_path
from stratalog.replication.follower.sessions.runner import (
    FollowerThreads,
    could_end_sessions,
    end_sessions,
    run_session,
)
from stratalog.replication.progress.progress import fetch_progress_path
from stratalog.replication.spark.executors import SessionName, executor_count, executor_place, is_beside_another
from stratalog.replication.spark.worker_error import advice, worker_error
from stratalog.replication.stores import DeltaStores
from stratalog.replication.threads.free_memory import release_arrow_memory
from stratalog.replication.threads.interpreter import freeze_folds, share_interpreter
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.port import ObjectStore

_LOG = line_logger("stratalog.fetcher")

FORMAT = "stratalog-fetch"
GOLDEN_RATIO = 0.6180339887
"""A factor whose multiples, modulo 1, lie far from each other however many there are."""

QUIET_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.numRecentProgressUpdates": "1",
}
"""Settings of the fetch queries: compiling code for a micro-batch of one row costs more than it saves."""


def job_text(job: FetchJob) -> str:
    """A job as an option of a query, which planners and executors read."""
    return json.dumps({**asdict(job), "config": asdict(job.config)})


def job_of(text: str) -> FetchJob:
    """The reverse of `job_text`."""
    body = json.loads(text)
    return FetchJob(**{**body, "config": BrokerConfig(**body["config"])})


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
        return job_of(self._options["job"])

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"round": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802, ARG002
        """The next round; the same round (no batch) when the broker stopped."""
        job = self._job()
        if DeltaStores(RandomIds()).objects(job.root).exists(stop_path(job.broker_epoch)):
            SystemClock().sleep_ms(cadence.TASK_RETRY.ms)
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
        name = SessionName(slot, number, RandomIds().new_id()[:8], executor_place())
        copied_count = 0
        if not (int(self._options["executors"]) > 1 and self._is_beside_another(job, fetcher_id, name)):
            session = run_session(job, fetcher_id, str(name), session_length_ms(job, slot, number))
            copied_count = session.followed.copied_count
            if session.is_over:
                end_sessions(job)
            else:
                SystemClock().sleep_ms(after_end_ms(job.config))
            freeze_folds()
            release_arrow_memory()
        yield pa.RecordBatch.from_arrays(
            [pa.array([job.broker_id], pa.int32()), pa.array([copied_count], pa.int64())], names=["broker_id", "rounds"]
        )

    def _is_beside_another(self, job: FetchJob, fetcher_id: int, name: SessionName) -> bool:
        """Whether this session is to end at once, since Spark has put it on the executor of the follower's other one:
        the next round may be elsewhere."""
        try:
            objects = DeltaStores(RandomIds()).objects(job.root)
            return is_beside_another(objects, job.broker_epoch, fetcher_id, name, SystemClock())
        except StratalogError:
            return False  # the session finds out


_share_interpreter_once = cache(share_interpreter)
"""The setting of a Python worker: the upkeep of its sessions runs in a thread beside them."""


def session_length_ms(job: FetchJob, slot: int, number: int) -> int:
    """How long session `number`, from 1 on, of a broker's query number `slot` takes.

    The second one where sessions are long, else the first, is such that from then on the sessions of the broker's
    queries end at even distances, and those of different brokers at different times: planning a micro-batch is a burst
    of CPU. Where sessions are long the first is as if they took `cadence.EARLY_SESSION`: each query's worker was then
    active once, and has loaded and folded what it needs, before there is much to fold.
    """
    long_ms, queries = job.config.stratalog_fetch_session_ms, job.config.stratalog_fetch_sessions
    early_ms = min(long_ms, cadence.EARLY_SESSION.ms)
    phase = (1 + job.broker_id * GOLDEN_RATIO % 1 + slot) / queries
    if number == 1:
        return round(early_ms * phase)
    if number == 2 and long_ms > early_ms:
        return round(early_ms + long_ms * phase - early_ms * phase)
    return long_ms


def after_end_ms(config: BrokerConfig) -> int:
    """How long a session that has ended keeps its task while another becomes active, so that Spark's planning does not
    meet the first work of that one. 0 where no other session follows meanwhile."""
    return (
        min(cadence.AFTER_END.ms, config.stratalog_fetch_session_ms // 8) if config.stratalog_fetch_sessions > 1 else 0
    )


@dataclass(slots=True)
class _FetchQuery:
    """One of a follower's queries, `query` None while it does not run; `starts` counts how often it was started."""

    job: FetchJob
    slot: int
    query: StreamingQuery | None = None
    starts: int = 0

    @property
    def name(self) -> str:
        return f"stratalog-fetch-{self.job.broker_id}-{self.job.broker_epoch}-{self.slot}"


@dataclass(slots=True)
class _Follower:
    """The queries of one registration of a broker, or the threads that fetch instead.

    written_ms  by session on Spark, when its progress object was written last, as its store dates it
    seen_ms     by slot, when that was last found to have changed
    told        the newest reason that a warning gave
    """

    job: FetchJob
    queries: list[_FetchQuery]
    place: FetchPlace
    threads: FollowerThreads | None = None
    written_ms: dict[str, int] = field(default_factory=dict)
    seen_ms: dict[int, int] = field(default_factory=dict)
    told: str = ""

    def check(self, objects: ObjectStore, now_ms: int) -> bool:
        """Whether a session of one of the queries has written since the last call. Raises StratalogError."""
        prefix = fetch_progress_path(self.job.broker_epoch, "")
        written_ms: dict[str, int] = {}
        for meta in objects.list(prefix):
            slot = meta.path.removeprefix(prefix).split("-")[1]
            if slot.isdecimal():
                written_ms[meta.path] = meta.last_modified_ms
                if self.written_ms.get(meta.path) != meta.last_modified_ms:
                    self.seen_ms[int(slot)] = now_ms
        has_changed = any(self.written_ms.get(path) != at_ms for path, at_ms in written_ms.items())
        self.written_ms = written_ms
        return has_changed

    def others_work(self, query: _FetchQuery, now_ms: int) -> bool:
        """Whether sessions of another query have published a moment ago."""
        others = (at_ms for slot, at_ms in self.seen_ms.items() if slot != query.slot)
        return any(now_ms - at_ms <= cadence.AT_WORK.ms for at_ms in others)


def _quiet_session(spark: SparkSession) -> SparkSession:
    """A session of its own for the fetch queries, in the same context: its settings are not the user's, and the user's
    `spark.streams` does not list them."""
    session = spark.newSession()
    for name, value in QUIET_SETTINGS.items():
        session.conf.set(name, value)
    return session


class SparkFetchRunner:
    """Runs each follower's sessions as streaming queries of one Spark session, or in threads while they cannot run.

    The rules are those of `replication.follower.sessions.fetch_place`.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = _quiet_session(spark)
        self._clock = SystemClock()
        self._stores = DeltaStores(RandomIds())
        self._checkpoints = Path(tempfile.mkdtemp(prefix="stratalog-fetch-"))
        self._followers: list[_Follower] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.failure = ""
        self._register_lock = threading.Lock()
        self._supervisor = threading.Thread(target=self._supervise, name="fetch-supervisor", daemon=True)
        self._supervisor.start()

    def start(self, job: FetchJob) -> None:
        queries = [_FetchQuery(job, slot) for slot in range(job.config.stratalog_fetch_sessions)]
        place = FetchPlace(job.config.stratalog_fetch_retry_ms, self._clock.monotonic_ms())
        follower = _Follower(job, queries, place)
        self._decide(follower, TimePassed())
        with self._lock:
            self._followers.append(follower)

    def _start_query(self, each: _FetchQuery) -> None:
        each.starts += 1
        with self._register_lock:
            # A registration of its own for each query: they would share one Java map of environment variables, to which
            # Spark's Python runners write from all queries' threads, and a corrupted map fails every later task.
            self._spark.dataSource.register(FetchSource)
            reader = self._spark.readStream.format(FORMAT)
            executors = executor_count(self._spark.sparkContext)
            reader = reader.option("job", job_text(each.job)).option("slot", str(each.slot))
            frame = reader.option("executors", str(executors)).load()
        each.query = (
            frame.writeStream.format("noop")
            .queryName(each.name)
            .option("checkpointLocation", (self._checkpoints / f"{each.name}-{each.starts}").as_uri())
            .option("asyncProgressTrackingEnabled", "true")
            .option("asyncProgressTrackingCheckpointIntervalMs", str(cadence.SPARK_CHECKPOINTS.ms))
            .start()
        )

    @property
    def queries(self) -> list[StreamingQuery]:
        with self._lock:
            found = [each.query for follower in self._followers for each in follower.queries]
        return [query for query in found if query is not None]

    # -- supervision -------------------------------------------------------------------------------------

    def _supervise(self) -> None:
        while not self._stopped.wait(cadence.SUPERVISED.ms / 1000):
            if not _is_alive(self._spark):
                self.failure = "the Spark application has ended"
                _LOG.error("no fetch session can run any more: %s", self.failure)
                return
            with self._lock:
                followers = list(self._followers)
            for follower in followers:
                try:
                    self._supervise_one(follower)
                except Exception as reason:  # noqa: BLE001 - Spark's errors have no common root; the next round tries again
                    _LOG.warning("fetching of broker %d, trying again: %s", follower.job.broker_id, _text(reason))

    def _supervise_one(self, follower: _Follower) -> None:
        """Remove the queries of a registration that is over, once their sessions have ended; else decide on what has
        happened since the last time."""
        objects = self._stores.objects(follower.job.root)
        if objects.exists(stop_path(follower.job.broker_epoch)):
            for each in follower.queries:
                query = each.query
                if query is not None and not (query.isActive and query.status["isTriggerActive"]):
                    query.stop()
                    each.query = None
            if all(each.query is None for each in follower.queries):
                with self._lock:
                    if follower in self._followers:
                        self._followers.remove(follower)
            return
        now_ms = self._clock.monotonic_ms()
        if follower.check(objects, now_ms):
            self._decide(follower, SessionPublished())
        for each in follower.queries:
            query = each.query
            if query is not None and not query.isActive:
                each.query = None
                self._decide(follower, self._failed(follower, each, query.exception()))
        self._decide(follower, TimePassed())

    def _failed(self, follower: _Follower, each: _FetchQuery, reason: BaseException | None) -> QueryFailed:
        """The event of a query that died or did not start."""
        error = _text(reason) if reason is not None else "the query has ended"
        _LOG.info("%s failed: %s", each.name, error)
        return QueryFailed(error, follower.others_work(each, self._clock.monotonic_ms()))

    def _decide(self, follower: _Follower, event: Event) -> None:
        before = follower.place
        follower.place, tasks = decide(before, event, self._clock.monotonic_ms())
        if not self._stopped.is_set():
            self._report(follower, before)
            for task in tasks:
                self._do(follower, task)

    def _do(self, follower: _Follower, task: FetchTask) -> None:
        if task is FetchTask.START_QUERIES:
            self._start_queries(follower, follower.queries)
        elif task is FetchTask.TRY_ONE_QUERY:
            self._start_queries(follower, follower.queries[:1])
        elif task is FetchTask.END_QUERIES:
            for each in follower.queries:
                if (query := each.query) is not None:
                    each.query = None
                    threading.Thread(target=_stop_quietly, args=(query,), name=f"stop-{each.name}", daemon=True).start()
        elif task is FetchTask.START_THREADS:
            follower.threads = FollowerThreads(follower.job)
        elif follower.threads is not None:
            follower.threads.end()
            follower.threads = None

    def _start_queries(self, follower: _Follower, queries: list[_FetchQuery]) -> None:
        for each in queries:
            if each.query is not None:
                continue
            place, failures = follower.place.place, follower.place.failures
            try:
                self._start_query(each)
            except Exception as reason:  # noqa: BLE001 - Spark's errors have no common root
                self._decide(follower, self._failed(follower, each, reason))
            if (place, failures) != (follower.place.place, follower.place.failures) and failures + 1 >= FAILURES_MAX:
                return  # it was the last one in a row: the decision was carried out

    def _report(self, follower: _Follower, before: FetchPlace) -> None:
        """What changed, in the log and for metrics and tools. Says why once, not at each try."""
        job, place = follower.job, follower.place
        if place.place is not before.place:
            in_threads = place.place is Place.THREADS
            if in_threads and place.reason != follower.told:
                follower.told = place.reason
                todo = advice(place.reason, job.metadata_root, job.root)
                what = (
                    "broker %d: its fetch queries cannot run on Spark (%s). It fetches in a thread of this process, "
                    "and tries Spark again in %d ms and at growing intervals. What to do: %s"
                )
                _LOG.warning(what, job.broker_id, place.reason, place.pause_ms, todo)
            elif not in_threads:
                _LOG.warning("broker %d fetches on Spark again", job.broker_id)
            self._publish(job, ThreadFetch(place.reason, self._clock.wall_ms()) if in_threads else None)
        elif place.failures > before.failures:
            _LOG.warning(
                "broker %d: a fetch query failed, %d in a row, starting it again: %s",
                job.broker_id, place.failures, place.reason,
            )  # fmt: skip

    def _publish(self, job: FetchJob, state: ThreadFetch | None) -> None:
        path = thread_fetch_path(job.broker_epoch)
        try:
            objects = self._stores.objects(job.root)
            if state is None:
                objects.delete(path)
            else:
                objects.put_register(path, state.to_json())
        except StratalogError as reason:
            _LOG.warning("where broker %d fetches cannot be published: %s", job.broker_id, reason)

    # -- the end -----------------------------------------------------------------------------------------

    def stop(self) -> bool:
        """End the sessions first: stopping a query while its task polls ends in a stack overflow inside Spark."""
        self._stopped.set()
        self._supervisor.join(timeout=10)
        with self._lock:
            followers, self._followers = self._followers, []
        were_asked = [could_end_sessions(follower.job) for follower in followers]
        deadline_ms = self._clock.monotonic_ms() + cadence.QUERIES_END.ms
        have_ended = [self._has_ended(each, deadline_ms) for follower in followers for each in follower.queries]
        have_ended += [follower.threads.join() for follower in followers if follower.threads is not None]
        shutil.rmtree(self._checkpoints, ignore_errors=True)
        return all(were_asked) and all(have_ended)

    def _has_ended(self, each: _FetchQuery, deadline_ms: int) -> bool:
        """Wait for the query's session to end by itself. False when it may still run."""
        query = each.query
        if query is None:
            return True
        try:
            while query.isActive and query.status["isTriggerActive"] and self._clock.monotonic_ms() < deadline_ms:
                self._clock.sleep_ms(cadence.QUERIES_END_POLL.ms)
            was_quiet = not query.status["isTriggerActive"]
            query.stop()
        except Exception as reason:  # noqa: BLE001 - Spark's errors have no common root, and its JVM may be gone
            _LOG.warning("%s cannot be stopped: %s", each.name, _text(reason))
            return False
        return was_quiet


def _stop_quietly(query: StreamingQuery) -> None:
    try:
        query.stop()
    except Exception as reason:  # noqa: BLE001 - as in `_has_ended`
        _LOG.info("a fetch query that cannot run cannot be stopped: %s", _text(reason))


def _is_alive(spark: SparkSession) -> bool:
    """False once the Spark application was stopped, or its JVM is gone."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:  # noqa: BLE001 - whatever it is, Spark answers nothing any more
        return False


def _text(reason: BaseException) -> str:
    """Spark's errors carry the stack of the JVM: that stays out of the terminal."""
    return worker_error(str(reason)) or type(reason).__name__
