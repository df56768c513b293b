"""Queries that share a topic's partitions in a group, against real group shards, planned as Spark plans them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from stratalog.clients.admin.groups import GroupAdmin, LiveGroups
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.coordinator_calls import Answer, InProcessCalls, ask
from stratalog.clients.records import OffsetAndMetadata
from stratalog.clients.spark.group import shared_reader
from stratalog.clients.spark.group.coordinators import ReachedCoordinators
from stratalog.clients.spark.group.shared_reader import SharedStreamReader
from stratalog.clients.spark.offsets import OffsetFetcher
from stratalog.clients.spark.options import stream_options
from stratalog.clients.spark.source.batch_reader import RangesPartition
from stratalog.clients.spark.source.stream_reader import STOP_TIMEOUT_MS, StratalogStreamReader
from stratalog.replication.requests.groups import LeaveGroupRequest, MemberIdentity, OffsetCommitRequest
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import CoordinatorNotAvailableError, InvalidConfigError, OffsetOutOfRangeError
from stratalog.storage.records import TopicPartition
from tests.clients.memory_cluster import ROOT, MemoryCluster
from tests.clients.memory_coordinator import MemoryCoordinator
from tests.waiting import wait_until

T = [TopicPartition("t", number) for number in range(4)]
LIMIT = ReadMaxRows(2**63 - 1)
CLASSIC = {"kafka.heartbeat.interval.ms": 20}
COOPERATIVE = CLASSIC | {"kafka.partition.assignment.strategy": "cooperative-sticky"}
MODERN = {"kafka.group.protocol": "consumer"}
PROTOCOLS = pytest.mark.parametrize(
    "protocol", [CLASSIC, COOPERATIVE, MODERN], ids=["classic", "cooperative", "modern"]
)


@pytest.fixture
def cluster() -> MemoryCluster:
    """Topic `t` of four partitions with three records in each."""
    made = MemoryCluster()
    for topic_partition in made.create_topic("t", 4):
        made.append(topic_partition, b"0", b"1", b"2")
        made.publish(topic_partition)
    return made


@pytest.fixture
def coordinator(cluster: MemoryCluster) -> Iterator[MemoryCoordinator]:
    quick = {
        "group.consumer.heartbeat.interval.ms": 20,
        "group.consumer.min.heartbeat.interval.ms": 20,
        "group.consumer.assignment.interval.ms": 0,
    }
    made = MemoryCoordinator(cluster, **quick)
    yield made
    made.stop()


def reader(cluster: MemoryCluster, calls: InProcessCalls | None = None, **options: object) -> SharedStreamReader:
    given = {
        "stratalog.root": ROOT,
        "subscribe": "t",
        "kafka.group.id": "g",
        "stratalog.group.mode": "share",
        "stratalog.auto.offset.reset": "earliest",
        "fetchOffset.retryIntervalMs": 1,
        **CLASSIC,
        **options,
    }
    if "kafka.group.protocol" in given:
        del given["kafka.heartbeat.interval.ms"]
    parsed = stream_options({name: str(value) for name, value in given.items()})
    assert parsed.group is not None
    made = SharedStreamReader(parsed, parsed.group)
    made._fetcher = OffsetFetcher(ClusterView(ROOT, stores=cluster.stores), parsed)
    made.reach = lambda *_: ReachedCoordinators(calls or InProcessCalls(cluster, cluster.clock), lambda: None)
    return made


class Query:
    """A query as Spark runs it: `checkpoint` is its last stored end, `read` the records of its batches."""

    def __init__(self, stream: SharedStreamReader, checkpoint: dict[str, Any] | None = None) -> None:
        self.stream = stream
        self.checkpoint = checkpoint
        self.read: list[tuple[int, int]] = []

    def plan(self) -> dict[str, Any]:
        start = self.stream.initialOffset() if self.checkpoint is None else self.checkpoint
        return self.stream.latestOffset(start, LIMIT)

    def run(self, end: dict[str, Any]) -> list[tuple[int, int]]:
        """Read a batch and store its end."""
        start = self.stream.initialOffset() if self.checkpoint is None else self.checkpoint
        rows = [
            (wanted.topic_partition.partition, offset)
            for task in self.stream.partitions(start, json.loads(json.dumps(end)))
            if isinstance(task, RangesPartition)
            for wanted in task.wanted
            for offset in range(wanted.start, wanted.end)
        ]
        self.read += rows
        self.checkpoint = json.loads(json.dumps(end))
        return rows

    def batch(self) -> list[tuple[int, int]]:
        return self.run(self.plan())


class Running:
    """A query whose batches follow one another in a thread, until the block ends."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._loop)
        self._error: BaseException | None = None

    def _loop(self) -> None:
        try:
            while not self._is_over.is_set():
                self.query.batch()
        except BaseException as error:  # noqa: BLE001 - raised where the block ends
            self._error = error
        finally:
            self.query.stream.stop()

    def __enter__(self) -> Query:
        assert self.query.stream.member  # made before two threads ask for it: one plans, one looks at its positions
        self._thread.start()
        return self.query

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


def add(cluster: MemoryCluster, *values: bytes) -> None:
    for topic_partition in T:
        cluster.append(topic_partition, *values)
        cluster.publish(topic_partition)


def owned(query: Query) -> set[TopicPartition]:
    return set(query.stream.member.positions)


def whole(ends: int) -> list[tuple[int, int]]:
    return [(tp.partition, offset) for tp in T for offset in range(ends)]


@PROTOCOLS
@pytest.mark.usefixtures("coordinator")
def test_queries_come_and_go_and_each_record_is_read_once(cluster: MemoryCluster, protocol: dict[str, object]) -> None:
    one, two = Query(reader(cluster, **protocol)), Query(reader(cluster, **protocol))
    with Running(one):
        wait_until(lambda: sorted(one.read) == whole(3), "one query reads everything")
        with Running(two):
            wait_until(lambda: len(owned(one)) == len(owned(two)) == 2, "they share")
            assert owned(one) | owned(two) == set(T)
            add(cluster, b"3", b"4")
            wait_until(lambda: sorted(one.read + two.read) == whole(5), "both read")
            assert {partition for partition, _ in two.read} == {tp.partition for tp in owned(two)}
        wait_until(lambda: owned(one) == set(T), "the other one left")
        add(cluster, b"5")
        wait_until(lambda: sorted(one.read + two.read) == whole(6), "one reads everything again")
    assert two.checkpoint is not None
    assert set(two.checkpoint) == {"t", "t@start", "@member"}


@PROTOCOLS
@pytest.mark.usefixtures("coordinator")
def test_a_query_that_starts_anew_does_not_read_its_last_batch_again(
    cluster: MemoryCluster, protocol: dict[str, object]
) -> None:
    first = Query(reader(cluster, **protocol))
    assert sorted(first.batch()) == whole(3)
    first.stream.stop()  # before its next plan: its checkpoint has the batch, the group does not
    add(cluster, b"3")
    again = Query(reader(cluster, **protocol), first.checkpoint)
    assert sorted(again.batch()) == [(tp.partition, 3) for tp in T]
    again.stream.stop()
    third = Query(reader(cluster, **protocol), again.checkpoint)
    assert third.plan() == third.checkpoint  # commits
    third.stream.stop()
    again = Query(reader(cluster, **protocol))
    assert again.plan() == {}, "the group's commit covers all for a new checkpoint, too"
    again.stream.stop()


@pytest.mark.usefixtures("coordinator")
def test_offsets_that_were_reset_decide_where_a_query_goes_on(cluster: MemoryCluster) -> None:
    first = Query(reader(cluster))
    assert sorted(first.batch()) == whole(3)
    first.stream.stop()
    view = ClusterView(ROOT, stores=cluster.stores)
    with Consumer(cluster, {"group.id": "g", "enable.auto.commit": False}, view=view) as tool:
        assert tool.committed([T[1]])[T[1]] == OffsetAndMetadata(0, first.checkpoint["@member"]["id"])
        tool.commit_sync({T[1]: OffsetAndMetadata(0)})
    again = Query(reader(cluster), first.checkpoint)
    assert sorted(again.batch()) == [(1, 0), (1, 1), (1, 2)]
    again.stream.stop()


@PROTOCOLS
@pytest.mark.usefixtures("coordinator")
def test_what_a_replay_left_out_is_read_by_the_query_that_has_it_next(
    cluster: MemoryCluster, protocol: dict[str, object]
) -> None:
    dying = Query(reader(cluster, **protocol))
    end = dying.plan()
    dying.stream.stop()
    other = Query(reader(cluster, **protocol))
    other.plan()  # takes over, and reads nothing before it dies, too
    replaying = Query(reader(cluster, **protocol), dying.checkpoint)
    assert replaying.run(end) == []
    other.stream.stop()
    again = Query(reader(cluster, **protocol), replaying.checkpoint)
    assert sorted(again.batch()) == whole(3)
    again.stream.stop()


@PROTOCOLS
@pytest.mark.usefixtures("coordinator")
def test_a_replayed_batch_leaves_out_partitions_of_another_query(
    cluster: MemoryCluster, protocol: dict[str, object]
) -> None:
    dying = Query(reader(cluster, **protocol))
    end = dying.plan()
    dying.stream.stop()
    with Running(Query(reader(cluster, **protocol))) as other:
        wait_until(lambda: sorted(other.read) == whole(3), "the other query took over")
        again = Query(reader(cluster, **protocol), dying.checkpoint)
        assert again.run(end) == []
        add(cluster, b"3")
        with Running(again):
            wait_until(lambda: len(owned(again)) == len(owned(other)) == 2, "they share")
            add(cluster, b"4")
            wait_until(lambda: sorted(again.read + other.read) == whole(5), "nothing twice, nothing skipped")


@pytest.mark.parametrize("takes_over", [True, False])
@pytest.mark.usefixtures("coordinator")
def test_a_replay_waits_for_the_first_commit_of_a_new_owner(
    cluster: MemoryCluster, takes_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner was assigned the partitions, and is in the middle of its own batch."""
    monkeypatch.setattr(shared_reader, "TAKE_OVER_MS", 10_000 if takes_over else 50)
    dying = Query(reader(cluster))
    end = dying.plan()
    dying.stream.stop()
    settings = {"group.id": "g", "enable.auto.commit": False}
    with Consumer(cluster, settings, view=ClusterView(ROOT, stores=cluster.stores)) as owner:
        owner.subscribe(["t"])
        wait_until(lambda: bool(owner.poll(20)) or len(owner.assignment()) == len(T), "the new owner")
        again = Query(reader(cluster), dying.checkpoint)
        looks = []
        owners = again.stream.member.owners
        monkeypatch.setattr(again.stream.member, "owners", lambda: looks.append(1) or owners())
        replay = threading.Thread(target=again.run, args=(end,))
        replay.start()
        wait_until(lambda: len(looks) > 1, "the replay looks again")
        if takes_over:
            owner.commit_sync({tp: OffsetAndMetadata(0) for tp in T})
        replay.join(20)
        assert sorted(again.read) == ([] if takes_over else whole(3))
        again.stream.stop()


@PROTOCOLS
@pytest.mark.usefixtures("coordinator")
def test_a_replayed_batch_is_read_once_where_nobody_took_over(
    cluster: MemoryCluster, protocol: dict[str, object]
) -> None:
    dying = Query(reader(cluster, **protocol))
    end = dying.plan()
    dying.stream.stop()
    again = Query(reader(cluster, **protocol), dying.checkpoint)
    assert sorted(again.run(end)) == whole(3)
    add(cluster, b"3")
    assert sorted(again.batch()) == [(tp.partition, 3) for tp in T]
    again.stream.stop()


@pytest.mark.usefixtures("coordinator")
def test_a_query_that_was_put_out_of_its_group_joins_again(cluster: MemoryCluster) -> None:
    query = Query(reader(cluster))
    end = query.plan()
    member = end["@member"]["id"]
    request = LeaveGroupRequest("g", (MemberIdentity(member),))
    ask(InProcessCalls(cluster, cluster.clock), "g", request, cluster.clock, 10_000)
    query.run(end)  # its offsets cannot be committed by this member
    add(cluster, b"3")
    wait_until(lambda: query.batch(), "joined again")
    assert sorted(query.read) == whole(4)
    assert query.checkpoint is not None
    assert query.checkpoint["@member"]["id"] != member
    query.stream.stop()


@pytest.mark.usefixtures("coordinator")
def test_available_now_ends_where_the_partitions_ended(cluster: MemoryCluster) -> None:
    query = Query(reader(cluster))
    query.stream.prepareForTriggerAvailableNow()
    end = query.plan()
    add(cluster, b"3")
    assert sorted(query.run(end)) == whole(3)
    assert query.plan() == query.checkpoint
    query.stream.stop()


@pytest.mark.usefixtures("coordinator")
def test_limits_are_those_of_the_members_partitions(cluster: MemoryCluster) -> None:
    query = Query(reader(cluster, maxOffsetsPerTrigger=4))
    sizes = []
    while len(query.read) < 12:
        sizes.append(len(query.batch()))
    assert sizes == [4, 4, 4]
    query.stream.stop()


@pytest.mark.usefixtures("coordinator")
def test_without_a_reset_the_group_needs_offsets(cluster: MemoryCluster) -> None:
    query = Query(reader(cluster, **{"stratalog.auto.offset.reset": "none"}))
    with pytest.raises(OffsetOutOfRangeError, match="Undefined offset with no reset policy"):
        query.plan()
    query.stream.stop()


def test_a_checkpoint_of_shared_partitions_is_none_of_a_query_that_reads_all(cluster: MemoryCluster) -> None:
    alone = StratalogStreamReader(stream_options({"stratalog.root": ROOT, "subscribe": "t"}))
    with pytest.raises(InvalidConfigError, match=r"The checkpoint is of a query with stratalog\.group\.mode=share"):
        alone.latestOffset({"t": {"0": 1}, "t@start": {"0": 1}, "@member": {}}, LIMIT)


class CommitsRefused(InProcessCalls):
    """A coordinator that stores no offsets while `is_refusing`, as if its partition had too few in-sync replicas."""

    is_refusing = False

    def send(self, broker_id: int, key: str, request: object, answer: Answer) -> None:
        if self.is_refusing and isinstance(request, OffsetCommitRequest):
            answer(CoordinatorNotAvailableError("the offsets are not stored"))
        else:
            super().send(broker_id, key, request, answer)


@PROTOCOLS
@pytest.mark.usefixtures("coordinator")
def test_a_query_whose_offsets_cannot_be_committed_leaves_in_time(
    cluster: MemoryCluster, protocol: dict[str, object]
) -> None:
    calls = CommitsRefused(cluster, cluster.clock)
    query = Query(reader(cluster, calls, **protocol))
    assert sorted(query.batch()) == whole(3)
    query.stream.member.positions[T[0]] = 3  # stored, and not committed yet
    calls.is_refusing = True
    began = time.monotonic()
    query.stream.stop()
    took_s = time.monotonic() - began
    view = ClusterView(ROOT, stores=cluster.stores)
    described = GroupAdmin(LiveGroups(cluster, cluster.clock, 10_000), view).describe_group("g")
    assert (described.group_state, described.members) == ("Empty", ())
    assert took_s < 2 * STOP_TIMEOUT_MS / 1000


def not_covered(query: Query, end: dict[str, Any]) -> set[str]:
    """What the tasks of a batch are told that the query's state does not cover."""
    start = query.stream.initialOffset() if query.checkpoint is None else query.checkpoint
    tasks = query.stream.partitions(start, json.loads(json.dumps(end)))
    return {task.not_covered for task in tasks if isinstance(task, RangesPartition)}


@PROTOCOLS
@pytest.mark.usefixtures("coordinator")
def test_a_batch_says_whether_the_querys_state_covers_its_partitions(
    cluster: MemoryCluster, protocol: dict[str, object]
) -> None:
    one = Query(reader(cluster, **protocol))
    assert not_covered(one, one.plan()) == {""}, "it is alone"
    one.batch()
    add(cluster, b"3")
    one.batch()
    two = Query(reader(cluster, **protocol))
    with Running(two):
        add(cluster, b"4")
        wait_until(lambda: [one.batch()] and len(owned(one)) == len(owned(two)) == 2, "they share")
        add(cluster, b"5")
        end = one.plan()
        (others,) = not_covered(one, end)
        assert others in {str(tp) for tp in T if tp not in owned(one)}
        before = one.checkpoint
        one.run(end)
        replay = Query(reader(cluster, **protocol), before)
        assert not_covered(replay, end) == {others}, "a replay knows it, too"
        replay.stream.stop()
        wait_until(lambda: two.read != [], "the other query reads")
    one.stream.stop()
    add(cluster, b"6")
    for checkpoint in (None, one.checkpoint):
        later = Query(reader(cluster, **protocol), checkpoint)
        assert not_covered(later, later.plan()) - {""}, "alone, but others have read"
        later.stream.stop()
