"""The coordinators of one broker: folding, group commit, answers in order, what becomes of appends that fail."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

from replication.broker import Broker, BrokerIdentity
from replication.config import BrokerConfig
from replication.coordinator_kinds import CoordinatorKind
from replication.coordinator_requests import FindCoordinatorRequest, FindCoordinatorResponse
from replication.coordinator_runtime import CLOCK_STEP_MS_MAX, FAILED_RETRY_MS
from replication.coordinator_shard import CoordinatorShard, CoordinatorType, RemoteAppend, RemoteAppended, ShardPlace
from replication.hosted_shard import APPEND_TIMEOUT_MS
from replication.internal_topics import GROUP_METADATA_TOPIC, partition_of_key
from replication.leader_replica import WaitingAppend
from replication.progress import ReplicaProgress, fetch_progress_path
from replication.progress_object import ProgressWriter
from replication.requests import HandedFiles, ProduceRequest, ProduceResponse
from replication.state import ConfigRecord, RegisterBrokerRecord, RemoveTopicRecord, TopicDeletionRecord
from storage.clock import RandomIds
from storage.errors import BrokerNotAvailableError, StratalogError
from storage.records import CONTROL_ATTRIBUTE, TRANSACTIONAL_ATTRIBUTE, NewRecordBatch, TopicPartition, payload_table
from storage.table import DataFile
from tests.replication.list_shard import Add, Added, AwaitNext, Explode, Gone, ListShard, Read
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores, commit, create, led_by
from tests.storage.logs import FakeClock, batch

P0 = TopicPartition(GROUP_METADATA_TOPIC, 0)
GROUP = CoordinatorType.GROUP
FOLLOWER = 2
TOPIC_ID = "offsets"
CONFIG = BrokerConfig.from_properties({"stratalog.upkeep.interval.ms": 100_000_000, "offsets.commit.timeout.ms": 5_000})


class Driftable(FakeClock):
    """A clock whose wall time can be set."""

    shift_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms + self.shift_ms


class Coordinated:
    """Broker 1 leads partition 0 of `__consumer_offsets` under epoch 0; broker 2 follows as the test says."""

    def __init__(self, *, partitions: int = 1, min_isr: int = 1) -> None:
        self.clock = Driftable()
        self.stores = MemoryStores(self.clock)
        self.shards: list[ListShard] = []
        self.broken: Callable[[ShardPlace], None] = lambda _place: None
        self.metadata = self.stores.metadata()
        self.broker = Broker(
            BrokerIdentity(1, "broker-1"),
            CONFIG,
            METADATA_ROOT,
            self.stores,
            self.clock,
            RandomIds(),
            coordinators={GROUP: CoordinatorKind(self._make, Gone)},
        )
        commit(self.metadata, RegisterBrokerRecord(FOLLOWER, 20, "run", "broker-2"))
        self.broker.start()
        states = [led_by(1, topic=GROUP_METADATA_TOPIC, partition=p) for p in range(partitions)]
        create(self.metadata, GROUP_METADATA_TOPIC, *states, topic_id=TOPIC_ID)
        commit(self.metadata, ConfigRecord(GROUP_METADATA_TOPIC, "min.insync.replicas", str(min_isr)))
        self.writer = ProgressWriter(self.stores.objects("broker-2"), fetch_progress_path(20, "a"))
        self.answers: list[object] = []
        self.epoch = 0

    def _make(self, place: ShardPlace) -> CoordinatorShard:
        self.broken(place)
        self.shards.append(ListShard(place))
        return self.shards[-1]

    @property
    def shard(self) -> ListShard:
        return self.shards[-1]

    def settle(self) -> None:
        """Time for every poll, then turns until nothing moves any more."""
        self.clock.now_ms += 200
        while self.broker.step() or self.broker.wakeup.wait_ms(0):
            pass

    def follow(self, end: int, partition: int = 0) -> None:
        topic_partition = TopicPartition(GROUP_METADATA_TOPIC, partition)
        self.writer.update([ReplicaProgress(topic_partition, self.epoch, end, end, topic_id=TOPIC_ID)])
        self.writer.publish()
        self.settle()

    def ask(self, request: object, key: str | int = 0) -> None:
        self.broker.coordinator(GROUP, key, request, self.answers.append)

    def lead(self, leader: int, epoch: int, *, isr: tuple[int, ...] = (1, 2)) -> None:
        self.metadata.refresh()
        state = self.metadata.image.partition(P0)
        self.epoch = epoch
        changed = replace(state, leader=leader, leader_epoch=epoch, isr=isr, partition_epoch=state.partition_epoch + 1)
        commit(self.metadata, changed)
        self.settle()

    def stored(self) -> list[str]:
        log = self.broker.leaders[P0].log
        return [value.decode() for value in log.read(0, 1 << 20)["value"].to_pylist()]

    def taken(self) -> list[object]:
        """The answers since the last call; errors by their names."""
        answers, self.answers[:] = list(self.answers), []
        return [answer.name if isinstance(answer, StratalogError) else answer for answer in answers]


def coordinated(*, partitions: int = 1, min_isr: int = 1) -> Coordinated:
    """With all shards folded."""
    running = Coordinated(partitions=partitions, min_isr=min_isr)
    running.settle()
    for partition in range(partitions):
        running.follow(0, partition)
    return running


def added(position: int, value: str, epoch: int = 0) -> Added:
    return Added(position, value, epoch)


def test_a_decision_is_answered_once_it_is_replicated() -> None:
    running = coordinated()
    running.ask(Add("a"))
    running.settle()
    assert (running.taken(), running.stored(), running.shard.values) == ([], ["a"], ["a"])
    running.follow(1)
    assert running.taken() == [added(0, "a")]


def test_decisions_that_come_together_are_one_commit() -> None:
    running = coordinated()
    version = running.broker.leaders[P0].log.version
    for value in "abcd":
        running.ask(Add(value))
    running.settle()
    assert running.broker.leaders[P0].log.version == version + 1
    running.follow(4)
    assert running.taken() == [added(i, value) for i, value in enumerate("abcd")]


def test_what_is_decided_while_an_append_is_under_way_is_the_next_append() -> None:
    running = coordinated()
    running.ask(Add("a"))
    running.settle()
    running.ask(Add("b"))
    running.ask(Add("c"))
    running.settle()
    assert running.stored() == ["a"]
    running.follow(1)
    assert (running.stored(), running.taken()) == (["a", "b", "c"], [added(0, "a")])
    running.follow(3)
    assert running.taken() == [added(1, "b"), added(2, "c")]


def test_a_read_waits_for_the_writes_that_it_tells_of() -> None:
    """It would tell of something that a failover forgets."""
    running = coordinated()
    running.ask(Read())
    running.settle()
    assert running.taken() == [()]
    running.ask(Add("a"))
    running.ask(Read())
    running.settle()
    running.ask(Read())
    running.settle()
    assert running.taken() == []
    running.follow(1)
    assert running.taken() == [added(0, "a"), ("a",), ("a",)]


def test_a_refused_request_is_answered_in_order_too() -> None:
    running = coordinated()
    running.ask(Add("a"))
    running.ask("nonsense")
    running.settle()
    assert running.taken() == []
    running.follow(1)
    assert running.taken() == [added(0, "a"), "INVALID_REQUEST"]
    assert len(running.shards) == 1


def test_a_request_may_wait_for_another_one() -> None:
    running = coordinated()
    running.ask(AwaitNext())
    running.ask(Add("a"))
    running.settle()
    running.follow(1)
    assert running.taken() == [added(0, "a"), "a"]


def test_a_shard_is_called_when_its_time_comes_and_the_loop_sleeps_until_then() -> None:
    running = coordinated()
    running.ask(AwaitNext(timeout_ms=1_000))
    running.settle()
    due_ms = running.broker._coordinators.next_due_ms
    assert due_ms is not None
    assert 0 < due_ms - running.clock.monotonic_ms() <= 1_000
    running.clock.now_ms = due_ms - 1
    running.broker.step()
    assert running.taken() == []
    running.clock.now_ms = due_ms
    running.broker.step()
    assert running.taken() == [None]
    assert running.broker._coordinators.next_due_ms is None


def test_a_new_leader_folds_what_the_old_one_wrote() -> None:
    running = coordinated()
    for value in "ab":
        running.ask(Add(value))
    running.settle()
    running.follow(2)
    running.taken()
    running.lead(1, 1)
    running.ask(Read())
    running.settle()
    assert running.taken() == ["COORDINATOR_LOAD_IN_PROGRESS"]  # the new epoch has no high watermark yet
    running.follow(2)
    running.ask(Read())
    running.ask(Add("c"))
    running.settle()
    running.follow(3)
    assert running.taken() == [("a", "b"), added(2, "c", epoch=1)]
    assert [entry[:2] for entry in running.shard.journal if entry[0] == "replay"] == [  # type: ignore[index]
        ("replay", "a"), ("replay", "b"), ("replay", "c"),
    ]  # fmt: skip


def test_who_waits_when_leadership_is_lost_is_told_to_look_elsewhere() -> None:
    running = coordinated()
    running.ask(AwaitNext())
    running.ask(Read())
    running.ask(Add("a"))
    running.settle()
    assert running.taken() == [()]
    running.lead(2, 1)
    assert running.taken() == ["NOT_COORDINATOR", "NOT_COORDINATOR"]
    running.ask(Read())
    running.settle()
    assert running.taken() == ["NOT_COORDINATOR"]


def test_what_was_stored_but_not_acknowledged_counts_when_the_same_broker_leads_again() -> None:
    running = coordinated()
    running.ask(Add("a"))
    running.settle()
    running.lead(1, 1)
    assert running.taken() == ["NOT_COORDINATOR"]
    running.follow(1)
    running.ask(Read())
    running.settle()
    assert running.taken() == [("a",)]


def test_a_decision_of_an_older_epoch_never_reaches_the_log() -> None:
    """The append carries the epoch; whoever leads by then refuses another one."""
    running = coordinated()
    running.lead(1, 1)
    answers: list[ProduceResponse] = []
    for epoch in (0, 2, 1):
        request = ProduceRequest(P0, batch(["x"]), expected_leader_epoch=epoch)
        running.broker.append(WaitingAppend(request, answers.append))
    running.settle()
    running.follow(1)
    assert [answer.error and answer.error.name for answer in answers] == [
        "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", None,
    ]  # fmt: skip
    assert running.stored() == ["x"]


def test_an_append_that_fails_is_forgotten_by_folding_anew() -> None:
    running = coordinated(min_isr=2)
    running.ask(Add("a"))
    running.settle()
    running.follow(1)
    running.lead(1, 0, isr=(1,))
    running.taken()
    running.ask(AwaitNext())
    running.ask(Add("b"))
    running.ask(Read())
    running.settle()
    assert running.taken() == ["COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"]
    assert running.stored() == ["a"]
    running.settle()
    running.ask(Read())
    running.settle()
    assert running.taken() == [("a",)]
    assert len(running.shards) == 2


def test_an_answer_is_not_waited_for_longer_than_the_setting_says() -> None:
    """What it answers is written all the same, and those that come later keep their order."""
    running = coordinated()
    running.ask(Add("a"))
    running.settle()
    running.clock.now_ms += CONFIG.offsets_commit_timeout_ms - 1_000
    running.ask(Read())
    running.settle()
    assert running.taken() == []
    running.clock.now_ms += 1_000
    running.settle()
    assert running.taken() == ["COORDINATOR_NOT_AVAILABLE"]
    running.follow(1)
    assert running.taken() == [("a",)]
    assert len(running.shards) == 1


def test_a_replication_that_stands_still_for_long_loses_no_order() -> None:
    running = coordinated()
    running.ask(Add("a"))
    running.settle()
    running.clock.now_ms += APPEND_TIMEOUT_MS
    running.settle()
    assert running.taken() == ["COORDINATOR_NOT_AVAILABLE"]
    running.ask(Read())
    running.settle()
    assert running.taken() == []
    running.follow(1)
    running.settle()
    assert running.taken() == [("a",)]
    assert len(running.shards) == 1


def test_a_defect_is_answered_and_the_shard_folded_anew() -> None:
    running = coordinated()
    running.ask(Add("a"))
    running.settle()
    running.follow(1)
    running.taken()
    running.ask(AwaitNext())
    running.ask(Explode())
    running.ask(Read())
    running.settle()
    assert running.taken() == ["UNKNOWN_SERVER_ERROR", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"]
    running.clock.now_ms += FAILED_RETRY_MS
    running.settle()
    running.ask(Read())
    running.settle()
    assert running.taken() == [("a",)]


def test_a_decision_too_large_for_one_batch_is_refused() -> None:
    running = coordinated()
    running.ask(Add("x" * (1 << 21)))
    running.settle()
    assert running.taken() == ["UNKNOWN_SERVER_ERROR"]
    running.settle()
    running.ask(Read())
    running.settle()
    assert running.taken() == [()]


def test_a_log_that_cannot_be_folded_is_tried_again() -> None:
    running = Coordinated()
    failures = [ValueError("not a record"), ValueError("not a record")]

    def broken(_place: ShardPlace) -> None:
        if failures:
            raise failures.pop()

    running.broken = broken
    running.settle()
    running.follow(0)
    running.ask(Read())
    running.settle()
    assert running.taken() == ["COORDINATOR_LOAD_IN_PROGRESS"]
    for _ in range(2):
        running.clock.now_ms += FAILED_RETRY_MS
        running.settle()
    running.ask(Read())
    running.settle()
    assert running.taken() == [()]


def test_shards_begin_anew_when_the_wall_clock_was_set() -> None:
    running = coordinated()
    running.ask(AwaitNext(timeout_ms=1_000))
    running.settle()
    running.clock.shift_ms = CLOCK_STEP_MS_MAX  # not more: it is left alone
    running.settle()
    assert running.taken() == []
    running.clock.shift_ms = -(CLOCK_STEP_MS_MAX + 1)
    running.settle()
    assert running.taken() == ["NOT_COORDINATOR"]
    ((_, loaded_ms),) = [entry for entry in running.shard.journal if entry[0] == "loaded"]  # type: ignore[index]
    assert abs(loaded_ms - running.clock.wall_ms()) <= 1_000


def test_a_group_commit_in_the_air_delays_the_next_fold() -> None:
    """An append of before could otherwise come to stand in a log that was folded already."""
    running = coordinated()
    running.ask(Add("a"))
    running.settle()  # stored, not replicated
    running.ask(Explode())
    running.settle()
    running.clock.now_ms += FAILED_RETRY_MS
    running.settle()
    running.ask(Read())
    running.settle()
    assert running.taken() == ["UNKNOWN_SERVER_ERROR", "UNKNOWN_SERVER_ERROR", "COORDINATOR_LOAD_IN_PROGRESS"]
    running.follow(1)
    running.ask(Read())
    running.settle()
    assert running.taken() == [("a",)]


def marker(producer_id: int, *, is_commit: bool) -> NewRecordBatch:
    payload = payload_table([(1, struct.pack(">hh", 0, is_commit), bytes(6), None)])
    return NewRecordBatch(payload, producer_id, 0, attributes=TRANSACTIONAL_ATTRIBUTE | CONTROL_ATTRIBUTE)


def end_transaction(running: Coordinated, producer_id: int, *, is_commit: bool) -> None:
    request = ProduceRequest(P0, marker(producer_id, is_commit=is_commit))
    running.broker.produce_then(request, lambda response: running.answers.append(response.error))


def test_records_of_a_transaction_count_when_its_marker_is_committed() -> None:
    running = coordinated()
    for producer_id, value in ((7, "a"), (7, "b"), (8, "c")):
        running.ask(Add(value, producer_id, 0))
    running.settle()
    assert (running.stored(), running.shard.pending) == (["a", "b", "c"], {})
    running.follow(3)
    assert running.taken() == [added(0, "a"), added(0, "b"), added(0, "c")]
    assert running.shard.pending == {7: ["a", "b"], 8: ["c"]}
    log = running.broker.leaders[P0].log
    rows = log.read(0, 1 << 20)
    assert rows["attributes"].to_pylist() == [TRANSACTIONAL_ATTRIBUTE] * 3
    assert rows["batch_base_offset"].to_pylist() == [0, 0, 2]
    end_transaction(running, 7, is_commit=True)
    end_transaction(running, 8, is_commit=False)
    running.settle()
    assert (running.taken(), running.shard.values) == ([], [])
    running.follow(5)
    assert running.taken() == [None, None]
    assert (running.shard.values, running.shard.pending) == (["a", "b"], {})


def test_a_fold_knows_what_was_pending_and_what_was_ended() -> None:
    running = coordinated()
    for producer_id, value in ((7, "a"), (8, "b"), (9, "c")):
        running.ask(Add(value, producer_id, 0))
    running.settle()
    running.follow(3)
    end_transaction(running, 7, is_commit=True)
    end_transaction(running, 8, is_commit=False)
    running.settle()
    running.follow(5)
    running.lead(1, 1)
    running.follow(5)
    assert len(running.shards) == 2
    assert (running.shard.values, running.shard.pending) == (["a"], {9: ["c"]})


def test_a_fenced_transactional_producer_spoils_nobody_else() -> None:
    """The log refuses its records; the shard never heard of them and need not be folded anew."""
    running = coordinated()
    running.ask(Add("a", 7, 3))
    running.settle()
    running.follow(1)
    running.taken()
    running.ask(Add("old", 7, 2))
    running.ask(Read())
    running.settle()
    running.follow(1)
    assert running.taken() == ["INVALID_PRODUCER_EPOCH", ()]
    assert (len(running.shards), running.shard.pending) == (1, {7: ["a"]})


def test_clients_do_not_write_to_internal_topics() -> None:
    running = coordinated()
    answers: list[ProduceResponse] = []
    running.broker.produce_then(ProduceRequest(P0, batch(["x"])), answers.append)
    unknown = TopicPartition("__transaction_state", 0)
    running.broker.produce_then(ProduceRequest(unknown, marker(7, is_commit=True)), answers.append)
    handed = running.broker.hand_over(HandedFiles(P0, (DataFile("f", 1, 1, 0, 0, None, None),)))
    running.settle()
    assert [str(answer.error) for answer in (*answers, handed.result(0))] == [
        "Cannot append to internal topic __consumer_offsets",
        "Cannot append to internal topic __transaction_state",
        "Cannot append to internal topic __consumer_offsets",
    ]
    assert {answer.error.code for answer in answers if answer.error} == {17}
    assert running.stored() == []


def test_an_effect_is_performed_once_its_decision_is_committed_and_its_outcome_comes_back() -> None:
    running = coordinated()
    create(running.metadata, "t", led_by(1, replicas=(1,)), topic_id="id")
    running.settle()
    target = TopicPartition("t", 0)
    missing = RemoteAppend(TopicPartition("nowhere", 0), batch(["x"]), "second")
    running.ask(Add("a", effects=(RemoteAppend(target, batch(["effect"]), "first"), missing)))
    running.settle()
    log = running.broker.leaders[target].log
    assert log.log_end_offset == 0
    running.follow(1)
    assert log.log_end_offset == 1
    outcomes = [entry for entry in running.shard.journal if isinstance(entry, RemoteAppended)]
    assert sorted((each.context, each.error and each.error.name) for each in outcomes) == [
        ("first", None), ("second", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]  # fmt: skip


def test_an_effect_at_a_broker_that_never_answers_is_timed_out() -> None:
    running = coordinated()
    target = TopicPartition("t", 0)
    create(running.metadata, "t", led_by(1), topic_id="id")  # its follower copies nothing
    running.settle()
    running.ask(Add("a", effects=(RemoteAppend(target, batch(["effect"]), "first"),)))
    running.settle()
    running.follow(1)
    due_ms = running.broker._coordinators.next_due_ms
    assert due_ms is not None
    running.clock.now_ms = due_ms
    running.settle()
    (outcome,) = (entry for entry in running.shard.journal if isinstance(entry, RemoteAppended))
    assert (outcome.error and outcome.error.name) == "REQUEST_TIMED_OUT"


def test_every_shard_of_the_broker_can_be_asked_at_once() -> None:
    running = coordinated(partitions=3)
    running.ask(Add("a"), 1)
    running.settle()
    running.follow(1, 1)
    found: list[list[object]] = []
    running.broker.every_coordinator(GROUP, Read(), found.append)
    running.broker.every_coordinator(CoordinatorType.TRANSACTION, Read(), found.append)
    running.settle()
    assert found == [[(), ("a",), ()], []]


def test_a_group_is_asked_for_by_its_id() -> None:
    running = coordinated(partitions=3)
    running.ask(Add("a"), "my-group")
    running.settle()
    assert [shard.place.topic_partition.partition for shard in running.shards if shard.values] == [
        partition_of_key("my-group", 3)
    ]


def test_shards_hear_of_partitions_that_went_with_their_topic() -> None:
    running = coordinated(partitions=2)
    create(running.metadata, "t", led_by(1), led_by(1, partition=1), topic_id="id")
    commit(running.metadata, RemoveTopicRecord("t", "id"), TopicDeletionRecord("t", "id", 2, (1,)))
    running.settle()
    assert [shard.values for shard in running.shards] == [["t-0", "t-1"], ["t-0", "t-1"]]


def test_a_stopped_broker_answers_at_once() -> None:
    running = coordinated()
    running.ask(AwaitNext())
    running.settle()
    running.ask(Read())  # in the queue
    running.broker.stop(BrokerNotAvailableError("killed"))
    running.ask(Read())
    found: list[FindCoordinatorResponse] = []
    running.broker.find_coordinator(FindCoordinatorRequest(GROUP, ("g",)), found.append)
    running.broker.every_coordinator(GROUP, Read(), running.answers.append)
    *answers, everything = running.taken()
    assert answers == ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"]
    assert [error.name for error in everything] == ["COORDINATOR_NOT_AVAILABLE"]  # type: ignore[attr-defined]
    (coordinator,) = found[0].coordinators
    assert (coordinator.node_id, coordinator.error and coordinator.error.name) == (-1, "COORDINATOR_NOT_AVAILABLE")


def test_finding_a_coordinator_makes_its_topic() -> None:
    running = Coordinated()
    running.settle()
    found: list[FindCoordinatorResponse] = []
    request = FindCoordinatorRequest(CoordinatorType.TRANSACTION, ("id-1", "id-2"))
    running.broker.find_coordinator(request, found.append)
    running.settle()
    assert [each.error and each.error.name for each in found[0].coordinators] == ["COORDINATOR_NOT_AVAILABLE"] * 2
    assert "the required replication factor '3' for __transaction_state" in str(found[0].coordinators[0].error)
    commit(running.metadata, RegisterBrokerRecord(3, 30, "run", "broker-3"))
    running.settle()
    running.broker.find_coordinator(request, found.append)
    running.settle()
    running.broker.find_coordinator(request, found.append)
    running.settle()
    image = running.broker.metadata.image
    assert len(image.partitions_of("__transaction_state")) == 50
    leaders = [image.partition(TopicPartition("__transaction_state", partition_of_key(key, 50))).leader
               for key in request.coordinator_keys]  # fmt: skip
    assert [each.node_id for each in found[-1].coordinators] == leaders


def test_producer_ids_come_from_blocks_of_this_broker() -> None:
    running = coordinated()
    ids = [running.shard.place.producer_ids() for _ in range(1_001)]
    assert ids == [*range(1_001)]
    assert running.broker.metadata.image.next_producer_id == 2_000


def test_idle_shards_cost_nothing() -> None:
    """No timers, no polls, no turn that looks at each of them."""
    running = coordinated(partitions=50)
    assert running.broker._coordinators.next_due_ms is None
    looked: list[object] = []
    for shard in running.broker._coordinators._shards.values():
        shard.flush = lambda: looked.append(1) or False  # type: ignore[method-assign, func-returns-value]
    running.settle()
    assert looked == []
