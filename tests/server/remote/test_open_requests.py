"""Which request of a connection waits for which answer."""

from __future__ import annotations

from functools import partial
from struct import pack

import pytest

from stratalog.server.remote.connections.open_requests import Lost, OpenRequest, OpenRequests, ReconnectBackoff
from stratalog.storage.errors import InvalidRequestError

Answers = list[tuple[int, bytes | Lost]]


def put(open_requests: OpenRequests, answers: Answers, *numbers: int, has_answer: bool = True) -> None:
    for number in numbers:
        answer = partial(lambda number, outcome: answers.append((number, outcome)), number)
        open_requests.put(OpenRequest(number, b"%d" % number, 100 * number, answer, has_answer))


def frame(number: int) -> bytes:
    return pack(">i", number) + b"rest"


def test_requests_are_sent_once_and_answered_in_order() -> None:
    waiting, answers = OpenRequests(), Answers()
    put(waiting, answers, 1, 2)
    assert [each.correlation_id for each in waiting.to_send()] == [1, 2]
    assert waiting.to_send() == []
    put(waiting, answers, 3)
    assert [each.frame for each in waiting.to_send()] == [b"3"]
    for number in (1, 2, 3):
        assert waiting.answered(frame(number)).correlation_id == number
    assert len(waiting) == 0


def test_a_request_without_an_answer_is_not_waited_for() -> None:
    waiting, answers = OpenRequests(), Answers()
    put(waiting, answers, 1, has_answer=False)
    put(waiting, answers, 2)
    assert len(waiting.to_send()) == 2
    assert (len(waiting), waiting.next_deadline_ms) == (1, 200)
    assert waiting.answered(frame(2)).correlation_id == 2


@pytest.mark.parametrize("answer", [frame(2), frame(7), b"ab", b""])
def test_an_answer_to_anything_but_the_oldest_request_is_refused(answer: bytes) -> None:
    waiting, answers = OpenRequests(), Answers()
    put(waiting, answers, 1, 2)
    waiting.to_send()
    with pytest.raises(InvalidRequestError):
        waiting.answered(answer)


def test_an_answer_to_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="None is expected"):
        OpenRequests().answered(frame(1))


def test_the_end_of_the_connection_answers_everything_once() -> None:
    waiting, answers = OpenRequests(), Answers()
    put(waiting, answers, 1, 2)
    waiting.to_send()
    put(waiting, answers, 3)
    for request, lost in waiting.lost("gone"):
        request.answer(lost)
    assert answers == [(1, Lost("gone", True)), (2, Lost("gone", True)), (3, Lost("gone", False))]
    assert (waiting.lost("again"), waiting.next_deadline_ms) == ([], None)


def test_the_first_deadline_may_be_any_requests() -> None:
    waiting, answers = OpenRequests(), Answers()
    put(waiting, answers, 9)
    waiting.to_send()
    put(waiting, answers, 4, 6)
    assert waiting.next_deadline_ms == 400


def test_pauses_between_attempts_double_up_to_a_limit_and_begin_anew_after_a_success() -> None:
    backoff, pauses = ReconnectBackoff(50, 1_000), list[int]()
    now_ms = 0
    for _ in range(7):
        backoff.failed(now_ms)
        pauses.append(backoff.wait_ms(now_ms))
        now_ms += pauses[-1]
    assert pauses == [50, 100, 200, 400, 800, 1_000, 1_000]
    backoff.succeeded()
    backoff.failed(now_ms)
    assert backoff.wait_ms(now_ms) == 50
    assert backoff.wait_ms(now_ms + 80) == 0
