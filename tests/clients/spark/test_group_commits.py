"""Offsets of a query that reads all partitions, committed to a real group shard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.coordinator_calls import InProcessCalls
from stratalog.clients.records import OffsetAndMetadata
from stratalog.clients.spark.group.commits import GroupCommits
from stratalog.clients.spark.group.offsets import OffsetBounds
from stratalog.clients.spark.options import stream_options
from stratalog.replication.requests.groups import OffsetCommitRequest
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import BrokerNotAvailableError, OffsetOutOfRangeError, UnknownMemberIdError
from stratalog.storage.records import TopicPartition
from tests.clients.memory_cluster import ROOT, MemoryCluster
from tests.clients.memory_coordinator import MemoryCoordinator
from tests.waiting import wait_until

T = [TopicPartition("t", number) for number in range(3)]
BOUNDS = OffsetBounds(dict.fromkeys(T, 0), dict.fromkeys(T, 100), "earliest")


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create_topic("t", 3)
    return made


@pytest.fixture
def coordinator(cluster: MemoryCluster) -> Iterator[MemoryCoordinator]:
    made = MemoryCoordinator(cluster)
    yield made
    made.stop()


def commits_of(cluster: MemoryCluster, **options: str) -> GroupCommits:
    given = {"stratalog.root": ROOT, "subscribe": "t", "kafka.group.id": "g", **options}
    group = stream_options(given).group
    assert group is not None
    return GroupCommits(group, InProcessCalls(cluster, cluster.clock), cluster.clock)


def consumer(cluster: MemoryCluster) -> Consumer:
    view = ClusterView(ROOT, stores=cluster.stores)
    return Consumer(cluster, {"group.id": "g", "enable.auto.commit": False}, view=view)


def committed(cluster: MemoryCluster) -> list[int | None]:
    with consumer(cluster) as reader:
        found = reader.committed(T)
        return [None if each is None else each.offset for each in (found[tp] for tp in T)]


@pytest.mark.usefixtures("coordinator")
def test_a_query_commits_and_a_new_one_starts_there(cluster: MemoryCluster) -> None:
    commits = commits_of(cluster)
    assert commits.starts(BOUNDS) == dict.fromkeys(T, 0)
    commits.commit({T[0]: 5, T[1]: 7})
    assert commits.wait(10_000)
    assert committed(cluster) == [5, 7, None]
    assert commits_of(cluster).starts(BOUNDS) == {T[0]: 5, T[1]: 7, T[2]: 0}
    with pytest.raises(OffsetOutOfRangeError, match="Undefined offset with no reset policy"):
        commits_of(cluster).starts(OffsetBounds(BOUNDS.earliest, BOUNDS.latest, "none"))


def test_only_what_changed_is_sent(cluster: MemoryCluster, coordinator: MemoryCoordinator) -> None:
    commits = commits_of(cluster)
    for offsets in ({T[0]: 1, T[1]: 1}, {T[0]: 2, T[1]: 1}, {T[0]: 2, T[1]: 1}):
        commits.commit(offsets)
        assert commits.wait(10_000)
    sent = [each for each in coordinator.requests if isinstance(each, OffsetCommitRequest)]
    assert [[row.partition_index for row in each.topics[0].partitions] for each in sent] == [[0, 1], [0]]


@pytest.mark.usefixtures("coordinator")
def test_a_group_may_be_reset_while_no_query_runs(cluster: MemoryCluster) -> None:
    commits = commits_of(cluster)
    commits.commit(dict.fromkeys(T, 50))
    assert commits.wait(10_000)
    with consumer(cluster) as tool:
        tool.commit_sync({T[1]: OffsetAndMetadata(3)})
    assert commits_of(cluster).starts(BOUNDS) == {T[0]: 50, T[1]: 3, T[2]: 50}


def test_a_commit_follows_the_coordinator(cluster: MemoryCluster, coordinator: MemoryCoordinator) -> None:
    commits = commits_of(cluster)
    commits.commit({T[0]: 1})
    assert commits.wait(10_000)
    coordinator.fail_over(2)
    commits.commit({T[0]: 2})
    assert commits.wait(10_000)
    assert committed(cluster) == [2, None, None]


@pytest.mark.usefixtures("coordinator")
def test_a_group_with_members_refuses_the_commits_of_others(cluster: MemoryCluster) -> None:
    commits = commits_of(cluster)
    with consumer(cluster) as member:
        member.subscribe(["t"])
        wait_until(lambda: member.poll(10) == [] and member.assignment(), "joined")
        commits.commit({T[0]: 1})
        with pytest.raises(UnknownMemberIdError, match=r"the group has members.*group\.mode=share"):
            commits.wait(10_000)


def test_without_a_coordinator_the_error_says_what_to_do(cluster: MemoryCluster) -> None:
    cluster.running.clear()
    with pytest.raises(BrokerNotAvailableError, match="Can this machine reach the brokers' listeners"):
        commits_of(cluster, **{"kafka.default.api.timeout.ms": "100"})
