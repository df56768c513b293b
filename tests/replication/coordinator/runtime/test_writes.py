"""Group commit of a shard's decisions: what goes together, what waits, what is told when."""

from __future__ import annotations

import pytest

from stratalog.replication.coordinator.runtime.writes import (
    APPEND_BYTES_MAX,
    CoordinatorWrites,
    Write,
    as_coordinator_error,
    leaves_shard_sound,
    writes_of,
)
from stratalog.replication.coordinator.shard.shard import Answered, CoordinatorRecord, Decision, size_bytes
from stratalog.storage.errors import (
    FencedLeaderEpochError,
    InvalidProducerEpochError,
    KafkaStorageError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    RecordListTooLargeError,
    RecordTooLargeError,
    RequestTimedOutError,
    StoreUnavailableError,
    StratalogError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.records import NewRecordBatch, payload_table

MIB = 1 << 20
MARKER = NewRecordBatch(payload_table([(0, b"\0\0\0\1", b"", None)]), 7, 0, attributes=0x30)


def write(token: int, *keys: bytes, producer: int = -1, size: int = 1, deadline_ms: int = 100) -> Write:
    records = tuple(CoordinatorRecord(key, bytes(size)) for key in keys)
    decision = Decision(records, (Answered(token, f"answer {token}"),), producer, 0 if producer >= 0 else -1)
    return writes_of(decision, token, deadline_ms, MIB)[0]


def batches(writes: CoordinatorWrites) -> list[tuple[int, list[bytes]]]:
    """Producer id and keys of each batch of the next append."""
    return [(a.batch.producer_id, a.batch.payload["key"].to_pylist()) for a in writes.next_append()]


def tokens(writes: list[Write]) -> list[int]:
    return [answer.token for each in writes for answer in each.answers]


def test_one_append_is_under_way_at_a_time() -> None:
    writes = CoordinatorWrites(MIB)
    writes.add(write(0, b"a", b"b"))
    writes.add(write(1, b"c"))
    assert batches(writes) == [(-1, [b"a", b"b", b"c"])]
    writes.add(write(2, b"d"))
    assert batches(writes) == []
    assert tokens(writes.stored()) == [0, 1]
    assert batches(writes) == [(-1, [b"d"])]
    assert tokens(writes.stored()) == [2]
    assert writes.is_empty


def test_what_writes_nothing_is_told_with_the_append_before_it() -> None:
    writes = CoordinatorWrites(MIB)
    for each in (write(0, b"a"), write(1), write(2, b"b"), write(3)):
        writes.add(each)
    assert batches(writes) == [(-1, [b"a", b"b"])]
    for each in (write(4), write(5, b"c"), write(6)):
        writes.add(each)
    assert tokens(writes.stored()) == [0, 1, 2, 3, 4]
    assert batches(writes) == [(-1, [b"c"])]
    assert tokens(writes.stored()) == [5, 6]


def test_records_of_transactions_are_batches_of_their_producers_and_markers_stand_alone() -> None:
    writes = CoordinatorWrites(MIB)
    for token, producer in enumerate((-1, 7, 7, 8, -1, -1)):
        writes.add(write(token, b"%d" % token, producer=producer))
    writes.add(Write((), 9, 100, (Answered(6, None),), marker=MARKER))
    writes.add(write(7, b"7"))
    assert batches(writes) == [
        (-1, [b"0"]), (7, [b"1", b"2"]), (8, [b"3"]), (-1, [b"4", b"5"]), (7, [b"\0\0\0\1"]), (-1, [b"7"]),
    ]  # fmt: skip
    assert tokens(writes.stored()) == [*range(8)]


def test_a_batch_is_no_larger_than_the_topic_takes() -> None:
    writes = CoordinatorWrites(MIB)
    for token in range(4):
        writes.add(write(token, b"%d" % token, size=400_000))
    found = writes.next_append()
    assert [len(each.writes) for each in found] == [2, 2]
    assert all(each.batch.size_bytes <= MIB for each in found)
    with pytest.raises(RecordTooLargeError, match=r"1 records of about 1049129 bytes > max\.message\.bytes 1048576"):
        writes.add(write(4, b"x", size=MIB))


def test_an_append_ends_at_some_size_and_the_rest_follows() -> None:
    writes = CoordinatorWrites(MIB)
    count = APPEND_BYTES_MAX // 1_000_000 + 2
    for token in range(count):
        writes.add(write(token, b"k", size=1_000_000))
    assert len(writes.next_append()) == count - 2
    assert tokens(writes.stored()) == [*range(count - 2)]
    assert len(writes.next_append()) == 2


def test_estimated_sizes_are_not_below_real_ones() -> None:
    for count in (1, 2, 7, 8, 9, 100, 3_000):
        records = tuple(CoordinatorRecord(b"key-%d" % i, b"value" * (i % 5) if i % 3 else None) for i in range(count))
        batch = NewRecordBatch(payload_table([(1, record.key, record.value, None) for record in records]))
        assert batch.size_bytes <= size_bytes(records) <= batch.size_bytes + 700 + 24 * count


def test_who_has_waited_too_long_is_told_once_and_keeps_nobody_up() -> None:
    writes = CoordinatorWrites(MIB)
    writes.add(write(0, b"a", deadline_ms=100))
    writes.add(write(1, b"b", deadline_ms=200))
    assert writes.next_append()
    assert writes.next_deadline_ms == 100
    assert [late.token for late in writes.overdue(100)] == [0]
    assert writes.next_deadline_ms == 200
    assert writes.overdue(199) == []
    assert tokens(writes.stored()) == [1]
    assert writes.next_deadline_ms is None


def test_what_is_given_up_is_gone() -> None:
    writes = CoordinatorWrites(MIB)
    writes.add(write(0, b"a"))
    assert writes.next_append()
    writes.add(write(1))
    assert tokens(writes.drain()) == [0, 1]
    assert writes.is_empty
    assert writes.next_append() == []


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (NotEnoughReplicasError("e"), "COORDINATOR_NOT_AVAILABLE"),
        (NotEnoughReplicasAfterAppendError("e"), "COORDINATOR_NOT_AVAILABLE"),
        (RequestTimedOutError("e"), "COORDINATOR_NOT_AVAILABLE"),
        (UnknownTopicOrPartitionError("e"), "COORDINATOR_NOT_AVAILABLE"),
        (NotLeaderOrFollowerError("e"), "NOT_COORDINATOR"),
        (FencedLeaderEpochError("e"), "NOT_COORDINATOR"),
        (UnknownLeaderEpochError("e"), "NOT_COORDINATOR"),
        (KafkaStorageError("e"), "NOT_COORDINATOR"),
        (StoreUnavailableError("e"), "NOT_COORDINATOR"),
        (RecordTooLargeError("e"), "UNKNOWN_SERVER_ERROR"),
        (RecordListTooLargeError("e"), "UNKNOWN_SERVER_ERROR"),
        (InvalidProducerEpochError("e"), "INVALID_PRODUCER_EPOCH"),
    ],
)
def test_errors_of_appends_are_those_that_clients_of_coordinators_know(error: StratalogError, name: str) -> None:
    assert as_coordinator_error(error).name == name


@pytest.mark.parametrize(
    ("is_of_transaction", "error", "is_sound"),
    [
        (True, InvalidProducerEpochError("e"), True),
        (True, NotEnoughReplicasError("e"), True),
        (True, NotEnoughReplicasAfterAppendError("e"), False),
        (True, NotLeaderOrFollowerError("e"), False),
        (False, InvalidProducerEpochError("e"), False),
        (False, NotEnoughReplicasError("e"), False),
    ],
)
def test_a_shard_is_sound_after_a_refusal_of_what_it_has_not_replayed(
    is_of_transaction: bool, error: StratalogError, is_sound: bool
) -> None:
    assert leaves_shard_sound(write(0, b"a", producer=7 if is_of_transaction else -1), error) is is_sound
