"""Limits of a socket server: connections in all and of one address, requests and bytes under way. Pure.

A connection beyond a limit is closed at once, as in Kafka. Requests beyond theirs are not refused: whoever sent them is
not read from until others are answered.
Source: Kafka's `ConnectionQuotas`, `SocketServer`'s memory pool, `queued.max.requests`.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stratalog.replication.host_address import host_address
from stratalog.storage.config_def import invalid_value

PER_IP_OVERRIDES = "max.connections.per.ip.overrides"


def parse_overrides(text: str) -> dict[str, int]:
    """`127.0.0.1:200,10.0.0.7:5` as limit by address. InvalidConfigError for anything else.

    >>> parse_overrides("127.0.0.1:200, ::1:5")
    {'127.0.0.1': 200, '::1': 5}
    """
    found: dict[str, int] = {}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        address, _, limit = pair.rpartition(":")
        if not address or not limit.isdigit():
            raise invalid_value(PER_IP_OVERRIDES, text, f"'{pair}' must be in the format address:number")
        found[host_address(address)] = int(limit)
    return found


@dataclass(slots=True)
class ConnectionQuotas:
    """Counts connections, in all and by address; `admit` and `release` are called in pairs, from any thread."""

    connections_max: int
    per_ip_max: int
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    _by_ip: Counter[str] = field(default_factory=Counter)
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def count(self) -> int:
        """The connections that are counted in."""
        return self._count

    def admit(self, address: str) -> str:
        """Count a connection of this address in. "" if it may stay, else the limit that it exceeds, not counted."""
        limit = self.per_ip_overrides.get(address, self.per_ip_max)
        with self._lock:
            if self._count >= self.connections_max:
                return f"max.connections={self.connections_max} are open"
            if self._by_ip[address] >= limit:
                return f"{limit} connections of {address} are open, max.connections.per.ip"
            self._by_ip[address] += 1
            self._count += 1
        return ""

    def release(self, address: str) -> None:
        """Count a connection out that was admitted."""
        with self._lock:
            self._count -= 1
            self._by_ip[address] -= 1
            if not self._by_ip[address]:
                del self._by_ip[address]


class RequestBound:
    """A number of units (requests, or bytes) that may be under way. Any thread may use it.

    A taker that finds no room is called once there is some; it then has to try again.
    """

    def __init__(self, limit: int) -> None:
        """`limit` below 0: none."""
        self._limit = limit
        self._taken = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        return self._taken

    @property
    def waiting(self) -> int:
        """Number of callers that wait for room."""
        return len(self._waiting)

    def take(self, count: int, when_free: Callable[[], None]) -> bool:
        """Take units if the bound is not reached yet (a taker may exceed it once, so that a large request is possible).
        False: `when_free` will be called."""
        with self._lock:
            if 0 <= self._limit <= self._taken:
                self._waiting.append(when_free)
                return False
            self._taken += count
            return True

    def add(self, count: int) -> None:
        """Take units even beyond the bound."""
        with self._lock:
            self._taken += count

    def release(self, count: int) -> None:
        """Return units; those that wait are called once the bound is free again."""
        with self._lock:
            self._taken -= count
            is_free = self._limit < 0 or self._taken < self._limit
            waiting = list(self._waiting) if is_free else []
            if waiting:
                self._waiting.clear()
        for when_free in waiting:
            when_free()
