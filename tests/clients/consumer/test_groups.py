"""Consumers in groups, against real group shards: sharing partitions, committing, starting where the group is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.consumer.rebalance_listener import ConsumerRebalanceListener
from stratalog.clients.coordinator_calls import InProcessCalls, ask
from stratalog.clients.records import OffsetAndMetadata
from stratalog.replication.requests.groups import LeaveGroupRequest, MemberIdentity, OffsetCommitRequest
from stratalog.server.bootstrap import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import (
    CommitFailedError,
    IllegalStateError,
    InvalidConfigError,
    InvalidGroupIdError,
    InvalidRequestError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    StratalogError,
)
from stratalog.storage.records import TopicPartition
from tests.clients.cut_calls import CutCalls
from tests.clients.memory_cluster import ROOT, MemoryCluster
from tests.clients.memory_coordinator import MemoryCoordinator

T = [TopicPartition("t", number) for number in range(4)]


@pytest.fixture
def cluster() -> MemoryCluster:
    """Topic `t` of four partitions with the values 0, 1, 2 in each."""
    made = MemoryCluster()
    for topic_partition in made.create_topic("t", 4):
        made.append(topic_partition, b"0", b"1", b"2")
        made.publish(topic_partition)
    return made


@pytest.fixture
def coordinator(cluster: MemoryCluster) -> Iterator[MemoryCoordinator]:
    made = MemoryCoordinator(cluster, **{"group.min.session.timeout.ms": 1_500})
    yield made
    made.stop()


class Told(ConsumerRebalanceListener):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[TopicPartition]]] = []
        self.when_revoked: Callable[[], None] = lambda: None

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("assigned", partitions))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.when_revoked()
        self.events.append(("revoked", partitions))

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("lost", partitions))


class Group:
    """Makes consumers of one cluster and polls them in turn."""

    settings: Mapping[str, object] = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 20}

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.called: Cluster = cluster
        self.consumers: list[Consumer] = []

    def consumer(self, group_id: str = "g", calls: CutCalls | None = None, **settings: object) -> Consumer:
        view = ClusterView(ROOT, stores=self.cluster.stores)
        given = {**self.settings, **settings}
        self.consumers.append(Consumer(self.called, view=view, calls=calls, group_id=group_id, **given))
        return self.consumers[-1]

    def poll_until(self, is_done: Callable[[], bool], *consumers: Consumer) -> list[tuple[int, bytes]]:
        """Poll them (all, if none are named) until it is so; partitions and values of the records that came."""
        values: list[tuple[int, bytes]] = []
        for _ in range(2_000):
            if is_done():
                return values
            for consumer in consumers or self.consumers:
                values += [(record.partition, record.value or b"") for record in consumer.poll(5)]
        raise AssertionError(f"not so after 2,000 polls; assignments {[c.assignment() for c in self.consumers]}")

    def settled(self, *consumers: Consumer) -> bool:
        """All partitions of `t` are shared out evenly, none twice."""
        shares = [consumer.assignment() for consumer in consumers]
        sizes = [len(share) for share in shares]
        return set().union(*shares) == set(T) and sum(sizes) == len(T) and max(sizes) - min(sizes) <= 1


@pytest.fixture
def group(cluster: MemoryCluster, coordinator: MemoryCoordinator) -> Iterator[Group]:
    made = Group(cluster)
    yield made
    for consumer in made.consumers:
        consumer.close()


def test_one_member_reads_everything_from_the_beginning(group: Group) -> None:
    consumer = group.consumer()
    consumer.subscribe(["t"])
    values = group.poll_until(lambda: group.settled(consumer) and all(consumer.position(tp) == 3 for tp in T))
    assert consumer.assignment() == set(T)
    assert consumer.subscription() == {"t"}
    assert sorted(values) == [(number, b"%d" % value) for number in range(4) for value in range(3)]


@pytest.mark.parametrize(
    "strategy", ["range", "roundrobin", "sticky", "cooperative-sticky", "range,cooperative-sticky"]
)
def test_a_partition_has_one_owner_and_members_come_and_go(group: Group, strategy: str) -> None:
    """One partition, one member (promise 27). Two triggers of a rebalance: a member joins, a member leaves."""
    first = group.consumer(partition_assignment_strategy=strategy)
    first.subscribe(["t"])
    group.poll_until(lambda: group.settled(first))
    second = group.consumer(partition_assignment_strategy=strategy)
    second.subscribe(["t"])
    group.poll_until(lambda: group.settled(first, second))
    second.close()
    group.consumers.remove(second)
    group.poll_until(lambda: group.settled(first))


def test_groups_are_independent_of_each_other(group: Group) -> None:
    """Two groups each get every record; the members of one group share them."""
    consumers = [group.consumer("a"), group.consumer("b")]
    for consumer in consumers:
        consumer.subscribe(["t"])
    group.poll_until(lambda: all(group.settled(consumer) for consumer in consumers))


def test_a_killed_member_is_replaced_after_its_session_timeout(group: Group, coordinator: MemoryCoordinator) -> None:
    settings = {"session_timeout_ms": 1_500, "heartbeat_interval_ms": 50}
    calls = CutCalls(group.cluster, group.cluster.clock)
    first, killed = group.consumer(**settings), group.consumer(calls=calls, **settings)
    for consumer in (first, killed):
        consumer.subscribe(["t"])
    group.poll_until(lambda: group.settled(first, killed))
    member_id = killed.group_metadata().member_id
    group.consumers.remove(killed)
    calls.is_cut = True  # its heartbeats end, and it does not leave
    started_ms = group.cluster.clock.monotonic_ms()
    group.poll_until(lambda: group.settled(first))
    assert group.cluster.clock.monotonic_ms() - started_ms <= 1_500 + 1_000
    left = [request for request in coordinator.requests if isinstance(request, LeaveGroupRequest)]
    assert member_id not in {each.member_id for request in left for each in request.members}
    killed.close(0)


def test_a_member_starts_where_the_group_is_and_the_reset_policy_decides_without_a_commit(group: Group) -> None:
    by_hand = group.consumer(enable_auto_commit=False)
    by_hand.assign(T)
    by_hand.commit_sync({T[0]: OffsetAndMetadata(2, "note", 0), T[1]: OffsetAndMetadata(3)})
    assert by_hand.committed(T) == {
        T[0]: OffsetAndMetadata(2, "note", 0), T[1]: OffsetAndMetadata(3), T[2]: None, T[3]: None,
    }  # fmt: skip
    consumer = group.consumer()
    consumer.subscribe(["t"])
    has_read = lambda: group.settled(consumer) and all(consumer.position(tp) == 3 for tp in T)  # noqa: E731
    values = group.poll_until(has_read, consumer)
    assert sorted(values)[:1] == [(0, b"2")]
    assert {number for number, _ in values} == {0, 2, 3}
    late = group.consumer("h", auto_offset_reset="latest")
    late.assign(T)
    assert late.position(T[0]) == 3
    strict = group.consumer("i", auto_offset_reset="none")
    strict.assign(T[:1])
    with pytest.raises(OffsetOutOfRangeError, match="Undefined offset with no reset policy for partitions"):
        group.poll_until(lambda: False, strict)


def test_commits_by_hand_synchronous_asynchronous_and_of_given_offsets(group: Group) -> None:
    consumer = group.consumer(enable_auto_commit=False)
    consumer.assign(T[:1])
    group.poll_until(lambda: consumer.position(T[0]) == 3, consumer)
    consumer.commit_sync()
    assert consumer.committed(T[:1]) == {T[0]: OffsetAndMetadata(3, "", 0)}
    answers: list[tuple[int, StratalogError | None]] = []
    for offset in (1, 2):
        consumer.commit_async({T[0]: OffsetAndMetadata(offset)}, lambda o, e: answers.append((o[T[0]].offset, e)))
    assert answers == []
    group.poll_until(lambda: len(answers) == 2, consumer)
    assert answers == [(1, None), (2, None)]
    too_long = {T[0]: OffsetAndMetadata(1, "x" * 4_097)}
    with pytest.raises(OffsetMetadataTooLargeError):
        consumer.commit_sync(too_long)
    errors: list[StratalogError | None] = []
    consumer.commit_async(too_long, lambda _, error: errors.append(error))
    group.poll_until(lambda: bool(errors), consumer)
    assert isinstance(errors[0], OffsetMetadataTooLargeError)
    assert consumer.committed(T[:1])[T[0]] == OffsetAndMetadata(2)


def test_positions_are_committed_by_themselves_every_interval(group: Group, coordinator: MemoryCoordinator) -> None:
    consumer = group.consumer(auto_commit_interval_ms=30)
    consumer.subscribe(["t"])
    other = group.consumer(enable_auto_commit=False)
    group.poll_until(
        lambda: all((c := at) is not None and c.offset == 3 for at in other.committed(T).values()), consumer
    )
    assert any(isinstance(request, OffsetCommitRequest) for request in coordinator.requests)


def test_closing_commits_what_was_consumed_and_says_goodbye(group: Group, coordinator: MemoryCoordinator) -> None:
    consumer = group.consumer(auto_commit_interval_ms=600_000)
    consumer.subscribe(["t"])
    group.poll_until(lambda: group.settled(consumer) and all(consumer.position(tp) == 3 for tp in T))
    consumer.close()
    assert isinstance(coordinator.requests[-1], LeaveGroupRequest)
    other = group.consumer(enable_auto_commit=False)
    assert {at.offset for at in other.committed(T).values() if at} == {3}


def test_a_goodbye_reaches_the_coordinator_that_took_over(group: Group, coordinator: MemoryCoordinator) -> None:
    leave_after_fail_over(group, coordinator, heartbeat_interval_ms=3_000)


def leave_after_fail_over(group: Group, coordinator: MemoryCoordinator, **settings: object) -> None:
    """The one who closes still calls the old coordinator; without its goodbye the other would wait for its session."""
    leaving, staying = (group.consumer(**settings) for _ in range(2))
    for each in (leaving, staying):
        each.subscribe(["t"])
    group.poll_until(lambda: group.settled(leaving, staying))
    leaving.commit_sync()
    coordinator.fail_over(2)
    leaving.close()
    group.poll_until(lambda: group.settled(staying), staying)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_what_is_revoked_was_committed_before(group: Group, strategy: str) -> None:
    told = Told()
    settings = {"partition_assignment_strategy": strategy, "auto_commit_interval_ms": 600_000}
    first = group.consumer(**settings)
    first.subscribe(["t"], listener=told)
    group.poll_until(lambda: group.settled(first) and all(first.position(tp) == 3 for tp in T))
    seen: list[object] = []
    told.when_revoked = lambda: seen.append(first.committed(T))
    second = group.consumer(**settings)
    second.subscribe(["t"])
    assert group.poll_until(lambda: group.settled(first, second)) == []
    assert isinstance(seen[0], dict)
    assert {at.offset for at in seen[0].values() if at} == {3}
    kinds = [kind for kind, _ in told.events]
    assert kinds[:2] == ["assigned", "revoked"]
    revoked = told.events[1][1]
    assert revoked == (T if strategy == "range" else sorted(second.assignment()))


def test_a_fail_over_of_the_coordinator_keeps_members_and_offsets(group: Group, coordinator: MemoryCoordinator) -> None:
    consumer, other = group.consumer(), group.consumer()
    for each in (consumer, other):
        each.subscribe(["t"])
    group.poll_until(lambda: group.settled(consumer, other))
    before = consumer.group_metadata()
    consumer.commit_sync({sorted(consumer.assignment())[0]: OffsetAndMetadata(1)})
    coordinator.fail_over(2)
    consumer.commit_sync({sorted(consumer.assignment())[0]: OffsetAndMetadata(2)})
    assert consumer.committed(consumer.assignment())[sorted(consumer.assignment())[0]] == OffsetAndMetadata(2)
    group.poll_until(lambda: group.settled(consumer, other))
    assert consumer.group_metadata().member_id == before.member_id


def test_a_pattern_finds_topics_that_are_made_later_and_no_internal_ones(group: Group) -> None:
    consumer = group.consumer()
    consumer.subscribe(pattern="t.*|__.*")
    group.poll_until(lambda: group.settled(consumer))
    assert consumer.subscription() == {"t"}
    new = set(group.cluster.create_topic("t2", 2))
    group.poll_until(lambda: consumer.assignment() == set(T) | new)
    assert consumer.subscription() == {"t", "t2"}


def test_new_partitions_of_a_topic_are_shared_out(group: Group) -> None:
    """The new partition is read from its beginning or end as the reset policy says."""
    consumer, other = group.consumer(), group.consumer()
    for each in (consumer, other):
        each.subscribe(["later"])
    group.poll_until(lambda: all(each.group_metadata().generation_id > 0 for each in (consumer, other)))
    assert consumer.assignment() | other.assignment() == set()
    new = set(group.cluster.create_topic("later", 2))
    group.poll_until(lambda: consumer.assignment() | other.assignment() == new)


def test_unsubscribing_leaves_the_group_and_subscribing_joins_again(group: Group) -> None:
    told = Told()
    consumer = group.consumer()
    consumer.subscribe(["t"], listener=told)
    group.poll_until(lambda: group.settled(consumer))
    consumer.unsubscribe()
    assert (consumer.assignment(), consumer.subscription()) == (set(), set())
    assert [kind for kind, _ in told.events] == ["assigned", "revoked"]
    with pytest.raises(InvalidRequestError, match="No current assignment for partition t-0"):
        consumer.position(T[0])
    consumer.subscribe(["t"])
    group.poll_until(lambda: group.settled(consumer))


def test_a_commit_of_a_member_that_was_thrown_out_is_refused(group: Group, coordinator: MemoryCoordinator) -> None:
    told = Told()
    consumer = group.consumer(heartbeat_interval_ms=3_000)
    consumer.subscribe(["t"], listener=told)
    group.poll_until(lambda: group.settled(consumer))
    metadata = consumer.group_metadata()
    removed = LeaveGroupRequest("g", (MemberIdentity(metadata.member_id),))
    clock = coordinator.cluster.clock
    ask(InProcessCalls(coordinator.cluster, clock), "g", removed, clock, 5_000)
    with pytest.raises(CommitFailedError, match="likely that the consumer was kicked out of the group"):
        consumer.commit_sync({T[0]: OffsetAndMetadata(1)})
    group.poll_until(lambda: group.settled(consumer) and len(told.events) == 3)
    assert [kind for kind, _ in told.events] == ["assigned", "lost", "assigned"]


def test_a_member_that_was_thrown_out_tells_its_last_generation_until_it_has_another_assignment(
    group: Group, coordinator: MemoryCoordinator
) -> None:
    """What was read before is written in transactions with it. Told to be nobody's, those offsets would not be fenced,
    though another member has the partitions. Here a commit notices it, else a heartbeat does, in the background."""
    consumer = group.consumer()
    consumer.subscribe(["t"])
    group.poll_until(lambda: group.settled(consumer))
    before, clock = consumer.group_metadata(), coordinator.cluster.clock
    removed = LeaveGroupRequest("g", (MemberIdentity(before.member_id),))
    ask(InProcessCalls(coordinator.cluster, clock), "g", removed, clock, 5_000)
    with pytest.raises(CommitFailedError):
        consumer.commit_sync({T[0]: OffsetAndMetadata(1)})
    assert consumer.group_metadata() == before
    group.poll_until(lambda: consumer.group_metadata().generation_id not in (before.generation_id, -1))


def test_a_static_member_that_comes_back_gets_its_partitions_without_a_rebalance(
    group: Group, coordinator: MemoryCoordinator
) -> None:
    """KIP-345."""
    names = ("a", "b")
    members = {name: group.consumer(group_instance_id=name, session_timeout_ms=30_000) for name in names}
    for member in members.values():
        member.subscribe(["t"])
    group.poll_until(lambda: group.settled(*members.values()))
    share, generation = members["b"].assignment(), members["a"].group_metadata().generation_id
    members["b"].close()
    group.consumers.remove(members["b"])
    again = group.consumer(group_instance_id="b", session_timeout_ms=30_000)
    again.subscribe(["t"])
    group.poll_until(lambda: again.assignment() == share, again)
    assert members["a"].group_metadata().generation_id == generation == again.group_metadata().generation_id


def test_the_lag_is_what_is_not_read_yet(group: Group) -> None:
    consumer = group.consumer(enable_auto_commit=False, max_poll_records=1)
    consumer.assign(T[:1])
    assert consumer.current_lag(T[0]) is None
    group.poll_until(lambda: consumer.current_lag(T[0]) == 2, consumer)
    consumer.seek(T[0], 3)
    assert consumer.current_lag(T[0]) == 0


def test_what_needs_a_group_says_so(cluster: MemoryCluster, group: Group) -> None:
    alone = Consumer(ROOT, view=ClusterView(ROOT, stores=cluster.stores))
    for call in (
        lambda: alone.subscribe(["t"]),
        lambda: alone.commit_sync({}),
        lambda: alone.committed(T),
        lambda: alone.group_metadata(),
    ):
        with pytest.raises(InvalidGroupIdError, match="you must provide a valid group"):
            call()
    consumer = group.consumer()
    consumer.assign(T)
    with pytest.raises(IllegalStateError, match="mutually exclusive"):
        consumer.subscribe(["t"])
    consumer.unsubscribe()
    consumer.subscribe(["t"])
    with pytest.raises(IllegalStateError, match="mutually exclusive"):
        consumer.assign(T)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"enable_auto_commit": True}, "enable.auto.commit cannot be set to true when default group id"),
        ({"group_protocol": "new"}, "CLASSIC, CONSUMER"),
        (
            {"partition_assignment_strategy": "mine"},
            "Invalid value mine for configuration partition.assignment.str",
        ),
        ({"heartbeat_interval_ms": 45_000}, "Heartbeat must be set lower than the session timeout"),
    ],
)
def test_settings_that_cannot_be_are_refused(cluster: MemoryCluster, settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        Consumer(ROOT, view=ClusterView(ROOT, stores=cluster.stores), **settings)


def test_kafkas_classes_name_assignors_too(group: Group) -> None:
    classes = "org.apache.kafka.clients.consumer.RoundRobinAssignor,StickyAssignor"
    config = group.consumer(partition_assignment_strategy=classes).config
    assert config.partition_assignment_strategy == ("roundrobin", "sticky")


def test_a_member_goes_on_with_a_topic_that_was_deleted_and_created_again(cluster: MemoryCluster, group: Group) -> None:
    """It does not wait for the deleted topic when it commits, and commits none of its offsets to the new one."""
    consumer = group.consumer(auto_commit_interval_ms=600_000, default_api_timeout_ms=600_000)
    consumer.subscribe(["t"])
    seen = group.poll_until(
        lambda: all(consumer.position(each) == 3 for each in consumer.assignment()) and len(consumer.assignment()) == 4
    )
    assert len(seen) == 12
    cluster.delete_topic("t")
    group.poll_until(lambda: not consumer.assignment())
    for topic_partition in cluster.create_topic("t", 2):
        cluster.append(topic_partition, *(b"new %d" % number for number in range(5)))
        cluster.publish(topic_partition)
    read: list[tuple[int, bytes]] = []
    while len(read) < 10:
        read += [(record.partition, record.value or b"") for record in consumer.poll(5)]
    assert sorted(read) == [(number, b"new %d" % n) for number in range(2) for n in range(5)]
