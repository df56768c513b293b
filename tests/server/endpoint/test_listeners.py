"""Where a broker listens and what it advertises, in Kafka's words."""

from __future__ import annotations

import pytest

from stratalog.server.endpoint.listeners import (
    Listener,
    SecurityProtocol,
    advertised_listeners,
    check_plaintext,
    parse_listeners,
    parse_protocol_map,
    shifted,
)
from stratalog.storage.errors import InvalidConfigError

NAMED = parse_protocol_map("INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL")


def test_a_listener_has_the_protocol_of_its_name() -> None:
    found = parse_listeners("inside://0.0.0.0:9092, OUTSIDE://:9093,SSL://[::1]:9094", NAMED)
    assert [(each.name, each.protocol.value, each.host, each.port) for each in found] == [
        ("INSIDE", "PLAINTEXT", "0.0.0.0", 9092),
        ("OUTSIDE", "SASL_SSL", "", 9093),
        ("SSL", "SSL", "::1", 9094),
    ]


def test_no_listeners_is_no_endpoint() -> None:
    assert parse_listeners(" ", NAMED) == ()


def test_one_port_may_have_an_ip4_and_an_ip6_listener() -> None:
    assert len(parse_listeners("INSIDE://127.0.0.1:9092,OUTSIDE://[::1]:9092", NAMED)) == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("localhost:9092", "Invalid value localhost:9092 for configuration listeners: Unable to parse"),
        ("PLAINTEXT://h:99999", "Port 99999 must be between 0 and 65535"),
        ("OTHER://h:1", "No security protocol defined for listener OTHER"),
        ("PLAINTEXT://h:1,SSL://h:1", "Each listener must have a different port, listeners: PLAINTEXT://h:1,SSL://h:1"),
        ("SSL://h:1,SSL://h:2", "Each listener must have a different name, listeners: SSL://h:1,SSL://h:2"),
    ],
)
def test_listeners_that_cannot_be_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        parse_listeners(text, NAMED)
    assert reason in str(refusal.value)


@pytest.mark.parametrize("text", ["INSIDE", "INSIDE:TLS", "A:SSL,a:SSL"])
def test_a_protocol_map_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"listener\.security\.protocol\.map"):
        parse_protocol_map(text)


def test_all_interfaces_are_advertised_by_the_machines_name() -> None:
    bound = parse_listeners("INSIDE://:9092,OUTSIDE://10.0.0.1:9093", NAMED)
    found = advertised_listeners("", bound, NAMED, "b1.example")
    assert [each.connection_string for each in found] == ["INSIDE://b1.example:9092", "OUTSIDE://10.0.0.1:9093"]


def test_an_advertised_port_of_0_is_the_real_one() -> None:
    bound = parse_listeners("INSIDE://:9092", NAMED)
    assert advertised_listeners("INSIDE://proxy:0", bound, NAMED, "b")[0].connection_string == "INSIDE://proxy:9092"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("OUTSIDE://h:1", "must be equal to or a subset of the ones defined in listeners. Found OUTSIDE"),
        ("INSIDE://0.0.0.0:1", "cannot use the nonroutable meta-address 0.0.0.0"),
    ],
)
def test_an_advertised_listener_has_a_listener_and_a_routable_host(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        advertised_listeners(text, parse_listeners("INSIDE://:9092", NAMED), NAMED, "b")
    assert reason in str(refusal.value)


def test_brokers_of_one_machine_have_ports_one_above_the_other() -> None:
    given = parse_listeners("INSIDE://:9092,OUTSIDE://:0", NAMED)
    assert [each.port for each in shifted(given, 2)] == [9094, 0]
    with pytest.raises(InvalidConfigError, match="at most port 65535"):
        shifted(parse_listeners("INSIDE://:65535", NAMED), 1)


@pytest.mark.parametrize(
    ("host", "protocol", "is_fine"),
    [
        ("localhost", SecurityProtocol.PLAINTEXT, True),
        ("127.0.0.9", SecurityProtocol.PLAINTEXT, True),
        ("::1", SecurityProtocol.PLAINTEXT, True),
        ("", SecurityProtocol.PLAINTEXT, False),
        ("10.0.0.1", SecurityProtocol.PLAINTEXT, False),
        ("localhost", SecurityProtocol.SASL_PLAINTEXT, True),
        ("", SecurityProtocol.SASL_PLAINTEXT, False),
        ("10.0.0.1", SecurityProtocol.SASL_PLAINTEXT, False),
        ("", SecurityProtocol.SASL_SSL, True),
        ("", SecurityProtocol.SSL, True),
    ],
)
def test_plaintext_for_other_machines_has_to_be_allowed(host: str, protocol: SecurityProtocol, is_fine: bool) -> None:
    listeners = [Listener("L", protocol, host, 9092)]
    check_plaintext(listeners, allows_plaintext=True)
    if is_fine:
        check_plaintext(listeners, allows_plaintext=False)
        return
    with pytest.raises(InvalidConfigError, match=r"set stratalog\.allow\.plaintext=true"):
        check_plaintext(listeners, allows_plaintext=False)
