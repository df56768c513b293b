"""Limits of connections and of requests under way."""

from __future__ import annotations

import pytest

from stratalog.server.endpoint.admission import ConnectionQuotas, RequestBound, parse_overrides
from stratalog.storage.errors import InvalidConfigError


def test_connections_of_one_address_and_of_all_are_limited() -> None:
    quotas = ConnectionQuotas(3, 2, {"10.0.0.9": 0})
    assert quotas.admit("10.0.0.1") == quotas.admit("10.0.0.1") == ""
    assert quotas.admit("10.0.0.1") == "2 connections of 10.0.0.1 are open, max.connections.per.ip"
    assert quotas.admit("10.0.0.9") == "0 connections of 10.0.0.9 are open, max.connections.per.ip"
    assert quotas.admit("10.0.0.2") == ""
    assert quotas.admit("10.0.0.3") == "max.connections=3 are open"
    quotas.release("10.0.0.1")
    assert quotas.admit("10.0.0.3") == ""


def test_overrides_count_for_every_form_of_an_address() -> None:
    assert parse_overrides("::ffff:10.0.0.7:5,[0:0:0:0:0:0:0:1]:6") == {"10.0.0.7": 5, "::1": 6}


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:x", ":5"])
def test_overrides_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"max\.connections\.per\.ip\.overrides"):
        parse_overrides(text)


def test_a_taker_beyond_the_bound_waits_until_units_are_returned() -> None:
    bound, called = RequestBound(100), []
    assert bound.take(80, lambda: called.append("a"))
    assert bound.take(80, lambda: called.append("b"))  # one more may begin: a large request has to be possible
    assert not bound.take(1, lambda: called.append("c"))
    bound.release(30)
    assert called == []
    bound.release(50)
    assert called == ["c"]
    assert bound.taken == 80


def test_a_negative_limit_is_none() -> None:
    bound = RequestBound(-1)
    assert bound.take(10**9, lambda: None)
    assert bound.take(10**9, lambda: None)
