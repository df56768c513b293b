"""A sink's hand-over: exactly once per (sink id, batch id), over leader changes, restarts and lost answers.

The brokers are played by the test: it answers what lies in their inboxes whenever the hand-over sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from stratalog.clients.spark.options import SinkOptions
from stratalog.clients.spark.sink.batches import Noted, SinkBatchId, Stage
from stratalog.clients.spark.sink.hand_over import HandOver, decode_manifest, encode_manifest, manifest_path
from stratalog.clients.spark.sink.rows import ProducerIdAndEpoch
from stratalog.clients.spark.sink.task import WrittenFile
from stratalog.replication.metadata.image import Result
from stratalog.replication.metadata.log import open_metadata
from stratalog.replication.metadata.records import (
    FenceBrokerRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from stratalog.replication.requests.hand_over import (
    INBOX_PREFIX,
    answer_path,
    decode_request,
    encode_answer,
    request_id_of,
    request_path,
)
from stratalog.replication.requests.produce import HandOverRequest, ProduceResponse
from stratalog.replication.stores import DeltaStores
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import (
    CorruptMessageError,
    InvalidRequestError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    PolicyViolationError,
    RequestTimedOutError,
    StratalogError,
    UnknownServerError,
    UnverifiedTransactionError,
)
from stratalog.storage.objects.local import LocalStore
from stratalog.storage.records import NewRecordBatch, TopicPartition, data_table, payload_table

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Answer = Callable[[HandOverRequest], StratalogError | None]


class Brokers:
    """Two brokers' roots and inboxes, a metadata log, and a clock that lets them answer whenever it sleeps."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = 1_000
        self.roots = {1: str(folder / "broker-1"), 2: str(folder / "broker-2")}
        self.root = str(folder / "metadata")
        for root in (self.root, *self.roots.values()):
            Path(root).mkdir()
        self.stores = DeltaStores(RandomIds())
        self.metadata = open_metadata(self.stores, self.root, self, RandomIds())
        self.metadata.create()
        self.stored: dict[TopicPartition, list[tuple[str | None, int, tuple[str, ...]]]] = {T0: [], T1: []}
        self.answer: Answer = lambda handed: None
        self.silent: set[int] = set()
        self.on_sleep: list[Callable[[], None]] = []
        self.commit_metadata(*(RegisterBrokerRecord(i, i, f"life-{i}", root) for i, root in self.roots.items()))
        self.commit_metadata(TopicRecord("t", "id-of-t"), self.led(T0, 1, 0), self.led(T1, 1, 0))

    def led(self, topic_partition: TopicPartition, leader: int, epoch: int) -> PartitionRecord:
        return PartitionRecord(*topic_partition, (1, 2), leader, epoch, (1, 2), epoch, 1)

    def commit_metadata(self, *records: MetadataRecord) -> None:
        self.metadata.propose(lambda image: Result(records, None))

    def view(self) -> ClusterView:
        return ClusterView(self.root, stores=self.stores, clock=self, ids=RandomIds())

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.now_ms += max(1, int(duration_ms))
        if self.on_sleep:
            self.on_sleep.pop(0)()
        for broker_id in self.roots:
            if broker_id not in self.silent:
                self.serve(broker_id)

    def serve(self, broker_id: int) -> None:
        objects = self.stores.objects(self.roots[broker_id])
        for request_id in filter(None, (request_id_of(m.path) for m in objects.list(INBOX_PREFIX))):
            _, handed = decode_request(objects.get(request_path(request_id)))
            responses = [self.respond(broker_id, each) for each in handed]
            objects.put(answer_path(request_id), encode_answer(responses))
            objects.delete(request_path(request_id))

    def respond(self, broker_id: int, handed: HandOverRequest) -> ProduceResponse:
        topic_partition = handed.topic_partition
        error = self.answer(handed)
        if self.metadata.image.partition(topic_partition).leader != broker_id:
            error = NotLeaderOrFollowerError("not me")
        if error is not None:
            return ProduceResponse(handed.partition, error=error)
        files = handed.handed
        for file in files.files:
            assert (Path(self.roots[broker_id]) / str(topic_partition) / file.path).is_file()
        known = [s for s in self.stored[topic_partition] if s[0] == files.sink_id and s[1] >= files.batch_id]
        if not known:
            paths = tuple(file.path for file in files.files)
            self.stored[topic_partition].append((files.sink_id, files.batch_id, paths))
        return ProduceResponse(handed.partition, 0, 1, duplicate=bool(known))

    def write(self, topic_partition: TopicPartition, broker_id: int = 1) -> WrittenFile:
        rows = data_table([NewRecordBatch(payload_table([(1, None, b"v", None)]))])
        root = self.roots[broker_id]
        return WrittenFile(topic_partition, root, self.stores.table(root, topic_partition).write_file(rows, None))

    def hand_over(
        self, files: Iterable[WrittenFile], batch_id: int = 0, *, is_replayable: bool = True, timeout_ms: int = 120_000
    ) -> list[ProduceResponse]:
        options = SinkOptions(self.root, delivery_timeout_ms=timeout_ms)
        return HandOver(self.view(), options, SinkBatchId("query", batch_id, is_replayable)).run(files)


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return Brokers(tmp_path)


def paths(*files: WrittenFile) -> tuple[str, ...]:
    return tuple(file.file.path for file in files)


def test_files_of_all_tasks_reach_their_partition_in_order(brokers: Brokers) -> None:
    a, b, c = brokers.write(T0), brokers.write(T1), brokers.write(T0)
    answers = brokers.hand_over([a, b, c])
    assert sorted(r.topic_partition for r in answers) == [T0, T1]
    assert brokers.stored == {T0: [("query", 0, paths(a, c))], T1: [("query", 0, paths(b))]}


def test_a_batch_run_again_hands_over_its_first_files(brokers: Brokers) -> None:
    first, other = brokers.write(T0), brokers.write(T1)
    brokers.answer = lambda handed: PolicyViolationError("no") if handed.topic_partition == T1 else None
    with pytest.raises(PolicyViolationError):
        brokers.hand_over([first, other])
    brokers.answer = lambda handed: None
    brokers.hand_over([brokers.write(T0)])  # a rerun that put every row into partition 0
    assert brokers.stored == {T0: [("query", 0, paths(first))], T1: [("query", 0, paths(other))]}


def test_a_batch_before_that_of_the_manifest_is_done_or_refused_in_a_stream(brokers: Brokers) -> None:
    brokers.hand_over([brokers.write(T0)], batch_id=5)
    assert brokers.hand_over([brokers.write(T1)], batch_id=4) == []
    of_stream = SinkBatchId("query", 4, is_replayable=True, is_stream=True)
    with pytest.raises(InvalidRequestError, match="batch 4 of query query is behind batch 5"):
        HandOver(brokers.view(), SinkOptions(brokers.root), of_stream).run([brokers.write(T1)])
    assert brokers.stored[T1] == []


def test_a_later_batch_is_stored(brokers: Brokers) -> None:
    brokers.hand_over([brokers.write(T0)], batch_id=5)
    brokers.hand_over([brokers.write(T0)], batch_id=8)
    assert [batch_id for _, batch_id, _ in brokers.stored[T0]] == [5, 8]


def test_the_manifest_is_durable_before_anything_is_handed_over(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(LocalStore, "sync", lambda store, paths: synced.extend(paths))
    handed_after: list[list[str]] = []
    brokers.answer = lambda handed: handed_after.append(list(synced))  # type: ignore[func-returns-value]
    brokers.hand_over([brokers.write(T0)])
    assert handed_after == [[manifest_path("query", Noted(0))]]


def test_a_manifest_that_is_applied_late_neither_hides_a_newer_one_nor_replaces_its_own(brokers: Brokers) -> None:
    """A write that timed out reaches the store behind those of later runs: of the batch before, of this one."""
    first, late, other = (brokers.write(T0) for _ in range(3))
    brokers.hand_over([first], batch_id=4)
    objects = brokers.stores.objects(brokers.root)
    objects.create(manifest_path("query", Noted(3)), encode_manifest(Noted(3), [late]))
    assert not objects.create(manifest_path("query", Noted(4)), encode_manifest(Noted(4), [late]))
    brokers.stored[T0].clear()
    brokers.hand_over([other], batch_id=4)
    assert brokers.stored[T0] == [("query", 4, paths(first))], "the very files, which a log recognizes"
    brokers.hand_over([brokers.write(T0)], batch_id=5)
    assert [each.path for each in objects.list("sinks/query")] == [manifest_path("query", Noted(5))]


def test_of_two_runs_of_a_batch_the_first_manifest_counts(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = brokers.write(T0), brokers.write(T0)
    objects, create = brokers.stores.objects(brokers.root), LocalStore.create

    def second(store: LocalStore, path: str, data: bytes) -> bool:
        monkeypatch.setattr(LocalStore, "create", create)
        create(store, path, encode_manifest(Noted(0), [theirs]))
        return create(store, path, data)

    monkeypatch.setattr(LocalStore, "create", second)
    brokers.hand_over([ours])
    assert brokers.stored[T0] == [("query", 0, paths(theirs))]
    assert objects.exists(manifest_path("query", Noted(0)))


@pytest.mark.parametrize("left", [b"", bytes(300)])
def test_a_manifest_that_a_power_cut_left_empty_is_that_of_no_batch(brokers: Brokers, left: bytes) -> None:
    brokers.stores.objects(brokers.root).put(manifest_path("query", Noted(0)), left)
    first = brokers.write(T0)
    brokers.hand_over([first])
    assert brokers.stored[T0] == [("query", 0, paths(first))]


def test_files_of_the_manifest_that_are_gone_are_replaced_by_this_runs(brokers: Brokers) -> None:
    gone, again = brokers.write(T0), brokers.write(T0)
    brokers.stores.objects(brokers.root).put(manifest_path("query", Noted(0)), encode_manifest(Noted(0), [gone]))
    (Path(brokers.roots[1]) / str(T0) / gone.file.path).unlink()
    brokers.hand_over([again])
    assert brokers.stored[T0] == [("query", 0, paths(again))]


def test_files_of_the_manifest_that_a_power_cut_tore_are_replaced_by_this_runs(brokers: Brokers) -> None:
    torn, again = brokers.write(T0), brokers.write(T0)
    brokers.stores.objects(brokers.root).put(manifest_path("query", Noted(0)), encode_manifest(Noted(0), [torn]))
    (Path(brokers.roots[1]) / str(T0) / torn.file.path).write_bytes(bytes(torn.file.size_bytes))
    brokers.hand_over([again])
    assert brokers.stored[T0] == [("query", 0, paths(again))]


def test_files_of_the_manifest_that_are_gone_without_a_replacement_are_named(brokers: Brokers) -> None:
    gone = brokers.write(T0)
    brokers.stores.objects(brokers.root).put(manifest_path("query", Noted(0)), encode_manifest(Noted(0), [gone]))
    (Path(brokers.roots[1]) / str(T0) / gone.file.path).unlink()
    with pytest.raises(UnknownServerError, match=gone.file.path):
        brokers.hand_over([brokers.write(T1)])


def test_after_a_leaders_death_the_files_move_to_the_new_leader(brokers: Brokers) -> None:
    brokers.silent = {1}
    dies: list[MetadataRecord] = [FenceBrokerRecord(1, 1), brokers.led(T0, 2, 1), brokers.led(T1, 2, 1)]
    brokers.on_sleep = [lambda: None, lambda: brokers.commit_metadata(*dies)]
    file = brokers.write(T0)
    brokers.hand_over([file])
    assert brokers.stored[T0] == [("query", 0, paths(file))]
    assert not brokers.stores.objects(brokers.roots[1]).list(INBOX_PREFIX)


def test_a_partition_that_moves_is_handed_over_alone(brokers: Brokers) -> None:
    brokers.on_sleep = [lambda: brokers.commit_metadata(brokers.led(T1, 2, 1))]
    brokers.hand_over([brokers.write(T0), brokers.write(T1)])
    assert [len(stored) for stored in brokers.stored.values()] == [1, 1]


def test_a_retriable_refusal_is_retried(brokers: Brokers) -> None:
    refusals = [NotEnoughReplicasError("1 < 2")] * 3
    brokers.answer = lambda handed: refusals.pop() if refusals else None
    brokers.hand_over([brokers.write(T0)])
    assert len(brokers.stored[T0]) == 1


def test_no_broker_alive_is_a_timeout_that_names_the_reason(brokers: Brokers) -> None:
    brokers.commit_metadata(FenceBrokerRecord(1, 1))
    with pytest.raises(RequestTimedOutError) as timeout:
        brokers.hand_over([brokers.write(T0)], timeout_ms=500)
    assert "Expiring 1 record(s) for t-0:500 ms has passed since batch creation" in str(timeout.value)
    assert "no live leader" in str(timeout.value)


def test_an_unanswered_request_is_cancelled_at_the_timeout(brokers: Brokers) -> None:
    brokers.silent = {1}
    with pytest.raises(RequestTimedOutError):
        brokers.hand_over([brokers.write(T0)], timeout_ms=500, is_replayable=False)
    assert not brokers.stores.objects(brokers.roots[1]).list(INBOX_PREFIX)


def test_a_write_that_cannot_come_again_leaves_no_manifest(brokers: Brokers) -> None:
    brokers.hand_over([brokers.write(T0)], is_replayable=False)
    assert not brokers.stores.objects(brokers.root).exists(manifest_path("query", Noted(0)))


def test_manifests_are_read_back_and_garbage_is_refused(brokers: Brokers) -> None:
    file = brokers.write(T0)
    assert decode_manifest(encode_manifest(Noted(3), [file])) == (Noted(3), (file,))
    begun = Noted(4, Stage.BEGUN)
    assert decode_manifest(encode_manifest(begun)) == (begun, ())
    path = "sinks/a%2Fb%20..%2Fc.manifests/00000000000000000004-1.json"
    assert manifest_path("a/b ../c", begun) == path
    with pytest.raises(CorruptMessageError, match="not a sink's manifest"):
        decode_manifest(b'{"batch_id": 1}')


class Transaction:
    """A transaction that records which partitions were added."""

    producer = ProducerIdAndEpoch(7, 2)

    def __init__(self) -> None:
        self.added: list[list[TopicPartition]] = []

    def add(self, partitions: Sequence[TopicPartition], timeout_ms: int) -> None:
        assert timeout_ms > 0
        self.added.append(list(partitions))


def test_partitions_are_added_to_the_transaction_before_files_are_handed_over(brokers: Brokers) -> None:
    transaction, asked = Transaction(), []

    def answer(handed: HandOverRequest) -> StratalogError | None:
        assert transaction.added
        files = handed.handed
        asked.append((handed.topic_partition, files.verified_offset))
        assert (files.producer_id, files.producer_epoch, files.is_transactional) == (7, 2, True)
        is_verified = handed.topic_partition == T1 or files.verified_offset == 40
        return None if is_verified else UnverifiedTransactionError("not verified", 40)

    brokers.answer = answer
    batch = SinkBatchId("copy/7", 2, is_replayable=False)
    files = [brokers.write(T0), brokers.write(T1)]
    answers = HandOver(brokers.view(), SinkOptions(brokers.root), batch, transaction).run(files)
    assert sorted(r.topic_partition for r in answers) == [T0, T1]
    assert transaction.added == [[T0, T1], [T0]]
    assert asked == [(T0, -1), (T1, -1), (T0, 40)]
