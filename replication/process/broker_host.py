"""What the brokers of one process share: the cluster they joined, the runner of their fetch sessions, text logs.

I/O: the metadata root, threads, log files, and Spark unless followers fetch in threads.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.hosted_replicas import BrokerIdentity
from stratalog.replication.config import TOPICS_TOML, BrokerConfig, flatten_toml
from stratalog.replication.coordinator.runtime.remote_appends import Appends
from stratalog.replication.follower.runner import FetchRunner, ThreadFetchRunner
from stratalog.replication.process.joined_cluster import join_cluster
from stratalog.replication.process.metrics_server import MetricsServer
from stratalog.replication.process.running_broker import RunningBroker, SharedParts, await_up
from stratalog.replication.process.text_logs import close_text_logs, open_text_logs
from stratalog.replication.threads.upkeep_thread import UpkeepThreads
from stratalog.storage.clock import SystemClock
from stratalog.storage.files.cache import SHARED_FILE_CACHE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("stratalog.cluster")

Fetcher = Literal["auto", "spark", "thread"]


@dataclass(frozen=True, slots=True)
class HostedBrokers:
    """The brokers that a process hosts, by id, and their cluster. `log_folder` is for state-change.log."""

    metadata_root: str
    identities: Mapping[int, BrokerIdentity]
    config: BrokerConfig
    log_folder: Path


class BrokerHost:
    """Runs brokers in this process, and stops them in order.

    running  the brokers that run, by id
    """

    def __init__(
        self,
        hosted: HostedBrokers,
        fetcher: Fetcher,
        spark: SparkSession | None,
        peers: MutableMapping[int, Appends] | None = None,
    ) -> None:
        """Joins the cluster, or makes it. Raises what `join_cluster` raises.

        fetcher  `spark`, `thread`, or `auto`: Spark unless the given session has too few slots (with a warning)
        peers    brokers of other processes, by id, as far as they can be called: coordinators send them markers; those
                 of this process are added
        """
        config = hosted.config
        self.hosted = hosted
        self.running: dict[int, RunningBroker] = {}
        roots = {broker_id: identity.root for broker_id, identity in hosted.identities.items()}
        self.joined = join_cluster(hosted.metadata_root, roots, config)
        try:
            self.runner, self.spark = _fetch_runner(fetcher, spark, len(roots), config)
            self._text_logs = open_text_logs(hosted.log_folder)
        except BaseException:
            self.joined.close()
            raise
        SHARED_FILE_CACHE.resize(config.stratalog_tail_cache_bytes)
        self._upkeep = UpkeepThreads(SystemClock())
        self._metrics: MetricsServer | None = None
        self._peers: MutableMapping[int, Appends] = {} if peers is None else peers
        topic_defaults = flatten_toml(TOPICS_TOML.read_text(encoding="utf-8"))
        self._shared = SharedParts(
            hosted.metadata_root, config, topic_defaults, self.runner, self._upkeep, self._peers
        )

    @property
    def fetcher(self) -> str:
        """`spark` or `thread`."""
        return "thread" if isinstance(self.runner, ThreadFetchRunner) else "spark"

    def brokers(self) -> dict[int, Broker]:
        """The running brokers by id."""
        return {broker_id: running.broker for broker_id, running in self.running.items()}

    def run(self, broker_id: int, lock: IO[str]) -> None:
        """Start a broker; it is up after `await_up`. `lock` is that of `lock_root` and becomes the broker's."""
        running = self.running[broker_id] = RunningBroker(self.hosted.identities[broker_id], self._shared, lock)
        self._peers[broker_id] = running.broker.calls
        running.start()

    def await_up(self) -> None:
        """Wait until all running brokers are up, then serve metrics on `stratalog.metrics.port`, if it is set."""
        await_up(self.running.values())
        if self.hosted.config.stratalog_metrics_port and self._metrics is None:
            self._metrics = MetricsServer(self.hosted.config.stratalog_metrics_port, self.brokers)

    def described(self) -> list[str]:
        """How followers fetch, and where metrics are."""
        port = self._metrics.port if self._metrics is not None else None
        at = [] if port is None else [f"metrics at http://localhost:{port}/metrics"]
        return [f"follower fetch by {self.fetcher}", *at]

    def stop(self) -> bool:
        """Shut the running brokers down in order and end all that was started. False when one could not move its
        leaderships, though `controlled.shutdown.enable` asks for it."""
        if self._metrics is not None:
            self._metrics.close()
        running, in_order = list(self.running.values()), self.hosted.config.controlled_shutdown_enable
        for each in running:
            each.ask_to_end()
        for each in running:
            each.join()
        left = [in_order and each.move_leaderships() for each in running]
        have_ended = self.runner.stop()
        self._upkeep.shutdown()
        for each, left_in_order in zip(running, left, strict=True):
            each.close(left_in_order=left_in_order and have_ended)
        close_text_logs(self._text_logs)
        self.joined.close()
        return not in_order or all(left)


def _fetch_runner(
    fetcher: Fetcher, spark: SparkSession | None, brokers: int, config: BrokerConfig
) -> tuple[FetchRunner, SparkSession | None]:
    """The runner of the fetch sessions. They hold `brokers x sessions x fetchers` Spark slots while the brokers run."""
    if fetcher == "thread":
        return ThreadFetchRunner(), spark
    from stratalog.replication.spark.fetch import SparkFetchRunner
    from stratalog.replication.spark.session import stratalog_session

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
        return ThreadFetchRunner(), spark
    return SparkFetchRunner(spark), spark
