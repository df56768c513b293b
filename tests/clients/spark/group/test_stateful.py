"""A query's state covers what it reads as long as no other member has had one of its partitions."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from stratalog.clients.records import OffsetAndMetadata
from stratalog.clients.spark.group.shared_offsets import SharedBatch
from stratalog.clients.spark.group.stateful import check_state, is_taken_over, not_covered
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.records import TopicPartition

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("previous", "starts", "subscribed", "taken", "found"),
    [
        ({}, {P: 0, Q: 0}, (P, Q), (), None),
        ({}, {P: 0}, (P, Q), (), Q),  # another member has it
        ({}, {P: 7, Q: 0}, (P, Q), (P,), P),  # another query has read it up to there
        ({}, {P: 7, Q: 0}, (P, Q), (), None),  # a tool has set where the group begins
        ({P: 7, Q: 9}, {P: 7, Q: 9}, (P, Q), (), None),
        ({P: 7, Q: 9}, {P: 7}, (P, Q), (), Q),
        ({P: 7, Q: 9}, {P: 8, Q: 9}, (P, Q), (), P),  # somebody has read, or reset it
        ({P: 7, Q: 9}, {P: 7, Q: 9}, (P, Q), (P,), None),  # another member had it, and has read nothing
        ({P: 7, Q: 9}, {P: 7}, (P,), (), None),  # the topic of the other one was deleted
        ({P: 7}, {P: 7, Q: 0}, (P, Q), (), None),  # a new partition
        ({P: 7}, {P: 7, Q: 4}, (P, Q), (Q,), Q),
    ],
)
def test_state_covers_what_nobody_else_has_read(
    previous: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    subscribed: tuple[TopicPartition, ...],
    taken: tuple[TopicPartition, ...],
    found: TopicPartition | None,
) -> None:
    assert not_covered(SharedBatch(previous, previous), starts, subscribed, taken) == found


@pytest.mark.parametrize(
    ("committed", "is_taken"),
    [(None, False), ((7, ""), False), ((7, "mine"), False), ((7, "other"), True)],
)
def test_another_member_shows_in_the_groups_offset(committed: tuple[int, str] | None, is_taken: bool) -> None:
    previous = SharedBatch({P: 3}, {P: 7}, "mine", 5)
    assert is_taken_over(previous, committed and OffsetAndMetadata(*committed)) is is_taken


def test_a_batch_carries_what_its_state_does_not_cover() -> None:
    batch = SharedBatch({P: 3}, {P: 7}, "mine", 5, "t-1")
    assert batch.to_json()["@member"] == {"id": "mine", "generation": 5, "shared": "t-1"}
    assert SharedBatch.from_json(json.loads(json.dumps(batch.to_json()))) == batch


@pytest.mark.parametrize("adaptive", ["false", " False "])
def test_a_task_with_state_is_refused_where_the_state_does_not_cover_its_batch(adaptive: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"^A query with state cannot share partitions: t-1 is, or was, ano"):
        check_state("t-1", adaptive, "g")
    check_state("", adaptive, "g")
    for without_state in (None, "true"):
        check_state("t-1", without_state, "g")
