"""The partitioner gives Java's answers, one key at a time and a column at a time."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from stratalog.clients.producer.partitioner import (
    RoundRobinPartitioner,
    StickyPartitioner,
    check_partition,
    murmur2,
    partition_for_key,
    partitions_for_keys,
    to_positive,
)
from stratalog.storage.errors import UnknownTopicOrPartitionError

JAVA_HASHES = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "expected"), JAVA_HASHES)
def test_murmur2_gives_the_hash_of_javas_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


def test_to_positive_clears_the_sign_bit_and_is_not_the_absolute_value() -> None:
    assert to_positive(-1) == 0x7FFFFFFF
    assert to_positive(-(2**31)) == 0
    assert to_positive(5) == 5


def test_a_column_of_keys_is_hashed_as_each_key_alone() -> None:
    rng = random.Random(1)
    keys: list[bytes | None] = [rng.randbytes(rng.randrange(0, 40)) for _ in range(500)]
    keys += [b"", None, rng.randbytes(5000)] + [key for key, _ in JAVA_HASHES]
    column = pa.array([b"skipped", *keys], pa.binary()).slice(1)
    expected = [-1 if key is None else partition_for_key(key, 7) for key in keys]
    assert partitions_for_keys(column, 7).tolist() == expected
    assert partitions_for_keys(pa.chunked_array([column.slice(0, 100), column.slice(100)]), 7).tolist() == expected


def test_text_keys_and_empty_columns_are_taken() -> None:
    assert partitions_for_keys(pa.array(["abc"]), 5).tolist() == [partition_for_key(b"abc", 5)]
    assert partitions_for_keys(pa.array([], pa.binary()), 5).tolist() == []
    assert partitions_for_keys(pa.nulls(2, pa.binary()), 5).tolist() == [-1, -1]


def test_null_keys_stay_on_one_partition_until_a_batch_is_full() -> None:
    partitioner = StickyPartitioner(batch_size=100, rng=random.Random(3))
    chosen = []
    for _ in range(200):
        partition = partitioner.partition("t", None, 4, [0, 1, 2, 3])
        partitioner.appended("t", partition, 50)
        chosen.append(partition)
    pairs = list(zip(chosen[::2], chosen[1::2], strict=True))
    assert all(first == second for first, second in pairs)
    assert set(chosen) == {0, 1, 2, 3}


def test_null_keys_avoid_partitions_without_a_leader() -> None:
    partitioner = StickyPartitioner(batch_size=1, rng=random.Random(3))
    for _ in range(20):
        partition = partitioner.partition("t", None, 4, [2])
        partitioner.appended("t", partition, 1)
        assert partition == 2
    assert partitioner.partition("t", None, 4, []) in range(4)


def test_a_key_keeps_its_partition_whoever_is_available() -> None:
    partitioner = StickyPartitioner(batch_size=1, rng=random.Random(3))
    assert {partitioner.partition("t", b"k", 4, [only]) for only in range(4)} == {partition_for_key(b"k", 4)}


def test_round_robin_takes_the_partitions_in_turn_per_topic() -> None:
    partitioner = RoundRobinPartitioner()
    assert [partitioner.partition("t", b"k", 3, [0, 1, 2]) for _ in range(4)] == [0, 1, 2, 0]
    assert [partitioner.partition("u", None, 3, [0, 2]) for _ in range(3)] == [0, 2, 0]


@pytest.mark.parametrize("partition", [-1, 3, 99])
def test_an_explicit_partition_must_exist(partition: int) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=rf"{partition} is not in the range \[0...3\)"):
        check_partition(partition, 3)


def test_hashes_spread_over_the_partitions() -> None:
    keys = pa.array([f"user-{i}".encode() for i in range(3000)])
    counts = np.bincount(partitions_for_keys(keys, 3))
    assert counts.min() > 900
