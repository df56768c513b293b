"""What a follower copies next: the plan as tables of state and outcome."""

from __future__ import annotations

import pytest

from stratalog.replication import cadence
from stratalog.replication.follower.plan import (
    RESCAN_ROUNDS,
    Attempt,
    CopyQueue,
    Need,
    Next,
    Standing,
    after_copy,
    fetched_from,
    need,
    rescanned,
)
from stratalog.replication.follower.quota import ReplicationQuota, set_throttle
from stratalog.replication.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.storage.cadence import BackOff
from stratalog.storage.records import TopicPartition
from tests.replication.follower.test_quota import MOVE, TP, moving
from tests.replication.images import commit, partition

ONE, TWO, THREE = (TopicPartition("t", number) for number in (1, 2, 3))
ID, OTHER_ID = "id", "other id"
RETRY_MS, NOW_MS = 1_000, 50_000
FRESH = cadence.REPLICA_RETRY
AGAIN = FRESH.failed(NOW_MS)


@pytest.mark.parametrize(
    ("replicas", "leader", "wanted"),
    [
        ((1, 2, 3), 1, 1),
        ((1, 2, 3), 3, NO_LEADER),  # its own
        ((1, 2, 3), NO_LEADER, NO_LEADER),
        ((1, 2), 1, NO_LEADER),  # not assigned to it
    ],
)
def test_a_broker_fetches_its_partitions_from_their_leader(replicas: tuple[int, ...], leader: int, wanted: int) -> None:
    state = partition(replicas, leader, replicas)
    assert fetched_from(state, broker_id=3, fetcher_id=0, fetchers=1) == wanted
    assert {fetched_from(state, 3, fetcher_id, 4) for fetcher_id in range(4)} == {wanted, NO_LEADER}


def standing(start: int, end: int, *, has_started: bool = True, has_backlog: bool = False) -> Standing:
    return Standing(ID, 3, has_started, start, end, has_backlog)


def published(start: int, end: int, epoch: int = 3, topic_id: str = ID) -> ReplicaProgress:
    return ReplicaProgress(ONE, epoch, end, 7, log_start_offset=start, topic_id=topic_id)


@pytest.mark.parametrize(
    ("own", "leader", "wanted"),
    [
        (standing(0, 5), published(0, 5), Need.NOTHING),
        (standing(2, 5), published(0, 5), Need.NOTHING),  # the own retention was first
        (standing(0, 5), published(0, 7), Need.COPY),
        (standing(0, 5, has_backlog=True), published(0, 7), Need.CHECK),  # behind those that keep pace
        (standing(0, 5, has_backlog=True), published(0, 5), Need.NOTHING),
        (standing(0, 5), published(2, 5), Need.COPY),  # records below the leader's log start
        (standing(0, 5), published(0, 5, epoch=4), Need.COPY),  # its session's metadata is behind
        (standing(0, 5), published(0, 5, topic_id=OTHER_ID), Need.COPY),
        (standing(0, 5, has_started=False), published(0, 5), Need.CHECK),
        (standing(0, 5, has_started=False), published(2, 5), Need.CHECK),
        (standing(0, 5, has_started=False), published(0, 7), Need.COPY),
        (standing(0, 5, has_started=False), published(0, 7, epoch=4), Need.CHECK),
        (standing(0, 0, has_started=False), published(0, 0), Need.CHECK),
    ],
)
def test_what_a_replica_needs_follows_from_both_logs_bounds(
    own: Standing, leader: ReplicaProgress, wanted: Need
) -> None:
    assert need(own, leader) is wanted


def test_internal_topics_are_started_last() -> None:
    """After an election there are many of them, and producers wait for the others."""
    named = [TopicPartition(topic, 0) for topic in (GROUP_METADATA_TOPIC, "a", TRANSACTION_STATE_TOPIC, "b")]
    queue = CopyQueue()
    queue.check(named)
    assert [each.topic for some in queue.checks(9) for each in some] == [
        "a", "b", GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("needed", "soon", "checks"), [(Need.COPY, "1", ""), (Need.CHECK, "", "1"), (Need.NOTHING, "", "")]
)
def test_what_has_records_to_copy_comes_before_what_is_only_checked(needed: Need, soon: str, checks: str) -> None:
    queue = CopyQueue()
    queue.needs(ONE, needed)
    assert names(queue) == (soon, checks)


@pytest.mark.parametrize(
    ("attempt", "wanted"),
    [
        # Started, and nothing to copy: it waits for its leader.
        (Attempt(), Next(FRESH)),
        # Copied, and the leader has published more, or not.
        (Attempt(has_copied=True, need=Need.COPY), Next(FRESH, is_soon=True)),
        (Attempt(has_copied=True), Next(FRESH)),
        # `replica.fetch.max.bytes` ended the copy.
        (Attempt(has_copied=True, has_more=True), Next(FRESH, is_soon=True)),
        # Upkeep is behind: copies wait, whatever the leader publishes.
        (Attempt(has_copied=True, has_more=True, pause_ms=70), Next(FRESH, delay_ms=70, is_held=True)),
        # A store that is away: what the leader publishes does not bring it back.
        (Attempt(is_away=True, has_started=False), Next(FRESH, delay_ms=RETRY_MS, is_held=True)),
        # The leader has not started its epoch: soon, then less often.
        (Attempt(has_started=False), Next(AGAIN, delay_ms=20)),
        (Attempt(has_started=False, starts=AGAIN), Next(AGAIN.failed(NOW_MS), delay_ms=40)),
        (Attempt(has_started=False, starts=BackOff(20, 320, failures=9, due_ms=1)), None),
        # The table is made in one attempt, and started in the next.
        (Attempt(has_started=False, has_more=True), Next(FRESH, is_soon=True)),
    ],
)
def test_what_follows_a_copy(attempt: Attempt, wanted: Next | None) -> None:
    then = after_copy(attempt, RETRY_MS, NOW_MS)
    if wanted is None:
        assert (then.delay_ms, then.is_held, then.is_soon) == (320, False, False)
    else:
        assert then == wanted


def test_what_is_throttled_copies_a_seconds_worth_and_starts_at_any_time() -> None:
    image, quota = moving(), ReplicationQuota(3, tasks=1)
    assert quota.allowance(image, TP, 1 << 20, NOW_MS, is_start=False) == (1 << 20, 0)
    commit(image, set_throttle(image, MOVE, 10_000))
    assert quota.allowance(image, TP, 1 << 20, NOW_MS, is_start=False) == (10_000, 0)
    quota.consume(image, TP, 30_000, NOW_MS)
    assert quota.allowance(image, TP, 1 << 20, NOW_MS, is_start=False) == (0, cadence.THROTTLE_RECHECK.ms)
    assert quota.allowance(image, TP, 1 << 20, NOW_MS, is_start=True) == (10_000, 0)


def test_rescans_come_to_every_table() -> None:
    partitions = [TopicPartition("t", number) for number in range(1_000)]
    checked, count = set(), 0
    for _ in range(RESCAN_ROUNDS):
        some, count = rescanned(partitions, count)
        checked.update(some)
    assert checked == set(partitions)
    assert rescanned([], 7) == ([], 8)


def test_no_more_are_taken_out_of_a_queue_than_there_are() -> None:
    queue = CopyQueue()
    queue.check([ONE, TWO, THREE])
    assert list(queue.checks(2)) == [[ONE, TWO], [THREE]]
    assert list(queue.checks(2)) == []


def test_what_is_added_while_a_part_is_copied_waits_for_the_next_turn() -> None:
    queue = CopyQueue()
    for each in (ONE, TWO):
        queue.add(each)
    copies = queue.copies(1)
    assert next(copies) == [ONE]
    queue.add(ONE)
    queue.delay(TWO, 100)
    assert list(copies) == [[]]  # TWO is delayed by now
    assert list(queue.copies(1)) == [[ONE]]


def names(queue: CopyQueue) -> tuple[str, str]:
    """What comes soon, and what is only checked: taken, and put back."""
    soon, checks = ([each for some in part for each in some] for part in (queue.copies(9), queue.checks(9)))
    for each in soon:
        queue.add(each)
    queue.check(checks)
    return " ".join(str(each.partition) for each in soon), " ".join(str(each.partition) for each in checks)


def test_each_comes_once_in_the_order_in_which_it_was_added() -> None:
    queue = CopyQueue()
    for each in (TWO, ONE, TWO):
        queue.add(each)
    queue.check([THREE, ONE])
    assert (names(queue), bool(queue)) == (("2 1", "3 1"), True)
    queue.clear()
    assert (names(queue), bool(queue)) == (("", ""), False)


def test_what_was_delayed_comes_at_its_time() -> None:
    queue = CopyQueue()
    queue.delay(ONE, 200)
    queue.delay(TWO, 100)
    queue.add(ONE)
    assert [queue.due_in_ms(now_ms, idle_ms=1_000) for now_ms in (40, 100, 130)] == [60, 0, 0]
    queue.release_due(99)
    assert names(queue) == ("", "")
    queue.release_due(100)
    assert (names(queue), queue.is_delayed(ONE), queue.is_delayed(TWO)) == (("2", ""), True, False)
    queue.clear()
    assert queue.due_in_ms(150, idle_ms=1_000) == 50
    queue.release_due(200)
    queue.clear()
    assert queue.due_in_ms(210, idle_ms=1_000) == 1_000


@pytest.mark.parametrize(("is_held", "soon"), [(False, "1"), (True, "")])
def test_what_its_leader_publishes_ends_a_delay_unless_it_is_held(is_held: bool, soon: str) -> None:
    queue = CopyQueue()
    queue.delay(ONE, 100, is_held=is_held)
    queue.published(ONE)
    queue.add(ONE)
    assert names(queue) == (soon, "")


def test_what_is_released_is_held_no_more() -> None:
    queue = CopyQueue()
    queue.delay(ONE, 100, is_held=True)
    queue.release(ONE)
    queue.delay(ONE, 100)
    queue.published(ONE)
    queue.add(ONE)
    assert names(queue) == ("1", "")


def test_one_that_was_held_until_its_time_is_held_no_more() -> None:
    queue = CopyQueue()
    queue.delay(ONE, 100, is_held=True)
    queue.release_due(100)
    queue.delay(ONE, 300)
    queue.published(ONE)
    assert not queue.is_delayed(ONE)
