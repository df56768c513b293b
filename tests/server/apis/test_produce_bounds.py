"""Produce: what a request decompresses to is bounded, a partition has one batch, a connection's batches keep order."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from stratalog.replication.requests.produce import SentBatch
from stratalog.server.apis.produced_batches import (
    AT_HAND_BYTES_MAX,
    BatchesAtHand,
    BatchesInThread,
    DecodedMemory,
)
from stratalog.storage.errors import RecordListTooLargeError, RecordTooLargeError
from stratalog.storage.records import NewRecordBatch, payload_table
from stratalog.wire.batches.compression import DECOMPRESSED_BYTES_MAX
from stratalog.wire.batches.record_batches import encode_batch

MIB = 1 << 20


def batch(size: int, codec: str = "zstd") -> bytes:
    return encode_batch(NewRecordBatch(payload_table([(1, None, bytes(size), None)]), compression_type=codec))


def test_small_batches_are_read_at_once_and_large_ones_are_not() -> None:
    batches = BatchesAtHand(9)
    assert isinstance(batches.read(batch(1_000, "none")), SentBatch)
    assert batches.read(batch(1_000)).size_bytes < 2_000
    assert not batches.is_over
    with pytest.raises(RecordTooLargeError):
        batches.read(batch(AT_HAND_BYTES_MAX))
    assert batches.is_over


def test_many_small_bombs_are_not_read_at_once_either() -> None:
    batches, bomb, read = BatchesAtHand(9), batch(AT_HAND_BYTES_MAX // 8), 0
    while not batches.is_over and read < 100:
        with suppress(RecordTooLargeError):
            batches.read(bomb)
        read += 1
    assert read <= 9


def test_what_a_request_decompresses_to_is_bounded() -> None:
    batches, memory = BatchesInThread(9, DecodedMemory(-1), 5 * MIB), DecodedMemory(-1)
    batches.memory = memory
    assert [batches.read(batch(2 * MIB))[1] >= 2 * MIB for _ in range(2)] == [True, True]
    for _ in range(2):
        with pytest.raises(RecordListTooLargeError, match=r"stratalog\.produce\.max\.decoded\.bytes"):
            batches.read(batch(2 * MIB))
    assert 4 * MIB <= memory.taken < 5 * MIB


def test_a_batch_beyond_its_own_bound_counts_as_work() -> None:
    batches = BatchesInThread(9, DecodedMemory(-1), 3 * DECOMPRESSED_BYTES_MAX // 2)
    with pytest.raises(RecordTooLargeError):
        batches.read(batch(DECOMPRESSED_BYTES_MAX + MIB))
    with pytest.raises(RecordListTooLargeError):
        batches.read(batch(DECOMPRESSED_BYTES_MAX + MIB))
    assert batches.memory.taken == 0


def test_who_finds_no_memory_waits_for_it() -> None:
    memory = DecodedMemory(10)
    memory.take(11)
    taken = threading.Event()

    def take() -> None:
        memory.take(1)
        taken.set()

    waiting = threading.Thread(target=take)
    waiting.start()
    assert not taken.wait(0.05)
    memory.release(5)
    assert taken.wait(10)
    waiting.join()
    memory.take(3)
    ended = threading.Thread(target=memory.take, args=(1,))
    ended.start()
    memory.close()
    ended.join(10)
    assert not ended.is_alive()
