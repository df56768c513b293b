"""A log's fold knows below which offset records may be gone that an earlier version of the table had."""

from __future__ import annotations

import pytest

from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.reader import LogReader
from stratalog.storage.log.state import NOTHING_REMOVED, RemovedRecords
from stratalog.storage.upkeep.chore import UpkeepLimits
from stratalog.storage.upkeep.erase import Erase, ErasePredicate
from stratalog.storage.upkeep.erasure import Erasure
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.storage.keyed import clean, compacted, keyed, step, view_of
from tests.storage.logs import Replicas, append, delete_records


def log_of(*batches: str, files_max: int = 2) -> tuple[Replicas, PartitionLog]:
    replicas = Replicas.new()
    log = replicas.leader(config=compacted(segment_files_max=files_max))
    append_all(log, *batches)
    return replicas, log


def append_all(log: PartitionLog, *batches: str, epoch: int = 0) -> None:
    for words in batches:
        append(log, keyed(words), epoch=epoch)


def erase(log: PartitionLog, key: str, end_offset: int) -> None:
    request = Erase(
        log.state.txn_number("stratalog.erased") + 1, end_offset, ErasePredicate.parse({"key": {"equals": key}})
    )
    while step(Erasure(lambda: [request]), view_of(log, 10_000)) is not None:
        pass


def test_appends_merges_and_deleted_records_remove_nothing_above_the_log_start() -> None:
    replicas = Replicas.new()
    log = replicas.leader()
    append_all(log, *["a=1"] * 64)
    delete_records(log, 1)
    Upkeep(log, UpkeepLimits(merge_files_min=2, merge_spread_files=0)).step(10_000, 64, 0)
    assert len(log.files) < 64
    assert log.state.removed_records == NOTHING_REMOVED


def test_compaction_says_up_to_where() -> None:
    """Segments [0, 2), [2, 4) and the active [4, 5), which counts for nothing: the first loses its records."""
    _, log = log_of("a=1", "b=1", "a=2", "b=2", "a=3")
    version = log.version
    clean(log)
    removed = log.state.removed_records
    assert (version < removed.version <= log.version, removed.end_offset) == (True, 2)
    asked = [(1, version), (1, removed.version), (2, version)]
    assert [removed.concerns(*each) for each in asked] == [True, False, False]
    append_all(log, "b=3", "c=1")
    assert log.state.removed_records == removed


def test_an_erasure_says_up_to_where_its_records_were() -> None:
    _, log = log_of("bob=1", "a=1", "bob=2 c=2", "d=1", "e=1")
    erase(log, "bob", 6)
    (first, end) = log.state.removed_records
    assert (first <= log.version, end) == (True, 4)
    erase(log, "nobody", 6)
    assert log.state.removed_records == (first, end), "nothing was removed"
    erase(log, "a", 6)
    assert log.state.removed_records == (log.version, 4), "what an earlier one removed further on is gone, too"


def test_what_is_appended_after_a_truncation_is_not_counted() -> None:
    _, log = log_of("bob=1", "bob=2", "a=1")
    erase(log, "bob", 3)
    assert log.state.removed_records.end_offset == 2
    log.start_epoch(1, as_leader=True, truncate_to=1)
    assert log.state.removed_records.end_offset == 1
    append_all(log, "c=1", epoch=1)
    assert not log.state.removed_records.concerns(1, -1)


@pytest.mark.parametrize("records", [0, 3])
def test_a_fold_that_begins_anew_suspects_all_that_it_finds(records: int) -> None:
    replicas, log = log_of(*["a=1"] * records)
    reader = LogReader(replicas.table("1"), replicas.clock)
    assert reader.state.removed_records == (RemovedRecords(log.version, records) if records else NOTHING_REMOVED)
    append_all(log, "b=1")
    reader.refresh()
    assert reader.state.removed_records.end_offset == records
