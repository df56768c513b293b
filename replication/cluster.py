"""The embedded cluster: several brokers with their storage domains in one Python process (DESIGN §9).

I/O: directories, threads and, through a fetch runner, Spark. `Cluster.start("path")` makes or reopens
`path/metadata` and `path/broker-1..n`. Each broker has one thread for its loop and one for its controller
candidate; its fetch sessions run as Structured Streaming queries, or in threads where Spark has no free slots.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Literal, Self

from replication.broker import Broker, BrokerIdentity
from replication.clean_shutdown import mark_clean_shutdown
from replication.cluster_configs import state_settings
from replication.cluster_place import ClusterPlace, cluster_place
from replication.config import CLUSTER_TOML, TOPICS_TOML, BrokerConfig, flatten_toml
from replication.controller import Controller
from replication.fetch_runner import FetchJob, FetchRunner, ThreadFetchRunner
from replication.meta_properties import check_meta_properties
from replication.metrics import Metric
from replication.metrics_server import MetricsServer, metrics_of
from replication.progress import fetch_progress_path, progress_prefix
from replication.state import ClusterImage, ClusterRecord, Result
from replication.stores import DeltaStores, open_metadata
from replication.text_logs import close_text_logs, open_text_logs
from storage.clock import RandomIds, SystemClock
from storage.errors import (
    BrokerNotAvailableError,
    InvalidRequestError,
    StratalogError,
    UnknownServerError,
)
from storage.file_cache import SHARED_FILE_CACHE
from storage.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("stratalog.cluster")

FORMAT_VERSION = 1
START_WAIT_MS = 60_000
SWITCH_INTERVAL_S = 0.0005
TURN_WAIT_S = 0.02
_ONE_AT_A_TIME = threading.Lock()
"""Held by the broker whose turn it is, while many partitions move a little each. Such appends are short pieces of
Python between short calls of the system: three threads that take the interpreter from each other at each of them need
1.5 times the processor and are not faster. Large appends run side by side; nobody waits for a stuck disk."""
Fetcher = Literal["auto", "spark", "thread"]


@dataclass(slots=True)
class _BrokerProcess:
    """One broker's threads. `dead` stops them after the turn they are in, without another write."""

    broker: Broker
    controller: Controller
    dead: threading.Event = field(default_factory=threading.Event)
    registered: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)
    failure: StratalogError | None = None

    def start(self) -> None:
        name = f"broker-{self.broker.broker_id}"
        self.threads = [
            threading.Thread(target=self._run_broker, name=name, daemon=True),
            threading.Thread(target=self._run_controller, name=f"controller-{self.broker.broker_id}", daemon=True),
        ]
        for thread in self.threads:
            thread.start()

    def _run_broker(self) -> None:
        broker = self.broker
        while not self.dead.is_set() and not self.registered.is_set():
            self._try(self._register)
        while not self.dead.is_set() and broker.stopped_by is None:
            self._try(self._turn)

    def _turn(self) -> None:
        broker = self.broker
        moves_many = broker.pace.moves_many(SystemClock().monotonic_ms())
        holds = moves_many and _ONE_AT_A_TIME.acquire(timeout=TURN_WAIT_S)
        try:
            moved = broker.step()
        finally:
            if holds:
                _ONE_AT_A_TIME.release()
        rest_ms = broker.rest_ms()
        if rest_ms:
            SystemClock().sleep_ms(rest_ms)
        broker.wakeup.wait_ms(0 if moved else broker.pause_ms())

    def _register(self) -> None:
        self.broker.start()
        self.registered.set()

    def _run_controller(self) -> None:
        while not self.dead.is_set() and self.broker.stopped_by is None:
            if self.registered.is_set():
                self._try(self.controller.step)
            self.dead.wait(self.controller.poll_interval_ms / 1000)

    def _try(self, turn: Callable[[], None]) -> None:
        try:
            turn()
            return
        except StratalogError as reason:
            self.failure = reason
            _LOG.warning("broker %d, trying again: %s", self.broker.broker_id, reason)
        except Exception as defect:  # noqa: BLE001 - a thread that ends silently would hide it
            self.failure = UnknownServerError(f"{type(defect).__name__}: {defect}")
            _LOG.exception("broker %d", self.broker.broker_id)
        self.dead.wait(0.1)

    def join(self) -> None:
        self.dead.set()
        self.broker.wakeup.wake()
        for thread in self.threads:
            thread.join(timeout=30)
        if not self.threads[0].is_alive():
            self.broker.wakeup.close()


class Cluster:
    """Brokers of one embedded cluster. Use `Cluster.start`, then `stop` (or a `with` block)."""

    def __init__(
        self,
        place: ClusterPlace,
        broker_ids: Sequence[int],
        config: BrokerConfig,
        racks: Mapping[int, str],
        runner: FetchRunner,
        spark: SparkSession | None,
        lock: IO[str],
    ) -> None:
        self.path = place.folder
        self.root = place.metadata_root
        self.config = config
        self.spark = spark
        self._place = place
        self.fetcher = "thread" if isinstance(runner, ThreadFetchRunner) else "spark"
        self._broker_ids = tuple(broker_ids)
        self._racks = dict(racks)
        self._runner = runner
        self._lock = lock
        self._processes: dict[int, _BrokerProcess] = {}
        self._topic_defaults = flatten_toml(TOPICS_TOML.read_text(encoding="utf-8"))
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._metrics_server: MetricsServer | None = None
        self._text_logs = open_text_logs(place.folder / config.log_dir)

    @classmethod
    def start(
        cls,
        path: str | Path,
        brokers: int = 3,
        *,
        spark: SparkSession | None = None,
        fetcher: Fetcher = "auto",
        racks: Mapping[int, str] | None = None,
        config: Mapping[str, object] | None = None,
    ) -> Self:
        """Make or reopen the cluster below `path` and start `brokers` brokers, ids from 1.

        path     a folder, or the URL of an object store, `s3://bucket/prefix`: then the lock and the text logs are in
                 this machine's temporary folder
        spark    the session whose slots run the fetch sessions; None starts a local one with slots to spare
        fetcher  `spark`, `thread`, or `auto`: Spark unless the given session has too few slots (with a warning)
        racks    rack by broker id
        config   settings by Kafka's names over conf/cluster.toml's, e.g. {"replica.lag.time.max.ms": 10_000}
        Python's switch interval is lowered to 0.5 ms in this process, and what is in memory by then is taken out of
        the cyclic garbage collection: see `_share_interpreter`.
        Raises KafkaStorageError when another process runs this cluster, InvalidConfigError, LogDirNotFoundError.
        """
        if brokers < 1:
            raise InvalidRequestError(f"a cluster has at least 1 broker, {brokers} were asked for")
        settings = BrokerConfig.from_toml(CLUSTER_TOML.read_text(encoding="utf-8"), config)
        place = cluster_place(path)
        lock = place.lock()
        try:
            runner, session = _fetch_runner(fetcher, spark, brokers, settings)
            cluster = cls(place, range(1, brokers + 1), settings, racks or {}, runner, session, lock)
        except BaseException:
            lock.close()
            raise
        try:
            cluster._start()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def _start(self) -> None:
        open_store(self.root, create=True)
        metadata = open_metadata(DeltaStores(RandomIds()), self.root, SystemClock(), RandomIds())
        metadata.log.table.recover_tail()
        metadata.create()
        cluster_id = metadata.propose(lambda image: _identify(image, RandomIds().new_id()))
        metadata.propose(lambda image: state_settings(image, self.config))
        for broker_id in self._broker_ids:
            root = self._place.broker_root(broker_id)
            check_meta_properties(open_store(root, create=True), cluster_id, broker_id, FORMAT_VERSION)
        for broker_id in self._broker_ids:
            self._start_broker(broker_id)
        self._wait_until_up(self._broker_ids)
        if self.config.stratalog_metrics_port:
            self._metrics_server = MetricsServer(self.config.stratalog_metrics_port, self.brokers)
        _share_interpreter()

    def _start_broker(self, broker_id: int) -> None:
        ids, clock, root = RandomIds(), SystemClock(), self._place.broker_root(broker_id)
        stores = DeltaStores(ids)
        SHARED_FILE_CACHE.resize(self.config.stratalog_tail_cache_bytes)
        broker = Broker(
            BrokerIdentity(broker_id, root, self._racks.get(broker_id)),
            self.config,
            self.root,
            stores,
            clock,
            ids,
            topic_defaults=self._topic_defaults,
            executor=self._executor,
            on_registered=lambda epoch: self._start_fetching(broker_id, epoch),
        )
        controller = Controller(
            broker_id, self.config, self.root, DeltaStores(ids), clock, ids, executor=self._executor
        )
        process = _BrokerProcess(broker, controller)
        self._processes[broker_id] = process
        process.start()

    def _start_fetching(self, broker_id: int, broker_epoch: int) -> None:
        """Called by the broker's loop at every registration; starting a query takes seconds, so not there."""
        job = FetchJob(
            broker_id, broker_epoch, self._place.broker_root(broker_id), self.root, self.config, self._topic_defaults
        )
        threading.Thread(target=self._runner.start, args=(job,), name=f"start-fetch-{broker_id}", daemon=True).start()

    def _wait_until_up(self, broker_ids: Sequence[int]) -> None:
        """Registered, and its first fetch session at work: before that a follower only falls behind."""
        deadline_ms = SystemClock().monotonic_ms() + START_WAIT_MS
        for broker_id in broker_ids:
            process = self._processes[broker_id]
            if not process.registered.wait(max(0, deadline_ms - SystemClock().monotonic_ms()) / 1000):
                raise BrokerNotAvailableError(
                    f"broker {broker_id} did not start in {START_WAIT_MS} ms: {process.failure}"
                )
        for broker_id in broker_ids:
            while not self._is_fetching(self._processes[broker_id].broker):
                if SystemClock().monotonic_ms() > deadline_ms:
                    _LOG.warning("broker %d: no fetch session after %d ms", broker_id, START_WAIT_MS)
                    break
                SystemClock().sleep_ms(50)

    def _is_fetching(self, broker: Broker) -> bool:
        objects = open_store(broker.root)
        first_session = fetch_progress_path(broker.broker_epoch, "")
        return any(meta.path.startswith(first_session) for meta in objects.list(progress_prefix(broker.broker_epoch)))

    # -- what a user does with it ------------------------------------------------------------------------

    def broker(self, broker_id: int) -> Broker:
        """A running broker. BrokerNotAvailableError when it is not running."""
        process = self._processes.get(broker_id)
        if process is None:
            raise BrokerNotAvailableError(f"broker {broker_id} is not running; running: {sorted(self._processes)}")
        return process.broker

    def brokers(self) -> dict[int, Broker]:
        """The running brokers by id."""
        return {broker_id: process.broker for broker_id, process in self._processes.items()}

    def kill(self, broker_id: int) -> None:
        """Stop a broker as a crash would: nothing is flushed or deregistered; its fetch sessions live on as
        zombies until they notice that its session has expired."""
        broker = self.broker(broker_id)
        process = self._processes.pop(broker_id)
        process.join()
        broker.stop(BrokerNotAvailableError(f"broker {broker_id} was killed"))

    def restart(self, broker_id: int) -> None:
        """Start a killed broker again on its old directory."""
        if broker_id in self._processes or broker_id not in self._broker_ids:
            raise InvalidRequestError(f"broker {broker_id} cannot be restarted; stopped: {self.stopped_brokers()}")
        self._start_broker(broker_id)
        self._wait_until_up([broker_id])

    def stopped_brokers(self) -> list[int]:
        return [i for i in self._broker_ids if i not in self._processes]

    def stop(self) -> None:
        """Shut all brokers down in order, end the fetch sessions, release the directory."""
        if self._lock.closed:
            return
        if self._metrics_server is not None:
            self._metrics_server.close()
        for process in self._processes.values():
            process.join()
        brokers = [process.broker for process in self._processes.values()]
        is_wanted = self.config.controlled_shutdown_enable
        clean = [broker for broker in brokers if is_wanted and _is_done(broker, broker.shut_down)]
        self._processes.clear()
        self._runner.stop()
        self._executor.shutdown(wait=True)
        for broker in clean:
            _is_done(broker, partial(_mark_clean, broker))
        close_text_logs(self._text_logs)
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def metrics(self) -> dict[int, list[Metric]]:
        """What each running broker tells of itself, by the names of Kafka's metrics: no port is needed."""
        return {broker_id: metrics_of(broker) for broker_id, broker in self.brokers().items()}

    def describe(self) -> str:
        """A few lines on what runs where."""
        lines = [f"cluster at {self._place.root}", f"metadata root {self.root}", f"follower fetch by {self.fetcher}"]
        for broker_id in self._broker_ids:
            state = "running" if broker_id in self._processes else "stopped"
            lines.append(f"broker {broker_id}: {state}, {self._place.broker_root(broker_id)}")
        if self._metrics_server is not None:
            lines.append(f"metrics at http://localhost:{self._metrics_server.port}/metrics")
        return "\n".join(lines)


def _share_interpreter() -> None:
    """The brokers' threads share one interpreter with whatever the user runs.

    A thread that computes gives it up after the switch interval only, and an append asks for it after each call of the
    system: with a busy thread beside it, it would wait Python's 5 ms each time. A full garbage collection holds it the
    longer the more is loaded; frozen modules are not gone through any more.
    """
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
    gc.collect()
    gc.freeze()


def _is_done(broker: Broker, part: Callable[[], None]) -> bool:
    """One part of a broker's shutdown; the others' goes on if it fails."""
    try:
        part()
    except StratalogError as reason:
        _LOG.warning("broker %d did not shut down cleanly: %s", broker.broker_id, reason)
        return False
    return True


def _mark_clean(broker: Broker) -> None:
    mark_clean_shutdown(open_store(broker.root), broker.broker_epoch)


def _identify(image: ClusterImage, new_id: str) -> Result[str]:
    """The cluster's id; a new cluster gets `new_id`."""
    if image.cluster_id:
        return Result((), image.cluster_id)
    return Result((ClusterRecord(new_id, FORMAT_VERSION),), new_id)


def _fetch_runner(
    fetcher: Fetcher, spark: SparkSession | None, brokers: int, config: BrokerConfig
) -> tuple[FetchRunner, SparkSession | None]:
    """Who runs the fetch sessions. They hold `brokers x sessions` Spark slots for good (hazards 18)."""
    if fetcher == "thread":
        return ThreadFetchRunner(RandomIds()), spark
    from replication.spark_fetch import SparkFetchRunner
    from replication.spark_session import stratalog_session

    slots = brokers * config.stratalog_fetch_sessions * config.num_replica_fetchers
    if spark is None:
        spark = stratalog_session("stratalog", fetch_slots=slots)
    free = spark.sparkContext.defaultParallelism
    if fetcher == "auto" and free < slots + 1:
        _LOG.warning(
            "the Spark session has %d slots, %d fetch sessions would hold %d of them for good: "
            "followers fetch in threads instead",
            free, slots, slots,
        )  # fmt: skip
        return ThreadFetchRunner(RandomIds()), spark
    return SparkFetchRunner(spark), spark
