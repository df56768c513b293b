"""A turn: what metadata changes ask of it, and what is left for the next one."""

from __future__ import annotations

import pytest

from stratalog.replication.broker.turn import Turn
from stratalog.replication.metadata.records import (
    CLUSTER_WIDE,
    DYNAMIC_DEFAULT,
    ConfigRecord,
    FenceBrokerRecord,
    MetadataRecord,
    RemoveTopicRecord,
    TopicRecord,
    of_broker,
)
from stratalog.storage.records import TopicPartition
from tests.replication.memory_stores import led_by

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def after_the_first() -> Turn:
    turn = Turn()
    turn.metadata_changed((), lambda: ())
    turn.begin(1)
    return turn


@pytest.mark.parametrize(
    ("record", "to_apply"),
    [
        (led_by(1, partition=1), {T1}),
        (TopicRecord("t", "id"), {T0, T1}),
        (RemoveTopicRecord("u", "id"), {U0}),
        (ConfigRecord("t", "min.insync.replicas", "2"), {T0, T1}),
        (ConfigRecord(CLUSTER_WIDE, "log.retention.ms", "5"), {T0, T1, U0}),
        (ConfigRecord(DYNAMIC_DEFAULT, "message.max.bytes", None), {T0, T1, U0}),
        (ConfigRecord(of_broker(1), "log.segment.bytes", "5"), {T0, T1, U0}),
        (ConfigRecord(DYNAMIC_DEFAULT, "num.partitions", "5"), set()),
        (FenceBrokerRecord(2, 1), set()),
    ],
)
def test_a_partition_is_applied_for_its_own_records_and_its_topics(
    record: MetadataRecord, to_apply: set[TopicPartition]
) -> None:
    turn = after_the_first()
    turn.metadata_changed([record], lambda: (T0, T1, U0))
    assert turn.to_apply == to_apply


def test_after_a_registration_all_partitions_are_applied_once() -> None:
    turn = after_the_first()
    turn.applies_all = True
    turn.metadata_changed((), lambda: (T0, U0))
    assert turn.to_apply == {T0, U0}
    turn.to_apply.clear()
    turn.metadata_changed((), lambda: (T0, U0))
    assert turn.to_apply == set()


def test_what_a_turn_did_not_do_is_left_for_the_next() -> None:
    turn = after_the_first()
    turn.to_publish.add(T0)
    turn.to_complete.add(T1)
    turn.has_more = True
    turn.begin(5)
    assert (turn.begun_ms, turn.to_publish, turn.to_complete) == (5, {T0}, {T1})
    assert not turn.has_more


def test_leaders_start_in_the_order_of_their_newest_election() -> None:
    turn = Turn()
    for topic_partition in (T0, T1, T0):
        turn.start(topic_partition)
    assert list(turn.to_start) == [T1, T0]
