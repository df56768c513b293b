"""The brokers of a cluster by what they registered: a running cluster of other processes.

I/O: the metadata log, sockets, objects in brokers' roots. Addresses come from the metadata log, so a cluster is named
by its metadata root. Clients of a `RemoteCluster` call brokers at their listeners, or through their inboxes, and read
records from storage as any client does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from functools import partial
from typing import Self

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.runtime.remote_appends import Peer
from stratalog.replication.metadata.image import BrokerState, ClusterImage
from stratalog.replication.stores import DeltaStores, Stores
from stratalog.server.bootstrap import BrokerFace
from stratalog.server.endpoint.listeners import inter_broker_name
from stratalog.server.endpoint.loops import NetworkThread
from stratalog.server.remote.connections.config import ConnectionConfig, TransportMode
from stratalog.server.remote.connections.security import connection_security
from stratalog.server.remote.inter_broker import inter_broker_connections
from stratalog.server.remote.places import Place, place_of
from stratalog.server.remote.remote_broker import RemoteBroker
from stratalog.server.remote.routes import InboxRoute, ListenerRoute, Route
from stratalog.server.request.endpoint import Endpoint
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import BrokerNotAvailableError, StratalogError

FENCED_CHECK_S = 0.5
"""How often calls to brokers that were fenced meanwhile are ended: a process that hangs does not answer them."""
METADATA_REFRESH_S = 1.0
"""How often the addresses of brokers are read again; leaders are looked up by each client itself."""


class RemoteBrokers(Mapping[int, BrokerFace]):
    """The live brokers of an image that can be called, by id. Any thread may use it; nothing blocks.

    A broker that is called at another place than before, such as another address or the inbox of a newer registration,
    is another object, and the calls that the old one has open are lost.
    """

    def __init__(
        self, image: Callable[[], ClusterImage], config: ConnectionConfig, stores: Stores, listener: str = ""
    ) -> None:
        """`listener`: the name of the listener to call them at, and by default nowhere else; "" is the one named as
        `security.protocol`, or else each broker's first one.

        Raises InvalidConfigError for a login or key files that cannot be.
        """
        self._image = image
        is_bound = listener and config.stratalog_transport == TransportMode.AUTO
        self._config = replace(config, stratalog_transport=TransportMode.LISTENER) if is_bound else config
        self._stores = stores
        self._security = connection_security(config)
        self._listeners = (listener.upper(),) if listener else (config.security_protocol, "")
        self._lock = threading.Lock()
        self._made: dict[int, RemoteBroker] = {}
        self._thread: NetworkThread | None = None
        self._is_closed = False
        self._has_reached = False
        self._unreachable: frozenset[Endpoint] = frozenset()

    def place_of(self, broker: BrokerState | None) -> Place | None:
        """Where a broker is called; None for one that cannot be."""
        if broker is None:
            return None
        by_listener = Endpoint.by_listener(broker.registration.endpoint or "")
        endpoint = next((by_listener[name] for name in self._listeners if name in by_listener), None)
        return place_of(broker, self._config, endpoint, self._unreachable)

    def __getitem__(self, broker_id: int) -> RemoteBroker:
        broker = self._image().brokers.get(broker_id)
        place = None if broker is None or broker.fenced else self.place_of(broker)
        if place is None:
            raise KeyError(broker_id)
        made = self._made.get(broker_id)
        return made if made is not None and made.route.place == place else self._make(broker_id, place)

    def _make(self, broker_id: int, place: Place) -> RemoteBroker:
        with self._lock:
            made = self._made.get(broker_id)
            if made is not None and made.route.place == place:
                return made
            if self._is_closed:
                raise KeyError(broker_id)
            if made is not None:
                made.close()
            if self._thread is None:
                self._thread = NetworkThread("brokers")
                self._thread.start()
                self._thread.call(self._end_fenced)
            route = self._route(place, self._thread)
            made = self._made[broker_id] = RemoteBroker(broker_id, route, self._thread, self._config)
            return made

    def _route(self, place: Place, thread: NetworkThread) -> Route:
        if isinstance(place, Endpoint):
            return ListenerRoute(thread, self._config, place, self._security, partial(self._tried, place))
        return InboxRoute(thread, self._config, place, self._stores)

    def _tried(self, endpoint: Endpoint, was_made: bool) -> None:
        """A connection to a listener has ended. Once one was reached the others count as reachable, too: what cannot be
        connected then is a broker that is away, and not a network between."""
        if was_made:
            self._has_reached, self._unreachable = True, frozenset()
        elif not self._has_reached:
            self._unreachable |= {endpoint}

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
        return (broker_id for broker_id, each in brokers if not each.fenced and self.place_of(each) is not None)

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
            made = list(self._made.values())
            self._made.clear()
            thread, self._thread = self._thread, None
        for each in made:
            each.close()
        if thread is not None:
            thread.stop(0)
        for each in made:
            each.route.join()


def _is_fenced(broker: BrokerState | None) -> bool:
    return broker is None or broker.fenced


class RemoteCluster:
    """A cluster whose brokers run in other processes (`server.bootstrap.RunningCluster`). Thread-safe; `close` it.

    root      the URL or path of the metadata root
    config    Kafka's configs of connections by their dotted names (`request.timeout.ms`, `security.protocol`,
              `sasl.mechanism`, `sasl.username`, `ssl.truststore.location`: see docs/secure.md), and
              `stratalog.transport`: see docs/produce-and-consume.md; `settings` the same as keywords.
              InvalidConfigError for an unknown or bad one
    listener  the name of the listener to call brokers at; "" is the one named as `security.protocol`, or else each
              broker's first one
    """

    def __init__(
        self,
        root: str,
        config: Mapping[str, object] | None = None,
        *,
        listener: str = "",
        stores: Stores | None = None,
        **settings: object,
    ) -> None:
        self.root = root
        self._view = ClusterView(root, stores=stores)
        connections = ConnectionConfig.from_settings(config, settings)
        self._brokers = RemoteBrokers(lambda: self._view.image, connections, self._view.stores, listener)
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
        """Whether the broker is called: all but those that `stratalog.transport`, or a login, binds to a listener that
        they do not have."""
        broker = self._view.image.brokers.get(broker_id)
        return broker is None or self._brokers.place_of(broker) is not None

    def check(self) -> None:
        """BrokerNotAvailableError when no live broker can be called."""
        if not self._brokers:
            live = self._view.image.live_brokers()
            why = "none has the listener that is asked for: see `listeners` of the brokers, or leave out the login and "
            why += "`stratalog.transport` to use their inboxes" if live else "none is running"
            raise BrokerNotAvailableError(f"no live broker of {self.root} can be called: {why}")

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

    def __exit__(self, *_exception: object) -> None:
        self.close()


class RemotePeers(MutableMapping[int, Peer]):
    """The brokers that one process's coordinators and leaders call: its own, which are put in, and those elsewhere.

    Addresses are those of the process's own metadata, from `follow` on; until then there are only its own brokers.
    """

    def __init__(self, config: ConnectionConfig | None = None, listener: str = "") -> None:
        self._own: dict[int, Peer] = {}
        self._newest: Callable[[], ClusterImage] = ClusterImage
        self._others = RemoteBrokers(self._image, config or ConnectionConfig(), DeltaStores(RandomIds()), listener)

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

    def __exit__(self, *_exception: object) -> None:
        self.close()
