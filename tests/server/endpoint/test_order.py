"""One connection's requests: which begin, and in which order their answers leave."""

from __future__ import annotations

from struct import pack

from stratalog.server.endpoint.order import PIPELINED_MAX, Flight, RequestOrder
from stratalog.wire.api_keys import ApiKey


def frame(api_key: int, number: int = 0) -> bytes:
    return pack(">hhi", api_key, 0, number)


def begun(order: RequestOrder) -> list[Flight]:
    found = []
    while (flight := order.next()) is not None:
        found.append(flight)
    return found


def test_one_request_at_a_time() -> None:
    order = RequestOrder()
    order.received([frame(ApiKey.METADATA), frame(ApiKey.METADATA)])
    (first,) = begun(order)
    assert order.is_blocked
    assert [each.answer for each in order.answered(first, b"1")] == [b"1"]
    assert len(begun(order)) == 1


def test_consecutive_produce_requests_begin_together_up_to_a_limit() -> None:
    order = RequestOrder()
    order.received([frame(ApiKey.PRODUCE)] * 7)
    flights = begun(order)
    assert len(flights) == PIPELINED_MAX
    order.answered(flights[0], b"")
    assert len(begun(order)) == 1


def test_another_request_waits_for_all_before_it_and_holds_back_those_behind_it() -> None:
    order = RequestOrder()
    order.received([frame(ApiKey.PRODUCE), frame(ApiKey.PRODUCE), frame(ApiKey.METADATA), frame(ApiKey.PRODUCE)])
    first, second = begun(order)
    order.answered(second, b"2")
    assert begun(order) == []
    order.answered(first, b"1")
    (metadata,) = begun(order)
    assert metadata.api_key == ApiKey.METADATA
    assert begun(order) == []


def test_answers_leave_in_the_order_of_the_requests() -> None:
    order = RequestOrder()
    order.received([frame(ApiKey.PRODUCE)] * 3)
    first, second, third = begun(order)
    assert order.answered(third, b"3") == []
    assert [each.answer for each in order.answered(first, None)] == [None]
    assert [each.answer for each in order.answered(second, b"2")] == [b"2", b"3"]
    assert len(order) == 0


def test_a_frame_too_short_for_an_api_is_a_request_of_its_own() -> None:
    order = RequestOrder()
    order.received([b"", frame(ApiKey.PRODUCE)])
    (flight,) = begun(order)
    assert flight.api_key == -1
