"""A broker in a process of its own: its root, its controller candidate, its fetch sessions.

I/O: directories and their locks, threads, log files, and Spark unless it fetches in threads.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.hosted_replicas import BrokerIdentity
from stratalog.replication.broker_root import folder_here
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.sessions import PeerBeats
from stratalog.replication.coordinator.runtime.remote_appends import Peer
from stratalog.replication.threads.free_memory import keep_little_free_memory
from stratalog.replication.threads.interpreter import share_interpreter
from stratalog.server.process.broker_host import BrokerHost, ClientEndpoint, HostedBrokers
from stratalog.server.process.broker_properties import BrokerProperties
from stratalog.server.process.fetch_choice import Fetcher
from stratalog.server.process.running_broker import SendBeat, lock_root
from stratalog.storage.errors import StratalogError, UnknownServerError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.place_settings import use_settings_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = line_logger("stratalog.broker")


class BrokerServer:
    """The one broker of this process. Use `BrokerServer.start`, then `stop`."""

    def __init__(self, properties: BrokerProperties, host: BrokerHost) -> None:
        self.properties = properties
        self._host = host

    @classmethod
    def start(
        cls,
        properties: BrokerProperties,
        *,
        fetcher: Fetcher = "auto",
        spark: SparkSession | None = None,
        on_locked: Callable[[Path], None] = lambda _log_folder: None,
        peers: MutableMapping[int, Peer] | None = None,
        endpoint: Callable[[BrokerConfig], ClientEndpoint] | None = None,
        send_beat: SendBeat | None = None,
    ) -> Self:
        """Make or reopen the broker's root, make or join the cluster, register.

        fetcher    `spark`, `thread`, or `auto`: Spark unless the session cannot run fetch sessions (`fetch_runner`)
        spark      the session whose slots run the fetch sessions; None starts one, or takes that of spark-submit
        on_locked  called with the folder for text logs as soon as the root is this process's
        peers      brokers of other processes, by id, as far as they can be called; this one is put in
        endpoint   makes what answers Kafka's clients; None: nobody does
        send_beat  sends beats to brokers of other processes; None: the session's object shows that this one lives
        Python's switch interval and garbage collection are set as `share_interpreter` says.
        Raises KafkaStorageError when another broker of this machine works on the root; DuplicateBrokerRegistrationError
        when the id is, and stays, live on another root; InvalidRequestError when the root is another broker's;
        InconsistentClusterIdError when it is another cluster's; BrokerNotAvailableError when it does not come up.
        """
        broker_id = properties.broker_id
        served = None if endpoint is None else endpoint(properties.config)
        use_settings_file(properties.config.stratalog_storage_settings_file)
        lock = lock_root(properties.root)  # makes the root, too
        log_folder = text_log_folder(properties)
        on_locked(log_folder)
        identity = BrokerIdentity(broker_id, properties.root, properties.rack)
        hosted = HostedBrokers(properties.metadata_root, {broker_id: identity}, properties.config, log_folder)
        host: BrokerHost | None = None
        try:
            host = BrokerHost(hosted, fetcher, spark, peers, served, send_beat)
            host.run(broker_id, lock)
        except BaseException:
            if host is not None:
                host.stop()
            lock.close()
            raise
        server = cls(properties, host)
        try:
            host.await_up()
            share_interpreter()
            keep_little_free_memory()
        except BaseException:
            server.stop()
            raise
        _LOG.info("broker %d started with epoch %d", broker_id, server.broker.broker_epoch)
        return server

    @property
    def broker(self) -> Broker:
        return self._host.running[self.properties.broker_id].broker

    @property
    def beats(self) -> PeerBeats:
        """The heartbeats between this broker and the brokers of other processes."""
        return self._host.beats(self.properties.broker_id)

    @property
    def failure(self) -> StratalogError | None:
        """Why it cannot continue and should be stopped: another process took its place, or its Spark is gone."""
        if self.broker.stopped_by is not None:
            return self.broker.stopped_by
        lost = self._host.runner.failure
        return UnknownServerError(f"broker {self.broker.broker_id} cannot follow any more: {lost}") if lost else None

    def stop(self) -> bool:
        """Controlled shutdown; once. False when the broker could not move its leaderships."""
        if self.failure is not None:
            _LOG.error("%s", self.failure)
        _LOG.info("broker %d is shutting down", self.broker.broker_id)
        in_order = self._host.stop()
        _LOG.info("broker %d: shut down %s", self.broker.broker_id, "completed" if in_order else "uncleanly")
        return in_order

    def describe(self) -> str:
        """A few lines on what runs where."""
        properties = self.properties
        return "\n".join(
            [
                f"broker {properties.broker_id} of cluster {self._host.joined.cluster_id}",
                f"root {properties.root}",
                f"metadata root {properties.metadata_root}",
                f"text logs {self._host.hosted.log_folder}",
                *(f"listeners {each}" for each in self._host.endpoints.values()),
                *self._host.described(),
            ]
        )


def text_log_folder(properties: BrokerProperties) -> Path:
    """`log.dir` below the root, or below what stands for it on this machine."""
    return folder_here(open_store(properties.root)) / properties.config.log_dir
