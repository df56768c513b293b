"""How far groups are behind: the rule as a table, and the ages of records in tables."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from stratalog.replication.coordinator.groups.shard import GroupShard
from stratalog.replication.coordinator.shard.shard import HeldGroup, HeldOffset
from stratalog.server.lag.group_lag import (
    MeasuredGroup,
    MeasuredPartition,
    PartitionEnds,
    group_lag,
    lag_metrics,
    topics_of,
)
from stratalog.server.lag.rounds import LagMeasurement
from stratalog.server.metrics.exposition import prometheus_text
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.records import NewRecordBatch, TopicPartition, payload_table
from tests.clients.memory_cluster import MemoryCluster
from tests.replication.group_coordinator import Coordinator, commit_request
from tests.server.metrics.test_of_broker import values_in
from tests.server.view.test_read_committed import Writer

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW_MS = 1_000_000


def held(committed: Mapping[TopicPartition, int], members: int = 0, reads: str = "", topic_id: str = "") -> HeldGroup:
    offsets = {named: HeldOffset(offset, topic_id) for named, offset in committed.items()}
    return HeldGroup("g", members, offsets, lambda topic: topic == reads)


@pytest.mark.parametrize(
    ("group", "ends", "records", "unread"),
    [
        (held({T0: 4}), {T0: (0, 10)}, 6, 4),
        (held({T0: 10}), {T0: (0, 10)}, 0, None),
        (held({T0: 12}), {T0: (0, 10)}, 0, None),
        (held({T0: 4}), {T0: (7, 10)}, 6, 7),
        (held({T0: 4}), {}, None, None),
        (held({T1: 4}), {T0: (0, 10)}, -1, None),
        (held({}, members=1, reads="t"), {T0: (0, 10)}, -1, None),
        (held({T0: 4}, topic_id="old"), {T0: (0, 10)}, -1, None),
        (held({T0: 4}, topic_id="id"), {T0: (0, 10)}, 6, 4),
    ],
    ids=[
        "behind", "caught up", "beyond the end", "overtaken by retention", "no leader", "another partition's commit",
        "members without a commit", "an earlier topic's offset", "this topic's offset",
    ],
)  # fmt: skip
def test_a_groups_lag_in_records(
    group: HeldGroup, ends: Mapping[TopicPartition, tuple[int, int]], records: int | None, unread: int | None
) -> None:
    known = {named: PartitionEnds(*bounds, "id") for named, bounds in ends.items()}
    topics = topics_of(group, {"t", "other"})
    assert topics == {"t"}
    found = {each.topic_partition: each for each in group_lag(group, known, {"t": [T0, T1]}).partitions}
    assert set(found) == {T0, T1}
    assert (found[T0].records, found[T0].unread_offset) == (records, unread)


@pytest.mark.parametrize(
    ("lag", "seconds"),
    [
        (MeasuredPartition(T0, 4, 10, 4, NOW_MS - 2_500), 2.5),
        (MeasuredPartition(T0, 4, 10, 4, NOW_MS + 60_000), 0.0),
        (MeasuredPartition(T0, 4, 10, 4, None), None),
        (MeasuredPartition(T0, 10, 10), 0.0),
        (MeasuredPartition(T0, -1, 10), None),
        (MeasuredPartition(T0, 4, None), None),
    ],
    ids=["behind", "a producer's clock is ahead", "not read yet", "idle", "no commit", "no leader"],
)
def test_a_groups_lag_in_seconds_is_the_age_of_its_next_record(lag: MeasuredPartition, seconds: float | None) -> None:
    assert lag.seconds(NOW_MS) == seconds


def test_series_have_kafka_exporters_names() -> None:
    lags = (MeasuredPartition(T0, 4, 10, 4, NOW_MS - 1_000), MeasuredPartition(T1, -1, 7))
    found = values_in(prometheus_text(lag_metrics([MeasuredGroup("g", 2, lags)], NOW_MS)))
    zero, one = ('{consumergroup="g",partition="0",topic="t"}', '{consumergroup="g",partition="1",topic="t"}')
    assert found == {
        'kafka_consumergroup_members{consumergroup="g"}': 2,
        f"kafka_consumergroup_current_offset{zero}": 4,
        f"kafka_consumergroup_current_offset{one}": -1,
        f"kafka_consumergroup_lag{zero}": 6,
        f"kafka_consumergroup_lag{one}": -1,
        f"kafka_consumergroup_lag_seconds{zero}": 1,
        'kafka_consumergroup_current_offset_sum{consumergroup="g",topic="t"}': 4,
        'kafka_consumergroup_lag_sum{consumergroup="g",topic="t"}': 6,
    }


def test_a_shard_gives_its_groups_with_members_and_offsets() -> None:
    coordinator = Coordinator()
    coordinator.stable("a", "b")
    coordinator.answer(commit_request({("t", 0): 7}, group_id="simple"))
    shard = coordinator.shard
    assert isinstance(shard, GroupShard)
    found = {group.group_id: group for group in shard.groups()}
    assert {name: group.member_count for name, group in found.items()} == {"g": 2, "simple": 0}
    assert found["simple"].committed == {T0: HeldOffset(7, "")}
    assert not found["simple"].subscribed("t")


class Measured:
    """A cluster in memory whose groups are measured."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.view = ClusterView(self.cluster, stores=self.cluster.stores)
        self.measurement = LagMeasurement(self.view, self.cluster.clock)

    def written(self, *times_ms: int, topic: str = "t") -> None:
        """Records with these times, in a data file of their own."""
        rows = [(time_ms, None, b"v", None) for time_ms in times_ms]
        self.cluster.append_batch(TopicPartition(topic, 0), NewRecordBatch(payload_table(rows)))
        self.cluster.publish(TopicPartition(topic, 0))

    def lag(self, committed: int) -> MeasuredPartition:
        (group,) = self.measurement.measure([held({T0: committed})])
        (lag,) = group.partitions
        return lag


def test_an_age_is_of_the_record_that_the_table_has_at_the_committed_offset() -> None:
    measured = Measured()
    measured.cluster.create_topic("t")
    measured.written(1_000, 2_000, 3_000)
    measured.written(9_000)
    assert [measured.lag(offset).first_unread_ms for offset in range(5)] == [1_000, 2_000, 3_000, 9_000, None]
    assert (measured.lag(4).records, measured.lag(4).seconds(NOW_MS)) == (0, 0.0)
    measured.written(11_000)
    assert measured.lag(4).first_unread_ms == 11_000


def test_a_marker_is_no_record_that_waits() -> None:
    measured = Measured()
    writer = Writer(measured.cluster)
    writer.put(7, "a")
    writer.end(7, committed=True)
    lag = measured.lag(1)
    assert (lag.records, lag.seconds(NOW_MS)) == (1, 0.0)
    measured.written(8_000)
    assert measured.lag(1).first_unread_ms == 8_000


def test_a_group_that_stands_still_reads_nothing_again() -> None:
    measured = Measured()
    measured.cluster.create_topic("t")
    measured.written(1_000)
    assert measured.lag(0).first_unread_ms == 1_000
    measured.cluster.log(1, T0).table.drop()
    assert measured.lag(0).first_unread_ms == 1_000


def test_partitions_that_cannot_be_read_have_no_age() -> None:
    measured = Measured()
    measured.cluster.create_topic("t")
    measured.written(1_000)
    for broker in (1, 2, 3):
        measured.cluster.stores.lost.add(measured.cluster.root_of(broker))
    (group,) = measured.measurement.measure([held({T0: 0})])
    assert [lag.seconds(NOW_MS) for lag in group.partitions] == [None]


def test_without_groups_nothing_is_read() -> None:
    assert Measured().measurement.measure([held({})]) == []
