"""The coordinators of one broker: folding, group commit, answers in order, what becomes of appends that fail."""

from __future__ import annotations

from stratalog.replication import cadence
from stratalog.replication.controller.brokers import fence_brokers
from stratalog.replication.coordinator.shard.shard import ShardPlace
from stratalog.replication.internal_topics import partition_of_key
from stratalog.replication.leader.replica import WaitingAppend
from stratalog.replication.metadata.records import (
    ControllerRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicDeletionRecord,
)
from stratalog.replication.progress.progress import follower_progress_path
from stratalog.replication.progress.progress_object import ProgressWriter
from stratalog.replication.requests.coordinators import CoordinatorType, FindCoordinatorRequest, FindCoordinatorResponse
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
from stratalog.storage.errors import BrokerNotAvailableError
from stratalog.storage.records import TopicPartition
from tests.replication.coordinated import CONFIG, FOLLOWER, GROUP, P0, Coordinated, added, coordinated
from tests.replication.list_shard import Add, AwaitNext, Explode, Read
from tests.replication.memory_stores import commit, create, led_by
from tests.storage.logs import batch


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
    due_ms = running.broker.coordinators.next_due_ms
    assert due_ms is not None
    assert 0 < due_ms - running.clock.monotonic_ms() <= 1_000
    running.clock.now_ms = due_ms - 1
    running.broker.step()
    assert running.taken() == []
    running.clock.now_ms = due_ms
    running.broker.step()
    assert running.taken() == [None]
    assert running.broker.coordinators.next_due_ms is None


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
    assert running.shard.replayed == ["a", "b", "c"]


def test_a_coordinator_stays_as_it_is_while_its_followers_come_and_go() -> None:
    """The ISR changes within the leader epoch: what waits is answered, and nothing is folded again (decision 0142)."""
    running = coordinated()
    commit(running.metadata, ControllerRecord(controller_id=1, controller_epoch=1))
    running.ask(AwaitNext())
    running.ask(Add("a"))
    running.settle()
    assert running.taken() == []
    running.metadata.propose(lambda image: fence_brokers(image, {FOLLOWER: 20}))
    running.settle()
    assert running.taken() == [added(0, "a"), "a"]

    commit(running.metadata, RegisterBrokerRecord(FOLLOWER, 21, "again", "broker-2"))
    running.writer = ProgressWriter(running.stores.objects("broker-2"), follower_progress_path(21, 1, "a"))
    running.follow(1)
    running.clock.now_ms += cadence.SESSIONS_LISTED.shortest_ms
    running.settle()
    running.ask(Add("b"))
    running.settle()
    assert running.taken() == [], "it is in the ISR again"
    running.follow(2)
    assert running.taken() == [added(1, "b")]

    assert len(running.shards) == 1
    assert running.metadata.refresh()
    state = running.metadata.image.partition(P0)
    assert (state.isr, state.leader_epoch, state.partition_epoch) == ((1, 2), 0, 2)


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
        request = ProduceRequest(running.metadata.image.identified(P0), batch(["x"]), expected_leader_epoch=epoch)
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
    running.clock.now_ms += cadence.SHARD_APPEND.ms
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
    running.clock.now_ms += cadence.SHARD_RETRY.ms
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
        running.clock.now_ms += cadence.SHARD_RETRY.ms
        running.settle()
    running.ask(Read())
    running.settle()
    assert running.taken() == [()]


def test_shards_begin_anew_when_the_wall_clock_was_set() -> None:
    running = coordinated()
    running.ask(AwaitNext(timeout_ms=1_000))
    running.settle()
    running.clock.shift_ms = cadence.CLOCK_STEP.ms  # not more: it is left alone
    running.settle()
    assert running.taken() == []
    running.clock.shift_ms = -(cadence.CLOCK_STEP.ms + 1)
    running.settle()
    assert running.taken() == ["NOT_COORDINATOR"]
    (loaded_ms,) = running.shard.loaded_ms
    assert abs(loaded_ms - running.clock.wall_ms()) <= 1_000


def test_a_group_commit_in_the_air_delays_the_next_fold() -> None:
    """An append of before could otherwise come to stand in a log that was folded already."""
    running = coordinated()
    running.ask(Add("a"))
    running.settle()  # stored, not replicated
    running.ask(Explode())
    running.settle()
    running.clock.now_ms += cadence.SHARD_RETRY.ms
    running.settle()
    running.ask(Read())
    running.settle()
    assert running.taken() == ["UNKNOWN_SERVER_ERROR", "UNKNOWN_SERVER_ERROR", "COORDINATOR_LOAD_IN_PROGRESS"]
    running.follow(1)
    running.ask(Read())
    running.settle()
    assert running.taken() == [("a",)]


def test_every_shard_of_the_broker_can_be_asked_at_once() -> None:
    running = coordinated(partitions=3)
    running.ask(Add("a"), 1)
    running.settle()
    running.follow(1, 1)
    found: list[list[object]] = []
    running.broker.calls.every_coordinator(GROUP, Read(), found.append)
    running.broker.calls.every_coordinator(CoordinatorType.TRANSACTION, Read(), found.append)
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
    running.broker.calls.find_coordinator(FindCoordinatorRequest(GROUP, ("g",)), found.append)
    running.broker.calls.every_coordinator(GROUP, Read(), running.answers.append)
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
    running.broker.calls.find_coordinator(request, found.append)
    running.settle()
    assert [each.error and each.error.name for each in found[0].coordinators] == ["COORDINATOR_NOT_AVAILABLE"] * 2
    assert "the required replication factor '3' for __transaction_state" in str(found[0].coordinators[0].error)
    commit(running.metadata, RegisterBrokerRecord(3, 30, "run", "broker-3"))
    running.settle()
    running.broker.calls.find_coordinator(request, found.append)
    running.settle()
    running.broker.calls.find_coordinator(request, found.append)
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
    assert running.broker.coordinators.next_due_ms is None
    before = [shard.was_polled for shard in running.shards]
    running.settle()
    assert [shard.was_polled for shard in running.shards] == before


def test_a_log_is_tried_however_often_it_could_not_be_folded() -> None:
    """What was tried before is forgotten, however often that was."""
    running = Coordinated()
    failures = iter(range(1_200))

    def broken(_place: ShardPlace) -> None:
        if next(failures, None) is not None:
            raise ValueError("not a record")

    running.broken = broken
    while not running.shards:
        running.clock.now_ms += cadence.SHARD_RETRY.ms
        running.broker.step()
    running.follow(0)
    running.clock.now_ms += cadence.SESSIONS_LISTED.watched_ms
    running.ask(Read())
    running.settle()
    assert running.taken() == [()]


def test_requests_that_take_long_leave_room_for_the_rest_of_the_brokers_turn() -> None:
    running = coordinated()

    def take_long(answer: object) -> None:
        running.answers.append(answer)
        running.clock.now_ms += cadence.SHARD_REQUESTS.ms

    for _ in range(3):
        running.broker.calls.coordinator(GROUP, 0, Read(), take_long)
    assert running.broker.step()
    assert running.taken() == [()]
    running.settle()
    assert running.taken() == [(), ()]


def test_a_request_that_came_before_the_leader_epoch_is_not_decided_in_it() -> None:
    """The broker's loop stood still while another one coordinated and this one again: an EndTxn that waited here was
    sent there, too, and its producer has begun another transaction."""
    running = coordinated()
    running.ask(Add("late"))
    running.clock.now_ms += 1
    running.lead(1, 1, isr=(1,))
    assert running.taken() == ["NOT_COORDINATOR"]
    running.ask(Add("now"))
    running.settle()
    running.follow(1)
    assert running.taken() == [added(0, "now", 1)]
