"""What a Fetch response says of a partition."""

from __future__ import annotations

import pyarrow as pa

from stratalog.clients.wire.fetched import FetchedPart, fetch_message, fetched_part
from stratalog.server.view.read_committed import without_aborted
from stratalog.storage.records import TRANSACTIONAL_ATTRIBUTE, NewRecordBatch, payload_table
from stratalog.storage.transactions import EndMarker, marker_batch
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.batches.record_batches import encode_batch
from stratalog.wire.messages.frames import decode_request, encode_request
from stratalog.wire.messages.schema import request_type
from stratalog.wire.messages.values import id_text
from tests.clients.wire.test_cluster_image import ID, response
from tests.wire.batches.decoded import with_offsets


def batch(base_offset: int, *values: bytes, producer_id: int = -1) -> bytes:
    rows = payload_table([(1_000, None, value, None) for value in values])
    attributes = TRANSACTIONAL_ATTRIBUTE if producer_id >= 0 else 0
    made = NewRecordBatch(
        rows, producer_id, 0 if producer_id >= 0 else -1, 0 if producer_id >= 0 else -1, attributes=attributes
    )
    return with_offsets(encode_batch(made), base_offset, 3)


def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytes:
    return with_offsets(encode_batch(marker_batch(producer_id, 0, EndMarker(is_commit, 1), 1_000)), offset, 3)


def fetched(data: bytes, offset: int, *aborted: tuple[int, int]) -> FetchedPart:
    part = {
        "partition_index": 0, "high_watermark": 50, "last_stable_offset": 40, "log_start_offset": 2, "records": data,
        "aborted_transactions": [{"producer_id": producer, "first_offset": first} for producer, first in aborted],
    }  # fmt: skip
    answer = response(ApiKey.FETCH, 13, {"responses": [{"topic_id": ID, "partitions": [part]}]})
    return fetched_part(answer.responses[0].partitions[0], offset)


def values(rows: pa.Table) -> list[tuple[int, bytes]]:
    return list(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))


def test_records_before_the_offset_that_was_asked_for_are_left_out() -> None:
    found = fetched(batch(10, b"a", b"b", b"c") + batch(15, b"d"), 11)
    assert values(found.rows) == [(11, b"b"), (12, b"c"), (15, b"d")]
    assert (found.next_offset, found.high_watermark, found.log_start_offset) == (16, 50, 2)


def test_an_empty_response_leaves_the_offset_where_it_is() -> None:
    found = fetched(b"", 11)
    assert (found.rows.num_rows, found.next_offset) == (0, 11)


def test_records_of_an_aborted_transaction_end_at_its_marker() -> None:
    data = batch(10, b"x", b"y", producer_id=7) + batch(12, b"kept") + marker(13, 7, is_commit=False)
    again = data + batch(14, b"z", producer_id=7) + marker(15, 7, is_commit=True)
    found = fetched(again, 10, (7, 10))
    assert [(each.producer_id, each.first_offset, each.last_offset) for each in found.aborted] == [(7, 10, 13)]
    kept = [
        value for _, value in values(without_aborted(found.rows, found.aborted)) if value in (b"x", b"y", b"kept", b"z")
    ]
    assert kept == [b"kept", b"z"]


def test_a_transaction_whose_marker_comes_later_covers_all_that_is_there() -> None:
    found = fetched(batch(10, b"x", producer_id=7) + batch(11, b"y", producer_id=7), 10, (7, 8))
    assert [each.last_offset for each in found.aborted] == [11]
    assert without_aborted(found.rows, found.aborted).num_rows == 0


def test_a_request_names_topics_by_id_and_waits_for_a_byte() -> None:
    message = fetch_message({(ID, 0): 5, (ID, 2): 7}, 100, 500, 1)
    frame = encode_request(1, "c", message.content, request_type(ApiKey.FETCH, message.version))
    entity = decode_request(frame, {ApiKey.FETCH: range(13, 14)}).entity
    assert entity is not None
    (topic,) = entity.topics
    assert id_text(topic.topic_id) == ID
    assert [(each.partition, each.fetch_offset) for each in topic.partitions] == [(0, 5), (2, 7)]
    assert (entity.min_bytes, entity.isolation_level, entity.session_epoch) == (1, 1, -1)
