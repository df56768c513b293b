"""A cluster by its brokers' addresses: a running cluster of other processes, without its storage.

I/O: sockets. Any broker answers for the whole cluster: topics, leaders, the other brokers' addresses.
Source: Kafka's `AdminMetadataManager`, `NetworkClient`, `ClientUtils.parseAndValidateAddresses`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self, TypeVar

from stratalog.clients.wire.cluster_image import image_of
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.stores import DeltaStores
from stratalog.server.bootstrap import BrokerFace
from stratalog.server.endpoint.loops import NetworkThread
from stratalog.server.remote.connections.config import ConnectionConfig, TransportMode
from stratalog.server.remote.connections.open_requests import Lost
from stratalog.server.remote.connections.security import ConnectionSecurity, connection_security
from stratalog.server.remote.remote_broker import RemoteBroker
from stratalog.server.remote.remote_cluster import RemoteBrokers
from stratalog.server.remote.routes import ListenerRoute
from stratalog.server.request.endpoint import Endpoint
from stratalog.storage import errors
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.errors import StratalogError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import Message
from stratalog.wire.messages.layouts import error_of
from stratalog.wire.messages.schema import Entity

METADATA_VERSION, DESCRIBE_CLUSTER_VERSION = 12, 2
BOOTSTRAP_MS = 5_000
"""How long addresses are tried for until one answers."""
RETRY_MS = 100
ATTEMPT_MS_MIN = 500
"""The least time for an address to answer, however many were tried before."""
NO_BROKER = -1

Key = TypeVar("Key")


class WireCluster:
    """Calls block. Thread-safe; `close` it, or use it in a `with` block (`server.bootstrap.RunningCluster`).

    root  the addresses, which name the cluster in messages
    """

    def __init__(
        self, servers: str, config: Mapping[str, object] | None = None, *, bootstrap_ms: int = BOOTSTRAP_MS
    ) -> None:
        """servers       `host:port` with commas between
        config        Kafka's configs of connections: `security.protocol`, `sasl.*`, `ssl.*`, `request.timeout.ms`
        bootstrap_ms  how long the addresses are tried for
        Raises InvalidConfigError, BrokerNotAvailableError with what was tried and for how long, and the error with
        which a broker refuses the login.
        """
        self.root = servers
        self.clock = SystemClock()
        self._addresses = _addresses(servers)
        given = ConnectionConfig.from_settings(config, {})
        self.config = replace(given, stratalog_transport=TransportMode.LISTENER)
        self._security = connection_security(self.config)
        self._image = ClusterImage()
        self._thread = NetworkThread("bootstrap")
        self._thread.start()
        self._first = [self._broker_at(each) for each in self._addresses]
        self._brokers = RemoteBrokers(lambda: self._image, self.config, DeltaStores(RandomIds()))
        try:
            self._begin(bootstrap_ms)
        except BaseException:
            self.close()
            raise

    def _broker_at(self, endpoint: Endpoint) -> RemoteBroker:
        config = replace(self.config, reconnect_backoff_ms=RETRY_MS, reconnect_backoff_max_ms=RETRY_MS)
        security: ConnectionSecurity = self._security
        return RemoteBroker(NO_BROKER, ListenerRoute(self._thread, config, endpoint, security), self._thread, config)

    def _begin(self, bootstrap_ms: int) -> None:
        """Read the metadata from the first address that answers."""
        begun_ms = self.clock.monotonic_ms()
        while True:
            reasons = self._try_addresses(begun_ms + bootstrap_ms)
            if reasons is None:
                return
            taken_ms = self.clock.monotonic_ms() - begun_ms
            if taken_ms >= bootstrap_ms:
                tried = "; ".join(f"{each.host}:{each.port}: {why}" for each, why in reasons.items())
                seconds = f"{taken_ms / 1_000:.1f} s"
                raise errors.BrokerNotAvailableError(f"no broker answered within {seconds}; tried {tried}")
            self.clock.sleep_ms(min(RETRY_MS, bootstrap_ms))

    def _try_addresses(self, deadline_ms: int) -> dict[Endpoint, str] | None:
        """None when one answered; else why each did not."""
        reasons: dict[Endpoint, str] = {}
        for endpoint, broker in zip(self._addresses, self._first, strict=True):
            left_ms = max(ATTEMPT_MS_MIN, deadline_ms - self.clock.monotonic_ms())
            answers = self._ask(broker, metadata_message(), left_ms), self._ask(broker, cluster_message(), left_ms)
            found = [_received(each, left_ms) for each in answers]
            lost = next((each for each in found if isinstance(each, Lost)), None)
            if lost is None:
                self._fold(*found)
                return None
            if lost.error is not None:
                raise lost.error
            reasons[endpoint] = lost.reason.removeprefix(f"{endpoint.host}:{endpoint.port} ")
        return reasons

    def _fold(self, metadata: Entity, cluster: Entity) -> bool:
        """Whether the image has changed."""
        error = error_of(cluster)
        if error is not None:
            raise error
        found = image_of(metadata, cluster, self.config.security_protocol)
        is_new = found != self._image
        if is_new:
            self._image = found
        return is_new

    # -- a running cluster -------------------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """The cluster as of the last refresh."""
        return self._image

    def refresh(self) -> bool:
        """Ask any broker for the cluster as it is now; whether it has changed."""
        return self._fold(self.call(metadata_message()), self.call(cluster_message()))

    def brokers(self) -> Mapping[int, BrokerFace]:
        """The live brokers, by id."""
        return self._brokers.now()

    def peers(self) -> Mapping[int, BrokerFace]:
        """The same, whenever it is asked."""
        return self._brokers

    def hosts(self, _broker_id: int) -> bool:
        """Every broker is called at its listener."""
        return True

    # -- requests ----------------------------------------------------------------------------------------------

    def call(self, message: Message, broker_id: int | None = None, timeout_ms: int | None = None) -> Entity:
        """The response of a broker, or of any. A request that was sent is not sent again: it may have been performed.

        BrokerNotAvailableError where no broker can be reached, RequestTimedOutError, and a refused login.
        """
        limit_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        reasons: list[str] = []
        for name, broker in self._candidates(broker_id):
            found = _received(self._ask(broker, message, limit_ms), limit_ms)
            if not isinstance(found, Lost):
                return found
            if found.error is not None:
                raise found.error
            if found.was_sent:
                raise errors.RequestTimedOutError(f"{name}: {found.reason}; whether it did what was asked is unknown")
            reasons.append(f"{name}: {found.reason}")
        what = "no broker can be reached" if broker_id is None else f"broker {broker_id} cannot be reached"
        raise errors.BrokerNotAvailableError(f"{what}: {'; '.join(reasons) or 'it is not registered, or is down'}")

    def _candidates(self, broker_id: int | None) -> list[tuple[str, RemoteBroker]]:
        """The brokers to call, one after the other: those that are known, then the addresses given."""
        if broker_id is not None:
            found = self._remote().get(broker_id)
            return [] if found is None else [(f"broker {broker_id}", found)]
        known = [(f"broker {each}", broker) for each, broker in sorted(self._remote().items())]
        addresses = [f"{each.host}:{each.port}" for each in self._addresses]
        return [*known, *zip(addresses, self._first, strict=True)]

    def _remote(self) -> dict[int, RemoteBroker]:
        found = ((broker_id, self._brokers.get(broker_id)) for broker_id in self._brokers)
        return {broker_id: broker for broker_id, broker in found if isinstance(broker, RemoteBroker)}

    def send(self, broker_id: int, message: Message, timeout_ms: int, answer: Callable[[Entity | Lost], None]) -> None:
        """Call a broker without waiting; `answer` is called once, possibly from another thread."""
        broker = self._brokers.get(broker_id)
        if isinstance(broker, RemoteBroker):
            broker.ask(message, answer, timeout_ms)
        else:
            answer(Lost(f"broker {broker_id} is not known, or down", was_sent=False))

    def call_each(self, messages: Mapping[int, Message], timeout_ms: int) -> dict[int, Entity | StratalogError]:
        """The responses of several brokers, by id; an error for one that did not answer."""
        return self.begin_each(messages, timeout_ms)()

    def begin_each(
        self, messages: Mapping[int, Message], timeout_ms: int
    ) -> Callable[[], dict[int, Entity | StratalogError]]:
        """As `call_each`, without waiting: the requests are under way, and what is returned waits for the responses."""
        waiting = {broker_id: SimpleQueue[Entity | Lost]() for broker_id in messages}
        for broker_id, message in messages.items():
            self.send(broker_id, message, timeout_ms, waiting[broker_id].put)
        return partial(self._each_received, waiting, timeout_ms)

    def _each_received(
        self, waiting: Mapping[int, SimpleQueue[Entity | Lost]], timeout_ms: int
    ) -> dict[int, Entity | StratalogError]:
        found: dict[int, Entity | StratalogError] = {}
        for broker_id, answers in waiting.items():
            answer = _received(answers, timeout_ms)
            if isinstance(answer, Lost):
                away = errors.LeaderNotAvailableError(f"broker {broker_id}: {answer.reason}")
                found[broker_id] = answer.error or away
            else:
                found[broker_id] = answer
        return found

    def _ask(self, broker: RemoteBroker, message: Message, timeout_ms: int) -> SimpleQueue[Entity | Lost]:
        answers: SimpleQueue[Entity | Lost] = SimpleQueue()
        broker.ask(message, answers.put, timeout_ms)
        return answers

    def close(self) -> None:
        """End all connections."""
        for broker in self._first:
            broker.close()
        self._brokers.close()
        self._thread.stop(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()


GRACE_MS = 1_000
"""The time beyond a request's own limit after which its connection must have given up."""


def _received(answers: SimpleQueue[Entity | Lost], timeout_ms: int) -> Entity | Lost:
    try:
        return answers.get(timeout=(timeout_ms + GRACE_MS) / 1_000)
    except Empty:
        return Lost(f"no answer within {timeout_ms} ms", was_sent=True)


def _addresses(servers: str) -> list[Endpoint]:
    found: list[Endpoint] = []
    for each in servers.split(","):
        endpoint = Endpoint.parse(each)
        if endpoint is None or not endpoint.host:
            raise errors.InvalidConfigError(f"Invalid url in bootstrap.servers: {each.strip()}; it is host:port")
        found.append(endpoint)
    return found


def metadata_message() -> Message:
    """All topics; none is created."""
    return Message({"topics": None, "allow_auto_topic_creation": False}, ApiKey.METADATA, METADATA_VERSION)


def cluster_message() -> Message:
    """All brokers, those that are down, too."""
    values = {"endpoint_type": 1, "include_fenced_brokers": True}
    return Message(values, ApiKey.DESCRIBE_CLUSTER, DESCRIBE_CLUSTER_VERSION)
