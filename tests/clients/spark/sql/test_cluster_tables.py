"""The cluster's tables: brokers, partitions, their past, leader epochs, group lag; in memory, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from stratalog.clients.admin.groups import GroupAdmin, LiveGroups
from stratalog.clients.records import OffsetAndMetadata
from stratalog.clients.spark.sql.cluster_tables import (
    CLUSTER_TABLES,
    LedRow,
    brokers,
    epoch_rows,
    group_lag,
    leader_epochs,
    partition_history,
    partitions,
)
from stratalog.replication.metadata.history.states import LeaderEpoch
from stratalog.replication.metadata.records import FenceBrokerRecord
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.records import TopicPartition
from tests.clients.admin.test_who_led import COMMITS, view, with_history
from tests.clients.memory_cluster import MemoryCluster
from tests.clients.memory_coordinator import MemoryCoordinator


def view_of(cluster: MemoryCluster) -> ClusterView:
    return ClusterView(cluster.root, stores=cluster.stores, timeout_ms=0)


def columns(table: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def test_brokers_with_the_fenced_one() -> None:
    cluster = MemoryCluster()
    cluster.commit(FenceBrokerRecord(2, 2))
    found = brokers(view_of(cluster))
    assert columns(found, "broker_id", "is_fenced") == [(1, False), (2, True), (3, False)]
    assert found["root"][0].as_py() == cluster.root_of(1)


def test_partitions_as_they_are_now() -> None:
    cluster = MemoryCluster()
    t0, t1 = cluster.create_topic("t", 2)
    cluster.append(t0, b"a", b"b")
    cluster.publish(t0)
    cluster.commit(cluster.state(t0).changed(isr=(1, 3), bump_leader_epoch=False))
    cluster.elect(t1, 2)  # has not started: it has published nothing
    found = partitions(view_of(cluster))
    wanted = ("partition", "leader", "isr", "is_under_replicated", "log_start_offset", "high_watermark")
    assert columns(found, *wanted) == [(0, 1, [1, 3], True, 0, 2), (1, 2, [1, 2, 3], False, None, None)]
    assert set(found["topic_id"].to_pylist()) == {cluster.metadata.image.topic_ids["t"]}


def test_the_history_has_every_state_once_whether_the_log_has_it_or_the_history() -> None:
    history = partition_history(view(with_history()))
    assert history["leader_epoch"].to_pylist() == list(range(COMMITS + 2))
    offsets = history["metadata_offset"].to_pylist()
    assert offsets == sorted(set(offsets))
    assert history["start_offset"].to_pylist()[1:-1] == [10 * epoch for epoch in range(COMMITS)]


def test_an_offset_is_within_one_leader_epoch_as_who_led_finds_it() -> None:
    found = leader_epochs(view(with_history()))
    rows = columns(found, "leader_epoch", "leader", "start_offset", "end_offset")
    for epoch in range(1, COMMITS):
        offset = 10 * epoch - 5
        within = [row[:2] for row in rows if row[2] is not None and row[2] <= offset < (row[3] or 1 << 62)]
        assert within == [(epoch, 1 + epoch % 2)]


def test_the_leaders_table_has_what_the_history_lacks() -> None:
    cluster = MemoryCluster()
    (t0,) = cluster.create_topic("t")
    cluster.append(t0, b"a", b"b")
    cluster.publish(t0)
    cluster.follow(2, t0)
    cluster.elect(t0, 2)
    cluster.start_leader(t0)
    cluster.append(t0, b"c")
    cluster.publish(t0)
    rows = columns(leader_epochs(view_of(cluster)), "leader", "start_offset", "end_offset", "isr")
    assert rows == [(1, 0, 2, [1, 2, 3]), (2, 2, None, [1, 2, 3])]


def state(epoch: int, at: int, leader: int, start_offset: int | None) -> LedRow:
    return LedRow("t", "id", 3, epoch, at, 1_000 * at, leader, start_offset, (1, 2))


@pytest.mark.parametrize(
    ("states", "starts", "expected"),
    [
        # an epoch without records is within no other one's offsets
        (
            [state(0, 0, 1, 0), state(1, 1, 2, None), state(2, 2, 1, 7)],
            {},
            [(0, 1, 0, 7), (1, 2, None, None), (2, 1, 7, None)],
        ),
        # no leader in the last state of an epoch: the one before led it
        ([state(0, 0, 1, 0), state(0, 1, -1, None)], {}, [(0, 1, 0, None)]),
        # the leader's table overrules the history
        ([state(0, 0, 1, 0), state(1, 1, 2, None)], {1: 5}, [(0, 1, 0, 5), (1, 2, 5, None)]),
    ],
)  # fmt: skip
def test_epochs_of_states(states: list[LedRow], starts: dict[int, int], expected: list[Any]) -> None:
    rows = epoch_rows(states, {LeaderEpoch("id", 3, epoch): start for epoch, start in starts.items()})
    assert [(row["leader_epoch"], row["leader"], row["start_offset"], row["end_offset"]) for row in rows] == expected
    assert [row["until"] for row in rows] == [*(row["since"] for row in rows[1:]), None]


def test_epochs_of_a_topic_that_was_created_again_are_apart() -> None:
    older = [LedRow("t", "old", 0, epoch, epoch, epoch, 1, 10 * epoch, (1,)) for epoch in (0, 1)]
    rows = epoch_rows([*older, LedRow("t", "new", 0, 0, 9, 9, 2, 0, (2,))], {})
    assert [(row["topic_id"], row["leader_epoch"], row["end_offset"]) for row in rows] == [
        ("new", 0, None), ("old", 0, 10), ("old", 1, None),
    ]  # fmt: skip


def test_lag_of_groups_is_what_is_committed_below_the_high_watermark() -> None:
    cluster = MemoryCluster()
    t0, t1 = cluster.create_topic("t", 2)
    coordinator = MemoryCoordinator(cluster)
    try:
        cluster.append(t0, b"a", b"b", b"c")
        cluster.publish(t0)
        live = view_of(cluster)
        groups = GroupAdmin(LiveGroups(cluster, live.clock, 5_000), live)
        gone = TopicPartition("gone", 0)
        groups.alter_offsets("g", {t0: OffsetAndMetadata(1), t1: OffsetAndMetadata(0), gone: OffsetAndMetadata(4)})
        found = group_lag(view_of(cluster))
    finally:
        coordinator.stop()
    wanted = ("group_id", "group_state", "topic", "partition", "committed_offset", "high_watermark", "lag")
    assert columns(found, *wanted) == [
        ("g", "Empty", "gone", 0, 4, None, None), ("g", "Empty", "t", 0, 1, 3, 2), ("g", "Empty", "t", 1, 0, 0, 0),
    ]  # fmt: skip


def test_a_cluster_without_topics_and_groups_has_all_tables() -> None:
    empty = view_of(MemoryCluster())
    assert {name: made(empty).num_rows for name, made in CLUSTER_TABLES.items()} == {
        "brokers": 3, "partitions": 0, "partition_history": 0, "leader_epochs": 0, "group_lag": 0,
    }  # fmt: skip
