"""The embedded cluster with its listeners: Kafka's clients connect to brokers of this process.

I/O: as `server.process.cluster`, and sockets.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import IO, TYPE_CHECKING

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.runtime.remote_appends import Peer
from stratalog.replication.metadata.image import ClusterImage
from stratalog.server.bootstrap import addresses_by_listener
from stratalog.server.endpoint.inbox_endpoint import InboxEndpoint
from stratalog.server.process.broker_host import BrokerHost, ClientEndpoint
from stratalog.server.process.cluster import ClusterPlace, EmbeddedCluster
from stratalog.storage.errors import BrokerNotAvailableError

if TYPE_CHECKING:
    from stratalog.server.remote.remote_cluster import RemotePeers


class Cluster(EmbeddedCluster):
    """Brokers, controller and follower fetch in this process. Use `Cluster.start`, then `stop` (or a `with` block).

    With `listeners` in its config, Kafka's clients of any process reach it at `bootstrap_servers`: broker i has the
    port of `listeners` + i - 1, or any free one for port 0. Brokers of other processes that join are called, too, if
    the settings name a login for that where one is needed (`sasl.mechanism.inter.broker.protocol`).
    """

    def __init__(self, place: ClusterPlace, host: BrokerHost, lock: IO[str]) -> None:
        super().__init__(place, host, lock)
        self._remote: RemotePeers | None = None
        if self.config.listeners:
            from stratalog.server.remote.remote_cluster import RemotePeers

            peers = host.peers()
            if isinstance(peers, RemotePeers):
                self._remote = peers
                peers.follow(self._image)

    @classmethod
    def _outside(cls, config: BrokerConfig) -> tuple[MutableMapping[int, Peer] | None, ClientEndpoint | None]:
        if not config.listeners:
            return None, InboxEndpoint(config)
        from stratalog.server.endpoint.kafka_endpoint import KafkaEndpoint
        from stratalog.server.remote.inter_broker import lacks_login
        from stratalog.server.remote.remote_cluster import RemotePeers

        endpoint = KafkaEndpoint(config)
        return None if lacks_login(config) else RemotePeers.of_broker(config), endpoint

    def _image(self) -> ClusterImage:
        running = list(self._host.running_brokers().values())
        return running[0].metadata.image if running else ClusterImage()

    @property
    def listeners(self) -> dict[str, str]:
        """Name of a listener -> its address of each broker, as `host:port,host:port`; in the order of the config."""
        return addresses_by_listener(self._host.endpoints[each] for each in sorted(self._host.endpoints))

    @property
    def bootstrap_servers(self) -> str:
        """`bootstrap.servers` for Kafka's clients: the first listener. BrokerNotAvailableError without listeners."""
        for addresses in self.listeners.values():
            return addresses
        raise BrokerNotAvailableError(
            "Kafka's clients cannot connect: the cluster has no listeners. "
            "Start it with config={'listeners': 'PLAINTEXT://localhost:9092'}."
        )

    def stop(self) -> None:
        """Shut all brokers down in order, end connections and fetch sessions, release the directory."""
        super().stop()
        if self._remote is not None:
            self._remote.close()
