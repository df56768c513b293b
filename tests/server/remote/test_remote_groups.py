"""Consumers in groups whose coordinator is called over sockets or inboxes: what holds in one process holds here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from stratalog.clients.admin.groups import GroupAdmin, LiveGroups
from stratalog.clients.records import OffsetAndMetadata
from stratalog.storage.errors import GroupIdNotFoundError, NonEmptyGroupError
from stratalog.storage.records import TopicPartition
from tests.clients.consumer.test_groups import Group, T
from tests.clients.memory_cluster import ROOT, MemoryCluster
from tests.clients.memory_coordinator import MemoryCoordinator
from tests.clients.served_cluster import InboxCluster, ServedCluster

CLASSIC, MODERN = {"heartbeat_interval_ms": 20}, {"group_protocol": "consumer"}
QUICK = {
    "group.consumer.heartbeat.interval.ms": 20,
    "group.consumer.min.heartbeat.interval.ms": 20,
    "group.consumer.assignment.interval.ms": 0,
}


class RemoteGroup(Group):
    """Its consumers call brokers of other processes: by one remote cluster, or each by the metadata root."""

    settings = {"auto_offset_reset": "earliest"}  # noqa: RUF012

    def __init__(
        self,
        cluster: MemoryCluster,
        served: Callable[[MemoryCluster], ServedCluster | InboxCluster],
        *,
        is_shared: bool,
    ) -> None:
        super().__init__(cluster)
        self.coordinator = MemoryCoordinator(cluster, **QUICK)
        self.served = served(cluster)
        self.called = self.served.remote if is_shared else ROOT

    def admin(self) -> GroupAdmin:
        view = self.served.handlers[1].broker.view
        return GroupAdmin(LiveGroups(self.served.remote, view.clock, 5_000), view)


WAYS = [(ServedCluster, True), (InboxCluster, True), (ServedCluster, False), (InboxCluster, False)]


@pytest.fixture(params=WAYS, ids=["sockets", "inbox", "root and sockets", "root and inbox"])
def group(request: pytest.FixtureRequest) -> Iterator[RemoteGroup]:
    """Topic `t` of four partitions with the values 0, 1, 2 in each."""
    cluster = MemoryCluster()
    for topic_partition in cluster.create_topic("t", 4):
        cluster.append(topic_partition, b"0", b"1", b"2")
        cluster.publish(topic_partition)
    made = RemoteGroup(cluster, request.param[0], is_shared=request.param[1])
    with made.served:
        yield made
        for consumer in made.consumers:
            consumer.close()
    made.coordinator.stop()


@pytest.mark.parametrize("settings", [CLASSIC, MODERN], ids=["classic", "modern"])
def test_members_of_one_process_come_and_go(group: RemoteGroup, settings: dict[str, object]) -> None:
    """A JoinGroup of one member waits for that of the other, which the same process sends."""
    first, second = group.consumer(**settings), group.consumer(**settings)
    for consumer in (first, second):
        consumer.subscribe(["t"])
    group.poll_until(lambda: group.settled(first, second))
    second.close()
    group.consumers.remove(second)
    group.poll_until(lambda: group.settled(first))


@pytest.mark.parametrize("settings", [CLASSIC, MODERN], ids=["classic", "modern"])
def test_the_next_member_continues_at_the_committed_offsets(group: RemoteGroup, settings: dict[str, object]) -> None:
    first = group.consumer(enable_auto_commit=False, **settings)
    first.subscribe(["t"])
    group.poll_until(lambda: group.settled(first) and all(first.position(tp) == 3 for tp in T))
    first.commit_sync({T[0]: OffsetAndMetadata(2, "note", 0), T[1]: OffsetAndMetadata(1)})
    assert first.committed(T[:3]) == {T[0]: OffsetAndMetadata(2, "note", 0), T[1]: OffsetAndMetadata(1), T[2]: None}
    first.close()
    group.consumers.remove(first)
    second = group.consumer(**settings)
    second.subscribe(["t"])
    values = group.poll_until(lambda: group.settled(second) and all(second.position(tp) == 3 for tp in T))
    assert sorted(values)[:3] == [(0, b"2"), (1, b"1"), (1, b"2")]


def test_members_find_the_coordinator_that_took_over(group: RemoteGroup) -> None:
    consumer = group.consumer(**CLASSIC)
    consumer.subscribe(["t"])
    group.poll_until(lambda: group.settled(consumer))
    group.coordinator.fail_over(2)
    consumer.commit_sync({T[0]: OffsetAndMetadata(2)}, timeout_ms=20_000)
    assert group.admin().committed("g")[T[0]].offset == 2


def test_groups_are_administered(group: RemoteGroup) -> None:
    consumer, admin = group.consumer(client_id="c", **CLASSIC), group.admin()
    consumer.subscribe(["t"])
    group.poll_until(lambda: group.settled(consumer))
    consumer.commit_sync()
    described = admin.describe_group("g")
    assert (described.group_state, described.partition_assignor) == ("Stable", "range")
    assert [(member.client_id, member.host) for member in described.members] == [("c", group.served.client_host)]
    admin.alter_offsets("empty", {T[0]: OffsetAndMetadata(1), T[1]: OffsetAndMetadata(1)})
    assert [(each.group_id, each.group_state) for each in admin.list_groups()] == [("empty", "Empty"), ("g", "Stable")]
    assert [each.group_id for each in admin.list_groups(["Empty"])] == ["empty"]
    assert admin.delete_offsets("empty", T[:1]) == (None, {T[0]: None})
    assert admin.committed("empty").keys() == {TopicPartition("t", 1)}
    outcomes = admin.delete_groups(["g", "empty"])
    assert (type(outcomes["g"]), outcomes["empty"]) == (NonEmptyGroupError, None)
    assert isinstance(admin.describe_group("empty").error, GroupIdNotFoundError)
