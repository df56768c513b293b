"""A conversation with a broker through its inbox, as a connection. I/O: through a channel's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stratalog.server.endpoint.loops import NetworkThread
from stratalog.server.remote.connections.config import ConnectionConfig
from stratalog.server.remote.connections.open_requests import ReconnectBackoff
from stratalog.server.remote.connections.request_connection import RequestConnection
from stratalog.storage.errors import InvalidRequestError


class Conversation(Protocol):
    """The frames of one conversation on their way to the broker. Nothing blocks."""

    def send(self, frames: list[bytes], answer_count: int) -> None:
        """Send frames, so many of which are answered."""

    def end(self) -> None:
        """Wait for no more answers."""


class InboxConnection(RequestConnection):
    """Its owner calls `received` with each answer, in the network thread."""

    def __init__(
        self,
        thread: NetworkThread,
        config: ConnectionConfig,
        backoff: ReconnectBackoff,
        ended: Callable[[RequestConnection], None],
        open_conversation: Callable[[InboxConnection], Conversation],
        where: str,
    ) -> None:
        """`where`: the broker's root, for the log."""
        super().__init__(thread, config, backoff, ended)
        self._open_conversation = open_conversation
        self._root = where
        self._conversation: Conversation | None = None

    @property
    def _where(self) -> str:
        return self._root

    def _begin(self) -> None:
        self._conversation, self.was_made = self._open_conversation(self), True
        self._send_all()

    def _send_all(self) -> None:
        assert self._conversation is not None
        requests = self._open.to_send()
        if requests:
            self._conversation.send([each.frame for each in requests], sum(each.has_answer for each in requests))
        for request in requests:
            if not request.has_answer:
                request.answer(b"")

    def received(self, frame: bytes | None) -> None:
        """An answer; None: the broker has ended the conversation."""
        self._active_s = self._thread.loop.time()
        if frame is None:
            self.lost("the connection has ended: closed by the broker")
            return
        try:
            self._open.answered(frame).answer(frame)
        except InvalidRequestError as reason:
            self.lost(f"an answer cannot be read: {reason}")
            return
        self._backoff.succeeded()

    def lost(self, reason: str) -> None:
        """Nothing more comes."""
        self._end(reason, is_failure=True)

    def _release(self) -> None:
        if self._conversation is not None:
            self._conversation.end()
