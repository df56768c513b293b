"""What the brokers of one process share: the cluster they joined, who fetches for them, text logs.

I/O: the metadata root, threads, log files, and Spark unless followers fetch in threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.hosted_replicas import BrokerIdentity
from stratalog.replication.config import TOPICS_TOML, BrokerConfig, flatten_toml
from stratalog.replication.coordinator.runtime.remote_appends import Appends
from stratalog.replication.follower.runner import FetchRunner, ThreadFetchRunner
from stratalog.replication.process.joined_cluster import join_cluster
from stratalog.replication.process.metrics_server import MetricsServer
from stratalog.replication.process.running_broker import RunningBroker, SharedParts
from stratalog.replication.process.text_logs import close_text_logs, open_text_logs
from stratalog.replication.threads.upkeep_thread import UpkeepThread
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.files.cache import SHARED_FILE_CACHE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("stratalog.cluster")

Fetcher = Literal["auto", "spark", "thread"]


class BrokerHost:
    """Starts brokers in this process, and ends them in order."""

    def __init__(
        self,
        metadata_root: str,
        broker_roots: Mapping[int, str],
        config: BrokerConfig,
        log_folder: Path,
        fetcher: Fetcher,
        spark: SparkSession | None,
        peers: MutableMapping[int, Appends] | None = None,
    ) -> None:
        """Joins the cluster, or makes it, with these brokers (root by id). Raises what `join_cluster` does.

        log_folder  for state-change.log
        fetcher     `spark`, `thread`, or `auto`: Spark unless the given session has too few slots (with a warning)
        peers       brokers of other processes, by id, as far as they can be called: coordinators send them markers;
                    those of this process are put in
        """
        self.config = config
        self.joined = join_cluster(metadata_root, broker_roots, config)
        try:
            self.runner, self.spark = _fetch_runner(fetcher, spark, len(broker_roots), config)
            self._text_logs = open_text_logs(log_folder)
        except BaseException:
            self.joined.close()
            raise
        SHARED_FILE_CACHE.resize(config.stratalog_tail_cache_bytes)
        self._executor = UpkeepThread(SystemClock())
        topic_defaults = flatten_toml(TOPICS_TOML.read_text(encoding="utf-8"))
        self._metrics: MetricsServer | None = None
        self._peers: MutableMapping[int, Appends] = {} if peers is None else peers
        self._shared = SharedParts(metadata_root, config, topic_defaults, self.runner, self._executor, self._peers)

    @property
    def fetcher(self) -> str:
        """`spark` or `thread`."""
        return "thread" if isinstance(self.runner, ThreadFetchRunner) else "spark"

    def run(self, identity: BrokerIdentity, lock: IO[str]) -> RunningBroker:
        """A broker, started; it is up after `await_up`. `lock` is that of `lock_root` and becomes the broker's."""
        broker = RunningBroker(identity, self._shared, lock)
        self._peers[identity.broker_id] = broker.broker.calls
        broker.start()
        return broker

    def serve_metrics(self, brokers: Callable[[], Mapping[int, Broker]]) -> None:
        """Tell what these brokers count on `stratalog.metrics.port`, if it is set."""
        if self.config.stratalog_metrics_port:
            self._metrics = MetricsServer(self.config.stratalog_metrics_port, brokers)

    def described(self) -> list[str]:
        """Who fetches, and where metrics are."""
        port = self._metrics.port if self._metrics is not None else None
        at = [] if port is None else [f"metrics at http://localhost:{port}/metrics"]
        return [f"follower fetch by {self.fetcher}", *at]

    def stop(self, brokers: Iterable[RunningBroker]) -> bool:
        """Shut these brokers down in order and end all that was started. False when one did not hand over, though
        `controlled.shutdown.enable` says so."""
        if self._metrics is not None:
            self._metrics.close()
        running, in_order = list(brokers), self.config.controlled_shutdown_enable
        for each in running:
            each.join()
        left = [in_order and each.hand_over() for each in running]
        have_ended = self.runner.stop()
        self._executor.shutdown(wait=True)
        for each, left_in_order in zip(running, left, strict=True):
            each.close(left_in_order=left_in_order and have_ended)
        close_text_logs(self._text_logs)
        self.joined.close()
        return not in_order or all(left)


def _fetch_runner(
    fetcher: Fetcher, spark: SparkSession | None, brokers: int, config: BrokerConfig
) -> tuple[FetchRunner, SparkSession | None]:
    """The runner of the fetch sessions. They hold `brokers x sessions` Spark slots as long as the brokers run."""
    if fetcher == "thread":
        return ThreadFetchRunner(RandomIds()), spark
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
        return ThreadFetchRunner(RandomIds()), spark
    return SparkFetchRunner(spark), spark
