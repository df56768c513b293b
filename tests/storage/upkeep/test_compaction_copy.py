"""Followers of a compacted log, and merges beside compaction: replicas are equal wherever both hold an offset."""

from __future__ import annotations

import pytest

from stratalog.storage.log.copy import Copied
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.upkeep import Upkeep, UpkeepLimits
from tests.storage.keyed import clean, compacted, keyed, shown, words
from tests.storage.logs import MIB, Replicas, append

CONFIG = compacted(segment_files_max=2)


def put(log: PartitionLog, *batches: str, epoch: int = 0) -> None:
    for records in batches:
        append(log, keyed(records), epoch=epoch)


def agrees(one: PartitionLog, other: PartitionLog) -> bool:
    """Equal on every offset that both hold."""
    ours, theirs = ({row[0]: row for row in shown(log)} for log in (one, other))
    return all(ours[offset] == theirs[offset] for offset in ours.keys() & theirs.keys())


def latest(log: PartitionLog) -> dict[str, str]:
    """The values after applying the records in order."""
    values = {key: value for _, key, value in shown(log)}
    return {key: value for key, value in values.items() if value is not None}


def test_a_compacted_leader_is_copied_with_its_gaps(replicas):
    leader, follower = replicas.leader(config=CONFIG), replicas.follower("2", 0, CONFIG)
    put(leader, "a=1 b=1", "a=2", "b=2 c=1", "c=2", "d=1")
    clean(leader)
    assert follower.copy_from(leader, 0, MIB) == Copied(0, 7, follower.version)
    assert words(shown(follower)) == words(shown(leader)) == "2:a=2 3:b=2 5:c=2 6:d=1"
    assert follower.epochs == leader.epochs


@pytest.mark.parametrize("held", range(9))
def test_a_leaders_compacted_file_may_begin_below_at_or_above_the_followers_end(replicas, held):
    """The leader joins segments that are separate on the follower, and makes one file across the follower's end."""
    leader, follower = replicas.leader(config=CONFIG), replicas.follower("2", 0, CONFIG)
    sent = ["a=1", "b=1", "a=2", "c=1", "b=2", "a=3", "c=2", "d=1"]
    for index, record in enumerate(sent):
        put(leader, record)
        if index < held:
            follower.copy_from(leader, 0, MIB)
    leader.config = compacted(segment_files_max=100)
    clean(leader)
    assert words(shown(leader)) == "3:c=1 4:b=2 5:a=3 6:c=2 7:d=1"
    while follower.log_end_offset < leader.log_end_offset:
        follower.copy_from(leader, 0, 1)
    assert latest(follower) == latest(leader)
    assert agrees(follower, leader)
    bases = [segment.base_offset for segment in follower.segments]
    assert bases == sorted(set(bases))
    for entry in follower.files:
        assert max(base for base in bases if base <= entry.start_offset) == entry.segment
    assert words(shown(replicas.log("2"))) == words(shown(follower))


def test_a_follower_cleans_by_itself_and_agrees_with_its_leader(replicas):
    leader, follower = replicas.leader(config=CONFIG), replicas.follower("2", 0, CONFIG)
    put(leader, "a=1", "b=1", "a=2")
    follower.copy_from(leader, 0, MIB)
    clean(follower)
    put(leader, "b=2", "c=1", "a", "d=1")
    follower.copy_from(leader, 0, MIB)
    clean(leader)
    clean(follower, now_ms=20_000)
    assert words(shown(leader)) == words(shown(follower)) == "3:b=2 4:c=1 5:a 6:d=1"
    leader.start_epoch(1, as_leader=True)
    follower.start_epoch(1, as_leader=False)
    put(leader, "b=3", epoch=1)
    follower.copy_from(leader, 1, MIB)
    assert agrees(leader, follower)


def test_producer_state_of_a_follower_that_copies_a_compacted_log_part_by_part(replicas):
    leader, follower = replicas.leader(config=CONFIG), replicas.follower("2", 0, CONFIG)
    for sequence in range(4):
        append(leader, keyed(f"a={sequence}", producer_id=7, sequence=sequence))
    put(leader, *[f"a={i} b={i}" for i in range(6)], "c=1")
    clean(leader)
    while follower.log_end_offset < leader.log_end_offset - 1:
        follower.copy_from(leader, 0, 1)
        if follower.log_end_offset > 3:
            assert follower.producers.producers[7].batches[-1].last_sequence == 3
    assert follower.log_end_offset == leader.log_end_offset - 1
    follower.start_epoch(1, as_leader=True)
    append(follower, keyed("z=1", producer_id=7, sequence=4), epoch=1)


def test_a_merged_file_of_the_leader_is_not_taken_where_records_are_missing(replicas):
    """Both lack one of four records, but not the same one: a's older value must not come back where its tombstone
    is gone."""
    leader, follower = replicas.leader(config=LogConfig()), replicas.follower("2", 0)
    put(leader, "a=1", "b=1", "c=1", "d=1", "e=1")
    follower.copy_from(leader, 0, MIB)
    for log, gone in ((leader, 1), (follower, 0)):
        log.replace_files([log.files[gone]], [], leader_epoch=0, operation="COMPACT", now_ms=1, data_change=True)
    limits = UpkeepLimits(merge_files_min=2, merge_spread_files=0, leader_first_ms=1 << 40)
    while Upkeep(leader, limits).step(1, 5, 0) is not None:
        pass
    view = replicas.log("1")
    upkeep = Upkeep(follower, limits, leader=view)
    for now_ms in range(1, 4):
        assert upkeep.step(now_ms, 5, 0) is None
    assert words(shown(follower)) == "1:b=1 2:c=1 3:d=1 4:e=1"


def without_tombstone(replicas: Replicas, config: LogConfig) -> tuple[PartitionLog, PartitionLog]:
    """The follower has a=1 and was away while the leader deleted it, and later the tombstone."""
    leader, follower = replicas.leader(config=config), replicas.follower("2", 0, config)
    put(leader, "a=1", "b=1", "c=1")
    follower.copy_from(leader, 0, MIB)
    put(leader, "a", "b=2", "c=2", "d=1")
    clean(leader, now_ms=1_000)
    put(leader, "b=3", "c=3", "d=2")
    clean(leader, now_ms=2_000)
    assert "a" not in {key for _, key, _ in shown(leader)}
    return leader, follower


def test_a_follower_that_missed_a_tombstone_is_copied_anew_and_its_key_does_not_come_back(replicas):
    config = compacted(segment_files_max=2, min_cleanable_dirty_ratio=0.1, delete_retention_ms=0)
    leader, follower = without_tombstone(replicas, config)
    assert follower.copy_from(leader, 0, MIB).end_offset == 0
    assert (follower.log_end_offset, follower.files) == (0, [])
    rounds = 0
    while follower.log_end_offset < leader.log_end_offset:
        assert follower.copy_from(leader, 0, 1).end_offset > 0
        rounds += 1
    assert rounds > 2
    assert words(shown(follower)) == words(shown(leader)) == words(shown(replicas.log("2")))
    assert follower.epochs == leader.epochs
    assert follower.state.cleaner.gone_tombstones_end == leader.state.cleaner.gone_tombstones_end > 0


def test_a_follower_that_has_what_lies_below_the_gone_tombstones_just_goes_on(replicas):
    config = compacted(segment_files_max=2, min_cleanable_dirty_ratio=0.1, delete_retention_ms=0)
    leader, follower = replicas.leader(config=config), replicas.follower("2", 0, config)
    put(leader, "a=1", "a", "b=1", "b=2", "c=1", "c=2")
    follower.copy_from(leader, 0, MIB)
    for now_ms in (1_000, 2_000):
        put(leader, "d=1", "d=2")
        clean(leader, now_ms=now_ms)
    assert 1 not in {offset for offset, _, _ in shown(leader)}
    assert follower.copy_from(leader, 0, MIB).start_offset == 6
    assert latest(follower) == latest(leader)


def test_a_truncation_below_gone_tombstones_counts_as_having_missed_them(replicas):
    """A damaged follower is cut and copied again from there on."""
    config = compacted(segment_files_max=2, min_cleanable_dirty_ratio=0.1, delete_retention_ms=0)
    leader, follower = replicas.leader(config=config), replicas.follower("2", 0, config)
    put(leader, "a=1", "b=1", "a", "b=2", "c=1", "c=2")
    follower.copy_from(leader, 0, MIB)
    for now_ms in (1_000, 2_000):
        put(leader, "d=1", "d=2")
        clean(leader, now_ms=now_ms)
    follower.start_epoch(0, as_leader=False, truncate_to=2)
    while follower.log_end_offset < leader.log_end_offset:
        follower.copy_from(leader, 0, MIB)
    assert words(shown(follower)) == words(shown(leader))
    assert "a" not in latest(follower)
