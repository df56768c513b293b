from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from stratalog.storage import cadence
from stratalog.storage.delta.table import Committed, Conflict
from stratalog.storage.errors import (
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    OutOfOrderSequenceNumberError,
    RecordListTooLargeError,
    RecordTooLargeError,
    UnknownLeaderEpochError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
    UnverifiedTransactionError,
)
from stratalog.storage.log.append import Appended, BatchAppended, HandedFiles, admit
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.producers import ProducerStates
from stratalog.storage.records import (
    TRANSACTIONAL_ATTRIBUTE,
    Header,
    NewRecordBatch,
    OneRecord,
    data_table,
    payload_table,
)
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.transactions import OffsetAndEpoch
from tests.storage.logs import (
    MIB,
    FakeClock,
    append,
    batch,
    contents,
    idempotent,
    list_files,
    started,
    values,
    write,
)

NOW_MS = 1_000_000


def test_offsets_are_assigned_by_the_commit(replicas):
    log = replicas.leader()
    appended = append(log, batch("ab"), batch("c"))
    assert appended.results == (BatchAppended(0, 1), BatchAppended(2, 2))
    assert len(appended.files) == 1
    write(log, "d")
    assert contents(log) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]


def test_a_log_without_a_table_is_an_unknown_partition(replicas):
    log = PartitionLog(replicas.table("1"), LogConfig(), replicas.clock, replicas.ids)
    with pytest.raises(UnknownTopicOrPartitionError):
        _ = log.version


def test_a_table_of_another_topic_is_refused(replicas):
    log = replicas.log()
    with pytest.raises(InconsistentTopicIdError, match="topic-id"):
        log.exists_or_create("another-id")


def test_a_bad_batch_does_not_affect_its_group(replicas):
    log = replicas.leader(config=LogConfig.from_properties({"max.message.bytes": 1_000}))
    group = [batch("a"), batch(["x" * 2_000]), idempotent("b", sequence=5), idempotent("c", sequence=0), batch("d")]
    results = append(log, *group).results
    assert [type(r) for r in results] == [
        BatchAppended, RecordTooLargeError, UnknownProducerIdError, BatchAppended, BatchAppended,
    ]  # fmt: skip
    assert values(log) == "a c d"


def test_a_group_of_refused_batches_writes_nothing(replicas):
    log = replicas.leader()
    before = log.version
    appended = append(log, idempotent("b", sequence=5))
    assert (appended.version, appended.files, log.version) == (before, (), before)


def test_two_batches_of_one_producer_are_checked_in_sequence(replicas):
    log = replicas.leader()
    group = [idempotent("ab", 0), idempotent("c", 2), idempotent("c", 2), idempotent("z", 9)]
    results = append(log, *group).results
    assert results[:3] == (BatchAppended(0, 1), BatchAppended(2, 2), BatchAppended(2, 2, duplicate=True))
    assert isinstance(results[3], OutOfOrderSequenceNumberError)


def test_a_batch_behind_one_that_is_not_verified_is_not_verified_either(replicas):
    """Not out of order: nothing is missing, the coordinator is asked about the batch before it."""
    log, of = replicas.leader(), {"attributes": TRANSACTIONAL_ATTRIBUTE}
    group = [replace(idempotent("a", sequence), **of) for sequence in range(2)]
    assert [type(each) for each in append(log, *group).results] == [UnverifiedTransactionError] * 2
    verified = [replace(each, verified_offset=0) for each in group]
    assert append(log, *verified, replace(idempotent("a", 2), **of)).results == (
        BatchAppended(0, 0), BatchAppended(1, 1), BatchAppended(2, 2),
    )  # fmt: skip
    assert isinstance(append(log, replace(idempotent("a", 9), **of)).results[0], OutOfOrderSequenceNumberError)


def test_a_duplicate_succeeds_without_a_write_after_a_restart(replicas):
    append(replicas.leader(), idempotent("ab", 0))
    log = replicas.log()
    before = log.version
    assert append(log, idempotent("ab", 0)).results == (BatchAppended(0, 1, duplicate=True),)
    assert log.version == before


def test_an_old_producer_epoch_is_refused(replicas):
    log = replicas.leader()
    append(log, idempotent("a", 0, epoch=1))
    assert isinstance(append(log, idempotent("b", 1, epoch=0)).results[0], InvalidProducerEpochError)


def test_silent_producers_are_forgotten_with_the_next_append(replicas):
    log = replicas.leader()
    append(log, idempotent("a", 0, producer_id=1), now_ms=0)
    append(log, idempotent("a", 0, producer_id=2), now_ms=90_000_000)
    assert set(replicas.log().producers.producers) == {2}


@pytest.mark.parametrize(
    ("properties", "refused"),
    [
        ({"segment.bytes": 14}, RecordListTooLargeError),
        ({"max.message.bytes": 0}, RecordTooLargeError),
    ],
)
def test_size_limits(replicas, properties, refused):
    log = replicas.leader(config=LogConfig.from_properties(properties))
    assert isinstance(append(log, batch(["x" * 100])).results[0], refused)


def test_a_batch_that_came_as_kafkas_bytes_is_measured_by_them(replicas):
    """Kafka compares the compressed size as sent with max.message.bytes; the size in Arrow may be more or less."""
    log = replicas.leader(config=LogConfig.from_properties({"max.message.bytes": 1_000}))
    small, large = replace(batch(["x" * 2_000]), sent_bytes=1_000), replace(batch(["x"]), sent_bytes=1_001)
    assert append(log, small).results == (BatchAppended(0, 0),)
    refusal = append(log, large).results[0]
    assert isinstance(refusal, RecordTooLargeError)
    assert str(refusal) == "a batch of 1001 bytes > max.message.bytes 1000"


@pytest.mark.parametrize(
    ("row", "size_bytes"),
    [
        ((7, b"", b"x" * 376, None), 400),
        ((None, None, None, None), 24),
        ((7, b"key", None, []), 27),
        ((7, None, b"v", [Header("ä", None), Header("", b"xyz")]), 24 + 1 + 16 + 2 + 16 + 3),
    ],
)
@pytest.mark.parametrize("limit", ["max.message.bytes", "segment.bytes"])
def test_a_record_has_one_size_however_columns_hold_it(limit, row, size_bytes):
    """Alone, as a table, as a slice of a larger one, and with or without bits of validity."""
    around = payload_table([(None, b"a" * 30, None, [Header("h", b"b")]), row, (1, None, b"c", None)])
    held = [
        payload_table([row]),
        around.slice(1, 1),
        around.take(pa.array([1])),
        pa.concat_tables([around]).slice(1, 1),
    ]
    batches = [NewRecordBatch(each) for each in held] + ([NewRecordBatch(OneRecord(*row[:3]))] if not row[3] else [])
    for most, is_refused in ((size_bytes, False), (size_bytes - 1, True)):
        config = replace(LogConfig(), **{limit.replace(".", "_"): most})
        results = admit(batches, ProducerStates(), config, OffsetAndEpoch(0, 0), NOW_MS).results
        refused = [isinstance(each, RecordTooLargeError | RecordListTooLargeError) for each in results]
        assert refused == [is_refused] * len(batches)


@pytest.mark.parametrize(
    ("time_ms", "refused"),
    [(NOW_MS - 5_000, False), (NOW_MS - 5_001, True), (NOW_MS + 2_000, False), (NOW_MS + 2_001, True), (None, False)],
)
def test_a_record_whose_time_is_far_from_the_brokers_clock_is_refused(time_ms, refused):
    properties = {"message.timestamp.before.max.ms": 5_000, "message.timestamp.after.max.ms": 2_000}
    one = NewRecordBatch(OneRecord(time_ms, None, b"x"))
    config = LogConfig.from_properties(properties)
    (result,) = admit([one], ProducerStates(), config, OffsetAndEpoch(0, 0), NOW_MS).results
    assert isinstance(result, InvalidTimestampError) is refused
    (stamped,) = admit([one.appended_at(0)], ProducerStates(), config, OffsetAndEpoch(0, 0), NOW_MS).results
    assert not isinstance(stamped, InvalidTimestampError), "its time is the broker's own"


def test_a_compacted_log_takes_no_record_without_a_key(replicas):
    from stratalog.storage.records import NewRecordBatch, payload_table

    log = replicas.leader(config=LogConfig.from_properties({"cleanup.policy": "compact"}))
    keyless = NewRecordBatch(payload_table([(1, None, b"v", None)]))
    assert isinstance(append(log, keyless).results[0], InvalidRecordError)


def test_batches_of_other_columns_or_no_rows_are_refused(replicas):
    from stratalog.storage.records import PAYLOAD_SCHEMA, NewRecordBatch

    log = replicas.leader()
    empty, foreign = PAYLOAD_SCHEMA.empty_table(), batch("a").payload.drop(["key"])
    results = append(log, NewRecordBatch(empty), NewRecordBatch(foreign)).results
    assert all(isinstance(r, InvalidRecordError) for r in results)


@pytest.mark.parametrize(("epoch", "refused"), [(1, FencedLeaderEpochError), (3, UnknownLeaderEpochError)])
def test_only_the_epoch_of_the_table_may_append(replicas, epoch, refused):
    log = replicas.leader(epoch=2)
    with pytest.raises(refused):
        log.append([batch("a")], epoch, 0)


def test_of_two_instances_one_wins_and_the_other_decides_again(replicas):
    first, second = replicas.leader(), replicas.log()
    write(first, "a")
    assert isinstance(second.append([batch("b")], 0, 0), Conflict)
    assert second.refresh()
    write(second, "b")
    assert first.refresh()
    assert contents(first) == contents(second) == [(0, "a"), (1, "b")]


def test_a_lost_race_keeps_its_file_for_the_same_batches(replicas):
    first, second = replicas.leader(), replicas.log()
    write(first, "a")
    lost = [batch("b")]
    assert isinstance(second.append(lost, 0, 0), Conflict)
    files = list_files(first)
    second.refresh()
    assert isinstance(second.append(lost, 0, 0), Appended)
    assert list_files(first) == files
    assert values(second) == "a b"


def test_a_fenced_leader_gets_conflict_and_then_fenced_leader_epoch(replicas):
    old, new = replicas.leader(epoch=1), replicas.log()
    started(new, 2)
    assert isinstance(old.append([batch("z")], 1, 0), Conflict)
    old.refresh()
    with pytest.raises(FencedLeaderEpochError, match="leader epoch 1 < current 2"):
        old.append([batch("z")], 1, 0)


def test_segments_roll_by_size_files_and_time(replicas):
    config = LogConfig.from_properties({"segment.files.max": 2, "segment.ms": 1_000})
    log = replicas.leader(config=config)
    for time_ms in (0, 10, 20, 5_000):
        append(log, batch("a", timestamps=[time_ms]))
    assert [(s.base_offset, s.file_count) for s in log.segments] == [(0, 2), (2, 1), (3, 1)]


@pytest.mark.parametrize(
    ("properties", "bases"),
    [
        ({}, [0]),
        ({"segment.bytes": "as large as it is"}, [0, 3]),
        ({"segment.ms": 100}, [0, 3]),
        ({"segment.ms": 199, "segment.jitter.ms": 98}, [0, 4]),
        ({"segment.ms": 10_000, "segment.jitter.ms": 5_000}, [0]),
        ({"segment.index.bytes": 16}, [0, 3, 5]),
    ],
)
def test_rolling_configs_take_effect_on_a_running_log(replicas, properties, bases):
    """By time a segment rolls when a record is appended that is so much newer than its first one, not by itself. Its
    jitter depends on the log's name, so these hold for any."""
    log = replicas.leader()
    for time_ms in (0, 5, 10):
        append(log, batch(["a" * 400], timestamps=[time_ms]))
    if "segment.bytes" in properties:
        properties = {"segment.bytes": log.segments[0].size_bytes}
    log.config = LogConfig.from_properties(properties)
    for time_ms in (101, 200, 201):
        append(log, batch("a", timestamps=[time_ms]))
    assert [segment.base_offset for segment in log.segments] == bases


def test_records_of_the_next_segment_are_named_by_their_first_offset(replicas):
    log = replicas.leader(config=LogConfig.from_properties({"segment.files.max": 1}))
    write(log, "a b c", "d e", "f")
    assert [s.base_offset for s in log.segments] == [0, 3, 5]
    assert [entry.segment for entry in replicas.log().files] == [0, 3, 5]


class SyncedTable:
    """Records which commits were synced."""

    def __init__(self, table):
        self._table = table
        self.synced: list[bool] = []

    def __getattr__(self, name):
        return getattr(self._table, name)

    def commit(self, version, commit, *, sync=False, since=None, clock=None):
        self.synced.append(sync)
        return self._table.commit(version, commit, sync=sync, since=since, clock=clock)


@pytest.mark.parametrize(
    ("properties", "synced"),
    [
        ({}, [True, False, False, False, False]),
        ({"flush.messages": 1}, [True, True, True, True, True]),
        ({"flush.messages": 2}, [True, False, True, False, True]),
        ({"flush.ms": 250}, [True, False, False, True, False]),
    ],
)
def test_flush_configs_sync_appends_and_epoch_starts_always_are(replicas, properties, synced):
    replicas.log()
    table, clock = SyncedTable(replicas.table("1")), FakeClock()
    log = PartitionLog(table, LogConfig.from_properties(properties), clock, replicas.ids)
    started(log, 0)
    for _ in range(4):
        clock.sleep_ms(100)
        write(log, "a")
    assert table.synced == synced


def handed(log: PartitionLog, words: str, batch_id: int, sink: str = "query") -> HandedFiles:
    file = log.table.write_file(data_table([batch(words)]), None)
    return HandedFiles((file,), sink, batch_id)


def test_handed_files_get_offsets_and_a_batch_id_counts_once(replicas):
    log = replicas.leader()
    write(log, "a")
    first = handed(log, "bc", 4)
    assert log.append_files([first], 0, 1).results == (BatchAppended(1, 2),)
    again = replicas.log()
    before = again.version
    for batch_id in (4, 3):
        assert again.append_files([handed(log, "bc", batch_id)], 0, 1).results == (
            BatchAppended(-1, 2, duplicate=True),
        )
    assert again.version == before
    assert again.append_files([handed(log, "d", 9)], 0, 1).results == (BatchAppended(3, 3),)
    assert values(again) == "a b c d"


def test_a_handed_file_that_is_missing_or_in_the_log_is_refused_alone(replicas):
    log = replicas.leader()
    good, gone = handed(log, "ab", 1), handed(log, "z", 1, "other")
    log.table.delete_objects([gone.files[0].path])
    results = log.append_files([gone, good], 0, 1).results
    assert isinstance(results[0], InvalidRecordError)
    assert "is not there" in str(results[0])
    assert results[1] == BatchAppended(0, 1)
    twice = log.append_files([HandedFiles(good.files, "third", 1)], 0, 1).results[0]
    assert "is in the log already" in str(twice)
    log.table.delete_objects([good.files[0].path])
    assert log.append_files([good], 0, 1).results[0].duplicate, "a repeat is answered wherever its files are now"


def test_a_sinks_files_come_at_any_time(replicas):
    """They are checked when they are written, and may come again later."""
    properties = {"message.timestamp.before.max.ms": 500, "message.timestamp.after.max.ms": 400}
    log = replicas.leader(config=LogConfig.from_properties(properties))
    (result,) = log.append_files([handed(log, "a", 1)], 0, 9_999).results
    assert result == BatchAppended(0, 0)


def test_several_handed_files_roll_segments_between_them(replicas):
    log = replicas.leader(config=LogConfig.from_properties({"segment.files.max": 1}))
    files = tuple(log.table.write_file(data_table([batch(w)]), None) for w in ("ab", "c"))
    assert log.append_files([HandedFiles(files, "query", 1)], 0, 1).results == (BatchAppended(0, 2),)
    assert [s.base_offset for s in log.segments] == [0, 2]
    assert isinstance(log.append_files([HandedFiles((), "query", 2)], 0, 1).results[0], InvalidRecordError)


def test_starting_an_epoch_twice_writes_once(replicas):
    log = replicas.leader(epoch=3)
    before = log.version
    assert log.start_epoch(3, as_leader=True) == Committed(before)
    with pytest.raises(FencedLeaderEpochError):
        log.start_epoch(2, as_leader=True)
    assert log.epochs.entries == ((3, 0),)


def test_a_follower_begins_the_epoch_without_an_entry(replicas):
    log = replicas.follower("2", 3)
    assert (log.leader_epoch, log.epochs.entries) == (3, ())
    assert replicas.log("2").leader_epoch == 3


def test_max_message_bytes_takes_effect_on_a_running_log(replicas):
    log = replicas.leader()
    log.config = LogConfig.from_properties({"max.message.bytes": 10})
    assert isinstance(append(log, batch("a" * 50)).results[0], RecordTooLargeError)
    log.config = LogConfig.from_properties({"max.message.bytes": MIB})
    assert isinstance(append(log, batch("a" * 50)).results[0], BatchAppended)


def test_a_producer_whose_state_expired_goes_on_where_it_was(replicas):
    """Its sequences are not known any more: it may begin with any, as in Kafka. One that is younger may not."""
    log = replicas.leader()
    append(log, idempotent("a", sequence=0), now_ms=5_000)
    day_later_ms = 5_000 + cadence.PRODUCER_ID_EXPIRATION.ms
    append(log, idempotent("b", sequence=0, producer_id=3), now_ms=day_later_ms)
    assert 7 not in log.producers.producers
    again = replicas.log()
    (known, young) = append(
        again, idempotent("c", sequence=1), idempotent("d", sequence=1, producer_id=8), now_ms=day_later_ms + 1
    ).results
    assert isinstance(known, BatchAppended)
    assert isinstance(young, UnknownProducerIdError)
    (gap,) = append(again, idempotent("e", sequence=3), now_ms=day_later_ms + 2).results
    assert isinstance(gap, OutOfOrderSequenceNumberError)


def test_a_producer_older_than_the_topic_goes_on_where_it_was(replicas):
    """It wrote to an earlier topic of the name. The replicas remember that for each other, and after a truncation."""
    leader, follower = (PartitionLog(replicas.table(n), LogConfig(), replicas.clock, replicas.ids) for n in ("1", "2"))
    leader.exists_or_create("topic-id", producers_from=8)
    started(leader, 0)
    follower.exists_or_create("topic-id", producers_from=leader.state.producers_from)
    started(follower, 1)
    follower.start_epoch(2, as_leader=True, truncate_to=0)
    for log, epoch in ((leader, 0), (follower, 2)):
        old, young = idempotent("a", sequence=5), idempotent("b", sequence=5, producer_id=8)
        results = append(log, old, young, epoch=epoch).results
        assert [type(each) for each in results] == [BatchAppended, UnknownProducerIdError]
