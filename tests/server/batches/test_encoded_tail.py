"""Recently produced batches are given as they came, under their offsets, as long as they are the log's."""

from __future__ import annotations

import threading

import pytest

from stratalog.clients.wire.rows import decode_rows
from stratalog.server.batches.tail import (
    BATCH_OVERHEAD_BYTES,
    CHUNK_BYTES_MAX,
    CHUNK_BYTES_MIN,
    CHUNK_MS_MAX,
    CHUNK_OVERHEAD_BYTES,
    GATHERED_BYTES_MAX,
    EncodedTail,
)
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.wire.batches.headers import EncodedBatch, batches_in
from stratalog.wire.batches.record_batches import encode_batch
from tests.clients.batch_tools import new_batch

T0, T1 = (IdentifiedPartition("id", TopicPartition("t", number)) for number in (0, 1))
ANEW = IdentifiedPartition("new", TopicPartition("t", 0))
MUCH = 1 << 20
CHUNK = CHUNK_BYTES_MIN + CHUNK_OVERHEAD_BYTES
"""The memory of the first chunk of a partition, without its batches' indexes."""


def batch_of(record_count: int, value: bytes = b"v", compression_type: str = "zstd") -> bytes:
    return encode_batch(new_batch([(1_000, None, value, None)] * record_count, compression_type=compression_type))


def large_batch() -> bytes:
    """Of a size from which on a batch is not gathered with others."""
    return batch_of(1, bytes(GATHERED_BYTES_MAX), "none")


def tail_with(*placed: tuple[int, int], leader_epoch: int = 3, capacity_bytes: int = MUCH) -> EncodedTail:
    """A tail with batches (base offset, records) of T0."""
    tail = EncodedTail(capacity_bytes)
    for base_offset, record_count in placed:
        tail.append(T0, base_offset, leader_epoch, batch_of(record_count), 0)
    return tail


def read(tail: EncodedTail, start: int, end: int = 1 << 40, max_bytes: int = MUCH, epoch: int = 3) -> list[int]:
    """The base offsets of what is given."""
    return bases(tail.read(T0, epoch, start, end, max_bytes))


def joined(given: list[EncodedBatch]) -> bytes:
    return b"".join(piece for batch in given for piece in batch.pieces)


def bases(given: list[EncodedBatch]) -> list[int]:
    """The base offsets in the batches' headers, which fit the bounds that are told with them."""
    for each in given:
        headers = [header for header, _ in batches_in(joined([each]))]
        assert (headers[0].base_offset, headers[-1].last_offset) == (each.base_offset, each.last_offset)
    return [header.base_offset for header, _ in batches_in(joined(given))]


def test_batches_are_given_with_their_offsets_and_epoch() -> None:
    given = tail_with((7, 3), (10, 2)).read(T0, 3, 7, 12, MUCH)
    assert [(batch.base_offset, batch.last_offset) for batch in given] == [(7, 11)]
    data = joined(given)
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
    two_bytes = len(joined(tail.read(T0, 3, 0, 5, MUCH)))
    assert read(tail, 0, max_bytes=two_bytes) == [0, 3]
    assert read(tail, 0, max_bytes=two_bytes - 1) == [0]


def test_small_batches_are_gathered_and_large_ones_stay_alone() -> None:
    """A partition's chunks become larger while it fills them."""
    tail, small, large = EncodedTail(), batch_of(1, bytes(1_000), "none"), large_batch()
    for offset in range(2_000):
        tail.append(T0, offset, 3, large if offset in (900, 1_500) else small, 0)
    given = tail.read(T0, 3, 0, 2_000, 1 << 30)
    assert bases(given) == list(range(2_000))
    alone = [each for each in given if each.base_offset in (900, 1_500)]
    assert [(each.last_offset, bool(each.head)) for each in alone] == [(900, True), (1_500, True)]
    assert len(given) < 25
    assert max(len(each.data) for each in given) <= CHUNK_BYTES_MAX
    gathered_bytes = 1_998 * len(small)
    assert tail.size_bytes < 1.5 * gathered_bytes + 2 * len(large) + 2_000 * BATCH_OVERHEAD_BYTES


def test_what_was_given_does_not_change_when_more_is_gathered() -> None:
    tail = tail_with((0, 3))
    (first,) = tail.read(T0, 3, 0, 9, MUCH)
    before = bytes(first.data)
    tail.append(T0, 3, 3, batch_of(2), 0)
    assert bytes(first.data) == before
    (both,) = tail.read(T0, 3, 0, 9, MUCH)
    assert bytes(both.data[: len(before)]) == before


def test_a_large_batch_is_a_slice_of_its_frame_unless_that_holds_much_more() -> None:
    """What stays in memory beside a batch is counted with it."""
    data, tail = large_batch(), EncodedTail(MUCH)
    alone, beside = (bytearray(bytes(spare) + data) for spare in (10, len(data) + 1))
    tail.append(T0, 0, 3, memoryview(alone)[10:], 0)
    tail.append(T0, 1, 3, memoryview(beside)[len(data) + 1 :], 0)
    first, second = tail.read(T0, 3, 0, 2, MUCH)
    assert isinstance(first.data, memoryview)
    assert isinstance(second.data, memoryview)
    assert first.data.obj is alone
    assert second.data.obj == data
    assert tail.size_bytes == len(alone) + len(data) + 2 * (CHUNK_OVERHEAD_BYTES + BATCH_OVERHEAD_BYTES)
    assert decode_rows(joined([first, second]))["offset"].to_pylist() == [0, 1]


def test_a_client_that_does_not_know_zstd_reads_those_from_the_log() -> None:
    tail = EncodedTail()
    for offset, (partition, codec) in enumerate([(T0, "none"), (T0, "gzip"), (T0, "zstd"), (T1, "lz4")]):
        tail.append(partition, offset, 3, batch_of(1, compression_type=codec), 0)
    assert tail.read(T0, 3, 0, 9, MUCH, takes_zstd=False) == []
    assert bases(tail.read(T0, 3, 0, 9, MUCH, takes_zstd=True)) == [0, 1, 2]
    assert bases(tail.read(T1, 3, 3, 9, MUCH, takes_zstd=False)) == [3]


def test_only_the_epoch_that_is_asked_for_is_given() -> None:
    tail = tail_with((0, 3), (3, 2))
    assert read(tail, 0, epoch=4) == read(tail, 0, epoch=2) == []
    tail.append(T0, 3, 4, batch_of(2), 0)
    assert read(tail, 0, epoch=4) == read(tail, 3) == []
    assert read(tail, 3, epoch=4) == [3]
    tail.append(T0, 5, 3, batch_of(1), 0)
    assert read(tail, 3, epoch=4) == [3]


def test_a_second_append_at_an_offset_changes_nothing() -> None:
    tail = tail_with((0, 3))
    size_bytes = tail.size_bytes
    tail.append(T0, 0, 3, batch_of(1), 0)
    assert tail.size_bytes == size_bytes
    assert tail.read(T0, 3, 0, 9, MUCH)[0].last_offset == 2


def test_the_oldest_chunks_go_when_it_is_full() -> None:
    """Batches of which a first chunk has room for three."""
    data = batch_of(1, bytes(CHUNK_BYTES_MIN // 3 - 100), "none")
    tail = EncodedTail(3 * CHUNK)
    for offset in range(3):
        tail.append(T0, offset, 3, data, 0)
    assert tail.size_bytes == CHUNK + 3 * BATCH_OVERHEAD_BYTES
    tail.append(T1, 0, 1, data, 0)
    assert (read(tail, 0), tail.size_bytes) == ([0, 1, 2], 2 * CHUNK + 4 * BATCH_OVERHEAD_BYTES)
    tail.append(T0, 3, 3, data, 0)  # begins a chunk of twice the size
    assert (read(tail, 0), read(tail, 3)) == ([], [3])
    assert len(tail.read(T1, 1, 0, 9, MUCH)) == 1
    for offset in range(1, 30):
        tail.append(T1, offset, 1, data, 0)
        assert tail.size_bytes <= 3 * CHUNK
    assert (read(tail, 3), bases(tail.read(T1, 1, 29, 99, MUCH))) == ([], [29])


def test_batches_go_when_they_are_old_and_slow_partitions_keep_nobody_back() -> None:
    tail = EncodedTail(age_ms=60_000)
    for now_ms in range(0, 200_000, 1_000):
        tail.append(T0, now_ms // 1_000, 3, batch_of(1), now_ms)
        tail.append(T1, now_ms // 1_000, 3, batch_of(1), now_ms)
    oldest = 199 - (60_000 + CHUNK_MS_MAX) // 1_000
    for partition in (T0, T1):
        kept = [offset for offset in range(200) if tail.read(partition, 3, offset, 200, MUCH)]
        assert oldest - 1 <= kept[0] <= 199 - 60
        assert kept == list(range(kept[0], 200))
    assert tail.size_bytes < 10 * CHUNK


def test_without_capacity_nothing_is_kept() -> None:
    tail = tail_with((0, 1), capacity_bytes=0)
    assert (read(tail, 0), tail.size_bytes) == ([], 0)


def test_a_batch_that_is_larger_than_everything_is_not_kept() -> None:
    tail = tail_with((0, 1), capacity_bytes=2 * CHUNK)
    tail.append(T0, 1, 3, large_batch(), 0)
    assert (read(tail, 0), read(tail, 1)) == ([0], [])


def test_a_topic_that_is_created_again_has_batches_of_its_own() -> None:
    tail = tail_with((0, 3), (3, 2))
    tail.append(ANEW, 0, 3, batch_of(1), 0)
    assert [each.last_offset for each in tail.read(ANEW, 3, 0, 9, MUCH)] == [0]
    assert read(tail, 0) == [0, 3]
    tail.append(T0, 5, 3, batch_of(1), 0)  # an answer of the old topic's leader that comes late
    assert tail.read(ANEW, 3, 1, 9, MUCH) == []


@pytest.mark.parametrize(
    ("removed_end", "given"),
    [
        (0, [0, 3, 5, 6]),
        (1, [3, 5, 6]),
        (3, [3, 5, 6]),
        (4, [5, 6]),
        (6, [6]),
        (7, [9]),
        (9, [9]),
        (10, []),
        (99, []),
    ],
)
def test_below_the_offset_up_to_which_records_were_removed_nothing_is_given(removed_end: int, given: list[int]) -> None:
    """Offsets 0-2, 3-4, 5 and 6 in one chunk, a gap, 9 in another."""
    tail = tail_with((0, 3), (3, 2), (5, 1), (6, 1), (9, 1))
    first = given[0] if given else 0
    assert bases(tail.read(T0, 3, first, 99, MUCH, removed_end=removed_end)) == given
    below = [offset for offset in range(10) if offset < removed_end]
    assert [read(tail, offset) for offset in below] == [[]] * len(below), "it is here no longer"
    assert (read(tail, 9) == [9]) == (removed_end < 10)


def test_what_was_removed_takes_no_memory_and_what_is_above_it_goes_on_being_gathered() -> None:
    tail, data = EncodedTail(), batch_of(1, bytes(1_000), "none")
    for offset in range(500):
        tail.append(T0, offset, 3, data, offset)
    before, (piece, *_) = tail.size_bytes, tail.read(T0, 3, 0, 500, MUCH)
    kept = bytes(piece.data)
    assert bases(tail.read(T0, 3, 490, 999, MUCH, removed_end=490)) == list(range(490, 500))
    assert (tail.size_bytes < before / 2, bytes(piece.data) == kept) == (True, True)
    for offset in range(500, 520):
        tail.append(T0, offset, 3, data, offset)
    found = tail.read(T0, 3, 490, 999, MUCH)
    assert bases(found) == list(range(490, 520))
    tail.resize(0, 500)
    assert (tail.size_bytes, read(tail, 490)) == (0, [])
    assert tail.read(T0, 3, 0, 999, MUCH, removed_end=999) == []


def test_an_append_below_what_was_removed_comes_to_nothing() -> None:
    """Its answer waited for followers meanwhile."""
    tail = tail_with((9, 1))
    assert bases(tail.read(T0, 3, 9, 99, MUCH, removed_end=9)) == [9]
    tail.append(T0, 3, 3, batch_of(2), 0)
    assert tail.read(T0, 3, 3, 99, MUCH, removed_end=9) == []
    assert tail.readable_bytes(T0, 3, 3, 5, removed_end=9) is None


def test_threads_may_use_it_at_once() -> None:
    tail, data = EncodedTail(5 * CHUNK), batch_of(1)
    gaps: list[list[int]] = []

    def write(log: IdentifiedPartition) -> None:
        for offset in range(300):
            tail.append(log, offset, 1, data, 0)
            found = bases(tail.read(log, 1, max(0, offset - 5), 1_000, MUCH))
            if found and found != list(range(found[0], offset + 1)):
                gaps.append(found)

    threads = [
        threading.Thread(target=write, args=(IdentifiedPartition("id", TopicPartition("t", i)),)) for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gaps == []
    assert tail.size_bytes <= 5 * CHUNK
