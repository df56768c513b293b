"""The embedded cluster: several brokers with their roots in one Python process.

I/O: directories, locks, threads and, through a fetch runner, Spark. `start("path")` makes or reopens `path/metadata`
and `path/broker-1..n`: a folder, or an object store with a folder here for its lock and text logs. Each broker has one
thread for its loop and one for its controller candidate; its fetch sessions run as Structured Streaming queries, or in
threads where Spark has no free slots. A broker in a process of its own (`broker_server`) is made of the same parts.
Users start a `server.cluster.Cluster`, which also serves `listeners`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.calls import BrokerCalls
from stratalog.replication.broker.hosted_replicas import BrokerIdentity
from stratalog.replication.broker_root import lock_alone, temporary_folder
from stratalog.replication.config import CLUSTER_TOML, BrokerConfig
from stratalog.replication.coordinator.runtime.remote_appends import Peer
from stratalog.replication.html_table import html_fields, html_table
from stratalog.replication.metadata.log import METADATA_FOLDER, SharedMetadata
from stratalog.replication.metrics import Metric
from stratalog.replication.progress.own_registers import OwnRegisters
from stratalog.replication.threads.free_memory import keep_little_free_memory
from stratalog.replication.threads.interpreter import share_interpreter
from stratalog.replication.threads.long_wait import Report, long_wait
from stratalog.server.process.broker_host import BrokerHost, ClientEndpoint, HostedBrokers
from stratalog.server.process.fetch_choice import Fetcher
from stratalog.server.process.running_broker import lock_root
from stratalog.storage.errors import BrokerNotAvailableError, InvalidRequestError
from stratalog.storage.objects.place_settings import use_settings_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class EmbeddedCluster:
    """Brokers of one embedded cluster. Use `start`, then `stop` (or a `with` block)."""

    def __init__(self, place: ClusterPlace, host: BrokerHost, lock: IO[str]) -> None:
        self.path = place.folder
        self.root = place.metadata_root
        self.config = host.hosted.config
        self.spark = host.spark
        self.fetcher = host.fetcher
        self._place = place
        self._host = host
        self._lock = lock

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
        progress: Report | None = None,
    ) -> Self:
        """Make or reopen the cluster below `path` and start `brokers` brokers, ids from 1.

        path     a folder, or the URL of an object store, `s3://bucket/prefix`: then the lock and the text logs are in
                 this machine's temporary folder
        spark    the session whose slots run the fetch sessions; None starts a local one with slots to spare
        fetcher  `spark`, `thread`, or `auto`: Spark unless the given session cannot run fetch sessions (`fetch_runner`)
        racks    rack by broker id
        config   settings by Kafka's names over conf/cluster.toml's, e.g. {"replica.lag.time.max.ms": 10_000}
        progress is called with a line of text every few seconds while brokers start; None prints to stderr in notebooks
                 and interactive interpreters
        Python's switch interval and garbage collection are set as `share_interpreter` says.
        Raises KafkaStorageError when another process runs this cluster or one of its brokers, InvalidConfigError,
        LogDirNotFoundError.
        """
        if brokers < 1:
            raise InvalidRequestError(
                f"a cluster has at least 1 broker, {brokers} were asked for. Start it with brokers=1 or more."
            )
        settings = BrokerConfig.from_toml(CLUSTER_TOML.read_text(encoding="utf-8"), config)
        use_settings_file(settings.stratalog_storage_settings_file)
        place = cluster_place(path)
        identities = {i: BrokerIdentity(i, place.broker_root(i), (racks or {}).get(i)) for i in range(1, brokers + 1)}
        hosted = HostedBrokers(place.metadata_root, identities, settings, place.folder / settings.log_dir)
        peers, endpoint = cls._outside(settings)
        lock = place.lock()
        try:
            cluster = cls(place, BrokerHost(hosted, fetcher, spark, peers, endpoint), lock)
        except BaseException:
            lock.close()
            raise
        try:
            with long_wait(cluster._host.start_state, progress):
                for broker_id, identity in identities.items():
                    cluster._host.run(broker_id, lock_root(identity.root))
                cluster._host.await_up()
            share_interpreter()
            keep_little_free_memory()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    @classmethod
    def _outside(cls, _config: BrokerConfig) -> tuple[MutableMapping[int, Peer] | None, ClientEndpoint | None]:
        """The brokers of other processes that these call, and what answers Kafka's clients."""
        return None, None

    # -- its brokers ---------------------------------------------------------------------------------------

    def broker(self, broker_id: int) -> Broker:
        """A running broker. BrokerNotAvailableError when it is not running."""
        running = self._host.running.get(broker_id)
        if running is None:
            raise BrokerNotAvailableError(
                f"broker {broker_id} is not running; running: {sorted(self._host.running)}. Restart it."
            )
        return running.broker

    def brokers(self) -> dict[int, BrokerCalls]:
        """What clients call of the running brokers, by id."""
        return self._host.brokers()

    def peers(self) -> Mapping[int, Peer]:
        """The brokers that those of this cluster call, by id."""
        return self._host.peers()

    @property
    def shared_metadata(self) -> SharedMetadata:
        """What the readers of the metadata log in this process share."""
        return self._host.shared_metadata

    @property
    def own_registers(self) -> OwnRegisters:
        """What the brokers published, for readers in this process."""
        return self._host.own_registers

    def hosts(self, broker_id: int) -> bool:
        """Whether it is one of this cluster's own brokers, running or stopped; others may have joined beside them."""
        return self._host.hosts(broker_id)

    def kill(self, broker_id: int) -> None:
        """Stop a broker as a crash would: nothing is flushed or deregistered; its fetch sessions live on as
        zombies until they notice that its session has expired."""
        self.broker(broker_id)
        self._host.kill(broker_id)

    def restart(self, broker_id: int) -> None:
        """Start a killed broker again on its old directory."""
        if broker_id not in self.stopped_brokers():
            raise InvalidRequestError(
                f"broker {broker_id} cannot be restarted; stopped: {self.stopped_brokers()}. Kill a broker first."
            )
        with long_wait(self._host.start_state):
            self._host.run(broker_id, lock_root(self._place.broker_root(broker_id)))
            self._host.await_up()

    def stopped_brokers(self) -> list[int]:
        """Those that were killed and not restarted."""
        return [broker_id for broker_id in self._host.hosted.identities if broker_id not in self._host.running]

    def stop(self) -> None:
        """Shut all brokers down in order, end the fetch sessions, release the directory."""
        if self._lock.closed:
            return
        try:
            with long_wait(lambda: f"{len(self._host.running)} brokers are stopping"):
                self._host.stop()
        finally:
            self._host.running.clear()
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def metrics(self) -> dict[int, list[Metric]]:
        """Each running broker's metrics, by Kafka's names; no port is needed."""
        return self._host.metrics()

    def __repr__(self) -> str:
        brokers = f"{len(self._host.running)} of {len(self._host.hosted.identities)} brokers"
        return f"<{type(self).__name__} at {self._place.root}: {brokers} run>"

    def _repr_html_(self) -> str:
        rows = [
            (
                broker_id,
                "running" if broker_id in self._host.running else "stopped",
                identity.root,
                self._host.endpoints.get(broker_id),
            )
            for broker_id, identity in self._host.hosted.identities.items()
        ]
        table = html_table(f"cluster at {self._place.root}", ("broker", "state", "root", "listeners"), rows)
        return table + html_fields({"metadata root": self.root, "follower fetch": self.fetcher})

    def add_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """Serve what `source` returns at the first broker's metrics port (`stratalog.metrics.port`), too."""
        self._host.add_metrics(source)

    def describe(self) -> str:
        """A few lines on what runs where."""
        lines = [f"cluster at {self._place.root}", f"metadata root {self.root}", *self._host.described()]
        for broker_id, identity in self._host.hosted.identities.items():
            state = "running" if broker_id in self._host.running else "stopped"
            registered = self._host.endpoints.get(broker_id)
            lines.append(f"broker {broker_id}: {state}, {identity.root}" + (f", {registered}" if registered else ""))
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """`root` holds the metadata root and the brokers' roots; `folder` is on this machine."""

    root: str
    folder: Path

    @property
    def metadata_root(self) -> str:
        return f"{self.root}/{METADATA_FOLDER}"

    def broker_root(self, broker_id: int) -> str:
        return f"{self.root}/broker-{broker_id}"

    def lock(self) -> IO[str]:
        """One process of this machine runs an embedded cluster at a time: KafkaStorageError for a second one."""
        refusal = f"{self.root}: another process runs this cluster. Stop that one, or use another path."
        return lock_alone(self.folder, refusal)


def cluster_place(path: str | Path) -> ClusterPlace:
    """The place at a folder, or at the URL of an object store such as `s3://bucket/prefix`."""
    url = str(path)
    if isinstance(path, Path) or "://" not in url:
        folder = Path(path).absolute()
        return ClusterPlace(str(folder), folder)
    url = url.rstrip("/")
    return ClusterPlace(url, temporary_folder(url))
