"""A consumer visits the partitions that may have something, in turn."""

from __future__ import annotations

import pyarrow as pa

from stratalog.clients.consumer.positions import Position, Positions
from stratalog.storage.log.rows import READ_SCHEMA
from stratalog.storage.records import TopicPartition

A, B, C = (TopicPartition("t", partition) for partition in range(3))


def positions() -> Positions:
    made = Positions()
    made.assign([A, B, C])
    return made


def visited(made: Positions) -> list[TopicPartition]:
    return [position.topic_partition for position in made.in_turn()]


def test_the_one_served_longest_ago_is_first() -> None:
    made = positions()
    assert next(made.in_turn()).topic_partition == A
    assert visited(made) == [B, C, A]


def test_what_was_read_to_its_end_is_not_visited_until_it_moves() -> None:
    made = positions()
    for position in made.in_turn():
        made.has_no_more(position)
    assert made.are_all_read
    made.may_have_rows([B, TopicPartition("other", 0)])
    assert visited(made) == [B]
    made.may_have_rows(None)
    assert sorted(visited(made)) == [A, B, C]


def test_a_paused_partition_needs_no_visit() -> None:
    made = positions()
    made.by_partition[B].is_paused = True
    assert visited(made) == [A, C]
    made.by_partition[B].is_paused = False
    made.may_have_rows([B])
    assert visited(made) == [A, C, B]


def test_rows_at_hand_are_given_in_turn_but_not_of_paused_partitions() -> None:
    made = positions()
    rows = pa.Table.from_pylist([{}], schema=READ_SCHEMA)
    for topic_partition in (A, B, C):
        position: Position = made.by_partition[topic_partition]
        position.put(rows, 1)
        made.fetched(position)
    made.by_partition[B].is_paused = True
    found = [made.next_with_rows() for _ in range(3)]
    assert [p.topic_partition for p in found if p] == [A, C, A]
    made.by_partition[A].seek(0)
    made.by_partition[C].seek(0)
    assert made.next_with_rows() is None
    made.by_partition[B].is_paused = False
    assert made.next_with_rows() is made.by_partition[B]
    made.assign([A])
    assert made.next_with_rows() is None
