"""Which partition a record goes to: an explicit one, its key's hash, or for null keys a sticky choice. Pure.

The hash is Kafka's murmur2, so a key lands in the partition that Java's client chooses. Keys of a whole
Arrow column are hashed with numpy, one pass per four bytes of the longest key.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stratalog.storage.errors import UnknownTopicOrPartitionError

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SCALAR_BELOW = 16
"""Number of keys in a pass below which hashing them one by one is faster than numpy."""

IntArray = npt.NDArray[np.int64]


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 of `data`, signed as Java's int.

    >>> murmur2(b"21")
    -973932308
    """
    return _signed(_finish(_words(_SEED ^ len(data), data, 0), data))


def to_positive(number: int) -> int:
    """Kafka's `Utils.toPositive`: the sign bit cleared (not the absolute value)."""
    return number & 0x7FFFFFFF


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key among `partition_count`."""
    return to_positive(murmur2(key)) % partition_count


def partitions_for_keys(keys: pa.Array | pa.ChunkedArray, partition_count: int) -> IntArray:
    """The partition of every key of a binary column; -1 where the key is null."""
    column = _flat_binary(keys)
    partitions = (_murmur2_column(column) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partition_count
    if column.null_count:
        partitions[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return partitions


def check_partition(partition: int, partition_count: int) -> int:
    """`partition` if the topic has it; UnknownTopicOrPartitionError in Kafka's words otherwise."""
    if not 0 <= partition < partition_count:
        raise UnknownTopicOrPartitionError(
            f"Invalid partition given with record: {partition} is not in the range [0...{partition_count})."
        )
    return partition


class Partitioner(Protocol):
    """How a producer spreads records without an explicit partition. Called under the producer's lock."""

    def partition(self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int], /) -> int:
        """The partition of one record; `available` are the partitions that have a leader, possibly none."""

    def appended(self, topic: str, partition: int, size_bytes: int, /) -> None:
        """Called after a record without a key was put into a batch of `partition`."""


class StickyPartitioner:
    """Kafka's default: the key's hash; null keys stay on a partition until it got `batch_size` bytes (KIP-794)."""

    def __init__(self, batch_size: int, rng: random.Random) -> None:
        self.batch_size = batch_size
        self._rng = rng
        self._current: dict[str, int] = {}
        self._sent_bytes: dict[str, int] = {}
        self._round: dict[str, list[int]] = {}

    def partition(self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]) -> int:
        if key is not None:
            return partition_for_key(key, partition_count)
        current = self._current.get(topic)
        if current is None or current >= partition_count or (available and current not in available):
            current = self._switch(topic, partition_count, available)
        return current

    def next_of_round(self, topic: str, partition_count: int, available: Sequence[int]) -> int:
        """The partition of a batch that is large by itself: each available one once, in random order, then again."""
        choices = list(available) or list(range(partition_count))
        left = [partition for partition in self._round.get(topic, ()) if partition in choices]
        if not left:
            left = choices
            self._rng.shuffle(left)
        chosen = left.pop()
        self._round[topic] = left
        return chosen

    def appended(self, topic: str, partition: int, size_bytes: int) -> None:
        if self._current.get(topic) != partition:
            return
        self._sent_bytes[topic] += size_bytes
        if self._sent_bytes[topic] >= self.batch_size:
            del self._current[topic]

    def _switch(self, topic: str, partition_count: int, available: Sequence[int]) -> int:
        choices = list(available) or range(partition_count)
        chosen = choices[self._rng.randrange(len(choices))]
        self._current[topic] = chosen
        self._sent_bytes[topic] = 0
        return chosen


class RoundRobinPartitioner:
    """Kafka's RoundRobinPartitioner: every record, keyed or not, goes to the next available partition."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(self, topic: str, _key: bytes | None, partition_count: int, available: Sequence[int]) -> int:
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        choices = list(available) or range(partition_count)
        return choices[turn % len(choices)]

    def appended(self, _topic: str, _partition: int, _size_bytes: int) -> None:
        return None


def _signed(number: int) -> int:
    return number - 0x100000000 if number & 0x80000000 else number


def _mix(word: int) -> int:
    word = (word * _M) & _MASK
    return ((word ^ (word >> 24)) * _M) & _MASK


def _words(hashed: int, data: bytes, first_word: int) -> int:
    for at in range(4 * first_word, len(data) & ~3, 4):
        hashed = ((hashed * _M) & _MASK) ^ _mix(int.from_bytes(data[at : at + 4], "little"))
    return hashed


def _finish(hashed: int, data: bytes) -> int:
    tail = data[len(data) & ~3 :]
    if tail:
        hashed = ((hashed ^ int.from_bytes(tail, "little")) * _M) & _MASK
    hashed = ((hashed ^ (hashed >> 13)) * _M) & _MASK
    return hashed ^ (hashed >> 15)


def _flat_binary(keys: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
        if isinstance(keys, pa.ChunkedArray):
            keys = keys.chunk(0) if keys.num_chunks else pa.array([], keys.type)
    return keys if pa.types.is_binary(keys.type) else keys.cast(pa.binary())


def _murmur2_column(column: pa.Array) -> npt.NDArray[np.uint32]:
    """Hashes of all keys (of anything where null), as unsigned numbers."""
    count = len(column)
    if count == 0:
        return np.zeros(0, np.uint32)
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[column.offset : column.offset + count + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer and data_buffer.size else np.zeros(0, np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = (np.uint32(_SEED) ^ lengths.astype(np.uint32)).astype(np.uint32)
    order = np.argsort(-(lengths >> 2), kind="stable")
    word_counts = (lengths >> 2)[order]
    for word in range(int(word_counts[0])):
        active = int(np.searchsorted(-word_counts, -word, side="left"))
        if active < _SCALAR_BELOW:
            _hash_rest_one_by_one(hashes, data, starts, lengths, order[:active], word)
            break
        rows = order[:active]
        hashes[rows] = (hashes[rows] * np.uint32(_M)) ^ _mix_column(_word_at(data, starts[rows] + 4 * word))
    return _finish_column(hashes, data, starts, lengths)


def _hash_rest_one_by_one(
    hashes: npt.NDArray[np.uint32],
    data: npt.NDArray[np.uint8],
    starts: IntArray,
    lengths: IntArray,
    rows: IntArray,
    first_word: int,
) -> None:
    for row in rows:
        key = data[starts[row] : starts[row] + lengths[row]].tobytes()
        hashes[row] = _words(int(hashes[row]), key, first_word)


def _word_at(data: npt.NDArray[np.uint8], at: IntArray) -> npt.NDArray[np.uint32]:
    word = data[at].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _mix_column(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    words = words * np.uint32(_M)
    return (words ^ (words >> np.uint32(24))) * np.uint32(_M)


def _finish_column(
    hashes: npt.NDArray[np.uint32], data: npt.NDArray[np.uint8], starts: IntArray, lengths: IntArray
) -> npt.NDArray[np.uint32]:
    tails = lengths & 3
    tail_starts = starts + (lengths & ~3)
    for byte in (2, 1, 0):
        rows = np.flatnonzero(tails > byte)
        hashes[rows] ^= data[tail_starts[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    with_tail = tails > 0
    hashes[with_tail] *= np.uint32(_M)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(_M)
    return hashes ^ (hashes >> np.uint32(15))
