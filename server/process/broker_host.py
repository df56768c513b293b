"""What the brokers of one process share: the cluster they joined, the runner of their fetch sessions, text logs.

I/O: the metadata root, threads, log files, and Spark unless followers fetch in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.calls import BrokerCalls
from stratalog.replication.broker.hosted_replicas import BrokerIdentity
from stratalog.replication.broker.inbox import BrokerInbox
from stratalog.replication.config import JSON_LINES, TOPICS_TOML, BrokerConfig, flatten_toml
from stratalog.replication.controller.sessions import Beat, PeerBeats
from stratalog.replication.coordinator.runtime.remote_appends import Peer
from stratalog.replication.follower.sessions.runner import ThreadFetchRunner
from stratalog.replication.metadata.log import SharedMetadata
from stratalog.replication.metadata.records import UserScramCredentialRecord
from stratalog.replication.metrics import BrokerMetrics, Metric
from stratalog.replication.price_lists import price_book
from stratalog.replication.progress.own_registers import OwnRegisters
from stratalog.replication.shared_fold import SharedFold
from stratalog.replication.stores import DeltaStores, request_ms_max
from stratalog.replication.threads.upkeep_thread import UpkeepThreads
from stratalog.server.lag.history import LagHistory
from stratalog.server.lag.rounds import LagRounds
from stratalog.server.metrics.broker_page import BrokerPage
from stratalog.server.metrics.http_server import StatusServer, is_loopback_host
from stratalog.server.metrics.login import metrics_login
from stratalog.server.process.fetch_choice import Fetcher, fetch_runner
from stratalog.server.process.joined_cluster import join_cluster
from stratalog.server.process.running_broker import RunningBroker, SendBeat, SharedParts, await_up
from stratalog.server.process.text_logs import close_text_logs, open_text_logs
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.files.cache import SHARED_FILE_CACHE
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.opened import open_store
from stratalog.storage.step_times import StepTimes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = line_logger("stratalog.cluster")


class ClientEndpoint(Protocol):
    """What answers Kafka's requests, at sockets and in inboxes, as `server.endpoint` does; in the calls of a process
    that hosts brokers."""

    def bind(self, broker_id: int, shift: int) -> str | None:
        """Take a broker's ports, `shift` above the listeners'; what it registers, None when it has none."""

    def serve(self, host: BrokerHost, broker_id: int) -> None:
        """Answer the clients of a broker, which is up."""

    def leaders_moved(self, broker_id: int) -> None:
        """Others lead what a broker led that is about to refuse what waits: its answers are to name them."""

    def withdraw(self, broker_id: int) -> None:
        """Close a broker's sockets: it is gone."""

    def drain(self) -> None:
        """The brokers are about to end: write what is to be stored through them."""

    def stop(self) -> None:
        """Answer the requests that were read, then close all sockets."""


class NoEndpoint:
    """Clients of other processes do not reach the brokers."""

    def bind(self, _broker_id: int, _shift: int) -> None:
        """No ports."""

    def serve(self, _host: BrokerHost, _broker_id: int) -> None:
        """Does nothing: this process has no sockets."""

    def leaders_moved(self, _broker_id: int) -> None:
        """Nobody is answered."""

    def withdraw(self, _broker_id: int) -> None:
        """Nothing to close."""

    def drain(self) -> None:
        """Nothing to write."""

    def stop(self) -> None:
        """Nothing to close."""


@dataclass(frozen=True, slots=True)
class HostedBrokers:
    """The brokers that a process hosts, by id, and their cluster. `log_folder` is for state-change.log."""

    metadata_root: str
    identities: Mapping[int, BrokerIdentity]
    config: BrokerConfig
    log_folder: Path


class BrokerHost:
    """Runs brokers in this process, and stops them in order.

    running          the brokers that run, by id
    endpoints        where clients reach them: `NAME://host:port` for each listener, with commas
    shared_metadata  what the readers of the metadata log in this process share
    own_registers    what the brokers published, for readers in this process
    """

    def __init__(
        self,
        hosted: HostedBrokers,
        fetcher: Fetcher,
        spark: SparkSession | None,
        peers: MutableMapping[int, Peer] | None = None,
        endpoint: ClientEndpoint | None = None,
        send_beat: SendBeat | None = None,
    ) -> None:
        """Joins the cluster, or makes it. Raises what `join_cluster` raises, InvalidConfigError for unknown prices.

        fetcher  `spark`, `thread`, or `auto`: Spark unless the given session cannot run fetch sessions (`fetch_runner`)
        peers    brokers of other processes, by id, as far as they can be called: coordinators send them markers,
                 leaders ask them about transactions; those of this process are added
        endpoint answers Kafka's requests from other processes; None: nobody does
        send_beat  sends beats to brokers of other processes; None: they take none
        """
        config = hosted.config
        self.hosted = hosted
        self.running: dict[int, RunningBroker] = {}
        self.endpoints: dict[int, str] = {}
        self._prices = price_book(config.stratalog_prices)
        roots = {broker_id: identity.root for broker_id, identity in hosted.identities.items()}
        topic_defaults = {**flatten_toml(TOPICS_TOML.read_text(encoding="utf-8")), **dict(config.topic_defaults)}
        self.shared_metadata: SharedMetadata = SharedFold()
        self.own_registers = OwnRegisters()
        self.joined = join_cluster(hosted.metadata_root, roots, config, topic_defaults, self.shared_metadata)
        try:
            self.runner, self.spark = fetch_runner(
                fetcher, spark, hosted.metadata_root, list(roots.values()), config, self.shared_metadata
            )
            self._text_logs = open_text_logs(hosted.log_folder, as_json=config.stratalog_log_format == JSON_LINES)
        except BaseException:
            self.joined.close()
            raise
        SHARED_FILE_CACHE.resize(config.stratalog_tail_cache_bytes)
        self._upkeep = UpkeepThreads(SystemClock())
        self._pages: dict[int, BrokerPage] = {}
        self._lags = LagRounds(self.running_brokers, self._view, config.stratalog_lag_interval_ms, self._lag_history())
        self._servers: dict[int, StatusServer] = {}
        self._metric_sources: list[Callable[[], Iterable[Metric]]] = []
        self._endpoint = endpoint or NoEndpoint()
        self._served: set[int] = set()
        self._peers: MutableMapping[int, Peer] = {} if peers is None else peers
        self._send_away = send_beat
        self._shared = SharedParts(
            hosted.metadata_root,
            config,
            self.runner,
            self._upkeep,
            self._peers,
            self.shared_metadata,
            self.own_registers,
            self._send_beat,
            self.joined.domain_urls,
        )

    def _view(self) -> ClusterView:
        deadline_ms = request_ms_max(self.hosted.config.broker_session_timeout_ms)
        return ClusterView(self, stores=DeltaStores(RandomIds(), request_ms=deadline_ms))

    def _lag_history(self) -> LagHistory | None:
        config = self.hosted.config
        if not config.stratalog_lag_history_interval_ms:
            return None
        return LagHistory(
            open_store(self.root),
            RandomIds(),
            config.stratalog_lag_history_interval_ms,
            config.stratalog_lag_history_retention_ms,
        )

    @property
    def fetcher(self) -> str:
        """`spark` or `thread`."""
        return "thread" if isinstance(self.runner, ThreadFetchRunner) else "spark"

    def running_brokers(self) -> dict[int, Broker]:
        """The running brokers by id; another may begin or end meanwhile, by another thread."""
        return {broker_id: running.broker for broker_id, running in list(self.running.items())}

    @property
    def root(self) -> str:
        """The metadata root."""
        return self.hosted.metadata_root

    def brokers(self) -> dict[int, BrokerCalls]:
        """What clients call of the running brokers, by id; as `running_brokers`, from any thread."""
        return {broker_id: running.broker.calls for broker_id, running in list(self.running.items())}

    def inbox(self, broker_id: int) -> BrokerInbox:
        """The inbox of a running broker."""
        return self.running[broker_id].broker.inbox

    def counters(self, broker_id: int) -> BrokerMetrics:
        """The counters of a running broker."""
        return self.running[broker_id].broker.metrics

    def beats(self, broker_id: int) -> PeerBeats:
        """What takes the beats of other brokers to a running broker."""
        return self.running[broker_id].beats

    def _send_beat(self, own: PeerBeats, beat: Beat, peer: tuple[int, int], now_ms: int) -> None:
        """Pass a beat to a broker of this process, or have it sent to another one's."""
        here = self.running.get(peer[0])
        if here is not None:
            here.beats.hears(beat, now_ms)
            own.took(*peer, now_ms)
        elif self._send_away is not None:
            self._send_away(own, beat, peer, now_ms)

    def when_published(self, broker_id: int, call: Callable[[], None]) -> None:
        """As `Broker.call_when_published`, of a running broker."""
        self.running[broker_id].broker.call_when_published(call)

    def peers(self) -> Mapping[int, Peer]:
        """The brokers that those of this process call, by id: each other, and others as far as they can be called."""
        return self._peers

    def hosts(self, broker_id: int) -> bool:
        """Whether it is one of this process's brokers, running or stopped."""
        return broker_id in self.hosted.identities

    def run(self, broker_id: int, lock: IO[str]) -> None:
        """Start a broker; it is up after `await_up`. `lock` is that of `lock_root` and becomes the broker's."""
        try:
            shift = sorted(self.hosted.identities).index(broker_id)
            endpoint = self._endpoint.bind(broker_id, shift)
            if endpoint is not None:
                self.endpoints[broker_id] = endpoint
            identity = replace(self.hosted.identities[broker_id], endpoint=endpoint)
            running = self.running[broker_id] = RunningBroker(identity, self._shared, lock)
        except BaseException:
            lock.close()
            raise
        self._peers[broker_id] = running.broker.calls
        self._show(running, shift)
        running.start()

    def _show(self, running: RunningBroker, shift: int) -> None:
        """Serve what the broker shows, from before its start: whether it lives is asked while it recovers."""
        broker, config = running.broker, self.hosted.config
        is_first = broker.broker_id == min(self.hosted.identities)

        def further() -> list[Metric]:
            return [*self._lags.metrics(broker.broker_id), *(self._further_metrics() if is_first else ())]

        page = self._pages[broker.broker_id] = BrokerPage(broker, running.controller, self.root, self._prices, further)
        if not config.stratalog_metrics_port:
            return
        host = config.stratalog_metrics_host

        def find(user: str, mechanism: str) -> UserScramCredentialRecord | None:
            return broker.metadata.image.scram_credentials.get((user, mechanism))

        login = metrics_login(config, find, is_loopback=is_loopback_host(host))
        port = config.stratalog_metrics_port + shift
        self._servers[broker.broker_id] = StatusServer(port, page.routes(), host, login)

    def metrics(self) -> dict[int, list[Metric]]:
        """Each running broker's metrics."""
        return {broker_id: self._pages[broker_id].metrics() for broker_id in list(self.running)}

    def kill(self, broker_id: int) -> None:
        """End a broker as by a crash: nothing is flushed or deregistered, its clients' connections break."""
        self.running.pop(broker_id).kill()
        self._served.discard(broker_id)
        self._endpoint.withdraw(broker_id)
        if (server := self._servers.pop(broker_id, None)) is not None:
            server.close()

    def await_up(self) -> None:
        """Wait until all running brokers are up; serve clients."""
        await_up(self.running.values())
        for broker_id in self.running.keys() - self._served:
            self._endpoint.serve(self, broker_id)
            self._served.add(broker_id)
        self._lags.start()

    def add_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """Serve these at the first broker's metrics port, too, from now on."""
        self._metric_sources.append(source)

    def _further_metrics(self) -> list[Metric]:
        return [metric for source in list(self._metric_sources) for metric in source()]

    def _leaders_moved(self, running: RunningBroker) -> None:
        self._endpoint.leaders_moved(running.broker.broker_id)

    def start_state(self) -> str:
        """How far the brokers are that `await_up` waits for."""
        running, count = list(self.running.values()), len(self.hosted.identities)
        registered = sum(each.registered.is_set() for each in running)
        fetching = sum(each.registered.is_set() and each.is_fetching for each in running)
        return f"starting brokers: {registered} of {count} are registered, {fetching} fetch"

    def described(self) -> list[str]:
        """How followers fetch, and where metrics are."""
        host = self.hosted.config.stratalog_metrics_host
        host = "localhost" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        at = [f"http://{host}:{server.port}/metrics" for _, server in sorted(self._servers.items())]
        return [f"follower fetch by {self.fetcher}", *([f"metrics at {', '.join(at)}"] if at else [])]

    def stop(self) -> bool:
        """Shut the running brokers down in order and end all that was started. False when one could not move its
        leaderships, though `controlled.shutdown.enable` asks for it."""
        times = StepTimes(SystemClock().monotonic_ms)
        self._lags.close()
        times.done("lags")
        self._endpoint.drain()
        times.done("audit")
        running, in_order = list(self.running.values()), self.hosted.config.controlled_shutdown_enable
        for each in running if in_order else ():
            each.sync_ahead()
        times.done("sync ahead")
        for each in running:
            each.ask_to_end()
        for each in running:
            each.end_loop()
        times.done("loop")
        left = [in_order and each.move_leaderships(partial(self._leaders_moved, each)) for each in running]
        times.done("leaderships")
        self._endpoint.stop()
        times.done("sockets")
        have_ended = self.runner.stop()
        times.done("fetch sessions")
        self._upkeep.shutdown()
        times.done("upkeep")
        for each, left_in_order in zip(running, left, strict=True):
            each.close(left_in_order=left_in_order and have_ended)
        times.done("roots")
        for server in self._servers.values():
            server.close()
        times.done("metrics")
        _LOG.info("shut down: %s", times)
        close_text_logs(self._text_logs)
        self.joined.close()
        return not in_order or all(left)
