"""Batches of a query that shares partitions: what they carry, where partitions go on, what of a batch is replayed."""

from __future__ import annotations

import json

import pytest

from stratalog.clients.spark.group.shared_offsets import Owner, SharedBatch, replayed, resumed
from stratalog.clients.spark.options import parse_offsets
from stratalog.clients.spark.plan import PlannedRange, offsets_from_json
from stratalog.storage.records import TopicPartition

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_batch_is_whole_in_its_end() -> None:
    batch = SharedBatch({P: 3, Q: 4}, {P: 9, Q: 4}, "member", 5)
    end = batch.to_json()
    assert end == {
        "t": {"0": 9, "1": 4},
        "t@start": {"0": 3, "1": 4},
        "@member": {"id": "member", "generation": 5},
    }
    assert SharedBatch.from_json(json.loads(json.dumps(end))) == batch
    assert offsets_from_json(end) == parse_offsets(json.dumps(end)) == {P: 9, Q: 4}


def test_the_end_of_a_query_without_a_group_begins_at_its_end() -> None:
    assert SharedBatch.from_json({"t": {"0": 9}}) == SharedBatch({P: 9}, {P: 9})
    assert SharedBatch.from_json({}) == SharedBatch()


@pytest.mark.parametrize(
    ("checkpoint", "committed", "done", "start"),
    [
        # assigned for the first time
        (None, None, None, None),
        (None, 7, None, 7),
        # a new process: the group decides, the checkpoint only where the group has nothing
        (9, None, None, 9),
        (9, 3, None, 3),
        (9, 9, None, 9),
        (9, 12, None, 12),
        # this process stored [3, 9), and the commit failed
        (9, 3, (3, 9), 9),
        (9, None, (3, 9), 9),
        # … another member began at 3 and came to 6
        (9, 6, (3, 9), 9),
        # … another member was farther
        (9, 12, (3, 9), 12),
        # … the group's offset was reset
        (9, 2, (3, 9), 2),
    ],
)
def test_where_a_partition_goes_on(
    checkpoint: int | None, committed: int | None, done: tuple[int, int] | None, start: int | None
) -> None:
    assert resumed(checkpoint, committed, done and PlannedRange(P, *done)) == start


@pytest.mark.parametrize(
    ("owner", "instance", "committed", "ranges"),
    [
        (None, None, None, [(3, 9)]),
        (None, None, 3, [(3, 9)]),
        (None, None, 1, [(3, 9)]),
        (None, None, 6, [(6, 9)]),
        (None, None, 12, [(9, 9)]),
        (Owner("mine"), None, 3, [(3, 9)]),
        (Owner("other"), None, 3, []),
        (Owner("other"), "one", 3, []),
        (Owner("other", "two"), "one", 3, []),
        (Owner("other", "two"), None, 3, []),
        (Owner("mine again", "one"), "one", 3, [(3, 9)]),
    ],
)
def test_a_replayed_batch_leaves_out_what_others_have(
    owner: Owner | None, instance: str | None, committed: int | None, ranges: list[tuple[int, int]]
) -> None:
    batch = SharedBatch({P: 3}, {P: 9}, "mine", 5)
    found = replayed(batch, {} if owner is None else {P: owner}, {P: committed}, instance)
    assert [(each.start, each.end) for each in found] == ranges
