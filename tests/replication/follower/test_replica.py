"""A follower's rounds: when it may begin, where it truncates its log, what it copies (promises 6, 7 and 16)."""

from __future__ import annotations

from contextlib import suppress

import pytest

from stratalog.replication.follower.replica import FollowedReplica
from stratalog.storage.delta.table import Committed
from stratalog.storage.errors import InconsistentTopicIdError, OffsetOutOfRangeError, StoreUnavailableError
from stratalog.storage.log.leader_epochs import LogEnd
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig
from tests.replication.memory_stores import FailingDisk, MemoryStores, led_by
from tests.storage.logs import CountingIds, append, idempotent, started, values, write

T0 = TopicPartition("t", 0)
ANY_BYTES = 1 << 20
TOPIC_ID = "id"


class Pair:
    """Broker 1's log and broker 2's, which follows it."""

    def __init__(self) -> None:
        self.stores = MemoryStores()

    def disk(self, broker: int) -> FailingDisk:
        return self.stores.disk(f"broker-{broker}")

    def log(self, broker: int, topic_id: str = TOPIC_ID) -> PartitionLog:
        """Another instance on a broker's replica, which is made when it is missing."""
        log = self.unmade_log(broker)
        log.exists_or_create(topic_id)
        return log

    def unmade_log(self, broker: int) -> PartitionLog:
        table = self.stores.table(f"broker-{broker}", T0)
        return PartitionLog(table, LogConfig(), self.stores.clock, self.stores.ids)

    def wrote(self, broker: int, history: str) -> PartitionLog:
        """`0: a b / 2: c`: under these leader epochs, the broker leading, one commit a word; the last may be empty."""
        log = self.log(broker)
        for part in history.split("/"):
            epoch, _, words = part.partition(":")
            started(log, int(epoch))
            write(log, *words.split(), epoch=int(epoch))
        return log

    def follower(self, epoch: int) -> FollowedReplica:
        """A fetch session of broker 2 that follows broker 1 under this epoch."""
        return FollowedReplica(led_by(1, epoch=epoch), TOPIC_ID, self.unmade_log(2), self.unmade_log(1))

    def caught_up(self, epoch: int) -> FollowedReplica:
        follower = self.follower(epoch)
        run(follower)
        return follower


def run(follower: FollowedReplica, rounds: int = 50) -> int:
    """Rounds until it has nothing to do at once; how many there were."""
    for done in range(rounds):
        if not follower.catch_up(ANY_BYTES):
            return done
    raise AssertionError(f"still busy after {rounds} rounds")


# -- beginning -----------------------------------------------------------------------------------------------


def test_it_copies_what_the_leader_has() -> None:
    pair = Pair()
    pair.wrote(1, "0: a b c")
    follower = pair.caught_up(0)
    assert values(pair.log(2)) == "a b c"
    progress = follower.progress()
    assert progress is not None
    assert (progress.leader_epoch, progress.log_end_offset, progress.topic_id) == (0, 3, TOPIC_ID)


def test_it_knows_an_epoch_that_began_with_what_it_has() -> None:
    """Also before the epoch has a record: which log is longer may depend on it (decision 0082)."""
    pair = Pair()
    pair.wrote(1, "0: a b")
    pair.caught_up(0)
    pair.wrote(1, "1:")
    assert pair.caught_up(1).own.epochs.entries == ((0, 0), (1, 2))
    pair.wrote(1, "2: c")
    assert pair.caught_up(2).own.epochs.entries == ((0, 0), (2, 2))


def test_a_copy_brings_the_epoch_that_begins_where_it_ends() -> None:
    pair = Pair()
    pair.wrote(1, "0: a b / 1:")
    follower = pair.follower(1)
    assert follower.catch_up(ANY_BYTES)
    assert follower.own.epochs.entries == ((0, 0),)
    run(follower)
    assert follower.own.epochs.entries == ((0, 0), (1, 2))
    assert follower.own.epochs.log_end(2) > LogEnd(0, 3)


def test_it_waits_until_the_leaders_table_shows_the_epoch() -> None:
    """Rule (a): until then the leader's log may still change under an older epoch."""
    pair = Pair()
    pair.wrote(1, "0: a b")
    follower = pair.follower(1)
    assert not follower.catch_up(ANY_BYTES)
    assert follower.progress() is None
    assert values(pair.log(2)) == ""
    started(pair.log(1), 1)
    run(follower)
    assert values(pair.log(2)) == "a b"


def test_it_waits_for_a_leader_without_a_table() -> None:
    pair = Pair()
    follower = pair.follower(0)
    assert not follower.catch_up(ANY_BYTES)
    pair.wrote(1, "0: a")
    run(follower)
    assert values(pair.log(2)) == "a"


def test_it_does_not_copy_another_topics_log_of_the_same_name() -> None:
    pair = Pair()
    old = pair.log(1, "older topic")
    started(old, 0)
    write(old, "x")
    follower = pair.follower(0)
    assert not follower.catch_up(ANY_BYTES)
    assert values(pair.log(2)) == ""


def test_an_own_table_of_another_topic_raises_inconsistent_topic_id() -> None:
    pair = Pair()
    pair.wrote(1, "0: a")
    pair.log(2, "older topic")
    with pytest.raises(InconsistentTopicIdError):
        pair.follower(0).catch_up(ANY_BYTES)


def test_the_epoch_stands_in_the_own_table_before_anything_is_published() -> None:
    """Rule (b), even with nothing to truncate."""
    pair = Pair()
    pair.wrote(1, "0: a")
    pair.caught_up(0)
    started(pair.log(1), 1)
    follower = pair.follower(1)
    assert follower.progress() is None
    follower.catch_up(ANY_BYTES)
    assert pair.log(2).leader_epoch == 1
    assert follower.progress() is not None


def test_a_straggling_session_that_still_follows_a_zombie_is_fenced() -> None:
    """Rule (b): broker 3 leads epoch 1; broker 1 does not know, and appends on under epoch 0."""
    pair = Pair()
    pair.wrote(1, "0: a")
    straggler = pair.caught_up(0)
    pair.wrote(3, "0: a / 1: b")
    new = FollowedReplica(led_by(3, epoch=1), TOPIC_ID, pair.unmade_log(2), pair.unmade_log(3))
    run(new)
    write(pair.log(1), "z")
    run(straggler)
    assert values(pair.log(2)) == "a b"
    progress = straggler.progress()
    assert progress is None or (progress.leader_epoch, progress.log_end_offset) == (0, 1)


def test_a_session_of_an_older_epoch_does_not_begin_on_a_newer_table() -> None:
    pair = Pair()
    pair.wrote(1, "0: a")
    assert isinstance(pair.log(2).start_epoch(5, as_leader=False), Committed)
    follower = pair.follower(0)
    assert not follower.catch_up(ANY_BYTES)
    assert follower.progress() is None


# -- where the logs diverge (promise 16) ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "leader", "agreed"),
    [
        pytest.param("0: a b", "0: a b / 1: ", "a b", id="equal logs: nothing goes"),
        pytest.param("0: a b z", "0: a b / 1: c", "a b c", id="an unreplicated tail goes (m3 of the recovery walk)"),
        pytest.param("0: a / 1: x", "0: a / 2: y", "a y", id="an epoch that the leader does not know goes"),
        pytest.param("0: a b c / 3: x", "0: a / 2: y z / 4: w", "a y z w", id="back to the last common epoch"),
        pytest.param("0: a b", "0: a b c d / 1: e", "a b c d e", id="behind: nothing goes"),
        pytest.param("0: a b c", "0: a / 1: / 2: y", "a y", id="epochs without records"),
        pytest.param("1: x y", "2: a", "a", id="nothing in common: everything goes"),
        pytest.param("0: a / 5: x y", "0: a / 6: ", "a", id="the leader has nothing above the common part"),
    ],
)
def test_it_truncates_its_log_where_the_leader_epochs_diverge(own: str, leader: str, agreed: str) -> None:
    """Not by the high watermark: OffsetsForLeaderEpoch, KIP-101 and KIP-279."""
    pair = Pair()
    pair.wrote(2, own)
    leading = pair.wrote(1, leader)
    pair.caught_up(leading.leader_epoch)
    assert values(pair.log(2)) == agreed
    write(leading, "next", epoch=leading.leader_epoch)
    pair.caught_up(leading.leader_epoch)
    assert values(pair.log(2)) == values(pair.log(1)) == f"{agreed} next".strip()
    assert pair.log(2).epochs == pair.log(1).epochs


def test_a_batch_that_was_cut_off_is_forgotten_by_its_producer_state() -> None:
    """Promise 20: otherwise a retry counts as a duplicate of a record that is not there."""
    pair = Pair()
    pair.wrote(1, "0: ")
    append(pair.log(1), idempotent(["a"], sequence=0))
    pair.caught_up(0)
    append(pair.log(1), idempotent(["b"], sequence=1))
    new_leader = pair.log(2)
    started(new_leader, 1)
    back = FollowedReplica(led_by(2, epoch=1), TOPIC_ID, pair.unmade_log(1), pair.unmade_log(2))
    run(back)
    own = pair.log(1)
    started(own, 2)
    (again,) = append(own, idempotent(["b"], sequence=1), epoch=2).results
    assert not getattr(again, "duplicate", True)
    assert values(pair.log(1)) == "a b"


def test_it_continues_from_a_truncation_by_another_session() -> None:
    pair = Pair()
    pair.wrote(2, "0: a z")
    pair.wrote(1, "0: a / 1: b c")
    first, second = pair.follower(1), pair.follower(1)
    first.catch_up(ANY_BYTES)
    run(second)
    run(first)
    assert values(pair.log(2)) == "a b c"


# -- copying -------------------------------------------------------------------------------------------------


def test_rounds_are_bounded() -> None:
    pair = Pair()
    pair.wrote(1, "0: a b c d")
    follower = pair.follower(0)
    follower.catch_up(1)
    assert [follower.catch_up(1) for _ in range(4)] == [True, True, True, False]
    assert follower.copied_count == 4
    assert not follower.catch_up(1)
    assert follower.copied_count == 4, "nothing to copy costs no commit"


def test_two_active_sessions_are_only_wasteful() -> None:
    """Promise 7: one loses the race, and continues from where the other ended."""
    pair = Pair()
    leader = pair.wrote(1, "0: a")
    one, other = pair.caught_up(0), pair.caught_up(0)
    for word in "bcdef":
        write(leader, word)
        one.catch_up(ANY_BYTES)
        run(other)
    run(one)
    assert values(pair.log(2)) == "a b c d e f"


def test_lost_in_the_middle_of_a_round_nothing_is_half_done() -> None:
    """Whichever access fails, a round is written as a whole or not at all, and the next one continues."""
    for failing in range(1, 60):
        pair = Pair()
        pair.stores.ids = CountingIds(failing * 1_000)
        pair.wrote(1, "0: a / 1: b c")
        pair.wrote(2, "0: a z")
        follower = pair.follower(1)
        accesses = iter(range(1, 10_000))
        pair.disk(2).fault = lambda *_, count=accesses, at=failing: next(count) == at
        was_reached = False
        for _ in range(10):
            try:
                follower.catch_up(ANY_BYTES)
            except StoreUnavailableError:
                was_reached = True
                assert values_quietly(pair) in ("a z", "a", "a b c")
        assert values_quietly(pair) == "a b c", f"access {failing}"
        if not was_reached:
            return
    raise AssertionError("a round makes fewer accesses than that")


def values_quietly(pair: Pair) -> str:
    fault, pair.disk(2).fault = pair.disk(2).fault, None
    found = values(pair.log(2))
    pair.disk(2).fault = fault
    return found


def test_a_leader_that_lost_its_tail_leads_a_new_epoch_and_is_followed_down() -> None:
    """Promise 13: a broker that comes back after a power loss never continues under its old epoch."""
    pair = Pair()
    leader = pair.wrote(1, "0: a b")
    started(leader, 1)
    write(leader, "c", epoch=1)
    pair.caught_up(1)
    pair.disk(1).lose_unsynced()
    leader = pair.wrote(1, "2: x")
    pair.caught_up(2)
    assert values(pair.log(2)) == "a b x"


def test_a_failed_replica_does_nothing_more() -> None:
    pair = Pair()
    pair.wrote(1, "0: a")
    follower = pair.follower(0)
    follower.failure = OffsetOutOfRangeError("broken")
    assert not follower.catch_up(ANY_BYTES)
    assert values(pair.log(2)) == ""


def test_what_lies_below_the_leaders_log_start_is_hidden_with_the_first_commit() -> None:
    """Nothing was compared there: if this replica leads later, it would show other records than readers once got."""
    pair = Pair()
    leader = pair.wrote(1, "0: a / 1: y z")
    pair.wrote(2, "0: a x")
    assert isinstance(leader.start_epoch(1, as_leader=True, log_start=2), Committed)
    follower = pair.follower(1)
    assert follower.catch_up(ANY_BYTES)
    own = pair.log(2)
    assert (own.leader_epoch, own.log_start_offset, own.log_end_offset) == (1, 2, 2)
    run(follower)
    assert values(pair.log(2)) == "z"


def test_a_leaders_table_that_was_made_anew_up_to_the_same_version_is_not_taken_for_the_one_that_was_folded() -> None:
    """As `FollowedPartitions` does it: what does not stand any more is opened again."""
    pair = Pair()
    pair.wrote(1, "0: a b c")
    follower = pair.caught_up(0)
    assert follower.has_started
    pair.log(1).table.drop()
    again = pair.wrote(1, "0: x y z")
    assert again.version == follower.leader.version
    follower.leader.clock.sleep_ms(60_000)  # now and then it checks whether its fold still stands
    assert not follower.catch_up(ANY_BYTES)
    assert (follower.has_started, follower.failure, follower.progress()) == (False, None, None)
    assert not follower.stands()


def test_a_table_that_was_made_while_a_session_slept_stays() -> None:
    """An old topic's session has made its table. It is deleted, and the session waits for the leader: meanwhile the
    broker makes the table of a new topic of this name (found by simulation, seed 930116)."""
    pair = Pair()
    pair.wrote(1, "0: a b")
    disk, made = pair.disk(2), [False]

    def goes_and_comes_again(operation: str, table: str, detail: str) -> bool:
        if operation == "create:done" and not made[0]:
            made[0] = True
            del disk.tables[table]
        return False

    def is_waited_for(_operation: str, _table: str, _detail: str) -> bool:
        if made == [True]:
            made.append(True)
            started(pair.log(2, "new"), 0)
        return False

    disk.fault, pair.disk(1).fault = goes_and_comes_again, is_waited_for
    follower = pair.follower(0)
    with suppress(InconsistentTopicIdError):
        run(follower)
        pair.unmade_log(1).refresh()
        run(follower)
    assert made == [True, True]
    found = pair.unmade_log(2)
    found.refresh()
    assert (found.topic_id, found.leader_epoch) == ("new", 0)


def test_a_pointer_that_a_straggler_put_into_a_removed_directory_is_no_table() -> None:
    pair = Pair()
    pair.wrote(1, "0: a b")
    pair.disk(2).commit_log("t-0").put_pointer(7)
    pair.caught_up(0)
    assert values(pair.log(2)) == "a b"
