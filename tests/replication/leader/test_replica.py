"""A led replica: group commits, refusals, and appends whose outcome is not known at once (promises 3 and 20)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from stratalog.replication import cadence
from stratalog.replication.leader.partition import Partition
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.leader.replica import LeaderPorts, LeaderReplica, WaitingAppend
from stratalog.replication.progress.progress import UNKNOWN, ReplicaProgress
from stratalog.replication.requests.produce import (
    ACKS_ALL,
    ACKS_LEADER,
    HandOverRequest,
    ProduceRequest,
    ProduceResponse,
    SentBatch,
)
from stratalog.storage.errors import (
    InconsistentTopicIdError,
    InvalidRecordError,
    NotLeaderOrFollowerError,
    StratalogError,
)
from stratalog.storage.log.append import HandedFiles
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import (
    TRANSACTIONAL_ATTRIBUTE,
    IdentifiedPartition,
    NewRecordBatch,
    TopicPartition,
    data_table,
)
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.transactions import EndMarker, marker_batch
from tests.replication.memory_stores import FailingDisk, MemoryStores, led_by
from tests.storage.logs import batch, contents, idempotent, values

T0 = TopicPartition("t", 0)
EPOCH = 3


class Led:
    """A leader replica on one disk and the answers it gave, by the values of the batch."""

    def __init__(
        self,
        stores: MemoryStores | None = None,
        *,
        min_isr: int = 1,
        epoch: int = EPOCH,
        isr: tuple[int, ...] = (1, 2),
    ) -> None:
        self.stores = stores or MemoryStores()
        self.config = LogConfig.from_properties({"min.insync.replicas": str(min_isr)})
        self.purgatory = ProducePurgatory()
        self.answers: dict[str, ProduceResponse] = {}
        state = replace(led_by(1, epoch=epoch, replicas=(1, 2)), isr=isr)
        self._follow_before()
        self.replica = LeaderReplica(state, "id", self.log(), LeaderPorts(1, self.stores.clock, self.purgatory))

    def _follow_before(self) -> None:
        """The replica has its table from an earlier epoch: without one it would not lead."""
        log = self.log()
        log.exists_or_create("id")
        if log.leader_epoch < 0:
            log.start_epoch(0, as_leader=False)

    @property
    def disk(self) -> FailingDisk:
        return self.stores.disk("broker-1")

    def log(self) -> PartitionLog:
        """Another instance on the replica's table."""
        return PartitionLog(self.stores.table("broker-1", T0), self.config, self.stores.clock, self.stores.ids)

    def started(self) -> Led:
        assert self.replica.start(0)
        return self

    @property
    def partition(self) -> Partition:
        assert self.replica.partition is not None
        return self.replica.partition

    def stable(self, high_watermark: int) -> int | None:
        assert self.replica.offsets is not None
        return self.replica.offsets.last_stable_offset(high_watermark)

    def queue(self, name: str, appended: NewRecordBatch, acks: int = ACKS_LEADER) -> None:
        self.queue_request(name, ProduceRequest(IdentifiedPartition("id", T0), appended, acks, timeout_ms=1_000))

    def queue_request(self, name: str, request: ProduceRequest | HandOverRequest) -> None:
        def complete(response: ProduceResponse) -> None:
            assert name not in self.answers, "answered twice"
            self.answers[name] = response

        self.replica.waiting.append(WaitingAppend(request, complete))

    def produce(self, *names: str, acks: int = ACKS_LEADER) -> None:
        for name in names:
            self.queue(name, batch(name.split("+")), acks)

    def said(self) -> dict[str, str]:
        """Each answer as an error name or as offsets."""
        return {
            name: r.error.name if r.error else f"{r.base_offset}-{r.last_offset}" for name, r in self.answers.items()
        }


def test_a_leader_knows_its_last_stable_offset_without_a_read() -> None:
    """From its first append on: after its start it may be that producer state has to be read."""
    led = Led().started()
    reads: list[str] = []

    def append(appended: NewRecordBatch) -> None:
        led.queue(f"{len(led.answers)}", appended)
        assert led.replica.append_waiting(0)

    def in_transaction(producer_id: int) -> NewRecordBatch:
        made = replace(batch(["t"]), producer_id=producer_id, producer_epoch=0, base_sequence=0)
        return replace(
            made,
            attributes=TRANSACTIONAL_ATTRIBUTE,
            verified_offset=1 << 40,
            verified_leader_epoch=led.replica.leader_epoch,
        )

    append(batch(["a"]))
    led.disk.access = lambda operation, _table, _detail: reads.append(operation)
    assert [led.stable(mark) for mark in (0, 1)] == [0, 1]
    append(in_transaction(7))
    append(in_transaction(8))
    reads.clear()
    assert [led.stable(mark) for mark in (1, 2, 3)] == [1, 1, 1]
    append(marker_batch(7, 0, EndMarker(True, 0), 1))
    reads.clear()
    assert [led.stable(mark) for mark in (3, 4)] == [1, 2]
    assert reads == []
    append(marker_batch(8, 0, EndMarker(True, 0), 1))
    assert led.stable(9) == 5  # what another leader has beyond may be in a transaction


def test_what_a_leader_knows_of_its_log_is_there_before_an_answer_and_while_it_leads() -> None:
    led = Led()
    assert led.replica.offsets is None
    led.started()
    ends: list[int] = []

    def complete(_response: ProduceResponse) -> None:
        assert led.replica.offsets is not None
        ends.append(led.replica.offsets.log_end_offset)

    request = ProduceRequest(IdentifiedPartition("id", T0), batch(["a", "b"]), ACKS_LEADER)
    led.replica.waiting.append(WaitingAppend(request, complete))
    assert led.replica.append_waiting(0)
    known = led.replica.offsets
    assert known is not None
    assert (ends, known.leader_epoch, known.log_end_offset, known.epochs.epoch_at(1)) == ([2], EPOCH, 2, EPOCH)
    led.replica.resign(NotLeaderOrFollowerError("led elsewhere"))
    assert led.replica.offsets is None


def test_a_leader_publishes_what_it_knows_to_be_committed_until_it_has_a_high_watermark() -> None:
    """KIP-966: its ISR may be too small for a high watermark for long."""
    led = Led(min_isr=2)
    led.started().produce("a")
    led.replica.append_waiting(0)
    state = replace(led.replica.state, isr=(1,), leader_epoch=EPOCH + 1)
    purgatory, clock = led.purgatory, led.stores.clock
    replica = LeaderReplica(state, "id", led.log(), LeaderPorts(1, clock, purgatory), known_committed=7)
    assert replica.known_committed == 7
    assert replica.start(0)
    assert replica.partition is not None
    replica.partition.maybe_increment_high_watermark(0, 1_000)
    progress = replica.progress()
    assert progress is not None
    assert (progress.high_watermark, progress.known_committed) == (UNKNOWN, 7)
    replica.reconfigure(LogConfig())
    replica.partition.maybe_increment_high_watermark(0, 1_000)
    progress = replica.progress()
    assert progress is not None
    assert (progress.high_watermark, progress.known_committed) == (1, UNKNOWN)


def test_under_log_append_time_the_leaders_clock_gives_the_time() -> None:
    """Once for a group, so that the same batches are tried again after an outcome that is not known."""
    led = Led(epoch=0).started()
    led.replica.reconfigure(LogConfig.from_properties({"message.timestamp.type": "LogAppendTime"}))
    led.stores.clock.now_ms = now_ms = 77_000
    led.produce("a+b", "c")
    led.replica.append_waiting(0)
    rows = led.log().read(0, 1 << 20)
    assert [each.value for each in rows["timestamp"]] == [now_ms] * 3
    assert rows["timestamp_type"].to_pylist() == [1] * 3
    assert {answer.append_time_ms for answer in led.answers.values()} == {now_ms}
    led.replica.reconfigure(LogConfig())
    led.produce("d")
    led.replica.append_waiting(0)
    assert led.answers["d"].append_time_ms == -1


def test_what_was_committed_is_remembered_by_a_leader_that_resigned() -> None:
    led = Led().started()
    led.produce("a")
    led.replica.append_waiting(0)
    follower_at(led, 1)
    led.replica.resign(NotLeaderOrFollowerError("test"))
    assert led.replica.known_committed == 1


def follower_at(led: Led, end: int, now_ms: int = 0) -> None:
    """The follower's progress arrives and the high watermark is checked."""
    led.partition.follower_progressed(2, ReplicaProgress(T0, EPOCH, end, end), now_ms)
    led.partition.maybe_increment_high_watermark(now_ms, 1_000)
    led.replica.complete_waiting()


# -- becoming leader -----------------------------------------------------------------------------------------


def test_it_leads_once_its_table_shows_the_epoch() -> None:
    """Rule (a): before that, followers must not copy its log as that epoch's."""
    led = Led()
    led.produce("a")
    assert not led.replica.append_waiting(0)
    assert led.replica.progress() is None
    led.started()
    assert led.log().leader_epoch == EPOCH
    assert led.replica.append_waiting(0)
    assert led.said() == {"a": "0-0"}


def test_a_table_at_a_newer_epoch_does_not_let_it_lead() -> None:
    led = Led()
    other = led.log()
    other.exists_or_create("id")
    other.start_epoch(EPOCH + 1, as_leader=False)
    assert not led.replica.start(0)
    assert led.replica.failure is None, "the metadata log will tell who leads"
    assert not led.replica.start(cadence.APPEND_RETRY.ms)


def test_a_slow_store_is_asked_again() -> None:
    led = Led()
    led.disk.fault = lambda *_: True
    assert not led.replica.start(0)
    led.disk.fault = None
    assert not led.replica.start(cadence.APPEND_RETRY.ms - 1)
    assert led.replica.start(cadence.APPEND_RETRY.ms)


def test_a_stray_of_a_deleted_topic_is_left_to_the_broker() -> None:
    led = Led()
    led.log().table.drop()
    led.log().exists_or_create("older topic")
    with pytest.raises(InconsistentTopicIdError):
        led.replica.start(0)


def test_an_unreadable_table_takes_the_replica_offline_and_answers_all_requests() -> None:
    led = Led()
    led.log().exists_or_create("id")
    led.disk.tables["t-0"].commits[0] = None
    led.produce("a")
    assert not led.replica.start(0)
    assert led.replica.failure is not None
    assert led.said() == {"a": "CORRUPT_MESSAGE"}


def test_an_epoch_start_that_was_made_before_is_where_the_epoch_began() -> None:
    """A restarted attempt of the same epoch; the high watermark waits for the old start only."""
    first = Led().started()
    first.produce("a", "b")
    first.replica.append_waiting(0)
    again = Led(first.stores).started()
    assert again.partition.epoch_start_offset == 0
    assert again.partition.log_end_offset == 2


# -- group commits -------------------------------------------------------------------------------------------


def test_all_that_waits_is_one_commit_with_an_answer_each() -> None:
    led = Led().started()
    version = led.replica.log.version
    led.produce("a", "b+c", "d")
    assert led.replica.append_waiting(0)
    assert led.replica.log.version == version + 1
    assert led.said() == {"a": "0-0", "b+c": "1-2", "d": "3-3"}
    assert not led.replica.append_waiting(0)


def test_a_refused_batch_spoils_no_other() -> None:
    led = Led().started()
    led.produce("a")
    led.queue("gap", idempotent(["x"], sequence=5))
    led.queue("acks 7", batch(["y"]), acks=7)
    led.produce("b")
    led.replica.append_waiting(0)
    assert led.said()["acks 7"] == "INVALID_REQUIRED_ACKS"
    assert led.said()["gap"] in ("OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID")
    assert (led.said()["a"], led.said()["b"]) == ("0-0", "1-1")
    assert {answer.log_start_offset for answer in led.answers.values()} == {0}, "refusals tell it, too"
    assert values(led.log()) == "a b"


def test_batches_sent_as_bytes_are_read_at_once_and_one_that_is_none_spoils_no_other() -> None:
    groups: list[list[bytes]] = []

    def read(sent: Sequence[SentBatch]) -> list[NewRecordBatch | StratalogError]:
        groups.append([each.data for each in sent])
        broken = InvalidRecordError("no records")
        return [broken if each.data == b"?" else batch([each.data.decode()]) for each in sent]

    led = Led().started()
    for name in ("a", "?", "c"):
        led.queue_request(
            name, ProduceRequest(IdentifiedPartition("id", T0), SentBatch(name.encode(), -1, -1, 0, read), ACKS_LEADER)
        )
        led.produce(f"after {name}")
    assert led.replica.append_waiting(0)
    assert groups == [[b"a", b"?", b"c"]]
    assert led.said() == {
        "a": "0-0",
        "after a": "1-1",
        "?": "INVALID_RECORD",
        "after ?": "2-2",
        "c": "3-3",
        "after c": "4-4",
    }
    led.queue_request(
        "only", ProduceRequest(IdentifiedPartition("id", T0), SentBatch(b"?", -1, -1, 0, read), ACKS_LEADER)
    )
    assert not led.replica.append_waiting(0)
    assert led.said()["only"] == "INVALID_RECORD"


def test_acks_all_with_too_small_an_isr_writes_nothing() -> None:
    led = Led(min_isr=2, isr=(1,)).started()
    led.produce("a", acks=ACKS_ALL)
    led.produce("b")
    led.replica.append_waiting(0)
    assert led.said() == {"a": "NOT_ENOUGH_REPLICAS", "b": "0-0"}
    assert values(led.log()) == "b"


def test_all_replicas_are_enough_where_min_insync_replicas_is_larger() -> None:
    led = Led(min_isr=3).started()
    led.produce("a", acks=ACKS_ALL)
    assert led.replica.append_waiting(0)
    assert values(led.log()) == "a"


def test_acks_all_waits_for_the_high_watermark() -> None:
    led = Led().started()
    led.produce("a", "b", acks=ACKS_ALL)
    led.replica.append_waiting(0)
    assert led.answers == {}
    follower_at(led, 1)
    assert led.said() == {"a": "0-0"}
    follower_at(led, 2)
    assert led.said() == {"a": "0-0", "b": "1-1"}


def test_a_leader_that_commits_alone_answers_acks_1_once_the_high_watermark_was_published() -> None:
    """Kafka raises it in the append: what was confirmed is in the answer to the client's next request."""
    led = Led(isr=(1,)).started()
    led.produce("a", "b")
    led.replica.append_waiting(0)
    assert led.answers == {}
    led.partition.maybe_increment_high_watermark(0, 1_000)
    led.replica.complete_waiting()
    assert led.said() == {"a": "0-0", "b": "1-1"}
    led.produce("c")
    led.replica.append_waiting(0)
    led.replica.resign(NotLeaderOrFollowerError("over"))
    assert led.said()["c"] == "2-2", "it is stored, nothing else was asked"


def test_acks_1_waits_for_no_other_member_of_the_isr() -> None:
    led = Led().started()
    led.produce("a")
    led.replica.append_waiting(0)
    assert led.said() == {"a": "0-0"}


def test_files_handed_over_are_placed_between_batches_in_their_order() -> None:
    led = Led().started()
    file = led.stores.table("broker-1", T0).write_file(data_table([batch(["x", "y"])]), None)
    led.produce("a")
    led.queue_request(
        "files", HandOverRequest(IdentifiedPartition("id", T0), HandedFiles((file,), "query", 1), ACKS_LEADER)
    )
    led.produce("b")
    while led.replica.append_waiting(0):
        pass
    assert led.said() == {"a": "0-0", "files": "1-2", "b": "3-3"}
    assert values(led.log()) == "a x y b"


# -- when the outcome is not known ---------------------------------------------------------------------------

LOST = [
    pytest.param(("create",), id="the commit did not arrive"),
    pytest.param(("create:done",), id="the commit's answer was lost, but can be read back"),
    pytest.param(("create:done", "get"), id="the commit is stored and nothing can be read"),
    pytest.param(("put",), id="the file did not arrive"),
    pytest.param(("put:done",), id="the file's answer was lost"),
]


@pytest.mark.parametrize("lost", LOST)
def test_a_retry_does_not_append_twice(lost: tuple[str, ...]) -> None:
    """Promise 3: without a producer id nothing but the commit itself shows that it was made."""
    led = Led().started()
    led.produce("a")
    led.replica.append_waiting(0)
    led.produce("b+c")
    led.disk.fault = lambda operation, *_: operation in lost
    led.replica.append_waiting(0)
    led.disk.fault = None
    led.produce("d")
    now_ms = cadence.APPEND_RETRY.ms
    while led.replica.append_waiting(now_ms):
        now_ms += cadence.APPEND_RETRY.ms
    assert led.said() == {"a": "0-0", "b+c": "1-2", "d": "3-3"}
    assert contents(led.log()) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]


@pytest.mark.parametrize("lost", LOST)
def test_a_retry_after_somebody_elses_commit_does_not_append_twice_either(lost: tuple[str, ...]) -> None:
    """Upkeep by another instance came between the append and its retry."""
    led = Led().started()
    led.produce("a", "b")
    led.disk.fault = lambda operation, *_: operation in lost
    led.replica.append_waiting(0)
    led.disk.fault = None
    other = led.log()
    other.replace_files([], [], leader_epoch=EPOCH, operation="OPTIMIZE", now_ms=0, data_change=False)
    for turn in itertools.count(1):
        if not led.replica.append_waiting(turn * cadence.APPEND_RETRY.ms):
            break
    assert led.said() == {"a": "0-0", "b": "1-1"}
    assert contents(led.log()) == [(0, "a"), (1, "b")]


def test_what_comes_meanwhile_waits_its_turn() -> None:
    led = Led().started()
    led.disk.fault = lambda *_: True
    led.produce("a")
    assert not led.replica.append_waiting(0)
    led.produce("b")
    led.disk.fault = None
    assert not led.replica.append_waiting(cadence.APPEND_RETRY.ms - 1)
    assert led.answers == {}
    assert led.replica.append_waiting(cadence.APPEND_RETRY.ms)
    assert led.said() == {"a": "0-0"}
    assert led.replica.append_waiting(cadence.APPEND_RETRY.ms)
    assert led.said() == {"a": "0-0", "b": "1-1"}


def test_a_lost_race_is_decided_again() -> None:
    led = Led().started()
    led.log().replace_files([], [], leader_epoch=EPOCH, operation="OPTIMIZE", now_ms=0, data_change=False)
    led.produce("a")
    while led.replica.append_waiting(0):
        pass
    assert led.said() == {"a": "0-0"}
    assert values(led.log()) == "a"


# -- losing the leadership -----------------------------------------------------------------------------------


def test_a_newer_epoch_in_the_table_ends_it() -> None:
    """A straggler that was deposed: nothing is written, all requests are refused."""
    led = Led().started()
    led.produce("a", acks=ACKS_ALL)
    led.replica.append_waiting(0)
    led.log().start_epoch(EPOCH + 1, as_leader=False)
    led.produce("b", "c")
    while led.replica.append_waiting(0):
        pass
    assert set(led.said().values()) == {"NOT_LEADER_OR_FOLLOWER"}
    assert values(led.log()) == "a"
    assert led.replica.progress() is None


def test_resigning_answers_the_waiting_the_undecided_and_the_delayed() -> None:
    led = Led().started()
    led.produce("delayed", acks=ACKS_ALL)
    led.replica.append_waiting(0)
    led.produce("undecided")
    led.disk.fault = lambda *_: True
    led.replica.append_waiting(0)
    led.produce("waiting")
    led.replica.resign(NotLeaderOrFollowerError("over"))
    assert led.said() == dict.fromkeys(("delayed", "undecided", "waiting"), "NOT_LEADER_OR_FOLLOWER")
    assert led.purgatory.is_empty


def test_what_it_publishes() -> None:
    led = Led().started()
    led.produce("a", "b")
    led.replica.append_waiting(0)
    follower_at(led, 2)
    progress = led.replica.progress()
    assert progress == ReplicaProgress(T0, EPOCH, 2, led.replica.log.version, 2, 0, 0, "id")


def test_the_first_table_of_a_topic_remembers_which_producers_are_older() -> None:
    """A producer of an earlier topic of the name goes on counting in the new one, as a client of Kafka's does."""
    stores = MemoryStores()
    ports = LeaderPorts(1, stores.clock, ProducePurgatory(), producers_from=lambda: 1_000)
    log = PartitionLog(stores.table("broker-1", T0), LogConfig(), stores.clock, stores.ids)
    replica = LeaderReplica(led_by(1, epoch=0), "id", log, ports)
    assert replica.start(0)
    answers: dict[int, ProduceResponse] = {}
    for producer_id in (999, 1_000):
        appended = batch("a", producer_id=producer_id, epoch=0, sequence=5)
        request = ProduceRequest(IdentifiedPartition("id", T0), appended, ACKS_LEADER, timeout_ms=1_000)
        replica.waiting.append(WaitingAppend(request, partial(answers.__setitem__, producer_id)))
    replica.append_waiting(0)
    errors = {producer_id: each.error and each.error.name for producer_id, each in answers.items()}
    assert errors == {999: None, 1_000: "UNKNOWN_PRODUCER_ID"}
