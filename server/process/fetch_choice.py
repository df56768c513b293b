"""Where the fetch sessions of a process run: on Spark where they can, else in threads, with the reason.

I/O: Spark, and the roots that its executors are to reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from stratalog.replication.config import BrokerConfig
from stratalog.replication.follower.sessions.runner import FetchRunner, ThreadFetchRunner
from stratalog.replication.metadata.log import SharedMetadata, open_metadata
from stratalog.replication.stores import DeltaStores
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.opened import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = line_logger("stratalog.cluster")

Fetcher = Literal["auto", "spark", "thread"]


def fetch_runner(
    fetcher: Fetcher,
    spark: SparkSession | None,
    metadata_root: str,
    roots: Sequence[str],
    config: BrokerConfig,
    metadata: SharedMetadata | None = None,
) -> tuple[FetchRunner, SparkSession | None]:
    """The runner of the fetch sessions of the brokers with these roots, and its session.

    The sessions hold `brokers x sessions x fetchers` Spark slots while the brokers run. With `auto` they run in threads
    where a given session has too few slots, or executors that do not reach the roots (a warning says so), and where
    pyspark is not installed. `metadata`: what the brokers of this process share with sessions in threads.
    Raises InvalidConfigError when Spark alone may fetch and cannot.
    """
    if open_store(metadata_root).is_of_this_process:
        if fetcher == "spark":
            raise InvalidConfigError(
                f"Spark's executors do not reach {metadata_root}, which is in this process's memory: use "
                "fetcher='thread', or a folder or bucket"
            )
        return ThreadFetchRunner(metadata), spark
    if fetcher == "thread" or (fetcher == "auto" and spark is None and not find_spec("pyspark")):
        return ThreadFetchRunner(metadata), spark
    if not find_spec("pyspark"):
        raise InvalidConfigError(
            "fetcher='spark' needs the package pyspark: pip install 'stratalog[spark]', or use fetcher='thread'"
        )
    from stratalog.replication.spark.fetch import SparkFetchRunner
    from stratalog.replication.spark.session import stratalog_session

    slots = len(roots) * config.stratalog_fetch_sessions * config.num_replica_fetchers
    if spark is None:
        spark = stratalog_session("stratalog", fetch_slots=slots)
    why = _why_not(spark, fetcher, slots, [metadata_root, *roots], config)
    if not why:
        return SparkFetchRunner(spark), spark
    if fetcher == "spark":
        raise InvalidConfigError(f"{why}: use fetcher='thread', or start the cluster where Spark can run the sessions")
    _LOG.warning("%s: followers fetch in threads instead (fetcher='thread' starts without this warning)", why)
    return ThreadFetchRunner(metadata), spark


def _why_not(spark: SparkSession, fetcher: Fetcher, slots: int, own_roots: list[str], config: BrokerConfig) -> str:
    """Why fetch sessions cannot run on this session's executors; empty when they can. `spark` is taken at its word as
    to slots: another application may give some back."""
    from stratalog.replication.spark.executors import await_slots, settings_of, unreached
    from stratalog.replication.spark.session import is_connect

    if is_connect(spark):
        return "a session of Spark Connect runs no fetch sessions, since its Spark is another process's"
    context = spark.sparkContext
    for warning in settings_of(context).warnings(config.stratalog_fetch_session_ms):
        _LOG.warning("%s", warning)
    free = await_slots(context, slots + 1, SystemClock())
    if fetcher == "auto" and free < slots + 1:
        return (
            f"Spark's executors run {free} tasks at once, and {slots} fetch sessions would hold {slots} of them for "
            "good"
        )
    return unreached(context, own_roots, _registered_roots(own_roots[0]), RandomIds())


def _registered_roots(metadata_root: str) -> list[str]:
    """The roots of all brokers that the cluster knows."""
    metadata = open_metadata(DeltaStores(RandomIds()), metadata_root, SystemClock(), RandomIds())
    metadata.refresh()
    return [state.registration.root for state in metadata.image.brokers.values()]
