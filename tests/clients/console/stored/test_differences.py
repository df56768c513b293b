"""The cluster at a time, and two states of it compared: tables of records and images."""

from __future__ import annotations

import pytest

from stratalog.clients.console.stored.differences import (
    StateDifference,
    cluster_config_differences,
    cluster_differences,
    config_differences,
    image_at,
    newest_states,
    partition_differences,
    removed_ms,
    unknown_configs,
    with_past_partitions,
)
from stratalog.clients.console.stored.past import exact_from_ms
from stratalog.clients.console.stored.timeline import StateInTime
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import (
    DYNAMIC_DEFAULT,
    ConfigRecord,
    ControllerRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from stratalog.storage.records import TopicPartition

T0 = TopicPartition("t", 0)


def partition(leader: int = 1, isr: tuple[int, ...] = (1, 2), replicas: tuple[int, ...] = (1, 2)) -> PartitionRecord:
    return PartitionRecord("t", 0, replicas, leader, 0, isr, 0, 0)


def rows(*records: MetadataRecord) -> list[tuple[int, int, MetadataRecord]]:
    """The n-th record at offset n and 1,000 * n ms."""
    return [(number, 1_000 * number, record) for number, record in enumerate(records)]


def test_an_image_has_what_was_committed_by_its_time() -> None:
    log = rows(TopicRecord("t", "id"), partition(), partition(leader=2), RemoveTopicRecord("t", "id"))
    leaders = [image_at(log, at_ms).partitions.get(T0) for at_ms in (999, 1_000, 2_500, 3_000)]
    assert [None if each is None else each.leader for each in leaders] == [None, 1, 2, None]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (partition(), partition(), []),
        (partition(), partition(leader=2), [("leader", "1", "2")]),
        (partition(), partition(leader=-1), [("leader", "1", "none")]),
        (partition(isr=(2, 1)), partition(isr=(1, 2)), []),
        (partition(), partition(isr=(1,)), [("ISR", "1,2", "1")]),
        (partition(), partition(replicas=(1, 3), isr=(1,)), [("ISR", "1,2", "1"), ("replicas", "1,2", "1,3")]),
        (None, partition(), [("partition", "-", "leader 1, ISR 1,2")]),
        (partition(), None, [("partition", "leader 1, ISR 1,2", "-")]),
    ],
)
def test_partitions_differ_by_leader_isr_and_replicas(
    before: PartitionRecord | None, after: PartitionRecord | None, expected: list[tuple[str, str, str]]
) -> None:
    states = [{} if each is None else {T0: each} for each in (before, after)]
    found = partition_differences(*states)
    assert [(each.what, each.then, each.now) for each in found] == expected


@pytest.mark.parametrize(
    ("then", "now", "expected"),
    [
        ({}, {}, []),
        ({"a": "1"}, {"a": "1"}, []),
        ({"a": "1"}, {"a": "2"}, [StateDifference("config", "a", "1", "2")]),
        ({}, {"a": "2"}, [StateDifference("config", "a", "-", "2")]),
        ({"a": "1"}, {}, [StateDifference("config", "a", "1", "-")]),
    ],
)
def test_configs_differ_by_value(then: dict[str, str], now: dict[str, str], expected: list[StateDifference]) -> None:
    assert config_differences("config", then, now) == expected


def test_images_differ_by_brokers_controller_topics_and_partitions() -> None:
    broker = RegisterBrokerRecord(1, 1, "i", "root")
    then = ClusterImage().fold(
        broker, ControllerRecord(1, 1), TopicRecord("t", "id"), partition(), TopicRecord("u", "x")
    )
    now = then.fold(
        FenceBrokerRecord(1, 1), ControllerRecord(2, 2), partition(leader=2), TopicRecord("new", "y"),
        RemoveTopicRecord("u", "x"), ConfigRecord(DYNAMIC_DEFAULT, "log.retention.ms", "9"),
    )  # fmt: skip
    found = cluster_differences(then, now, ["t", "u", "new"])
    assert [(each.what, each.name, each.then, each.now) for each in found] == [
        ("broker", "1", "running, broker epoch 1", "stopped, broker epoch 1"),
        ("controller", "", "1", "2"),
        ("topic", "new", "-", "0 partitions, id y"),
        ("topic", "u", "0 partitions, id x", "-"),
        ("leader", "t-0", "1", "2"),
    ]
    assert cluster_config_differences(then, now) == [StateDifference("cluster config", "log.retention.ms", "-", "9")]


def test_topics_that_are_not_named_are_in_no_difference() -> None:
    then, now = ClusterImage(), ClusterImage().fold(TopicRecord("hidden", "id"))
    assert cluster_differences(then, now, ["t"]) == []


PAST = [
    StateInTime(5, 5_000, "id", 0, 1, 0, 0, (1, 2), (1, 2), 0),
    StateInTime(8, 8_000, "id", 0, 2, 1, 7, (2,), (1, 2), 1),
]


def test_a_compacted_log_is_completed_by_the_history() -> None:
    assert newest_states(PAST, 6_000) == {("id", 0): PAST[0]}
    present = ClusterImage().fold(TopicRecord("t", "id"))
    then, unsure = with_past_partitions(ClusterImage(), {"t": PAST}, present, {}, 6_000)
    assert (then.partition(T0).leader, then.topic_ids["t"], unsure) == (1, "id", [])


def test_of_a_topic_that_is_gone_it_may_be_unknown_whether_it_was_there() -> None:
    gone = ClusterImage()
    assert with_past_partitions(gone, {"t": PAST}, gone, {}, 6_000)[1] == ["t"]
    removals = removed_ms([(9, 9_000, RemoveTopicRecord("t", "id"))])
    then, unsure = with_past_partitions(gone, {"t": PAST}, gone, removals, 8_500)
    assert (then.partition(T0).leader, unsure) == (2, [])
    assert with_past_partitions(gone, {"t": PAST}, gone, removals, 9_000)[0].topic_ids == {}


@pytest.mark.parametrize(
    ("at_ms", "exact", "expected"), [(500, 2_000, ["b", "c"]), (1_500, 2_000, ["c"]), (2_000, 2_000, []), (500, 0, [])]
)
def test_configs_that_were_changed_after_the_time_are_not_known_in_a_compacted_log(
    at_ms: int, exact: int, expected: list[str]
) -> None:
    log = rows(*(ConfigRecord("t", name, "1") for name in "abc"))
    assert unknown_configs(log, "t", at_ms, exact) == expected


def test_a_log_is_exact_from_its_last_compacted_record_on() -> None:
    log = rows(*(ConfigRecord("t", name, "1") for name in "abc"))
    assert [exact_from_ms(log, end) for end in (0, 1, 3)] == [0, 0, 2_000]
