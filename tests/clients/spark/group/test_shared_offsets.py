"""Batches of a query that shares partitions: what they carry, where partitions go on, what of a batch is replayed."""

from __future__ import annotations

import json

import pytest

from stratalog.clients.records import OffsetAndMetadata
from stratalog.clients.spark.group.shared_offsets import Owner, SharedBatch, replayed, resumed, undecided
from stratalog.clients.spark.options import parse_offsets
from stratalog.clients.spark.source.plan import PlannedRange, offsets_from_json
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
        (None, (7, "other"), None, 7),
        # a new process, and the group's offset is not the query's own: the group decides
        ((3, 9), (3, "other"), None, 3),
        ((3, 9), (6, "other"), None, 6),
        ((3, 9), (12, "other"), None, 12),
        # … nor anybody's: it was reset
        ((3, 9), (3, ""), None, 3),
        # … or the group has none
        ((3, 9), None, None, 9),
        # a new process, and nobody had the partition since: what the query has stored is not read again
        ((3, 9), (3, "mine"), None, 9),
        ((3, 9), (9, "mine"), None, 9),
        # … but the checkpoint is older than the group's offset, or of another time
        ((3, 9), (12, "mine"), None, 12),
        ((3, 9), (2, "mine"), None, 2),
        # this process stored [3, 9), and the commit failed
        ((3, 9), (3, "mine"), (3, 9), 9),
        ((3, 9), None, (3, 9), 9),
        # … another member began at 3 and came to 6
        ((3, 9), (6, "other"), (3, 9), 9),
        # … another member was farther
        ((3, 9), (12, "other"), (3, 9), 12),
        # … the group's offset was reset
        ((3, 9), (2, ""), (3, 9), 2),
    ],
)
def test_where_a_partition_goes_on(
    checkpoint: tuple[int, int] | None,
    committed: tuple[int, str] | None,
    done: tuple[int, int] | None,
    start: int | None,
) -> None:
    batch = SharedBatch({P: checkpoint[0]}, {P: checkpoint[1]}, "mine", 5) if checkpoint else SharedBatch()
    at = committed and OffsetAndMetadata(*committed)
    assert resumed(P, batch, at, done and PlannedRange(P, *done)) == start


def test_a_batch_of_nobody_commits_nothing() -> None:
    assert resumed(P, SharedBatch({P: 9}, {P: 9}), OffsetAndMetadata(3, ""), None) == 3


@pytest.mark.parametrize(
    ("owner", "instance", "committed", "ranges"),
    [
        (None, None, None, [(3, 9)]),
        (None, None, (3, "mine"), [(3, 9)]),
        (None, None, (1, "mine"), [(3, 9)]),
        (None, None, (6, "other"), [(6, 9)]),
        (None, None, (12, "other"), [(9, 9)]),
        (Owner("mine"), None, (3, "mine"), [(3, 9)]),
        (Owner("other"), None, (3, "other"), []),
        (Owner("other"), None, (3, ""), []),
        (Owner("other"), "one", (3, "other"), []),
        (Owner("other", "two"), "one", (3, "other"), []),
        (Owner("other", "two"), None, (3, "other"), []),
        (Owner("mine again", "one"), "one", (3, "mine"), [(3, 9)]),
        # an owner that has not taken over yet
        (Owner("other"), None, (3, "mine"), [(3, 9)]),
        (Owner("other"), None, None, [(3, 9)]),
    ],
)
def test_a_replayed_batch_leaves_out_what_others_took_over(
    owner: Owner | None, instance: str | None, committed: tuple[int, str] | None, ranges: list[tuple[int, int]]
) -> None:
    batch = SharedBatch({P: 3}, {P: 9}, "mine", 5)
    at = committed and OffsetAndMetadata(*committed)
    owners = {} if owner is None else {P: owner}
    found = replayed(batch, owners, {P: at}, instance)
    assert [(each.start, each.end) for each in found] == ranges
    is_new_owner = owner is not None and owner.member_id == "other"
    assert undecided(batch, owners, {P: at}, instance) == ({P} if is_new_owner and ranges else set())
