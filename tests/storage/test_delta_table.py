"""A log table is a real Delta table: other readers see the right rows, and foreign hands are noticed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from storage.errors import CorruptMessageError, ForeignCommitError
from storage.records import NewRecordBatch, data_table, payload_table
from storage.table import LEADER_EPOCH, LOG_END, Commit, Committed, FileEntry
from tests.contract.table_labs import TABLE, DeltaLab

LATER_MS = 1 << 60


@pytest.fixture
def lab(tmp_path: Path) -> DeltaLab:
    made = DeltaLab(tmp_path)
    assert made.open().create({"stratalog.topic-id": "t1"}, 1_000, "c0")
    return made


def append(lab: DeltaLab, version: int, base_offset: int, count: int) -> FileEntry:
    table = lab.open()
    payload = payload_table([(1_700_000_000_000 + i, None, b"%d" % (base_offset + i), None) for i in range(count)])
    entry = FileEntry(table.write_file(data_table([NewRecordBatch(payload)]), 0), 0, 4, base_offset)
    txns = {LOG_END: base_offset + count, LEADER_EPOCH: 4}
    commit = Commit(f"c{version}", "APPEND", 1_700_000_000_000, (entry,), (), txns)
    assert table.commit(version, commit) == Committed(version)
    return entry


def offsets_by_deltalake(lab: DeltaLab) -> list[int]:
    rows = pa.table(DeltaTable(str(lab.root / TABLE)).to_pyarrow_table())
    offsets = [
        base + delta
        for base, delta in zip(rows["base_offset"].to_pylist(), rows["offset_delta"].to_pylist(), strict=True)
    ]
    assert [b"%d" % offset for offset in offsets] == rows["value"].to_pylist()
    return sorted(offsets)


def test_deltalake_reads_the_offsets_before_and_after_checkpoint_and_clean_up(lab: DeltaLab) -> None:
    for version in range(1, 6):
        append(lab, version, 10 * (version - 1), 10)
    assert offsets_by_deltalake(lab) == list(range(50))
    lab.open().checkpoint()
    assert lab.open().clean_log(5, LATER_MS) == 5
    append(lab, 6, 50, 3)
    assert offsets_by_deltalake(lab) == list(range(53))


def test_deltalake_sees_protocol_partitions_and_txns(lab: DeltaLab) -> None:
    append(lab, 1, 0, 2)
    table = DeltaTable(str(lab.root / TABLE))
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
    assert table.metadata().partition_columns == ["segment", "leader_epoch", "base_offset"]
    assert table.metadata().configuration["stratalog.topic-id"] == "t1"
    assert table.transaction_version(LOG_END) == 2
    assert [add["base_offset"] for add in table.get_add_actions(flatten=False)["partition"].to_pylist()] == [0]


def test_a_foreign_commit_takes_the_table_offline(lab: DeltaLab) -> None:
    append(lab, 1, 0, 2)
    lab.commit_foreign(2)
    with pytest.raises(ForeignCommitError, match=r"version 2 .*DELETE by Apache-Spark/4.2.0"):
        lab.open().snapshot()
    commit = lab.open().read_commit(2)
    assert commit is not None
    assert commit.is_foreign


def test_deltalake_writing_to_a_live_table_is_noticed(lab: DeltaLab) -> None:
    append(lab, 1, 0, 5)
    DeltaTable(str(lab.root / TABLE)).delete("offset_delta >= 3")
    with pytest.raises(ForeignCommitError, match="DELETE"):
        lab.open().snapshot()


def test_an_unreadable_checkpoint_falls_back_to_an_older_one_or_the_commits(lab: DeltaLab) -> None:
    for version in range(1, 4):
        append(lab, version, version - 1, 1)
        lab.open().checkpoint()
    before = lab.open().snapshot()
    log = lab.root / TABLE / "_delta_log"
    for version in (3, 2):
        (log / f"{version:020}.checkpoint.parquet").write_bytes(b"PAR1 torn")
        after = lab.open().snapshot()
        assert before is not None
        assert after is not None
        assert (after.version, set(after.files), after.txns) == (3, set(before.files), before.txns)
    (log / "_last_checkpoint").write_bytes(b"{")
    assert lab.open().snapshot() is not None


def test_a_log_that_cannot_be_read_at_all_is_no_empty_log(lab: DeltaLab) -> None:
    append(lab, 1, 0, 1)
    lab.open().checkpoint()
    lab.open().clean_log(1, LATER_MS)
    (lab.root / TABLE / "_delta_log" / f"{1:020}.checkpoint.parquet").write_bytes(b"torn")
    with pytest.raises(CorruptMessageError, match="checkpoint"):
        lab.open().snapshot()


def test_recovery_drops_a_torn_checkpoint_and_its_pointer(lab: DeltaLab) -> None:
    append(lab, 1, 0, 1)
    lab.open().checkpoint()
    append(lab, 2, 1, 1)
    log = lab.root / TABLE / "_delta_log"
    (log / f"{1:020}.checkpoint.parquet").write_bytes(b"")
    (log / f"{2:020}.json").write_bytes(b"")
    assert lab.open().recover_tail() == 1
    assert sorted(path.name for path in log.iterdir()) == [f"{0:020}.json", f"{1:020}.json"]
    assert offsets_by_deltalake(lab) == [0]


def test_a_synced_commit_syncs_what_was_written_before_it(lab: DeltaLab, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[list[str]] = []
    monkeypatch.setattr(lab.store, "sync", lambda paths: synced.append(list(paths)))
    table = lab.open()
    payload = payload_table([(1, None, b"v", None)])
    entry = FileEntry(table.write_file(data_table([NewRecordBatch(payload)]), 0), 0, 0, 0)
    table.commit(1, Commit("c1", "APPEND", 1, (entry,)))
    assert synced == []
    table.commit(2, Commit("c2", "START EPOCH", 1), sync=True)
    log = f"{TABLE}/_delta_log"
    assert synced == [[f"{TABLE}/{entry.path}", f"{log}/{1:020}.json"], [f"{log}/{2:020}.json"]]


def test_a_dropped_table_leaves_no_directory(lab: DeltaLab) -> None:
    append(lab, 1, 0, 1)
    lab.open().drop()
    assert list(lab.root.iterdir()) == []
