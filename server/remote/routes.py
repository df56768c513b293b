"""The ways to a broker of another process: its listener, or its inbox. I/O: through connections.

A route leads to one place, and makes the connections there. `server.remote.places` decides which place that is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Protocol

from stratalog.replication.stores import Stores
from stratalog.server.endpoint.loops import NetworkThread
from stratalog.server.remote.connections.broker_connection import BrokerConnection
from stratalog.server.remote.connections.config import ConnectionConfig
from stratalog.server.remote.connections.inbox_connection import InboxConnection
from stratalog.server.remote.connections.open_requests import ReconnectBackoff
from stratalog.server.remote.connections.request_connection import RequestConnection
from stratalog.server.remote.connections.security import ConnectionSecurity
from stratalog.server.remote.inbox_channel import InboxChannel
from stratalog.server.remote.places import InboxPlace, Place
from stratalog.server.request.endpoint import Endpoint
from stratalog.storage.clock import RandomIds

Ended = Callable[[RequestConnection], None]


class Route(Protocol):
    """The way to one broker; in the network thread, but for `place`."""

    @property
    def place(self) -> Place: ...

    def connect(self, ended: Ended) -> RequestConnection:
        """A new connection, which begins by itself; `ended` is called once, when it has ended."""

    def close(self) -> None:
        """After all of its connections: end what they shared."""

    def join(self) -> None:
        """After `close`, in any thread: wait until the broker has been told so, for a while at most."""


class ListenerRoute:
    """Connections to a listener. `tried` is called when one has ended: whether it had been open at all."""

    def __init__(
        self,
        thread: NetworkThread,
        config: ConnectionConfig,
        endpoint: Endpoint,
        security: ConnectionSecurity | None = None,
        tried: Callable[[bool], None] = lambda _was_made: None,
    ) -> None:
        """`security` None: neither TLS nor a login."""
        self.place = endpoint
        self._thread = thread
        self._config = config
        self._security = security or ConnectionSecurity()
        self._tried = tried
        self._backoff = ReconnectBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms)

    def connect(self, ended: Ended) -> RequestConnection:
        def tried(connection: RequestConnection) -> None:
            self._tried(connection.was_made)
            ended(connection)

        return BrokerConnection(self._thread, self.place, self._config, self._backoff, tried, self._security)

    def close(self) -> None:
        """Its connections share nothing."""

    def join(self) -> None:
        """Nothing to wait for."""


class InboxRoute:
    """Conversations over one channel, which begins with the first of them and is opened again when it is over."""

    def __init__(self, thread: NetworkThread, config: ConnectionConfig, place: InboxPlace, stores: Stores) -> None:
        self.place = place
        self._thread = thread
        self._config = config
        self._stores = stores
        self._backoff = ReconnectBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms)
        self._numbers = count()
        self._channel: _OpenChannel | None = None

    def connect(self, ended: Ended) -> RequestConnection:
        return InboxConnection(
            self._thread, self._config, self._backoff, ended, self._open_conversation, self.place.root
        )

    def _open_conversation(self, connection: InboxConnection) -> _Conversation:
        channel = self._channel
        if channel is None or channel.is_over:
            channel = self._channel = _OpenChannel(self._thread)
            channel.channel = InboxChannel(
                self.place, self._stores.objects, RandomIds(), channel, self._config.connections_max_idle_ms
            )
        number = next(self._numbers)
        channel.connections[number] = connection
        return _Conversation(channel, number)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.channel.close()

    def join(self) -> None:
        if self._channel is not None:
            self._channel.channel.join()


class _OpenChannel:
    """A channel and the conversations over it: what its thread receives is passed to the network thread."""

    channel: InboxChannel

    def __init__(self, thread: NetworkThread) -> None:
        self.is_over = False
        self.connections: dict[int, InboxConnection] = {}
        self._thread = thread

    def received(self, conversation: int, frame: bytes | None) -> None:
        self._thread.call(partial(self._received, conversation, frame))

    def _received(self, conversation: int, frame: bytes | None) -> None:
        connection = self.connections.get(conversation)
        if connection is not None:
            connection.received(frame)

    def channel_over(self, reason: str) -> None:
        self._thread.call(partial(self._over, reason))

    def _over(self, reason: str) -> None:
        self.is_over = True
        for connection in list(self.connections.values()):
            connection.lost(reason)


@dataclass(frozen=True, slots=True)
class _Conversation:
    """`server.remote.connections.inbox_connection.Conversation`"""

    owner: _OpenChannel
    number: int

    def send(self, frames: list[bytes], answer_count: int) -> None:
        self.owner.channel.send(self.number, frames, answer_count)

    def end(self) -> None:
        self.owner.connections.pop(self.number, None)
        self.owner.channel.forget(self.number)
