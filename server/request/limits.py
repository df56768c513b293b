"""How much one request may hold, by API: bytes, elements of arrays, the length of a name. Pure.

Kafka bounds the bytes of a request alone (`socket.request.max.bytes`). But work and memory grow with the elements: a
frame of some MiB may have millions of them. The bounds here lie far above what clients send: an admin client that names
10,000 topics has some ten thousand elements. A request beyond them is refused, or where its answer has no place for
that its connection is closed, and the log names the bound.

    APIs                          bytes                         elements
    Produce                       socket.request.max.bytes      stratalog.request.max.elements
    what is sent before a login   sasl.server.max.receive.size  1,000
    of one name, as Heartbeat     64 KiB                        1,000
    all others                    stratalog.request.max.bytes   stratalog.request.max.elements

A string is a name of at most `stratalog.request.max.name.bytes`, or a text, as a config's value, of at most 32,767, as
all strings of Kafka's. Expressions count as texts, and have a bound of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stratalog.replication.config import BrokerConfig
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.kafka_types import Bounds

SMALL_APIS: Final = frozenset(
    {
        *(ApiKey.HEARTBEAT, ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID),
        *(ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN, ApiKey.DESCRIBE_CLUSTER, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS),
    }
)
"""APIs whose requests name a few things at most."""
SMALL_BYTES: Final = 64 << 10
SMALL_ELEMENTS: Final = 1_000
NAME_BYTES_BEFORE_LOGIN: Final = 4_096
QUICK_BYTES: Final = 64 << 10
"""The size of a frame up to which it is decoded in the thread that has read it. Produce's may be larger, since batches
are not copied."""
QUICK_ELEMENTS: Final = 500
"""The elements up to which the same is done."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The bounds of the requests of one API."""

    bytes_max: int
    elements_max: int
    name_bytes_max: int

    def bounds(self, elements_max: int | None = None) -> Bounds:
        """For one request; `elements_max`: fewer elements than the limit allows."""
        elements = self.elements_max if elements_max is None else min(elements_max, self.elements_max)
        return Bounds(elements, self.name_bytes_max)


def limits_by_api(config: BrokerConfig, api_keys: Mapping[int, object]) -> dict[int, RequestLimits]:
    """The limits of these APIs."""
    return {key: _limits(config, key) for key in api_keys}


def _limits(config: BrokerConfig, api_key: int) -> RequestLimits:
    bytes_max = config.socket_request_max_bytes
    elements_max, name_bytes_max = config.stratalog_request_max_elements, config.stratalog_request_max_name_bytes
    if api_key in SMALL_APIS:
        return RequestLimits(min(SMALL_BYTES, bytes_max), min(SMALL_ELEMENTS, elements_max), name_bytes_max)
    if api_key != ApiKey.PRODUCE:
        bytes_max = min(bytes_max, config.stratalog_request_max_bytes)
    return RequestLimits(bytes_max, elements_max, name_bytes_max)


def bounds_before_login() -> Bounds:
    """For one request of a client that is not known yet."""
    return Bounds(SMALL_ELEMENTS, NAME_BYTES_BEFORE_LOGIN)


def is_quick(size_bytes: int) -> bool:
    """Whether a frame may be decoded in the thread that has read it, as far as its size says."""
    return size_bytes <= QUICK_BYTES
