"""A TLS context that is made again when one of its files has changed, as when a certificate is renewed.

I/O: the files, when a connection begins. Connections that are open keep what they began with.
Source: what Kafka does when `ssl.keystore.location` is altered to the same path (`SslFactory.reconfigure`, KIP-226).
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable, Iterable

from stratalog.storage.clock import Clock
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.log_lines import line_logger

_LOG = line_logger("stratalog.network")
CHECK_MS = 1_000
"""The files are looked at this often at most."""

_State = tuple[tuple[int, int, int] | None, ...]
"""Of each file the time of its last change, its size and its number; None while it is not there."""


class WatchedContext:
    """Any thread may use it. A file that cannot be read, as while it is written, changes nothing: one warning, and the
    next connection has it read again."""

    def __init__(self, make: Callable[[], ssl.SSLContext], paths: Iterable[str], clock: Clock) -> None:
        """`make` reads the files `paths` and raises InvalidConfigError; so does this for the first context."""
        self._make = make
        self._paths = tuple(path for path in paths if path)
        self._clock = clock
        self._lock = threading.Lock()
        self._state = self._refreshed()
        self._context = make()
        self._checked_ms = clock.monotonic_ms()
        self._told = ""

    def current(self) -> ssl.SSLContext:
        """The context of the files as they are now."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._checked_ms < CHECK_MS or not self._lock.acquire(blocking=False):
            return self._context
        try:
            self._checked_ms = now_ms
            state = self._refreshed()
            if state != self._state:
                self._renew(state)
        finally:
            self._lock.release()
        return self._context

    def _renew(self, state: _State) -> None:
        try:
            self._context = self._make()
        except InvalidConfigError as reason:
            if str(reason) != self._told:
                _LOG.warning("new connections keep the certificates as they were: %s", reason)
            self._told = str(reason)
            return
        self._state, self._told = state, ""
        _LOG.info("new connections use %s as changed", " and ".join(self._paths))

    def _refreshed(self) -> _State:
        return tuple(map(_state_of, self._paths))


def _state_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
