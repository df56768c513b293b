"""The leader's side of a partition: which replicas are in sync or may join, what is committed (promises 8, 15, 17)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.replication.leader.partition import Partition, isr_changes, isr_expansions, isr_shrinks
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.progress.progress import UNKNOWN, ReplicaProgress
from stratalog.storage.records import TopicPartition

LAG_MS_MAX = 1_000
EPOCH = 5
LEADER = 1


def state_of(isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3), partition_epoch: int = 9) -> PartitionRecord:
    return PartitionRecord("t", 0, replicas, LEADER, EPOCH, isr, partition_epoch, 1)


def led(isr: tuple[int, ...] = (1, 2, 3), *, start: int = 0, end: int = 0, now_ms: int = 0) -> Partition:
    """A partition led since `now_ms` whose epoch began at `start`, with the log end at `end`."""
    partition = Partition(state_of(isr), LEADER, start, 0, now_ms)
    partition.appended(end, now_ms)
    return partition


def published(partition: Partition, replica: int, end: int, now_ms: int = 0, epoch: int = EPOCH) -> bool:
    progress = ReplicaProgress(TopicPartition("t", 0), epoch, end, version=end)
    return partition.follower_progressed(replica, progress, now_ms)


def raised(partition: Partition, now_ms: int = 0) -> int:
    partition.maybe_increment_high_watermark(now_ms, LAG_MS_MAX)
    return partition.high_watermark


# -- the high watermark --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("isr", "leader_end", "follower_ends", "high_watermark"),
    [
        pytest.param((1, 2, 3), 8, {2: 8, 3: 6}, 6, id="the least log end of the ISR"),
        pytest.param((1, 2, 3), 8, {2: 8}, UNKNOWN, id="a member that has not spoken yet holds it back"),
        pytest.param((1, 2), 8, {2: 7, 3: 3}, 7, id="a replica outside the ISR holds nothing back"),
        pytest.param((1,), 8, {2: 3, 3: 3}, 8, id="a leader alone commits what it appends"),
        pytest.param((1, 2, 3), 8, {2: 9, 3: 9}, 8, id="never above the leader's own log end"),
    ],
)
def test_the_high_watermark(
    isr: tuple[int, ...], leader_end: int, follower_ends: dict[int, int], high_watermark: int
) -> None:
    partition = led(isr, end=leader_end)
    for replica, end in follower_ends.items():
        published(partition, replica, end, now_ms=5_000)
    assert raised(partition, now_ms=5_000) == high_watermark


def test_no_high_watermark_before_it_reaches_the_start_of_the_epoch() -> None:
    """KIP-207: the records below the start were committed by an earlier leader; it must not go back for any reader."""
    partition = led(start=10, end=10)
    published(partition, 2, 10)
    published(partition, 3, 7)
    assert raised(partition) == UNKNOWN
    published(partition, 3, 10)
    assert raised(partition) == 10


def test_a_shrinking_isr_raises_it() -> None:
    partition = led(end=8)
    published(partition, 2, 8)
    assert raised(partition, 5_000) == UNKNOWN
    partition.update_state(state_of((1, 2), partition_epoch=10), 5_000)
    assert raised(partition, 5_000) == 8


def test_a_follower_that_was_caught_up_lately_is_waited_for_although_it_is_outside_the_isr() -> None:
    """Kafka's rule: it is about to join, and must not have to run after a moving mark."""
    partition = led((1, 2), end=5)
    published(partition, 2, 5)
    published(partition, 3, 5, now_ms=100)
    partition.appended(6, 200)
    published(partition, 2, 6, now_ms=200)
    assert raised(partition, 300) == 5
    assert raised(partition, 200 + LAG_MS_MAX + 1) == 6


def test_an_expansion_under_way_counts_at_once_and_until_its_outcome_is_known() -> None:
    """Promise 17: the high watermark is computed over the maximal ISR."""
    partition = led((1, 2), end=6)
    published(partition, 2, 6)
    published(partition, 3, 5)
    partition.begin_joining({3})
    assert partition.maximal_isr == {1, 2, 3}
    assert raised(partition, 10_000) == 5
    partition.end_joining()
    assert raised(partition, 10_000) == 6


def test_progress_of_any_other_epoch_does_not_count() -> None:
    """Rule (c), promise 8: such a replica may hold other records at these offsets."""
    partition = led((1, 2), end=6)
    assert not published(partition, 2, 6, epoch=EPOCH - 1)
    assert not published(partition, 2, 6, epoch=EPOCH + 1)
    assert raised(partition, 5_000) == UNKNOWN


def test_progress_of_a_broker_without_a_replica_does_not_count() -> None:
    assert not published(led(end=6), 4, 6)


def test_a_follower_never_goes_back_within_an_epoch() -> None:
    partition = led((1, 2), end=6)
    assert published(partition, 2, 6)
    assert not published(partition, 2, 4)
    assert raised(partition, 5_000) == 6


def test_a_restarted_follower_has_to_show_again_what_it_holds() -> None:
    """Promise 13: its disk may have lost what its earlier life acknowledged."""
    partition = led((1, 2), end=6)
    published(partition, 2, 6)
    partition.forget_follower(2, 100)
    assert raised(partition, 5_000) == UNKNOWN
    published(partition, 2, 3, now_ms=200)
    assert raised(partition, 5_000) == 3


def test_a_fenced_follower_is_neither_waited_for_nor_proposed_by_its_former_progress() -> None:
    """The leader goes on in the same epoch (decision 0142); a moment ago the follower was caught up."""
    partition = led((1, 2), end=6)
    published(partition, 2, 6)
    partition.appended(9, 100)
    partition.forget_follower(2, 100)
    assert raised(partition, 100) == UNKNOWN, "until the smaller ISR is known"
    partition.update_state(state_of((1,), partition_epoch=10), 100)
    assert raised(partition, 100) == 9
    assert isr_expansions([partition], {1, 2}) == []
    published(partition, 2, 9, now_ms=200)
    assert isr_expansions([partition], {1, 2}) == [(partition, (1, 2))]


# -- KIP-966: under min.insync.replicas it does not rise ------------------------------------------------------


def needing(min_isr: int, isr: tuple[int, ...], *, start: int = 0, end: int = 0, log_start: int = 0) -> Partition:
    partition = Partition(state_of(isr), LEADER, start, log_start, 0, min_isr)
    partition.appended(end, 0)
    return partition


@pytest.mark.parametrize(
    ("isr", "min_isr", "high_watermark"),
    [((1,), 1, 8), ((1,), 2, UNKNOWN), ((1, 2), 2, 6), ((1, 2), 3, UNKNOWN), ((1, 2, 3), 9, 6)],
)
def test_nothing_is_committed_by_an_isr_under_min_insync_replicas(
    isr: tuple[int, ...], min_isr: int, high_watermark: int
) -> None:
    """No more than there are replicas are needed."""
    partition = needing(min_isr, isr, start=2, end=8)
    published(partition, 2, 6)
    published(partition, 3, 6)
    assert raised(partition, 5_000) == high_watermark
    assert partition.held_by_isr == (8 if isr == (1,) else 6)


def test_it_does_not_rise_from_the_shrink_until_a_replica_is_back() -> None:
    partition = needing(2, (1, 2), end=6)
    published(partition, 2, 6)
    assert raised(partition, 5_000) == 6
    partition.update_state(state_of((1,), partition_epoch=10), 5_000)
    partition.appended(9, 5_000)
    assert raised(partition, 9_000) == 6
    published(partition, 2, 9, now_ms=9_000)
    partition.begin_joining({2})
    assert raised(partition, 9_000) == 6, "the committed ISR counts"
    partition.update_state(state_of((1, 2), partition_epoch=11), 9_000)
    assert raised(partition, 9_000) == 9


def test_a_smaller_min_insync_replicas_lets_it_go_on() -> None:
    partition = needing(2, (1,), end=4)
    assert raised(partition) == 0
    partition.min_insync_replicas = 1
    assert raised(partition) == 4


@pytest.mark.parametrize(
    ("start", "log_start", "high_watermark"),
    [
        pytest.param(0, 0, 0, id="a new log: nothing was committed"),
        pytest.param(5, 5, 5, id="what is below the log's start was"),
        pytest.param(5, 3, UNKNOWN, id="between them only some of it"),
    ],
)
def test_what_is_committed_for_certain_when_an_epoch_begins_under_min_insync_replicas(
    start: int, log_start: int, high_watermark: int
) -> None:
    assert raised(needing(2, (1,), start=start, end=start, log_start=log_start)) == high_watermark


@pytest.mark.parametrize(("end", "may"), [(8, True), (7, False)])
def test_under_min_insync_replicas_a_joining_replica_must_have_what_the_isr_has(end: int, may: bool) -> None:
    """At the high watermark, which does not rise, a follower that stopped would join and leave for ever."""
    partition = needing(2, (1,), end=8)
    raised(partition, 5_000)
    published(partition, 2, end)
    raised(partition, 9_000)
    assert partition.may_join({1, 2, 3}) == ({2} if may else set())


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.sampled_from(["hear 2", "hear 3"]), st.integers(0, 12)),
        st.tuples(st.sampled_from(["join", "settle", "shrink", "grow", "restart"]), st.integers(2, 3)),
        st.tuples(st.just("wait"), st.integers(1, 2_000)),
    ),
    max_size=40,
)


@given(events=EVENTS, start=st.integers(0, 4))
def test_it_never_goes_back_and_never_passes_what_the_maximal_isr_holds(
    events: list[tuple[str, int]], start: int
) -> None:
    partition = led(start=start, end=start)
    held, now_ms, seen = {2: 0, 3: 0}, 0, UNKNOWN
    for event, number in events:
        if event == "append":
            partition.appended(partition.log_end_offset + number, now_ms)
        elif event.startswith("hear"):
            replica = int(event[-1])
            held[replica] = max(held[replica], min(number, partition.log_end_offset))
            published(partition, replica, held[replica], now_ms)
        elif event == "wait":
            now_ms += number
        else:
            change_isr(partition, event, number, now_ms)
        moved = partition.maybe_increment_high_watermark(now_ms, LAG_MS_MAX)
        if moved:
            assert partition.high_watermark > seen
            assert partition.high_watermark >= start
            ends = {1: partition.log_end_offset, **held}
            assert all(ends[member] >= partition.high_watermark for member in partition.maximal_isr)
        seen = partition.high_watermark


def change_isr(partition: Partition, event: str, replica: int, now_ms: int) -> None:
    state = partition.state
    if event == "join":
        partition.begin_joining(partition.may_join({1, 2, 3}))
    elif event == "settle":
        partition.end_joining()
    elif event == "restart":
        partition.forget_follower(replica, now_ms)
    else:
        without = tuple(r for r in state.isr if r != replica)
        isr = without if event == "shrink" else (*without, *partition.joining)
        partition.update_state(replace(state, isr=isr, partition_epoch=state.partition_epoch + 1), now_ms)


# -- in sync ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("caught_up_ms", "end", "now_ms", "lags"),
    [
        pytest.param(0, 5, 1_000, False, id="behind for exactly replica.lag.time.max.ms"),
        pytest.param(0, 5, 1_001, True, id="behind for longer"),
        pytest.param(900, 5, 1_500, False, id="it had everything a moment ago"),
        pytest.param(0, 8, 60_000, False, id="an idle follower that has everything never lags"),
    ],
)
def test_a_member_leaves_the_isr_by_time_alone(caught_up_ms: int, end: int, now_ms: int, lags: bool) -> None:
    partition = led((1, 2), end=5)
    published(partition, 2, 5, now_ms=caught_up_ms)
    partition.appended(8, caught_up_ms)
    published(partition, 2, end, now_ms=caught_up_ms)
    assert partition.out_of_sync(now_ms, LAG_MS_MAX) == ({2} if lags else set())


def test_a_member_that_never_speaks_has_the_lag_time_from_the_epochs_start() -> None:
    partition = led((1, 2), end=5, now_ms=7_000)
    assert partition.out_of_sync(8_000, LAG_MS_MAX) == set()
    assert partition.out_of_sync(8_001, LAG_MS_MAX) == {2}


def test_a_follower_that_keeps_up_with_a_busy_leader_stays_though_it_is_never_quite_there() -> None:
    """It has at each check all that there was at the check before."""
    partition = led((1, 2), end=1)
    for turn in range(1, 30):
        now_ms = turn * 400
        published(partition, 2, turn, now_ms)
        partition.appended(turn + 1, now_ms)
        assert partition.out_of_sync(now_ms, LAG_MS_MAX) == set()


def test_a_replica_outside_the_isr_does_not_leave_it_again() -> None:
    assert led((1, 2), end=5, now_ms=0).out_of_sync(99_000, LAG_MS_MAX) == {2}


@pytest.mark.parametrize(
    ("start", "high_watermark", "end", "may"),
    [
        pytest.param(0, 6, 6, True, id="at the high watermark"),
        pytest.param(0, 6, 5, False, id="below the high watermark"),
        pytest.param(6, 6, 6, True, id="at the start of the epoch"),
    ],
)
def test_a_follower_joins_when_it_reached_the_high_watermark(
    start: int, high_watermark: int, end: int, may: bool
) -> None:
    partition = led((1, 2), start=start, end=8)
    published(partition, 2, high_watermark)
    assert raised(partition, 5_000) == high_watermark
    published(partition, 3, end)
    assert partition.may_join({1, 2, 3}) == ({3} if may else set())


def test_no_replica_joins_before_the_high_watermark_is_known() -> None:
    partition = led((1, 2), start=4, end=4)
    published(partition, 3, 4)
    assert partition.may_join({1, 2, 3}) == set()


def test_a_fenced_broker_does_not_join() -> None:
    partition = led((1,), end=4)
    raised(partition)
    published(partition, 3, 4)
    assert partition.may_join({1, 2}) == set()


def test_a_joining_replica_does_not_join_again() -> None:
    partition = led((1,), end=4)
    raised(partition)
    published(partition, 3, 4)
    partition.begin_joining(partition.may_join({1, 2, 3}))
    assert partition.may_join({1, 2, 3}) == set()


def test_an_older_state_is_refused() -> None:
    partition = led((1, 2, 3))
    partition.update_state(state_of((1, 2), partition_epoch=11), 0)
    partition.update_state(state_of((1, 2, 3), partition_epoch=10), 0)
    assert partition.isr == (1, 2)


def test_a_replica_that_is_not_assigned_any_more_is_forgotten() -> None:
    partition = led((1, 2, 3))
    partition.update_state(state_of((1, 2), replicas=(1, 2), partition_epoch=10), 0)
    assert set(partition.followers) == {2}


# -- ISR expand and ISR shrink ------------------------------------------------------------------------------


def test_a_follower_that_lags_for_too_long_leaves_the_isr() -> None:
    partition = led(end=5)
    published(partition, 3, 5)
    assert isr_shrinks([partition], LAG_MS_MAX, LAG_MS_MAX) == []
    assert isr_shrinks([partition], LAG_MS_MAX + 1, LAG_MS_MAX) == [(partition, (1, 3))]


def test_the_high_watermark_waits_for_a_follower_from_the_moment_it_is_to_join() -> None:
    partition = led((1, 2), end=4)
    raised(partition)
    published(partition, 3, 4)
    published(partition, 2, 4)
    raised(partition)
    assert isr_expansions([partition], {1, 2, 3}) == [(partition, (1, 2, 3))]
    assert partition.maximal_isr == {1, 2, 3}
    assert isr_expansions([partition], {1, 2, 3}) == []
    assert isr_expansions([partition], {1, 2, 3}, again=True) == [(partition, (1, 2, 3))]


def test_a_partition_changes_in_one_direction_at_a_time() -> None:
    partition = led((1, 2), end=0)
    raised(partition)
    published(partition, 2, 0)
    published(partition, 3, 0)
    raised(partition)
    published(partition, 3, 4)
    partition.appended(4, 0)
    late_ms = 2 * LAG_MS_MAX
    assert isr_changes([partition], {1, 2, 3}, late_ms, LAG_MS_MAX) == [(partition, (1, 2, 3))]
    assert isr_changes([partition], {1}, late_ms, LAG_MS_MAX) == [(partition, (1,))]


# -- min.insync.replicas -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("isr", "needed", "enough"), [((1, 2), 2, True), ((1,), 2, False), ((1,), 1, True)])
def test_min_insync_replicas_is_checked_on_the_committed_isr(isr: tuple[int, ...], needed: int, enough: bool) -> None:
    partition = led(isr)
    partition.begin_joining({3})
    assert partition.has_enough_replicas(needed) is enough
