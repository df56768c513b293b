from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from stratalog.storage.log.cleaner_checkpoint import PASSES_MAX, CleanerCheckpoint, CleanerPass
from stratalog.storage.log.segments import LogSegment
from stratalog.storage.producers import BatchMetadata, ProducerEntry, ProducerStates
from stratalog.storage.records import CONTROL_ATTRIBUTE, TRANSACTIONAL_ATTRIBUTE, data_table
from stratalog.storage.topic_config import INT_MAX, LogConfig
from stratalog.storage.upkeep.compaction import (
    Cleaning,
    KeyedRows,
    OffsetMap,
    grouped,
    is_due,
    last_batch_ends,
    log_to_clean,
    survivors,
    transaction_columns,
)
from tests.storage.keyed import compacted, keyed

HOUR_MS = 3_600_000


def segment(base: int, end: int, size_bytes: int = 10, files: int = 1) -> LogSegment:
    return LogSegment(base, end, size_bytes, files, end - base, None, None, (0,))


SEGMENTS = [segment(0, 100, 30), segment(100, 200, 20), segment(200, 300, 50), segment(300, 310, 999)]


@pytest.mark.parametrize(
    ("first_dirty", "high_watermark", "expected"),
    [
        (0, 310, (0, 100, 300)),
        (200, 310, (50, 50, 300)),
        (150, 310, (30, 70, 300)),  # a pass ended inside the second segment: all of it is dirty
        (300, 310, (100, 0, 300)),
        (100, 299, (30, 20, 200)),
        (100, 150, (30, 0, 100)),
        (0, 99, (0, 0, 0)),
    ],
)
def test_the_active_segment_and_what_is_above_the_high_watermark_is_in_neither_section(
    first_dirty, high_watermark, expected
):
    log = log_to_clean(SEGMENTS, first_dirty, high_watermark)
    assert (log.clean_bytes, log.dirty_bytes, log.end_offset) == expected


def test_a_log_of_one_segment_has_nothing_to_clean():
    assert log_to_clean(SEGMENTS[:1], 0, 100).segments == ()
    assert log_to_clean([], 0, 0).dirty_ratio == 0


@pytest.mark.parametrize(
    ("first_dirty", "ratio", "is_busy", "expected"),
    [
        (200, 0.5, False, False),  # exactly half is not more than half, as in Kafka
        (200, 0.49, False, True),
        (200, 0.49, True, False),
        (100, 0.49, True, False),
        (100, 0.39, True, True),
        (300, 0.0, False, False),
        (0, 1.0, False, False),
        (0, 0.0, True, True),
    ],
)
def test_min_cleanable_dirty_ratio_chooses_the_log(first_dirty, ratio, is_busy, expected):
    log = log_to_clean(SEGMENTS, first_dirty, 310)
    assert is_due(log, compacted(min_cleanable_dirty_ratio=ratio), is_busy=is_busy) is expected


def timed(base: int, first_ms: int, newest_ms: int) -> LogSegment:
    return LogSegment(base, base + 100, 10, 1, 100, first_ms, newest_ms, (0,))


TIMED = [timed(0, 1_000, 9_000), timed(100, 2_000, 2_500), timed(200, 3_000, 3_500), timed(300, 4_000, 4_500)]


@pytest.mark.parametrize(
    ("first_dirty", "newest_ms", "end_offset"),
    [(100, 3_499, 200), (100, 3_500, 300), (100, 2_000, 100), (0, 8_000, 0)],
)
def test_dirty_segments_with_young_records_wait(first_dirty, newest_ms, end_offset):
    """`min.compaction.lag.ms`: the first such segment, and those behind it. A clean one was compacted already."""
    assert log_to_clean(TIMED, first_dirty, 400, newest_ms).end_offset == end_offset


@pytest.mark.parametrize(("now_ms", "expected"), [(62_000, False), (62_001, True), (None, False)])
def test_a_dirty_segment_waits_no_longer_than_the_largest_lag(now_ms, expected):
    log = log_to_clean(TIMED, 100, 400)
    config = compacted(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=60_000)
    assert is_due(log, config, now_ms=now_ms) is expected


@pytest.mark.parametrize(
    ("segments", "properties", "expected"),
    [
        (SEGMENTS[:3], {"segment.bytes": 100}, [[0, 100, 200]]),
        (SEGMENTS[:3], {"segment.bytes": 99}, [[0, 100], [200]]),
        (SEGMENTS[:3], {"segment.bytes": 49}, [[0], [100], [200]]),
        (SEGMENTS[:3], {"segment.bytes": 100, "segment.files.max": 2}, [[0, 100], [200]]),
        ([segment(0, 9), segment(9, INT_MAX + 1), segment(INT_MAX + 1, INT_MAX + 2)], {}, [[0, 9], [INT_MAX + 1]]),
        ([], {}, []),
    ],
)
def test_segments_are_grouped_up_to_segment_bytes(segments, properties, expected):
    groups = grouped(segments, 1 << 40, LogConfig.from_properties(properties))
    assert [[each.base_offset for each in group] for group in groups] == expected


def test_a_segment_that_is_cleaned_in_part_stays_on_its_own():
    groups = grouped(SEGMENTS[:3], 250, LogConfig())
    assert [[each.base_offset for each in group] for group in groups] == [[0, 100], [200]]


def offsets_of(words: str, *batches: tuple[str, int], bytes_max: int = 1 << 20) -> list[int]:
    found = OffsetMap(bytes_max)
    for records, base_offset in batches:
        found.put(KeyedRows.of(data_table([keyed(records)]), base_offset))
    return found.latest(data_table([keyed(words)])["key"]).tolist()


def test_the_map_knows_the_latest_offset_of_a_key():
    assert offsets_of("a b c", ("a=1 b=1 a", 10), ("b=2 =0", 20)) == [12, 20, -1]
    assert offsets_of("a b c", ("a=1 b=1 a", 10), ("b=2", 20), bytes_max=1) == [12, 20, -1]
    assert offsets_of("a =1") == [-1, -1]


def test_a_map_is_full_by_its_keys_and_not_by_its_records():
    many = OffsetMap(1_000)
    for base in range(200):
        many.put(KeyedRows.of(data_table([keyed("a=1 b=2 c=3")]), base * 3))
    assert not many.is_full
    for base in range(100):
        many.put(KeyedRows.of(data_table([keyed(f"key{base}=1")]), 600 + base))
    assert many.is_full


def cleaned(rules: Cleaning, rows: pa.Table, base_offset: int = 0) -> pa.Table:
    """The rows of a file that stay, decided on as few columns as the rules need."""
    columns = dict.fromkeys((*rules.columns_needed(base_offset), *transaction_columns(rows)))
    decisive = KeyedRows.of(rows.select(list(columns)), base_offset, rules.transactions.aborted)
    (fates,) = rules.retained([decisive])
    kept = survivors(rows, fates)
    assert fates.is_changed is not kept.equals(rows)
    return kept


def map_of(*parts: tuple[pa.Table, int]) -> OffsetMap:
    known = OffsetMap()
    for rows, base_offset in parts:
        known.put(KeyedRows.of(rows, base_offset))
    return known


NO_OFFSETS = np.array([], np.int64)


def fates(records: str, base_offset: int = 0, *, latest: str = "", tombstones_end: int = 0, last=(), attributes=0):
    """The records of a batch that stay, by offset; an emptied one is "-". `latest` follows it."""
    rows = data_table([keyed(records, attributes=attributes)])
    later = [(data_table([keyed(latest)]), base_offset + rows.num_rows)] if latest else []
    rules = Cleaning(map_of((rows, base_offset), *later), tombstones_end, np.array(last, np.int64))
    kept = cleaned(rules, rows, base_offset)
    assert kept.num_rows == 0 or cleaned(rules, kept, base_offset).equals(kept)
    return [
        "-" if row["key"] is None and row["value"] is None else (row["offset_delta"], row["key"].decode())
        for row in kept.to_pylist()
    ]


@pytest.mark.parametrize(
    ("records", "rules", "expected"),
    [
        ("a=1 b=2", {}, [(0, "a"), (1, "b")]),
        ("a=1 b=2 a=3", {}, [(1, "b"), (2, "a")]),
        ("a=1 b=2", {"latest": "a=3 b=4"}, []),
        ("a=1 b=2", {"latest": "a"}, [(1, "b")]),
        ("=1 b=2", {}, [(1, "b")]),  # a record without a key, from before the topic was compacted
        ("a=1 a b", {}, [(1, "a"), (2, "b")]),  # tombstones stay at first
        ("a b c=1", {"base_offset": 100, "tombstones_end": 101}, [(1, "b"), (2, "c")]),
        ("a b c=1", {"base_offset": 100, "tombstones_end": 103}, [(2, "c")]),
        ("a=1 b=2", {"latest": "a=3 b=4", "last": [1]}, ["-"]),  # a producer's last batch
        ("a=1 b=2", {"latest": "a=3", "last": [1]}, [(1, "b")]),
        ("a", {"base_offset": 7, "tombstones_end": 9, "last": [7]}, ["-"]),
        ("a=1 a=2", {"latest": "a=3", "attributes": CONTROL_ATTRIBUTE}, [(0, "a"), (1, "a")]),
        ("a=1 b=2 a=3", {"latest": "b", "attributes": TRANSACTIONAL_ATTRIBUTE}, [(2, "a")]),  # committed
    ],
)
def test_which_records_stay(records, rules, expected):
    assert fates(records, **rules) == expected


def test_an_emptied_record_keeps_what_tells_its_producers_state():
    rows = data_table([keyed("a=1 b=2", producer_id=7, sequence=40)])
    known = map_of((data_table([keyed("a=1 b=2")]), 10))
    kept = cleaned(Cleaning(known, 0, np.array([1], np.int64)), rows)
    assert kept.select(["offset_delta", "producer_id", "sequence", "batch_base", "key", "value"]).to_pylist() == [
        {"offset_delta": 1, "producer_id": 7, "sequence": 41, "batch_base": 0, "key": None, "value": None}
    ]
    assert kept["attributes"].to_pylist() == [CONTROL_ATTRIBUTE]
    assert cleaned(Cleaning(known, 0, NO_OFFSETS), kept).num_rows == 0


def test_parts_are_decided_on_together_as_each_by_itself():
    parts = [(data_table([keyed("a=1 b=1")]), 0), (data_table([keyed("b=2 =3 c=1")]), 2), (data_table([keyed("a")]), 5)]
    rules = Cleaning(map_of(*parts), 6, NO_OFFSETS)
    together = rules.retained([KeyedRows.of(*part) for part in parts])
    assert [fate.stays.tolist() for fate in together] == [[False, False], [True, False, True], [False]]
    alone = [rules.retained([KeyedRows.of(*part)])[0] for part in parts]
    assert [fate.stays.tolist() for fate in alone] == [fate.stays.tolist() for fate in together]


def entry(*last_offsets: int, first_sequence: int = 5) -> ProducerEntry:
    batches = tuple(BatchMetadata(first_sequence + i, first_sequence + i, o, o, 0) for i, o in enumerate(last_offsets))
    return ProducerEntry(0, batches, 0)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([entry(3, 9), entry(7, 20, 30), entry()], [7, 9]),
        ([entry(10, 20)], None),  # which of its records was the last one below 10 is not known
        ([entry(10, 20, first_sequence=0)], []),  # there was none
    ],
)
def test_each_producers_last_batch_below_the_high_watermark_is_kept(entries, expected):
    ends = last_batch_ends(ProducerStates(dict(enumerate(entries))), 10)
    assert (None if ends is None else ends.tolist()) == expected


def test_a_table_that_was_never_compacted_is_dirty_from_the_start():
    assert CleanerCheckpoint.from_txns({}) == CleanerCheckpoint(0, ())


def test_the_position_survives_as_txns():
    before, txns = CleanerCheckpoint(), {}
    for at in range(1, 60):
        after = before.after_pass(at * 10, at * HOUR_MS, 24 * HOUR_MS)
        txns |= after.txns_after(before)
        assert CleanerCheckpoint.from_txns(txns) == after
        assert len(after.passes) <= 18
        before = after
    assert before.txns_after(before) == {}


@pytest.mark.parametrize(
    ("now_ms", "expected"),
    [(6_999, 0), (7_000, 100), (10_999, 100), (11_000, 250)],
)
def test_tombstones_live_for_delete_retention_ms_after_their_first_cleaning(now_ms, expected):
    position = CleanerCheckpoint(250, (CleanerPass(100, 5_000), CleanerPass(250, 9_000)))
    assert position.due_tombstones_end(now_ms, 2_000) == expected


def test_frequent_passes_are_remembered_as_few_and_never_too_early():
    """Each tombstone goes between one and nine eighths of the retention after the pass that cleaned it first."""
    retention_ms, position, first_cleaned, gone = 80_000, CleanerCheckpoint(), {}, {}
    for at in range(1, 400):
        now_ms = at * 1_000
        end = position.due_tombstones_end(now_ms, retention_ms)
        gone |= {offset: now_ms for offset in first_cleaned if offset < end and offset not in gone}
        position = position.after_pass(at, now_ms, retention_ms)
        first_cleaned[at - 1] = now_ms
        assert len(position.passes) <= PASSES_MAX
    waits = [gone[offset] - first_cleaned[offset] for offset in gone]
    assert len(gone) > 300
    assert (min(waits) >= retention_ms, max(waits) <= retention_ms * 9 / 8) == (True, True)


def test_a_truncation_makes_what_is_appended_there_dirty_and_its_tombstones_young():
    position = CleanerCheckpoint(250, (CleanerPass(100, 5_000), CleanerPass(250, 9_000)))
    assert position.truncated(250) == position
    assert position.truncated(170) == CleanerCheckpoint(170, (CleanerPass(100, 5_000), CleanerPass(170, 9_000)))
    assert position.truncated(100) == CleanerCheckpoint(100, (CleanerPass(100, 5_000),))
    assert position.truncated(40) == CleanerCheckpoint(40, (CleanerPass(40, 5_000),))
    gone = position.without_tombstones(90)
    assert (gone.truncated(100).gone_tombstones_end, gone.truncated(40).gone_tombstones_end) == (90, 40)
    assert gone.without_tombstones(80) == gone
