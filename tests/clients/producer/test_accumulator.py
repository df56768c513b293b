"""When batches are sent: full, after the linger, on a flush; how many at once; and what they weigh."""

from __future__ import annotations

import pyarrow as pa

from stratalog.clients.config import ProducerConfig
from stratalog.clients.producer.accumulator import Accumulator
from stratalog.clients.producer.retry import Action, Verdict
from stratalog.storage.errors import (
    NotLeaderOrFollowerError,
    OutOfOrderSequenceNumberError,
    RecordTooLargeError,
    RequestTimedOutError,
)
from stratalog.storage.records import PAYLOAD_SCHEMA, RECORD_OVERHEAD_BYTES, Header, TopicPartition, payload_table

T0 = TopicPartition("t", 0)


def accumulator(**settings: object) -> Accumulator:
    return Accumulator(ProducerConfig.from_settings(None, settings), iter(range(7, 99)).__next__)


def fill(made: Accumulator, count: int, now_ms: int = 0, size: int = 10) -> None:
    for i in range(count):
        made.append(T0, now_ms, i, None, b"x" * size, None, RECORD_OVERHEAD_BYTES + size)


def test_without_linger_a_record_is_due_at_once() -> None:
    made = accumulator()
    assert made.queue(T0).ready_at_ms(False) is None
    fill(made, 1, now_ms=40)
    assert made.queue(T0).ready_at_ms(False) == 40


def test_a_batch_lingers_unless_it_is_full_or_flushed() -> None:
    made = accumulator(linger_ms=100, batch_size=100)
    fill(made, 1, now_ms=40)
    queue = made.queue(T0)
    assert queue.ready_at_ms(False) == 140
    assert queue.ready_at_ms(True) == 40
    fill(made, 3, now_ms=50)
    assert len(queue.waiting) == 2
    assert queue.ready_at_ms(False) == 40


def test_a_batch_becomes_a_payload_with_consecutive_sequences() -> None:
    made = accumulator(batch_size=70)
    fill(made, 4)
    queue = made.queue(T0)
    first, second = queue.send_next(0), queue.send_next(0)
    assert first.payload is not None
    assert first.payload.schema == PAYLOAD_SCHEMA
    assert (first.producer_id, first.producer_epoch, first.sequence, first.record_count) == (7, 0, 0, 2)
    assert (second.sequence, second.record_count) == (2, 2)


def test_at_most_max_in_flight_batches_go_beyond_the_oldest_unanswered() -> None:
    made = accumulator(batch_size=1, max_in_flight=2)
    fill(made, 4)
    queue = made.queue(T0)
    first, second = queue.send_next(0), queue.send_next(0)
    assert queue.ready_at_ms(False) is None
    queue.answered(second, None, 0, 0.0)
    assert queue.ready_at_ms(False) is None
    queue.answered(first, None, 0, 0.0)
    assert queue.ready_at_ms(False) == 0


def test_a_retry_waits_for_its_backoff_and_for_everything_in_flight() -> None:
    made = accumulator(batch_size=1)
    fill(made, 3)
    queue = made.queue(T0)
    first, second = queue.send_next(0), queue.send_next(0)
    queue.answered(first, NotLeaderOrFollowerError(), 10, 0.0)
    assert queue.ready_at_ms(False) is None
    queue.answered(second, NotLeaderOrFollowerError(), 10, 0.0)
    assert queue.ready_at_ms(False) == 110
    assert [queue.send_next(110).sequence, queue.ready_at_ms(False)] == [0, None]


def test_a_batch_is_sent_at_once_to_a_leader_that_has_not_refused_it() -> None:
    made = accumulator()
    fill(made, 1)
    queue = made.queue(T0)
    queue.answered(queue.send_next(0, leader_epoch=4), NotLeaderOrFollowerError(), 10, 0.0)
    assert queue.is_held_back
    assert [queue.ready_at_ms(False, leader_epoch) for leader_epoch in (3, 4, 5)] == [110, 110, 0]
    queue.answered(queue.send_next(20, leader_epoch=5), NotLeaderOrFollowerError(), 30, 0.0)
    assert queue.ready_at_ms(False, 5) == 230
    assert not queue.send_next(230, 5).done
    assert not queue.is_held_back


def test_a_batch_that_was_judged_before_an_older_one_is_sent_again() -> None:
    """Requests through an inbox may be served in another order than they were sent, and answered in a third."""
    made = accumulator(batch_size=1)
    fill(made, 2)
    queue = made.queue(T0)
    first, second = queue.send_next(0), queue.send_next(0)
    queue.answered(first, None, 1, 0.0)
    assert queue.answered(second, OutOfOrderSequenceNumberError(), 2, 0.0) == Verdict(Action.RETRY)
    assert queue.send_next(3) is second
    lost = queue.answered(second, OutOfOrderSequenceNumberError(), 4, 0.0)
    assert lost == Verdict(Action.FAIL, new_epoch=True), "nothing was stored meanwhile"


def test_rows_of_a_table_go_behind_what_waits_and_memory_is_counted() -> None:
    made = accumulator()
    fill(made, 1)
    payload = payload_table([(1, None, b"a", None), (2, None, b"b", None)])
    made.append_payload(T0, 0, payload, 60)
    fill(made, 1)
    assert [batch.record_count for batch in made.queue(T0).waiting] == [1, 2, 1]
    assert made.used_bytes == 34 + 60 + 34
    for batch in made.batches():
        made.release(batch)
    assert made.used_bytes == 0


def test_what_cannot_be_sent_yet_grows_beyond_batch_size() -> None:
    made = accumulator(batch_size=70, max_in_flight=1)
    fill(made, 4)
    queue = made.queue(T0)
    queue.send_next(0)
    fill(made, 100)
    assert [batch.record_count for batch in queue.waiting] == [32, 32, 32, 6], "34 bytes a record, 16 * 70 a batch"
    assert [batch.closed for batch in queue.waiting] == [True, True, True, False]


def test_a_batch_that_the_broker_found_too_large_ends_the_growth() -> None:
    made = accumulator(batch_size=70, max_in_flight=1)
    fill(made, 2)
    queue = made.queue(T0)
    queue.answered(queue.send_next(0), RecordTooLargeError(), 0, 0.0)
    queue.send_next(0)
    fill(made, 4)
    assert [batch.record_count for batch in queue.waiting] == [1, 2, 2]


def test_tables_that_wait_travel_together_up_to_the_request_size() -> None:
    made = accumulator(max_request_size=150, linger_ms=1_000)
    payload = payload_table([(1, None, b"a", None), (2, None, b"b", None)])
    places = [made.append_payload(T0, 0, payload, 60) for _ in range(3)]
    queue = made.queue(T0)
    assert [(batch.number, first) for _, batch, first in places] == [(1, 0), (1, 2), (2, 0)]
    assert queue.ready_at_ms(False) == 0, "tables do not linger"
    sent = queue.send_next(0)
    assert (sent.record_count, sent.size_bytes, sent.payload.num_rows) == (4, 120, 4)  # type: ignore[union-attr]
    made.append_payload(T0, 0, payload, 60)
    assert [batch.record_count for batch in queue.waiting] == [4], "what was sent takes nobody in any more"


def test_batches_expire_in_kafkas_words_wherever_they_are() -> None:
    made = accumulator(batch_size=1)
    fill(made, 2)
    queue = made.queue(T0)
    queue.send_next(0)
    assert queue.expire(99, 100) == []
    expired = queue.expire(100, 100)
    assert [type(error) for _, error in expired] == [RequestTimedOutError] * 2
    assert str(expired[0][1]) == "Expiring 1 record(s) for t-0:100 ms has passed since batch creation"
    assert queue.is_empty()


def test_headers_survive_the_way_into_a_payload() -> None:
    made = accumulator()
    made.append(T0, 0, 5, b"k", None, [Header("h", b"v"), Header("h", None)], 58)
    made.append(T0, 0, None, None, b"", None, 24)
    payload = made.queue(T0).send_next(0).payload
    assert isinstance(payload, pa.Table)
    assert payload.drop_columns("timestamp").to_pylist() == [
        {"key": b"k", "value": None, "headers": [{"key": "h", "value": b"v"}, {"key": "h", "value": None}]},
        {"key": None, "value": b"", "headers": None},
    ]
