"""Where a broker is reached by clients, from what it registered. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

INBOX = "inbox"
"""The listener of requests that come through the inbox: every broker has it, at the address of its root."""
_ADDRESS = re.compile(r"(?:[A-Z_]+://)?\[?(?P<host>[^\[\]]*?)\]?:(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker is reached by clients."""

    host: str
    port: int

    @staticmethod
    def parse(text: str) -> Endpoint | None:
        """`PLAINTEXT://host:port` or `host:port`, as in Kafka's `advertised.listeners`; None for anything else.

        >>> Endpoint.parse("PLAINTEXT://b1.example:9092")
        Endpoint(host='b1.example', port=9092)
        """
        found = _ADDRESS.fullmatch(text.strip())
        return Endpoint(found["host"], int(found["port"])) if found else None

    @staticmethod
    @lru_cache
    def by_listener(text: str) -> Mapping[str, Endpoint]:
        """What a broker registered: an address for each listener, with commas; that of "" is the first one.

        >>> Endpoint.by_listener("INSIDE://b1:9092,OUTSIDE://b1.example:9093")["OUTSIDE"].port
        9093
        """
        found: dict[str, Endpoint] = {}
        for each in text.split(","):
            endpoint = Endpoint.parse(each)
            if endpoint is not None:
                found.setdefault("", endpoint)
                found[each.partition("://")[0].strip()] = endpoint
        return found
