"""The brokers of a cluster by what they registered: a running cluster of other processes.

I/O: the metadata log, sockets. Addresses come from the metadata log, so a cluster is named by its metadata root.
Clients of a `RemoteCluster` call brokers at their listeners, and read records from storage as any client does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from types import TracebackType
from typing import Self

from stratalog.clients.bootstrap import BrokerFace
from stratalog.clients.config import ConnectionConfig
from stratalog.clients.endpoint.listeners import inter_broker_name
from stratalog.clients.endpoint.loops import NetworkThread
from stratalog.clients.kafka.request.broker import Endpoint
from stratalog.clients.remote.connection_security import connection_security
from stratalog.clients.remote.inter_broker import inter_broker_connections
from stratalog.clients.remote.remote_broker import RemoteBroker
from stratalog.clients.view.cluster_view import ClusterView
from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.runtime.remote_appends import Peer
from stratalog.replication.metadata.image import BrokerState, ClusterImage
from stratalog.storage.errors import BrokerNotAvailableError, StratalogError

FENCED_CHECK_S = 0.5
"""How often calls to brokers that were fenced meanwhile are ended: a process that hangs does not answer them."""
METADATA_REFRESH_S = 1.0
"""How often the addresses of brokers are read again; leaders are looked up by each client itself."""


class RemoteBrokers(Mapping[int, BrokerFace]):
    """The live brokers of an image that have a listener, by id. Any thread may use it; nothing blocks.

    A broker that registers another address is another object, and the calls that the old one has open are lost.
    """

    def __init__(self, image: Callable[[], ClusterImage], config: ConnectionConfig, listener: str = "") -> None:
        """`listener`: the name of the listener to call them at; "" is the one named as `security.protocol`, or else
        each broker's first one.

        Raises InvalidConfigError for a login or key files that cannot be.
        """
        self._image = image
        self._config = config
        self._security = connection_security(config)
        self._listeners = (listener.upper(),) if listener else (config.security_protocol, "")
        self._lock = threading.Lock()
        self._made: dict[int, RemoteBroker] = {}
        self._thread: NetworkThread | None = None
        self._is_closed = False

    def endpoint_of(self, broker: BrokerState | None) -> Endpoint | None:
        """Where a broker is called; None for one without a listener."""
        if broker is None:
            return None
        by_listener = Endpoint.by_listener(broker.registration.endpoint or "")
        return next((by_listener[name] for name in self._listeners if name in by_listener), None)

    def __getitem__(self, broker_id: int) -> RemoteBroker:
        broker = self._image().brokers.get(broker_id)
        endpoint = None if broker is None or broker.fenced else self.endpoint_of(broker)
        if endpoint is None:
            raise KeyError(broker_id)
        made = self._made.get(broker_id)
        return made if made is not None and made.endpoint == endpoint else self._make(broker_id, endpoint)

    def _make(self, broker_id: int, endpoint: Endpoint) -> RemoteBroker:
        with self._lock:
            made = self._made.get(broker_id)
            if made is not None and made.endpoint == endpoint:
                return made
            if self._is_closed:
                raise KeyError(broker_id)
            if made is not None:
                made.close()
            if self._thread is None:
                self._thread = NetworkThread("brokers")
                self._thread.start()
                self._thread.call(self._end_fenced)
            made = self._made[broker_id] = RemoteBroker(
                broker_id, endpoint, self._thread, self._config, self._security
            )
            return made

    def _end_fenced(self) -> None:
        """In the network thread, again and again."""
        brokers = self._image().brokers
        with self._lock:
            thread = self._thread
            fenced = [each for each in self._made.values() if _is_fenced(brokers.get(each.broker_id))]
            for each in fenced:
                del self._made[each.broker_id]
        for each in fenced:
            each.close()
        if thread is not None:
            thread.loop.call_later(FENCED_CHECK_S, self._end_fenced)

    def __iter__(self) -> Iterator[int]:
        brokers = list(self._image().brokers.items())
        return (broker_id for broker_id, each in brokers if not each.fenced and self.endpoint_of(each) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def now(self) -> dict[int, BrokerFace]:
        """Those of this moment."""
        found = ((broker_id, self.get(broker_id)) for broker_id in self)
        return {broker_id: broker for broker_id, broker in found if broker is not None}

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            self._is_closed = True
            for made in self._made.values():
                made.close()
            self._made.clear()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop(0)


def _is_fenced(broker: BrokerState | None) -> bool:
    return broker is None or broker.fenced


class RemoteCluster:
    """A cluster whose brokers run in other processes (`clients.bootstrap.RunningCluster`). Thread-safe; `close` it.

    root      the URL or path of the metadata root
    config    Kafka's configs of connections by their dotted names (`request.timeout.ms`, `security.protocol`,
              `sasl.mechanism`, `sasl.username`, `ssl.truststore.location`: see docs/security.md); `settings` the same
              as keywords. InvalidConfigError for an unknown or bad one
    listener  the name of the listener to call brokers at; "" is the one named as `security.protocol`, or else each
              broker's first one
    """

    def __init__(
        self,
        root: str,
        config: Mapping[str, object] | None = None,
        *,
        listener: str = "",
        view: ClusterView | None = None,
        **settings: object,
    ) -> None:
        self.root = root
        self._view = view or ClusterView(root)
        connections = ConnectionConfig.from_settings(config, settings)
        self._brokers = RemoteBrokers(lambda: self._view.image, connections, listener)
        self._over = threading.Event()
        self._refreshing = threading.Thread(target=self._refresh, name="broker-addresses", daemon=True)
        self._refreshing.start()

    def brokers(self) -> Mapping[int, BrokerFace]:
        """The live brokers that can be called now, by id."""
        return self._brokers.now()

    def peers(self) -> Mapping[int, BrokerFace]:
        """The same, whenever it is asked."""
        return self._brokers

    def hosts(self, broker_id: int) -> bool:
        """Whether the broker is called rather than reached through its inbox: all but those without a listener."""
        broker = self._view.image.brokers.get(broker_id)
        return broker is None or self._brokers.endpoint_of(broker) is not None

    def check(self) -> None:
        """BrokerNotAvailableError when no live broker can be called."""
        if not self._brokers:
            raise BrokerNotAvailableError(
                f"no live broker of {self.root} can be called from another process: none has set `listeners`"
            )

    def _refresh(self) -> None:
        while not self._over.wait(METADATA_REFRESH_S):
            try:
                self._view.refresh()
            except StratalogError:
                continue  # storage is away; the addresses known are used meanwhile

    def close(self) -> None:
        """End all connections; open calls are answered with an error."""
        self._over.set()
        self._brokers.close()
        self._refreshing.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()


class RemotePeers(MutableMapping[int, Peer]):
    """The brokers that one process's coordinators and leaders call: its own, which are put in, and those elsewhere.

    Addresses are those of the process's own metadata, from `follow` on; until then there are only its own brokers.
    """

    def __init__(self, config: ConnectionConfig | None = None, listener: str = "") -> None:
        self._own: dict[int, Peer] = {}
        self._newest: Callable[[], ClusterImage] = ClusterImage
        self._others = RemoteBrokers(self._image, config or ConnectionConfig(), listener)

    @classmethod
    def of_broker(cls, config: BrokerConfig) -> Self:
        """Brokers are called at the listener that `config` names, and logged in to as it says. InvalidConfigError."""
        name = inter_broker_name(config.inter_broker_listener_name, config.security_inter_broker_protocol)
        return cls(inter_broker_connections(config), name)

    def _image(self) -> ClusterImage:
        return self._newest()

    def follow(self, image: Callable[[], ClusterImage]) -> None:
        """Call the brokers of this image, whichever is the newest."""
        self._newest = image

    def __getitem__(self, broker_id: int) -> Peer:
        own = self._own.get(broker_id)
        return self._others[broker_id] if own is None else own

    def __setitem__(self, broker_id: int, broker: Peer) -> None:
        self._own[broker_id] = broker

    def __delitem__(self, broker_id: int) -> None:
        del self._own[broker_id]

    def __iter__(self) -> Iterator[int]:
        return iter(sorted({*self._own, *self._others}))

    def __len__(self) -> int:
        return len({*self._own, *self._others})

    def close(self) -> None:
        """End all connections."""
        self._others.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()
