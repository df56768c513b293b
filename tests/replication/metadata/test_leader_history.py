"""Who led when an offset was written: states in the log and the history, and what the leader's log tells."""

from __future__ import annotations

import pytest

from stratalog.replication.metadata.history.leaders import LeaderOfOffset, LeaderSearch, LedState, LiveLog
from stratalog.storage.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from stratalog.storage.log.leader_epochs import EpochEntry, LeaderEpochCache
from stratalog.storage.records import TopicPartition

T0 = TopicPartition("t", 0)


def led(metadata_offset: int, leader: int, epoch: int, start: int | None, topic_id: str = "id") -> LedState:
    return LedState(metadata_offset, 1_000 * metadata_offset, topic_id, leader, epoch, start, (leader, 9))


HISTORY = (led(10, 1, 3, 100), led(20, 2, 4, 200), led(21, -1, 5, None), led(30, 3, 6, 300), led(31, 3, 6, 300))


def live(start: int, end: int, high_watermark: int = -1, epoch: int = -1, **entries: int) -> LiveLog:
    epochs = LeaderEpochCache(tuple(EpochEntry(int(name[1:]), at) for name, at in entries.items()))
    return LiveLog("id", start, end, epochs, high_watermark, epoch)


def ask(offset: int, *states: LedState, topic_id: str | None = None, log: LiveLog | None = None) -> LeaderOfOffset:
    search = LeaderSearch(T0, offset, topic_id, log)
    search.add(states or HISTORY)
    return search.answer()


@pytest.mark.parametrize(
    ("offset", "leader", "epoch"), [(100, 1, 3), (199, 1, 3), (200, 2, 4), (299, 2, 4), (300, 3, 6)]
)
def test_the_newest_epoch_that_began_at_or_below_wrote_it(offset: int, leader: int, epoch: int) -> None:
    found = ask(offset)
    assert (found.leader, found.leader_epoch, found.unsure_epochs) == (leader, epoch, ())
    assert found.acknowledged_by_epoch is None


def test_an_epoch_whose_start_is_not_known_is_named() -> None:
    states = (led(1, 1, 3, 100), led(2, 2, 4, None), led(3, 3, 5, 200), led(4, 1, 6, None))
    assert ask(150, *states).unsure_epochs == (4,)
    assert ask(250, *states).unsure_epochs == (6,)


def test_the_leaders_log_knows_better() -> None:
    states = (led(1, 1, 3, 100), led(2, 2, 4, None), led(3, 3, 5, None))
    found = ask(150, *states, log=live(0, 400, 350, 5, e3=100, e4=120, e5=300))
    assert (found.leader, found.leader_epoch, found.unsure_epochs, found.is_in_log) == (2, 4, (), True)


@pytest.mark.parametrize(("offset", "by"), [(150, 5), (310, 5), (350, None), (360, None)])
def test_the_high_watermark_bounds_the_acknowledgement(offset: int, by: int | None) -> None:
    states = (led(1, 1, 3, 100), led(2, 2, 4, 120), led(3, 3, 5, 300))
    log = live(0, 400, 350, 5, e3=100, e4=120, e5=300)
    assert ask(offset, *states, log=log).acknowledged_by_epoch == by


def test_the_history_answers_below_the_log_start() -> None:
    found = ask(150, log=live(250, 400, 400, 6, e4=250, e6=300))
    assert (found.leader_epoch, found.is_in_log, found.acknowledged_by_epoch) == (3, False, 6)


@pytest.mark.parametrize("offset", [400, 401])
def test_an_offset_beyond_the_log_is_refused(offset: int) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=f"t-0: offset {offset} is beyond the log, which ends at 400"):
        ask(offset, log=live(0, 400))


def test_an_offset_before_the_history_is_refused() -> None:
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 99 .* the oldest .* known, 3, began at offset 100"):
        ask(99)
    with pytest.raises(OffsetOutOfRangeError, match="written in leader epoch 1, and the oldest one known is 3"):
        ask(50, log=live(0, 400, e1=0, e3=100))
    with pytest.raises(OffsetOutOfRangeError, match="offset -1 is negative"):
        ask(-1)


def test_a_partition_without_a_state_is_unknown() -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="t-0: neither the metadata log nor its history"):
        LeaderSearch(T0, 1).answer()
    with pytest.raises(UnknownTopicOrPartitionError, match="under topic id other"):
        ask(1, topic_id="other")


def test_a_topic_created_again_is_another_one() -> None:
    states = (led(40, 7, 0, 0, "new"), *HISTORY)
    assert ask(150, *states).leader == 7
    assert ask(150, *states, topic_id="id").leader == 1
    assert ask(150, *states, topic_id="new", log=live(0, 400, 400, 6, e6=0)).acknowledged_by_epoch is None


def test_a_search_ends_when_all_of_the_epoch_is_there() -> None:
    search = LeaderSearch(T0, 250)
    for state, is_complete in zip(reversed(HISTORY), (False, False, False, False, True), strict=True):
        search.add([state])
        assert search.is_complete is is_complete
    assert search.answer().since_ms == 20_000
