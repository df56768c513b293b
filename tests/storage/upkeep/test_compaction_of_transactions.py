"""Logs from which compaction has removed aborted records: the state of them, their followers and their readers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.server.view.read_committed import without_aborted
from stratalog.storage import cadence
from stratalog.storage.errors import InvalidProducerEpochError
from stratalog.storage.log.append import BatchAppended
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import CONTROL_ATTRIBUTE, TRANSACTIONAL_ATTRIBUTE, NewRecordBatch
from stratalog.storage.transactions import EndMarker, marker_batch
from stratalog.storage.upkeep.chore import Work
from stratalog.storage.upkeep.upkeep import Upkeep, UpkeepLimits
from tests.storage.keyed import clean, cleaner_of, compacted, keyed, view_of
from tests.storage.logs import MIB, append, started

CONFIG = compacted(segment_files_max=2, min_cleanable_dirty_ratio=0.1, delete_retention_ms=100)


def batch_of(word: str, sequences: dict[str, int]) -> NewRecordBatch:
    """ "a=1" is plain, "7.a=1" of producer 7's transaction, which "7.commit" or "7.abort" ends; "7/2.a=1" is of its
    epoch 2."""
    producer, dot, what = word.rpartition(".")
    producer_id, _, epoch = producer.partition("/")
    if what in ("commit", "abort"):
        return marker_batch(int(producer_id), int(epoch or 0), EndMarker(what == "commit", 0), 1_000)
    if not dot:
        return keyed(what)
    sequence = sequences[producer] = sequences.get(producer, -1) + 1
    new = keyed(what, producer_id=int(producer_id), sequence=sequence, attributes=TRANSACTIONAL_ATTRIBUTE)
    return replace(new, producer_epoch=int(epoch or 0), verified_offset=1 << 40, verified_leader_epoch=0)


def put(log: PartitionLog, words: str, epoch: int = 0, sequences: dict[str, int] | None = None) -> None:
    """Each word a batch, a commit and a file of its own."""
    known = {} if sequences is None else sequences
    for word in words.split():
        new = replace(batch_of(word, known), verified_leader_epoch=epoch)
        (result,) = append(log, new, epoch=epoch).results
        assert isinstance(result, BatchAppended), result
        assert not result.duplicate


def committed(log: LogReader) -> str:
    """The records of a reader under read_committed, as "0:a=1 4:b"."""
    known, end = log.producers.transactions, log.last_stable_offset(log.log_end_offset)
    words = []
    for rows in log.read_range(log.log_start_offset, end):
        for row in without_aborted(rows, known.aborted_between(log.log_start_offset, end)).to_pylist():
            if not row["attributes"] & CONTROL_ATTRIBUTE:
                value = "" if row["value"] is None else f"={row['value'].decode()}"
                words.append(f"{row['offset']}:{row['key'].decode()}{value}")
    return " ".join(words)


def offsets(log: PartitionLog) -> list[int]:
    return [offset for rows in log.read_range(0, log.log_end_offset) for offset in rows["offset"].to_pylist()]


def aborted(log: PartitionLog) -> list[tuple[int, int, int]]:
    return [tuple(each) for each in log.producers.transactions.aborted]


def test_what_was_aborted_goes_and_is_forgotten_and_its_marker_follows(replicas):
    log = replicas.leader(config=CONFIG)
    put(log, "a=1 7.a=2 7.b=2 7.abort 7.c=3 7.commit x=1 x=2")
    assert aborted(log) == [(7, 1, 3)]
    clean(log, now_ms=1_000)
    assert (committed(log), aborted(log)) == ("0:a=1 4:c=3 6:x=1 7:x=2", [])
    assert offsets(log) == [0, 3, 4, 5, 6, 7]
    assert replicas.log().producers == log.producers
    put(log, "y=1 y=2 y=3")
    clean(log, now_ms=1_099)
    assert 3 in offsets(log)
    put(log, "y=4 y=5 y=6")
    clean(log, now_ms=1_100)
    assert offsets(log)[:3] == [0, 4, 5]
    assert log.state.cleaner.gone_tombstones_end > 3
    assert isinstance(append(log, batch_of("7.d=1", {"7": 3})).results[0], Exception), "its sequence is known"
    put(log, "7.d=1", sequences={"7": 2})


def test_nothing_above_the_last_stable_offset_is_cleaned_or_counts(replicas):
    log = replicas.leader(config=CONFIG)
    put(log, "a=1 b=1 7.a=2 c=1 a=3 c=2 x=1")
    clean(log)
    assert (log.state.cleaner.first_dirty_offset, offsets(log)) == (2, list(range(7)))
    cleaner = cleaner_of(log)
    assert cleaner.begin(view_of(log, 1)) is None
    assert cleaner.rest_ms(view_of(log, 1)) == cadence.RECHECK.ms
    put(log, "7.abort")
    assert isinstance(cleaner.begin(view_of(log, 1)), Work)
    clean(log)
    assert committed(log) == "1:b=1 4:a=3 5:c=2 6:x=1"


def test_a_follower_that_has_not_cleaned_knows_longer_than_its_leader(replicas):
    leader, follower = replicas.leader(config=CONFIG), replicas.follower("2", 0, CONFIG)
    put(leader, "a=1 7.a=2 7.abort x=1 x=2")
    follower.copy_from(leader, 0, MIB)
    clean(leader)
    put(leader, "8.b=1 8.abort y=1")
    follower.copy_from(leader, 0, MIB)
    assert (aborted(leader), aborted(follower)) == ([(8, 5, 6)], [(7, 1, 2), (8, 5, 6)])
    assert replicas.log("2").producers == follower.producers
    started(follower, 1)
    assert committed(follower) == committed(leader) == "0:a=1 3:x=1 4:x=2 7:y=1"


@pytest.mark.parametrize("max_bytes", [0, MIB])
def test_a_follower_finds_out_by_itself_how_a_transaction_ended_that_its_leader_has_forgotten(replicas, max_bytes):
    leader, follower = replicas.leader(config=CONFIG), replicas.follower("2", 0, CONFIG)
    put(leader, "a=1 7.a=2")
    follower.copy_from(leader, 0, MIB)
    put(leader, "7.b=2 7.abort x=1 x=2", sequences={"7": 0})
    clean(leader)
    assert (aborted(leader), offsets(leader)) == ([], [0, 2, 3, 4, 5])  # 2 is emptied
    while follower.log_end_offset < leader.log_end_offset:
        follower.copy_from(leader, 0, max_bytes)
    assert aborted(follower) == [(7, 1, 3)]
    assert committed(follower) == "0:a=1 4:x=1 5:x=2"
    assert follower.producers.transactions.of(7) == leader.producers.transactions.of(7)


def test_so_does_who_copies_from_one_that_never_had_the_records(replicas):
    """The second copies a leader that has forgotten a transaction, then leads the third, which has a record of it."""
    leader, third = replicas.leader(config=CONFIG), replicas.follower("3", 0, CONFIG)
    put(leader, "a=1 7.a=2")
    third.copy_from(leader, 0, MIB)
    put(leader, "7.abort x=1 x=2")
    clean(leader)
    second = replicas.follower("2", 0, CONFIG)
    second.copy_from(leader, 0, MIB)
    assert aborted(second) == []
    started(second, 1)
    third.start_epoch(1, as_leader=False)
    third.copy_from(second, 1, MIB)
    assert (aborted(third), committed(third)) == ([(7, 1, 2)], "0:a=1 3:x=1 4:x=2")


def test_a_follower_that_missed_a_marker_for_good_is_copied_anew(replicas):
    leader, follower = replicas.leader(config=CONFIG), replicas.follower("2", 0, CONFIG)
    put(leader, "a=1 7.a=2")
    follower.copy_from(leader, 0, MIB)
    put(leader, "7.abort x=1 7.commit 7.c=1 7.commit", sequences={"7": 0})
    for now_ms in (1_000, 1_200, 1_400):
        clean(leader, now_ms=now_ms)
        put(leader, "y=1 y=2 y=3")
    assert 2 not in offsets(leader)
    while follower.log_end_offset < leader.log_end_offset:
        follower.copy_from(leader, 0, MIB)
    assert (committed(follower), aborted(follower)) == (committed(leader), [])


def test_the_epoch_that_a_marker_told_survives_cleaning_and_a_cut_behind_it(replicas):
    """The newest marker is above the high watermark and is truncated; the one before is still there."""
    log = replicas.leader(config=CONFIG)
    put(log, "7.a=1 7/1.abort a=2 a=3 a=4 a=5")
    for now_ms in (1_000, 1_200, 1_400):
        clean(log, now_ms=now_ms)
        put(log, "b=1 b=2 b=3")
    assert 1 in offsets(log)
    high_watermark = log.log_end_offset
    put(log, "7/2.commit")
    clean(log, now_ms=2_000, high_watermark=high_watermark)
    log.start_epoch(1, as_leader=True, truncate_to=high_watermark)
    assert log.producers.producers[7].producer_epoch == 1
    (refused,) = append(log, batch_of("7.z=1", {}), epoch=1).results
    assert isinstance(refused, InvalidProducerEpochError)


def test_a_cut_finds_the_sequence_behind_a_producers_last_marker(replicas):
    """Before KIP-890 a marker has the epoch of the records before it, and sequences go on after it."""
    log = replicas.leader()
    put(log, "7.a=1 7.b=1", sequences=(known := {}))
    put(log, "7.commit x=1")
    end = log.log_end_offset
    put(log, "7.c=1", sequences=dict(known))
    put(log, "7.commit")
    log.start_epoch(1, as_leader=True, truncate_to=end)
    assert log.producers.producers[7].batches[-1].last_sequence == 1
    put(log, "7.c=1", epoch=1, sequences=known)


@pytest.mark.parametrize("removes", [0, 2])
def test_the_log_start_takes_aborted_transactions_along(replicas, removes):
    """Record deletion moves it alone, retention also removes files; followers receive both."""
    leader, follower = replicas.leader(), replicas.follower("2", 0)
    put(leader, "7.a=1 7.abort 8.b=1 8.abort 7.c=1")
    follower.copy_from(leader, 0, MIB)
    files = leader.files[:removes]
    for log_start, left in ((1, [(7, 0, 1), (8, 2, 3)]), (2, [(8, 2, 3)]), (3, [(8, 2, 3)]), (4, [])):
        leader.replace_files(
            files, [], leader_epoch=0, operation="RETENTION", now_ms=1, data_change=True, log_start=log_start
        )
        files = []
        follower.copy_from(leader, 0, MIB)
        for log in (leader, follower):
            assert (aborted(log), log.producers.transactions.of(7).first_offset) == (left, 4)
        assert replicas.log().producers == leader.producers
        assert replicas.log("2").producers == follower.producers


def test_a_merged_file_of_the_leader_does_not_bring_back_what_was_emptied(replicas):
    """An aborted record, a producer's last, is emptied here and still in the leader's merged file."""
    config = compacted(segment_files_max=3, min_cleanable_dirty_ratio=0.1)
    leader, follower = replicas.leader(config=config), replicas.follower("2", 0, config)
    put(leader, "a=1 7.a=2 7.abort x=1 x=2")
    follower.copy_from(leader, 0, MIB)
    follower.config = compacted(segment_files_max=3, min_cleanable_dirty_ratio=0.1, segment_bytes=14)
    clean(follower)
    assert (aborted(follower), offsets(follower)) == ([], [0, 1, 2, 3, 4])
    limits = UpkeepLimits(merge_files_min=2, merge_spread_files=0, leader_first_ms=1 << 40)
    upkeep = Upkeep(leader, limits, cleans_below=lambda: 0)
    while upkeep.step(1, 5, 0) is not None:
        pass
    assert (leader.files[0].start_offset, leader.files[0].end_offset) == (0, 3)
    upkeep = Upkeep(follower, limits, cleans_below=lambda: 0, leader=replicas.log("1"))
    for now_ms in range(1, 4):
        upkeep.step(now_ms, 5, 0)
    assert committed(follower).startswith("0:a=1 3:x=1")


def test_a_reader_of_the_old_files_leaves_out_what_was_aborted_whatever_it_folds_meanwhile(replicas):
    """Aborted transactions are requested before the records are read; the fold may have forgotten them afterwards."""
    log, reader = replicas.leader(config=CONFIG), replicas.log()
    put(log, "a=1 7.a=2 7.abort x=1 x=2 x=3")
    reader.refresh()
    known = reader.producers.transactions
    rows = reader.read(0, MIB)
    clean(log)
    reader.refresh()
    assert reader.producers.transactions.aborted == ()
    kept = without_aborted(rows, known.aborted_between(0, 6))
    assert kept["offset"].to_pylist() == [0, 3, 4, 5]
