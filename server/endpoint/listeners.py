"""Listeners: where a broker listens, with which security, and where clients reach it. Pure.

`listeners = INSIDE://0.0.0.0:9092,OUTSIDE://:9093` with `listener.security.protocol.map = INSIDE:PLAINTEXT,OUTSIDE:SSL`
are two listeners; `advertised.listeners` are the addresses that Metadata responses name, by listener. An empty host is
all interfaces, and is advertised as the machine's own name. Error texts are Kafka's.
Source: Kafka's `SocketServerConfigs`, `AbstractKafkaConfig`, `KafkaConfig.validateValues`, `EndPoint`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from stratalog.storage.config_def import invalid_value
from stratalog.storage.errors import InvalidConfigError

LISTENERS, ADVERTISED_LISTENERS = "listeners", "advertised.listeners"
PROTOCOL_MAP = "listener.security.protocol.map"
INTER_BROKER_LISTENER, INTER_BROKER_PROTOCOL = "inter.broker.listener.name", "security.inter.broker.protocol"
ANY_HOST = "0.0.0.0"
_ENDPOINT = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<ip6>[^\[\]]*)\]|(?P<host>[^\[\]/:]*)):(?P<port>-?[0-9]+)")
PORT_MAX = 65_535

K = TypeVar("K")


class SecurityProtocol(StrEnum):
    """How a listener's connections are secured. Kafka's `SecurityProtocol`."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class Listener:
    """One address of a broker. `name` is in upper case; `port` 0 is any free one; an empty `host` all interfaces."""

    name: str
    protocol: SecurityProtocol
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of the same machine reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def connection_string(self) -> str:
        """Kafka's `EndPoint.connectionString`.

        >>> Listener("INSIDE", SecurityProtocol.PLAINTEXT, "::1", 9092).connection_string
        'INSIDE://[::1]:9092'
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """`INSIDE:PLAINTEXT,OUTSIDE:SSL` as protocol by listener name. Names of protocols are listeners of themselves.

    Raises InvalidConfigError for an unknown protocol or a listener that is named twice.
    """
    found: dict[str, SecurityProtocol] = {}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        name, _, protocol = pair.rpartition(":")
        if not name.strip():
            raise invalid_value(PROTOCOL_MAP, text, f"'{pair}' must be in the format listener name:security protocol")
        if name.strip().upper() in found:
            raise invalid_value(PROTOCOL_MAP, text, f"listener {name.strip()} is named twice")
        try:
            found[name.strip().upper()] = SecurityProtocol(protocol.strip().upper())
        except ValueError as reason:
            known = ", ".join(SecurityProtocol)
            raise invalid_value(PROTOCOL_MAP, text, f"No enum constant {protocol.strip()}; known: {known}") from reason
    return {**{each.value: each for each in SecurityProtocol}, **found}


def parse_listeners(text: str, protocols: Mapping[str, SecurityProtocol]) -> tuple[Listener, ...]:
    """The listeners of `listeners`, in their order; () for an empty text.

    >>> [each.port for each in parse_listeners("PLAINTEXT://:9092,SSL://:9093", parse_protocol_map(""))]
    [9092, 9093]

    Raises InvalidConfigError in Kafka's words: what is no endpoint, a name without a protocol, a port or a name twice.
    """
    found = tuple(_endpoint(LISTENERS, each, protocols) for each in _parts(text))
    _check_names(LISTENERS, text, found)
    ports = [each.port for each in found if each.port]
    for port in _repeated(ports):
        if not _are_ip4_and_ip6([each for each in found if each.port == port]):
            raise InvalidConfigError(f"Each listener must have a different port, listeners: {text}")
    return found


def advertised_listeners(
    text: str, bound: Sequence[Listener], protocols: Mapping[str, SecurityProtocol], own_host: str
) -> tuple[Listener, ...]:
    """Where clients reach the listeners that are `bound` (their real ports): those of `text`, else the same addresses.

    own_host  stands for an address that means all interfaces
    Raises InvalidConfigError for one without a listener, and for 0.0.0.0.
    """
    if not text.strip():
        return tuple(replace(each, host=own_host) if each.host in ("", ANY_HOST, "::") else each for each in bound)
    found = tuple(_endpoint(ADVERTISED_LISTENERS, each, protocols) for each in _parts(text))
    _check_names(ADVERTISED_LISTENERS, text, found)
    by_name = {each.name: each for each in bound}
    unknown = [each.name for each in found if each.name not in by_name]
    if unknown:
        raise InvalidConfigError(
            f"{ADVERTISED_LISTENERS} listener names must be equal to or a subset of the ones defined in {LISTENERS}. "
            f"Found {','.join(each.name for each in found)}. The valid options based on the current configuration are "
            f"{','.join(by_name)}"
        )
    for each in found:
        if each.host in ("", ANY_HOST, "::"):
            raise InvalidConfigError(
                f"{ADVERTISED_LISTENERS} cannot use the nonroutable meta-address {each.host or ANY_HOST}. "
                "Use a routable IP address."
            )
    return tuple(replace(each, port=each.port or by_name[each.name].port) for each in found)


def shifted(listeners: Iterable[Listener], by: int) -> tuple[Listener, ...]:
    """The same listeners for another broker of one machine: `by` ports higher; any free port stays one.

    Raises InvalidConfigError above port 65535.
    """
    found = tuple(replace(each, port=each.port + by if each.port else 0) for each in listeners)
    for each in found:
        if each.port > PORT_MAX:
            raise invalid_value(LISTENERS, each.connection_string, f"Value must be at most port {PORT_MAX}")
    return found


def check_plaintext(listeners: Iterable[Listener], *, allows_plaintext: bool) -> None:
    """InvalidConfigError for a listener that other machines reach without encryption, unless allowed: also for one with
    a login, since records, and with some mechanisms passwords and tokens, are in clear text there."""
    for each in listeners:
        if not each.protocol.is_encrypted and not each.is_loopback and not allows_plaintext:
            raise InvalidConfigError(
                f"Listener {each.connection_string} is open to other machines without encryption. Bind it to "
                "localhost, give it SSL or SASL_SSL, or set stratalog.allow.plaintext=true"
            )


def inter_broker_name(listener: str, protocol: str) -> str:
    """The listener that `inter.broker.listener.name` names, or `security.inter.broker.protocol`; "": the first one.

    >>> inter_broker_name("", "SASL_SSL"), inter_broker_name("inside", "")
    ('SASL_SSL', 'INSIDE')

    Raises InvalidConfigError in Kafka's words for both.
    """
    if listener.strip() and protocol:
        raise InvalidConfigError(f"Only one of {INTER_BROKER_LISTENER} and {INTER_BROKER_PROTOCOL} should be set.")
    return listener.strip().upper() or protocol


def inter_broker_listener(name: str, advertised: Sequence[Listener]) -> str:
    """The name of `inter.broker.listener.name` as listeners have it; "", the first one, for "".

    Raises InvalidConfigError in Kafka's words for a name that is not advertised.
    """
    wanted = name.strip().upper()
    if wanted and wanted not in [each.name for each in advertised]:
        raise InvalidConfigError(
            f"{INTER_BROKER_LISTENER} must be a listener name defined in {ADVERTISED_LISTENERS}. The valid options "
            f"based on currently configured listeners are {','.join(each.name for each in advertised)}"
        )
    return wanted


def _parts(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _endpoint(name: str, text: str, protocols: Mapping[str, SecurityProtocol]) -> Listener:
    found = _ENDPOINT.fullmatch(text)
    if found is None:
        raise invalid_value(name, text, "Unable to parse to an endpoint, which is NAME://host:port")
    listener_name, port = found["name"].upper(), int(found["port"])
    if not 0 <= port <= PORT_MAX:
        raise invalid_value(name, text, f"Port {port} must be between 0 and {PORT_MAX}")
    protocol = protocols.get(listener_name)
    if protocol is None:
        raise InvalidConfigError(f"No security protocol defined for listener {listener_name}")
    return Listener(listener_name, protocol, found["ip6"] or found["host"] or "", port)


def _check_names(name: str, text: str, found: Sequence[Listener]) -> None:
    if _repeated([each.name for each in found]):
        raise InvalidConfigError(f"Each listener must have a different name, {name}: {text}")


def _repeated(keys: Sequence[K]) -> list[K]:
    return [key for which, key in enumerate(keys) if key in keys[:which]]


def _are_ip4_and_ip6(two: Sequence[Listener]) -> bool:
    """Kafka's exception: one port for both families of addresses."""
    try:
        versions = sorted(ipaddress.ip_address(each.host).version for each in two)
    except ValueError:
        return False
    return versions == [4, 6]
