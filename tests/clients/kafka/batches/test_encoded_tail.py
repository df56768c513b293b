"""Recently produced batches are given as they came, under their offsets, as long as they are the log's."""

from __future__ import annotations

import threading

import pytest

from stratalog.clients.kafka.batches.headers import batches_in
from stratalog.clients.kafka.batches.record_batches import decode_rows, encode_batch
from stratalog.clients.kafka.batches.tail import ENTRY_BYTES, EncodedTail
from stratalog.storage.records import TopicPartition
from tests.clients.batch_tools import new_batch

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MUCH = 1 << 20


def batch_of(record_count: int, value: bytes = b"v") -> bytes:
    return encode_batch(new_batch([(1_000, None, value, None)] * record_count, compression_type="zstd"))


def tail_with(*placed: tuple[int, int], leader_epoch: int = 3, capacity_bytes: int = MUCH) -> EncodedTail:
    """A tail with batches (base offset, records) of T0."""
    tail = EncodedTail(capacity_bytes)
    for base_offset, record_count in placed:
        tail.append(T0, base_offset, leader_epoch, batch_of(record_count))
    return tail


def read(tail: EncodedTail, start: int, end: int = 1 << 40, max_bytes: int = MUCH, epoch: int = 3) -> list[int]:
    """The base offsets of what is given."""
    return [batch.base_offset for batch in tail.read(T0, epoch, start, end, max_bytes)]


def test_batches_are_given_with_their_offsets_and_epoch() -> None:
    given = tail_with((7, 3), (10, 2)).read(T0, 3, 7, 12, MUCH)
    assert [(batch.base_offset, batch.last_offset) for batch in given] == [(7, 9), (10, 11)]
    data = b"".join(piece for batch in given for piece in batch.pieces)
    assert [(header.base_offset, header.leader_epoch) for header, _ in batches_in(data)] == [(7, 3), (10, 3)]
    assert decode_rows(data)["offset"].to_pylist() == [7, 8, 9, 10, 11]
    assert [header.compression_type for header, _ in batches_in(data)] == ["zstd"] * 2


@pytest.mark.parametrize(
    ("start", "end", "given"),
    [
        (0, 20, [0, 3, 5]),
        (2, 20, [0, 3, 5]),
        (3, 20, [3, 5]),
        (4, 6, [3, 5]),
        (4, 5, [3]),
        (3, 4, []),
        (6, 20, []),
        (7, 20, []),
        (9, 20, [9]),
        (10, 20, []),
        (11, 20, []),
    ],
)
def test_a_run_of_batches_from_the_one_that_holds_the_offset(start: int, end: int, given: list[int]) -> None:
    """Offsets 0-2, 3-4, 5, then a gap of 6-8, 9."""
    assert read(tail_with((0, 3), (3, 2), (5, 1), (9, 1)), start, end) == given


def test_the_order_of_appends_does_not_matter() -> None:
    assert read(tail_with((5, 1), (0, 3), (3, 2)), 0) == [0, 3, 5]


def test_the_first_batch_is_given_whatever_its_size() -> None:
    tail = tail_with((0, 3), (3, 2), (5, 1))
    assert read(tail, 0, max_bytes=1) == [0]
    first, second = tail.read(T0, 3, 0, 5, MUCH)
    assert read(tail, 0, max_bytes=len(first.data) + len(second.data)) == [0, 3]
    assert read(tail, 0, max_bytes=len(first.data) + len(second.data) - 1) == [0]


def test_a_batch_is_a_slice_of_its_frame_unless_that_holds_much_more() -> None:
    """What stays in memory beside a batch is counted with it."""
    data, tail = batch_of(1), EncodedTail(MUCH)
    alone, beside = (bytearray(bytes(spare) + data) for spare in (10, len(data) + 1))
    tail.append(T0, 0, 3, memoryview(alone)[10:])
    tail.append(T0, 1, 3, memoryview(beside)[len(data) + 1 :])
    first, second = tail.read(T0, 3, 0, 2, MUCH)
    assert isinstance(first.data, memoryview)
    assert first.data.obj is alone
    assert tail.size_bytes == len(alone) + len(data) + 2 * ENTRY_BYTES
    assert isinstance(second.data, bytes)
    assert second.data == data
    assert decode_rows(b"".join([*first.pieces, *second.pieces]))["offset"].to_pylist() == [0, 1]


def test_only_the_epoch_that_is_asked_for_is_given() -> None:
    tail = tail_with((0, 3), (3, 2))
    assert read(tail, 0, epoch=4) == read(tail, 0, epoch=2) == []
    tail.append(T0, 3, 4, batch_of(2))
    assert read(tail, 0, epoch=4) == read(tail, 3) == []
    assert read(tail, 3, epoch=4) == [3]
    tail.append(T0, 5, 3, batch_of(1))
    assert read(tail, 3, epoch=4) == [3]


def test_a_second_append_at_an_offset_changes_nothing() -> None:
    tail = tail_with((0, 3))
    size_bytes = tail.size_bytes
    tail.append(T0, 0, 3, batch_of(1))
    assert tail.size_bytes == size_bytes
    assert tail.read(T0, 3, 0, 9, MUCH)[0].last_offset == 2


def test_the_oldest_go_when_it_is_full() -> None:
    size_bytes = len(batch_of(1)) + ENTRY_BYTES
    tail = tail_with((0, 1), (1, 1), capacity_bytes=3 * size_bytes)
    tail.append(T1, 0, 1, batch_of(1))
    assert (read(tail, 0), tail.size_bytes) == ([0, 1], 3 * size_bytes)
    tail.append(T1, 1, 1, batch_of(1))
    assert (read(tail, 0), read(tail, 1), tail.size_bytes) == ([], [1], 3 * size_bytes)
    tail.resize(size_bytes)
    assert (read(tail, 1), tail.size_bytes) == ([], size_bytes)
    assert [batch.base_offset for batch in tail.read(T1, 1, 1, 9, MUCH)] == [1]
    tail.resize(0)
    assert tail.size_bytes == 0
    tail.append(T0, 2, 3, batch_of(1))
    assert tail.size_bytes == 0


def test_a_batch_that_is_larger_than_everything_is_not_kept() -> None:
    size_bytes = len(batch_of(1)) + ENTRY_BYTES
    tail = tail_with((0, 1), capacity_bytes=size_bytes)
    tail.append(T0, 1, 3, batch_of(50, bytes(range(256))))
    assert (read(tail, 0), read(tail, 1)) == ([0], [])


def test_what_is_forgotten_is_not_given() -> None:
    tail = tail_with((0, 3), (3, 2))
    tail.append(T1, 0, 1, batch_of(1))
    tail.forget(T0)
    assert read(tail, 0) == []
    assert len(tail.read(T1, 1, 0, 9, MUCH)) == 1
    tail.append(T0, 0, 0, batch_of(1))
    assert read(tail, 0, epoch=0) == [0]
    tail.forget(T0)
    tail.forget(T1)
    assert tail.size_bytes == 0


def test_threads_may_use_it_at_once() -> None:
    tail, data = EncodedTail(40 * (len(batch_of(1)) + ENTRY_BYTES)), batch_of(1)
    gaps: list[list[int]] = []

    def write(partition: TopicPartition) -> None:
        for offset in range(300):
            tail.append(partition, offset, 1, data)
            found = [batch.base_offset for batch in tail.read(partition, 1, max(0, offset - 5), 1_000, MUCH)]
            if found and found != list(range(found[0], offset + 1)):
                gaps.append(found)

    threads = [threading.Thread(target=write, args=(TopicPartition("t", i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gaps == []
    assert tail.size_bytes <= 40 * (len(data) + ENTRY_BYTES)
