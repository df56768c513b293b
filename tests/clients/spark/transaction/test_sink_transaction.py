"""A batch of a sink as one transaction: visible at once, fenced, and known to its next run. One broker, no Spark.

Coordinators are called in process and, as by Spark's processes, at a listener.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.groups import GroupAdmin, LiveGroups
from stratalog.clients.config import ConsumerConfig
from stratalog.clients.consumer.offsets import OffsetFetch
from stratalog.clients.coordinator_calls import InProcessCalls
from stratalog.clients.records import ConsumerGroupMetadata
from stratalog.clients.spark.options import SinkOptions, sink_options, stream_options
from stratalog.clients.spark.sink.batches import NOTE_PARTITION, Course, Noted, SinkBatchId, Stage, note_group
from stratalog.clients.spark.sink.hand_over import HandOver, encode_manifest, manifest_path, write_manifest
from stratalog.clients.spark.sink.rows import ProducerIdAndEpoch
from stratalog.clients.spark.sink.task import SinkTask, WrittenFile
from stratalog.clients.spark.source import batch_reader
from stratalog.clients.spark.transaction import commit
from stratalog.clients.spark.transaction.commit import BatchTransaction, begin, positions_of
from stratalog.clients.spark.transaction.positions import (
    GroupPositions,
    decode_positions,
    encode_positions,
    positions_path,
)
from stratalog.clients.spark.worker import StreamingBatch
from stratalog.server.bootstrap import RunningCluster
from stratalog.server.cluster import Cluster
from stratalog.server.remote.remote_cluster import RemoteCluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.server.view.read_committed import view_of
from stratalog.storage.errors import (
    CorruptMessageError,
    InvalidProducerEpochError,
    InvalidRequestError,
    ProducerFencedError,
    UnknownMemberIdError,
)
from stratalog.storage.records import CONTROL_ATTRIBUTE, TopicPartition
from tests.waiting import wait_until

PARTITIONS = 3
INPUT = TopicPartition("input", 0)
ALONE = {
    "listeners": "PLAINTEXT://localhost:0",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
}


class Sink:
    """A sink's planner, tasks and driver in this process, for one topic and one query."""

    def __init__(self, cluster: Cluster, called: RunningCluster, topic: str) -> None:
        Admin(cluster).create_topic(topic, PARTITIONS, 1)
        self.cluster = cluster
        self.called = called
        self.topic = topic
        self.view = ClusterView(cluster.root)
        self.options: SinkOptions = sink_options(
            {"stratalog.root": cluster.root, "topic": topic, "kafka.transactional.id": topic}
        )
        assert self.options.transaction is not None
        self.transaction_options = self.options.transaction

    def plan(self) -> ProducerIdAndEpoch:
        return begin(self.view, self.transaction_options, self.called)

    def files(self, producer: ProducerIdAndEpoch, *values: str) -> tuple[WrittenFile, ...]:
        """Value n goes to partition n."""
        numbers = pa.array([number % PARTITIONS for number in range(len(values))], pa.int32())
        task = SinkTask(self.view, self.options, 0, producer)
        task.add(pa.record_batch({"value": pa.array(values), "partition": numbers}))
        return task.finish()

    def transaction(self, producer: ProducerIdAndEpoch) -> BatchTransaction:
        return BatchTransaction(self.view, self.options, self.called, producer)

    def commit(self, batch_id: int, *values: str, positions: Sequence[GroupPositions] = ()) -> Course:
        producer = self.plan()
        transaction = self.transaction(producer)
        course = transaction.course(self.batch(batch_id))
        if course is Course.WRITE:
            transaction.commit(self.batch(batch_id), self.files(producer, *values), positions)
        return course

    def batch(self, batch_id: int) -> SinkBatchId:
        return SinkBatchId(f"query-of-{self.topic}", batch_id, is_replayable=True, is_stream=True)

    def visible(self, isolation_level: str = "read_committed") -> list[str]:
        """What readers see, once the markers are there."""
        view = view_of(isolation_level)(self.cluster.root)
        found: list[str] = []
        for topic_partition, end in view.offsets.end_offsets(list(view.partitions(self.topic))).items():
            rows = view.records.fetch(topic_partition, 0, 1 << 20, end).rows
            is_record = [not attributes & CONTROL_ATTRIBUTE for attributes in rows["attributes"].to_pylist()]
            found += [value.decode() for value in rows["value"].filter(pa.array(is_record, pa.bool_())).to_pylist()]
        return sorted(found)

    def shows(self, *values: str) -> bool:
        wait_until(lambda: self.visible() == sorted(values), f"{values} are visible")
        return True

    def lose_note(self) -> None:
        """As `offsets.retention.minutes` after the last batch."""
        group_id = note_group(self.batch(0).sink_id)
        admin = GroupAdmin(LiveGroups(self.cluster, self.view.clock, 10_000), self.view)
        wait_until(lambda: admin.delete_groups([group_id]) == {group_id: None}, "the group is deleted")

    def offset_of(self, group_id: str, topic_partition: TopicPartition) -> int | None:
        calls = InProcessCalls(self.cluster, self.view.clock)
        reads = OffsetFetch(ConsumerConfig(group_id=group_id), calls, self.view.clock, lambda: None)
        found = reads.committed([topic_partition], 10_000)[topic_partition]
        return None if found is None else found.offset


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("transactions")
    with Cluster.start(folder / "cluster", brokers=1, fetcher="thread", config=ALONE) as running:
        Admin(running).create_topic(INPUT.topic, 1, 1)
        yield running


@pytest.fixture(params=["in process", "at a listener"])
def sink(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Sink]:
    name = request.node.name.split("[")[0].removeprefix("test_")[:60]
    if request.param == "in process":
        yield Sink(cluster, cluster, name)
        return
    with RemoteCluster(cluster.root) as remote:
        yield Sink(cluster, remote, f"remote_{name}")


def test_a_batch_is_visible_in_all_partitions_and_known_to_its_next_run(sink: Sink) -> None:
    assert sink.commit(0, "a", "b", "c") is Course.WRITE
    assert sink.shows("a", "b", "c")
    assert sink.commit(0, "a", "b", "c") is Course.STORED
    assert sink.commit(1, "d", "e", "f", "g") is Course.WRITE
    assert sink.shows("a", "b", "c", "d", "e", "f", "g")
    with pytest.raises(InvalidRequestError, match=r"batch 0 of query .* is behind batch 1"):
        sink.commit(0, "x")


class DiedError(Exception):
    """The process of a run ended."""


def test_a_run_that_dies_before_its_commit_leaves_nothing(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = sink.plan()
    files = sink.files(producer, "a", "b")
    with monkeypatch.context() as dying:
        dying.setattr(commit, "write_manifest", lambda *_: (_ for _ in ()).throw(DiedError))
        with pytest.raises(DiedError):
            sink.transaction(producer).commit(sink.batch(0), files, ())
    assert sink.visible() == []
    assert sink.visible("read_uncommitted") == ["a", "b"]
    assert sink.commit(0, "b", "a") is Course.WRITE
    assert sink.shows("a", "b")


def test_an_older_run_is_fenced_when_a_newer_one_plans(sink: Sink) -> None:
    older = sink.plan()
    files = sink.files(older, "old")
    newer = sink.plan()
    with pytest.raises((ProducerFencedError, InvalidProducerEpochError), match="Let one query alone have the id"):
        sink.transaction(older).commit(sink.batch(0), files, ())
    sink.transaction(newer).commit(sink.batch(0), sink.files(newer, "new"), ())
    assert sink.shows("new")


def test_a_groups_offsets_are_committed_with_the_records(sink: Sink) -> None:
    group = ConsumerGroupMetadata(f"group-of-{sink.topic}")
    sink.commit(0, "a", positions=[GroupPositions("planner", group, {INPUT: 7})])
    assert sink.shows("a")
    assert sink.offset_of(group.group_id, INPUT) == 7


def test_nothing_is_visible_when_the_group_has_no_such_member(sink: Sink) -> None:
    group = ConsumerGroupMetadata(f"group-of-{sink.topic}")
    sink.commit(0, "a", positions=[GroupPositions("planner", group, {INPUT: 7})])
    former = ConsumerGroupMetadata(group.group_id, 4, "gone")
    with pytest.raises(UnknownMemberIdError, match=r"nothing of batch 1 is visible.*Start the query again"):
        sink.commit(1, "b", "c", positions=[GroupPositions("planner", former, {INPUT: 9})])
    assert sink.commit(1, "d") is Course.WRITE
    assert sink.shows("a", "d")
    assert sink.offset_of(group.group_id, INPUT) == 7


def test_a_batch_that_was_begun_without_transactions_is_finished_without(sink: Sink) -> None:
    plain = SinkTask(sink.view, sink.options, 0)
    plain.add(pa.record_batch({"value": pa.array(["a"])}))
    batch, objects = sink.batch(3), sink.view.stores.objects(sink.view.root)
    objects.put(manifest_path(batch.sink_id, Noted(3)), encode_manifest(Noted(3), plain.finish()))
    assert sink.commit(3, "never") is Course.FINISH
    HandOver(sink.view, sink.options, batch).run([])
    assert sink.shows("a")
    assert sink.commit(4, "b") is Course.WRITE
    assert sink.shows("a", "b")


def test_a_batch_is_not_written_twice_when_its_note_has_expired(sink: Sink) -> None:
    """Offsets expire: the manifest shows that the batch is stored, or that this is not known."""
    batch = sink.batch(0)
    assert sink.commit(0, "a") is Course.WRITE
    sink.lose_note()
    assert sink.commit(0, "a") is Course.STORED
    sink.view.stores.objects(sink.view.root).delete(manifest_path(batch.sink_id, Noted(0, Stage.STORED)))
    write_manifest(sink.view, batch.sink_id, Noted(0, Stage.BEGUN))  # as a run does that dies when it has committed
    with pytest.raises(InvalidRequestError, match=r"batch 0 of .* may be stored or not"):
        sink.commit(0, "a")
    assert sink.commit(1, "b") is Course.WRITE  # Spark's commit log has batch 0
    assert sink.shows("a", "b")


def test_a_first_batch_that_did_not_commit_is_written(sink: Sink) -> None:
    batch, producer = sink.batch(0), sink.plan()
    transaction = sink.transaction(producer)
    assert transaction.course(batch) is Course.WRITE
    assert sink.offset_of(note_group(batch.sink_id), NOTE_PARTITION) == 0  # of no batch yet
    write_manifest(sink.view, batch.sink_id, Noted(0, Stage.BEGUN))  # ... and the run dies
    assert sink.commit(0, "a") is Course.WRITE
    assert sink.shows("a")


def test_the_sink_reads_what_the_tasks_of_its_own_run_left_for_this_batch(sink: Sink) -> None:
    objects = sink.view.stores.objects(sink.view.root)
    group = ConsumerGroupMetadata("g", 3, "member", "instance")
    left = {planner: GroupPositions(planner, group, {INPUT: 5, TopicPartition("i/2", 1): 0}, "m") for planner in "ab"}
    query = f"query {sink.topic}"
    late = ("run", "a", 3)  # a copy of the earlier batch's first task, which was killed
    for run, planner, batch_id in (("run", "a", 4), ("run", "b", 3), ("other", "a", 4), late):
        objects.put_register(positions_path(query, run, batch_id, planner), encode_positions(batch_id, left[planner]))
    assert positions_of(sink.view, StreamingBatch(query, "run", 4)) == [left["a"]]
    assert positions_of(sink.view, StreamingBatch(query, "run", 5)) == []


def test_the_first_task_of_a_batch_leaves_positions_and_deletes_old_ones(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, options = f"leaves {sink.topic}", stream_options({"stratalog.root": sink.view.root, "subscribe": "t"})
    batches = iter(StreamingBatch(query, "run", batch_id) for batch_id in (0, 1, 2, 1))
    monkeypatch.setattr(batch_reader, "streaming_batch", lambda: next(batches))
    monkeypatch.setattr(batch_reader, "view_of", lambda *_: sink.view)
    for end in (5, 6, 7, 6):
        batch_reader.leave_for_sink(options, GroupPositions("a", ConsumerGroupMetadata("g"), {INPUT: end}))
    ends = [positions_of(sink.view, StreamingBatch(query, "run", batch_id)) for batch_id in range(3)]
    assert [[left.offsets[INPUT] for left in found] for found in ends] == [[], [6], [7]]


@pytest.mark.parametrize("data", [b"", b"{}", b'{"batch_id": 1, "planner": "a", "group": [], "offsets": []}', b"[1]"])
def test_other_objects_are_no_positions(data: bytes) -> None:
    with pytest.raises(CorruptMessageError):
        decode_positions(data)
