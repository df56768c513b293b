"""The embedded cluster: several brokers with their storage domains in one Python process.

I/O: directories, threads and, through a fetch runner, Spark. `Cluster.start("path")` makes or reopens
`path/metadata` and `path/broker-1..n`. Each broker has one thread for its loop and one for its controller
candidate; its fetch sessions run as Structured Streaming queries, or in threads where Spark has no free slots.
A broker in a process of its own (`broker_server`) is made of the same parts.

Where an embedded cluster lies: in a folder, or in an object store with a folder here for its lock and text logs.

I/O: makes that folder and locks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.calls import BrokerCalls
from stratalog.replication.broker.hosted_replicas import BrokerIdentity
from stratalog.replication.broker_root import lock_alone, temporary_folder
from stratalog.replication.config import CLUSTER_TOML, BrokerConfig
from stratalog.replication.metrics import Metric
from stratalog.replication.process.broker_host import BrokerHost, Fetcher
from stratalog.replication.process.metrics_server import metrics_of
from stratalog.replication.process.running_broker import RunningBroker, await_up, lock_root
from stratalog.replication.threads.interpreter import share_interpreter
from stratalog.storage.errors import BrokerNotAvailableError, InvalidRequestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Cluster:
    """Brokers of one embedded cluster. Use `Cluster.start`, then `stop` (or a `with` block)."""

    def __init__(
        self,
        place: ClusterPlace,
        broker_ids: Sequence[int],
        racks: Mapping[int, str],
        host: BrokerHost,
        lock: IO[str],
    ) -> None:
        self.path = place.folder
        self.root = place.metadata_root
        self.config = host.config
        self.spark = host.spark
        self.fetcher = host.fetcher
        self._place = place
        self._broker_ids = tuple(broker_ids)
        self._racks = dict(racks)
        self._host = host
        self._lock = lock
        self._running: dict[int, RunningBroker] = {}

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
        the cyclic garbage collection: see `share_interpreter`.
        Raises KafkaStorageError when another process runs this cluster or one of its brokers, InvalidConfigError,
        LogDirNotFoundError.
        """
        if brokers < 1:
            raise InvalidRequestError(f"a cluster has at least 1 broker, {brokers} were asked for")
        settings = BrokerConfig.from_toml(CLUSTER_TOML.read_text(encoding="utf-8"), config)
        place, ids = cluster_place(path), range(1, brokers + 1)
        lock = place.lock()
        try:
            roots = {broker_id: place.broker_root(broker_id) for broker_id in ids}
            host = BrokerHost(place.metadata_root, roots, settings, place.folder / settings.log_dir, fetcher, spark)
            cluster = cls(place, ids, racks or {}, host, lock)
        except BaseException:
            lock.close()
            raise
        try:
            for broker_id in ids:
                cluster._start_broker(broker_id)
            await_up(cluster._running.values())
            host.serve_metrics(cluster._running_brokers)
            share_interpreter()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def _start_broker(self, broker_id: int) -> None:
        root = self._place.broker_root(broker_id)
        identity = BrokerIdentity(broker_id, root, self._racks.get(broker_id))
        self._running[broker_id] = self._host.run(identity, lock_root(root))

    # -- what a user does with it ------------------------------------------------------------------------

    def broker(self, broker_id: int) -> Broker:
        """A running broker. BrokerNotAvailableError when it is not running."""
        running = self._running.get(broker_id)
        if running is None:
            raise BrokerNotAvailableError(f"broker {broker_id} is not running; running: {sorted(self._running)}")
        return running.broker

    def brokers(self) -> dict[int, BrokerCalls]:
        """What clients call of the running brokers, by id."""
        return {broker_id: running.broker.calls for broker_id, running in self._running.items()}

    def _running_brokers(self) -> dict[int, Broker]:
        return {broker_id: running.broker for broker_id, running in self._running.items()}

    def hosts(self, broker_id: int) -> bool:
        """Whether it is one of this cluster's own brokers, running or stopped; others may have joined beside them."""
        return broker_id in self._broker_ids

    def kill(self, broker_id: int) -> None:
        """Stop a broker as a crash would: nothing is flushed or deregistered; its fetch sessions live on as
        zombies until they notice that its session has expired."""
        self.broker(broker_id)
        self._running.pop(broker_id).kill()

    def restart(self, broker_id: int) -> None:
        """Start a killed broker again on its old directory."""
        if broker_id in self._running or broker_id not in self._broker_ids:
            raise InvalidRequestError(f"broker {broker_id} cannot be restarted; stopped: {self.stopped_brokers()}")
        self._start_broker(broker_id)
        await_up([self._running[broker_id]])

    def stopped_brokers(self) -> list[int]:
        return [i for i in self._broker_ids if i not in self._running]

    def stop(self) -> None:
        """Shut all brokers down in order, end the fetch sessions, release the directory."""
        if self._lock.closed:
            return
        running = list(self._running.values())
        try:
            self._host.stop(running)
        finally:
            self._running.clear()
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def metrics(self) -> dict[int, list[Metric]]:
        """What each running broker tells of itself, by the names of Kafka's metrics: no port is needed."""
        return {broker_id: metrics_of(broker) for broker_id, broker in self._running_brokers().items()}

    def describe(self) -> str:
        """A few lines on what runs where."""
        lines = [f"cluster at {self._place.root}", f"metadata root {self.root}", *self._host.described()]
        for broker_id in self._broker_ids:
            state = "running" if broker_id in self._running else "stopped"
            lines.append(f"broker {broker_id}: {state}, {self._place.broker_root(broker_id)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """`root` holds the metadata root and the brokers' roots; `folder` is on this machine."""

    root: str
    folder: Path

    @property
    def metadata_root(self) -> str:
        return f"{self.root}/metadata"

    def broker_root(self, broker_id: int) -> str:
        return f"{self.root}/broker-{broker_id}"

    def lock(self) -> IO[str]:
        """One process of this machine runs an embedded cluster at a time: KafkaStorageError for a second one."""
        return lock_alone(self.folder, f"{self.root}: another process runs this cluster")


def cluster_place(path: str | Path) -> ClusterPlace:
    """The place at a folder, or at the URL of an object store such as `s3://bucket/prefix`."""
    url = str(path)
    if isinstance(path, Path) or "://" not in url:
        folder = Path(path).absolute()
        return ClusterPlace(str(folder), folder)
    url = url.rstrip("/")
    return ClusterPlace(url, temporary_folder(url))
