"""Beats of a process's brokers to brokers of other processes: BrokerHeartbeat at their listeners.

I/O: sockets, by a network thread. A broker without a listener, or that cannot be called, takes none: the sender sees
that, and writes its session's object (`replication/broker/session.py`). Inboxes carry no beats: each object there
costs more than the session's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.sessions import Beat, PeerBeats
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.stores import DeltaStores
from stratalog.server.endpoint.listeners import inter_broker_name
from stratalog.server.remote.connections.config import TransportMode
from stratalog.server.remote.connections.open_requests import Lost
from stratalog.server.remote.inter_broker import inter_broker_connections
from stratalog.server.remote.remote_cluster import RemoteBrokers
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import Message
from stratalog.wire.messages.schema import Entity

_LOG = line_logger("stratalog.network")

BROKER_HEARTBEAT_VERSION = 0


class RemoteBeats:
    """Of one process, whose own metadata tell the addresses, from `follow` on. Any thread may `send`."""

    def __init__(self, config: BrokerConfig) -> None:
        """Brokers are called at the listener that `config` names, and logged in to as it says. InvalidConfigError."""
        name = inter_broker_name(config.inter_broker_listener_name, config.security_inter_broker_protocol)
        by_listener = replace(inter_broker_connections(config), stratalog_transport=TransportMode.LISTENER)
        self._newest: Callable[[], ClusterImage] = ClusterImage
        self._brokers = RemoteBrokers(self._image, by_listener, DeltaStores(RandomIds()), name)
        self._timeout_ms = config.broker_heartbeat_interval_ms

    def _image(self) -> ClusterImage:
        return self._newest()

    def follow(self, image: Callable[[], ClusterImage]) -> None:
        """Call the brokers of this image, whichever is the newest."""
        self._newest = image

    def send(self, own: PeerBeats, beat: Beat, peer: tuple[int, int], now_ms: int) -> None:
        """Send a beat of the broker that has `own`; `peer` is the id and the epoch of the one that is called. When it
        takes the beat that is noted in `own`. Does not block."""
        broker_id, broker_epoch = peer

        def answered(answer: Entity | Lost) -> None:
            if isinstance(answer, Lost) or answer.error_code.value:
                _LOG.debug("broker %d takes no beat of broker %d: %s", broker_id, beat.broker_id, answer)
                return
            own.took(broker_id, broker_epoch, now_ms)
            if answer.is_fenced:
                own.on_newer()

        try:
            self._brokers[broker_id].beat(_message(beat), answered, self._timeout_ms)
        except (KeyError, StratalogError) as reason:
            _LOG.debug("broker %d cannot be called: %s", broker_id, reason)

    def close(self) -> None:
        """End all connections; later beats are lost."""
        self._brokers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()


def _message(beat: Beat) -> Message:
    values = {
        "broker_id": beat.broker_id,
        "broker_epoch": beat.broker_epoch,
        "current_metadata_offset": beat.metadata_offset,
        "want_fence": False,
        "want_shut_down": False,
    }
    return Message(values, ApiKey.BROKER_HEARTBEAT, BROKER_HEARTBEAT_VERSION)
