"""One connection to a broker, whatever carries it: its requests, deadlines, end. I/O: a network thread's timers.

All methods run in the network thread. A connection on which a request is not answered in its time is ended: every
request that waits there is answered once, with `Lost`.
Source: Kafka's `NetworkClient`.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable

from stratalog.server.endpoint.loops import NetworkThread
from stratalog.server.remote.connections.config import ConnectionConfig
from stratalog.server.remote.connections.open_requests import OpenRequest, OpenRequests, ReconnectBackoff
from stratalog.storage.clock import SystemClock
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger

_LOG = line_logger("stratalog.network")


class RequestConnection(ABC):
    """A connection that is not made yet, open, or ended for good; `ended` is called once, in the last case.

    was_made  it has been open
    """

    def __init__(
        self,
        thread: NetworkThread,
        config: ConnectionConfig,
        backoff: ReconnectBackoff,
        ended: Callable[[RequestConnection], None],
    ) -> None:
        """Begins as soon as `backoff` allows."""
        self.was_made = False
        self._thread = thread
        self._config = config
        self._backoff = backoff
        self._ended = ended
        self._clock = SystemClock()
        self._open = OpenRequests()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._active_s = thread.loop.time()
        self._has_ended = False
        thread.connections.add(self)
        wait_s = backoff.wait_ms(self._clock.monotonic_ms()) / 1_000
        self._start = thread.loop.call_later(wait_s, self._begin)

    def send(self, request: OpenRequest) -> None:
        """Send a request, now or once there is a connection."""
        self._open.put(request)
        self._active_s = self._thread.loop.time()
        if self.was_made:
            self._send_all()
        self._watch(request.deadline_ms)

    # -- what carries it -------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def _where(self) -> str:
        """The broker's address, for the log."""

    @abstractmethod
    def _begin(self) -> None:
        """Make the connection."""

    @abstractmethod
    def _send_all(self) -> None:
        """Send what waits, if it may be sent now."""

    @abstractmethod
    def _release(self) -> None:
        """Close what carries it."""

    # -- deadlines and the end -------------------------------------------------------------------------------

    def _watch(self, deadline_ms: int) -> None:
        """Wake up at the first deadline."""
        if self._has_ended or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        wait_s = max(0, deadline_ms - self._clock.monotonic_ms()) / 1_000
        self._timer = self._thread.loop.call_later(wait_s, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timer = None
        first_ms = self._open.next_deadline_ms
        if first_ms is None:
            return
        if first_ms <= self._clock.monotonic_ms():
            self._end("a request was not answered in its time", is_failure=True)
        else:
            self._watch(first_ms)

    @property
    def is_busy(self) -> bool:
        return len(self._open) > 0

    def stop_reading(self) -> None:
        """Answers are read until the end."""
        return

    def close_if_idle(self, now_s: float) -> None:
        if not self.is_busy and now_s - self._active_s > self._config.connections_max_idle_ms / 1_000:
            self.close()

    @property
    def unread_bytes(self) -> int:
        """Requests that the broker does not read hold up nobody's end."""
        return 0

    def close(self, reason: str = "") -> None:
        """End the connection; requests that wait are lost."""
        self._end(reason or "the connection was closed", is_failure=False)

    def abort(self) -> None:
        self.close()

    def _end(self, reason: str, *, is_failure: bool, error: StratalogError | None = None) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        if is_failure:
            self._backoff.failed(self._clock.monotonic_ms())
            if len(self._open):
                level = logging.INFO if error is None else logging.ERROR
                _LOG.log(level, "broker at %s: %s", self._where, reason)
        self._start.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._release()
        self._thread.connections.discard(self)
        self._ended(self)
        for request, lost in self._open.lost(reason, error):
            request.answer(lost)
