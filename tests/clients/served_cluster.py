"""The brokers of a memory cluster behind sockets or inboxes, and a cluster of remote brokers that calls them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from stratalog.replication.broker.inbox import BrokerInbox
from stratalog.replication.config import BrokerConfig
from stratalog.replication.leader.replica import WaitingAppend
from stratalog.server.endpoint.admission import RequestBound
from stratalog.server.endpoint.inbox_endpoint import InboxEndpoint
from stratalog.server.endpoint.io_threads import IoThreads
from stratalog.server.endpoint.listeners import Listener, SecurityProtocol
from stratalog.server.endpoint.socket_server import SocketServer, bind
from stratalog.server.handler import KafkaHandler
from stratalog.server.remote.remote_cluster import RemoteCluster
from stratalog.server.view.cluster_view import ClusterView
from tests.clients.memory_cluster import ROOT, MemoryCluster

LISTENER = Listener("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", 0)


class ServedCluster:
    """`remote` calls the brokers of `cluster` over sockets. In a `with` block."""

    client_host = "127.0.0.1"

    def __init__(self, cluster: MemoryCluster, **settings: object) -> None:
        """`settings`: of the remote cluster's connections."""
        self.cluster = cluster
        config = BrokerConfig()
        queued = RequestBound(config.queued_max_requests)
        self.server = SocketServer(config, queued)
        self.handlers: dict[int, KafkaHandler] = {}
        self._io: list[IoThreads] = []
        for broker_id in (1, 2, 3):
            (bound,) = bind([LISTENER])
            cluster.metadata.refresh()
            registration = cluster.metadata.image.brokers[broker_id].registration
            cluster.commit(replace(registration, endpoint=bound.listener.connection_string))
            view = ClusterView(cluster, stores=cluster.stores)
            self._io.append(IoThreads(2, queued, f"io-{broker_id}"))
            handler = KafkaHandler(cluster, broker_id, config=config, view=view, io=self._io[-1])
            self.handlers[broker_id] = handler
            self.server.serve(broker_id, [bound], handler)
        self.remote = RemoteCluster(ROOT, stores=cluster.stores, **settings)

    def withdraw(self, broker_id: int) -> None:
        """Close a broker's sockets, as when its process ended."""
        self.server.withdraw(broker_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.remote.close()
        self.server.stop()
        for handler in self.handlers.values():
            handler.close()
        for io in self._io:
            io.shutdown(wait=False)


class InboxCluster:
    """`remote` calls the brokers of `cluster` through their inboxes alone. In a `with` block."""

    client_host = "inbox"

    def __init__(self, cluster: MemoryCluster, config: BrokerConfig | None = None, **settings: object) -> None:
        """`config`: of the brokers. `settings`: of the remote cluster's connections."""
        config = config or BrokerConfig()
        self.cluster = cluster
        self.handlers: dict[int, KafkaHandler] = {}
        self.inboxes: dict[int, BrokerInbox] = {}
        self._endpoint = InboxEndpoint(config)
        for broker_id in (1, 2, 3):
            view = ClusterView(cluster, stores=cluster.stores)
            self.handlers[broker_id] = KafkaHandler(cluster, broker_id, config=config, view=view)
            inbox = self.inboxes[broker_id] = BrokerInbox(cluster.stores.objects(cluster.root_of(broker_id)), refuse)
            inbox.broker_epoch = broker_id
            self.serve_again(broker_id)
        self._is_over = threading.Event()
        self._polling = threading.Thread(target=self._poll, daemon=True)
        self._polling.start()
        self.remote = RemoteCluster(ROOT, {"stratalog.transport": "inbox"}, stores=cluster.stores, **settings)

    def _poll(self) -> None:
        while not self._is_over.wait(0.001):
            for inbox in list(self.inboxes.values()):
                inbox.poll()

    def inbox(self, broker_id: int) -> BrokerInbox:
        return self.inboxes[broker_id]

    def when_published(self, broker_id: int, call: Callable[[], None]) -> None:
        """Readers poll."""

    def objects(self, broker_id: int) -> dict[str, bytes]:
        """What lies in a broker's root."""
        return self.cluster.stores.stores[self.cluster.root_of(broker_id)].objects

    def withdraw(self, broker_id: int) -> None:
        """Answer no more for a broker, as when its process ended."""
        self._endpoint.withdraw(broker_id)

    def serve_again(self, broker_id: int) -> None:
        """Answer again for a broker that was withdrawn."""
        self._endpoint.serve(self, broker_id, self.handlers[broker_id])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.remote.close()
        self._endpoint.stop()
        self._is_over.set()
        self._polling.join()
        for handler in self.handlers.values():
            handler.close()


def refuse(waiting: WaitingAppend) -> None:
    raise AssertionError(f"no file is handed over in these tests: {waiting.request}")
