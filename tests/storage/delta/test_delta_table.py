"""A log table is a real Delta table: other readers see the right rows, and foreign hands are noticed."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from stratalog.storage.clock import RandomIds
from stratalog.storage.delta.checkpoint import commit_file as _commit
from stratalog.storage.delta.checkpoint import covered_count
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.delta.table import LEADER_EPOCH, LOG_END, Commit, Committed
from stratalog.storage.errors import CorruptMessageError, ForeignCommitError, StoreUnavailableError
from stratalog.storage.files import batch_file
from stratalog.storage.files.data_file import FileEntry, PartitionValues
from stratalog.storage.objects.local import LocalStore
from stratalog.storage.objects.opened import open_store
from stratalog.storage.records import NewRecordBatch, data_table, payload_table
from tests.contract.table_labs import TABLE, DeltaLab
from tests.storage.checkpoints import checkpointed_log
from tests.storage.logs import Replicas, contents

LATER_MS = 1 << 60


@pytest.fixture
def lab(tmp_path: Path) -> DeltaLab:
    made = DeltaLab(tmp_path)
    assert made.open().create({"stratalog.topic-id": "t1"}, 1_000, "c0")
    return made


def append(lab: DeltaLab, version: int, base_offset: int, count: int) -> FileEntry:
    table = lab.open()
    payload = payload_table([(1_700_000_000_000 + i, None, b"%d" % (base_offset + i), None) for i in range(count)])
    entry = FileEntry(table.write_file(data_table([NewRecordBatch(payload)]), None), 0, 4, base_offset)
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
    assert list(lab.open().clean_log(5, LATER_MS)) == [0, 1, 2, 3, 4]
    append(lab, 6, 50, 3)
    assert offsets_by_deltalake(lab) == list(range(53))


def test_deltalake_reads_our_checkpoints_and_we_read_its(tmp_path: Path) -> None:
    directory, values = checkpointed_log(tmp_path)
    table = DeltaTable(directory)
    rows = pa.table(table.to_pyarrow_table()).select(["base_offset", "offset_delta", "value"]).to_pylist()
    rows.sort(key=lambda row: row["base_offset"] + row["offset_delta"])
    assert [row["value"].decode() for row in rows] == values
    assert table.metadata().configuration["stratalog.topic-id"] == "topic-id"
    adds = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert sum(add["num_records"] for add in adds) == len(values)
    before = Replicas.new(tmp_path).log()
    table.create_checkpoint()
    after = Replicas.new(tmp_path).log()
    assert after.state.durable_version == before.version
    assert (after.files, after.epochs, contents(after)) == (before.files, before.epochs, contents(before))


def test_a_checkpoint_keeps_what_is_left_to_delete(tmp_path: Path) -> None:
    checkpointed_log(tmp_path)
    log = Replicas.new(tmp_path).log()
    assert len(log.state.removed) > 0
    assert {removed.end_offset > 0 for path, removed in log.state.removed.items() if "segment=" in path} == {True}
    log.state.removed.forget(list(log.state.removed))
    log.table.checkpointer(log.state.snapshot())()
    assert len(Replicas.new(tmp_path).log().state.removed) == 0


def test_a_stale_handle_writes_no_checkpoint(lab: DeltaLab) -> None:
    append(lab, 1, 0, 1)
    slow = lab.open()
    snapshot = slow.snapshot()
    assert snapshot is not None
    write = slow.checkpointer(snapshot)
    append(lab, 2, 1, 1)
    assert lab.open().checkpoint() == 2
    assert write() == 1
    written = (lab.root / TABLE / "_delta_log").glob("*.parquet")
    assert [path.name for path in written] == [f"{2:020}.checkpoint.parquet"]
    lab.open().drop()
    with pytest.raises(StoreUnavailableError, match="gone or replaced"):
        write()


def test_deltalake_sees_protocol_partitions_and_txns(lab: DeltaLab) -> None:
    append(lab, 1, 0, 2)
    table = DeltaTable(str(lab.root / TABLE))
    protocol = table.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 7)
    assert (protocol.reader_features, protocol.writer_features) == (None, ["invariants", "stratalog"])
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


def test_deltalake_does_not_write_to_a_live_table(lab: DeltaLab) -> None:
    append(lab, 1, 0, 5)
    with pytest.raises(CommitFailedError, match=r"features required.*stratalog"):
        DeltaTable(str(lab.root / TABLE)).delete("offset_delta >= 3")
    assert offsets_by_deltalake(lab) == [0, 1, 2, 3, 4]


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
    list(lab.open().clean_log(1, LATER_MS))
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
    entry = FileEntry(table.write_file(data_table([NewRecordBatch(payload)]), None), 0, 0, 0)
    table.commit(1, Commit("c1", "APPEND", 1, (entry,)))
    assert synced == []
    table.commit(2, Commit("c2", "START EPOCH", 1), sync=True)
    log = f"{TABLE}/_delta_log"
    assert synced == [[f"{TABLE}/{entry.path}", f"{log}/{1:020}.json"], [f"{log}/{2:020}.json"]]


@pytest.mark.parametrize(
    ("written", "version", "count"),
    [
        ([], 4, 0),
        ([_commit(3), _commit(4), _commit(5)], 4, 2),
        ([_commit(3), _commit(4), _commit(5)], 2, 0),
        ([_commit(3)], -1, 0),
        (["a.parquet", _commit(4), "b.parquet", _commit(5)], 4, 2),
        (["a.parquet", _commit(4), "b.parquet"], 4, 2),
        (["a.parquet", "_producers/00000000000000ff.json"], 4, 0),
        ([_commit(4), "_producers/0000000000000003.json", _commit(5)], 5, 3),
        ([_commit(2), _commit(5), "a.parquet", _commit(3)], 4, 1),  # another's commit, noted late: 5 is not covered
        ([f"t-0/_delta_log/{_commit(4)}"], 4, 1),
    ],
)
def test_a_checkpoint_stands_for_what_was_written_up_to_its_last_commit(
    written: list[str], version: int, count: int
) -> None:
    assert covered_count(written, version) == count


def test_what_another_handles_checkpoint_stands_for_is_not_synced_again(
    lab: DeltaLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lab.open()
    for version in (1, 2, 3):
        table.commit(version, Commit(f"c{version}", "START EPOCH", 1))
    lab.open().checkpoint()
    early = FileEntry(
        table.write_file(data_table([NewRecordBatch(payload_table([(1, None, b"v", None)]))]), None), 0, 0, 0
    )
    table.commit(4, Commit("c4", "START EPOCH", 1))
    lab.open().checkpoint()
    table.commit(5, Commit("c5", "START EPOCH", 1))
    assert table.adopt_checkpoint() == 4
    synced: list[list[str]] = []
    monkeypatch.setattr(lab.store, "sync", lambda paths: synced.append(list(paths)))
    table.commit(6, Commit("c6", "APPEND", 1, (early,)), sync=True)  # no checkpoint stands for its file
    log = f"{TABLE}/_delta_log"
    assert synced == [[f"{log}/{5:020}.json", f"{TABLE}/{early.path}"], [f"{log}/{6:020}.json"]]


def test_a_dropped_table_leaves_no_directory(lab: DeltaLab) -> None:
    append(lab, 1, 0, 1)
    lab.open().drop()
    assert list(lab.root.iterdir()) == []


@pytest.mark.parametrize("value_bytes", [10, 40 << 10, 200 << 10], ids=["small", "in the kernel", "long footer"])
def test_a_copy_is_equal_byte_for_byte_and_checked(tmp_path: Path, value_bytes: int) -> None:
    """Large files are copied within the kernel, unless their footer is longer than what is read of them."""
    tables = [DeltaLogTable(open_store(str(tmp_path / name), create=True), "t-0", RandomIds()) for name in ("a", "b")]
    values = [(0, None, bytes(value_bytes) + bytes([i]), None) for i in range(8)]
    rows = data_table([NewRecordBatch(payload_table(values))])
    file = tables[0].write_file(rows, None, "uncompressed")
    tables[1].copy_file(tables[0], file)
    assert tables[1].read_object(file.path) == tables[0].read_object(file.path)
    assert tables[1].read_file(file).num_rows == 8
    torn = tmp_path / "a" / "t-0" / file.path
    torn.write_bytes(torn.read_bytes()[:-9] + b"x" + torn.read_bytes()[-8:])
    for _ in range(2):
        (tmp_path / "b" / "t-0" / file.path).unlink(missing_ok=True)
        with pytest.raises(CorruptMessageError):
            tables[1].copy_file(tables[0], file)
    assert not (tmp_path / "b" / "t-0" / file.path).exists()


class SmallObjects(LocalStore):
    """Notes the paths of what is written in one piece."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.paths: list[str] = []

    def put_new(self, path: str, data: bytes | memoryview) -> None:
        self.paths.append(path)
        super().put_new(path, data)


@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
@pytest.mark.parametrize("has_unnamed_files", [True, False])
def test_a_large_file_is_written_in_pieces_where_the_disk_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_unnamed_files: bool, codec: str
) -> None:
    """Both ways give the same data, and the file is synced with its commit. One that grew states a checksum."""
    if not has_unnamed_files:
        monkeypatch.delattr(os, "O_TMPFILE")
    store = SmallObjects(str(tmp_path))
    table = DeltaLogTable(store, "t-0", RandomIds())
    values = [(1_700_000_000_000 + i, None, b"%0100d" % i, None) for i in range(40_000)]
    rows = data_table([NewRecordBatch(payload_table(values))])
    file = table.write_file(rows, PartitionValues(7, 0, 0), codec)
    data, crc = batch_file.encode(rows, codec)
    stored = store.get(f"t-0/{file.path}")
    data_bytes = len(data) - batch_file.TRAILER_BYTES - int.from_bytes(data[-8:-4], "little")
    assert stored[:data_bytes] == data[:data_bytes]
    assert (stored == bytes(data), batch_file.crc_of_path(file.path) == crc) == (not has_unnamed_files,) * 2
    assert batch_file.is_checked(partial(store.get_range, f"t-0/{file.path}"), file, file.path) == has_unnamed_files
    assert file.path.partition("/")[0] == "segment=00000000000000000007"
    assert (file.size_bytes, file.record_count, file.last_delta) == (len(stored), 40_000, 39_999)
    assert table.read_file(file).equals(rows)
    assert (store.paths == []) == has_unnamed_files
    synced: list[str] = []
    monkeypatch.setattr(store, "sync", synced.extend)
    assert table.create({"stratalog.topic-id": "t1"}, 1_000, "c0")
    table.commit(1, Commit("c1", "APPEND", 0, (), (), {LOG_END: 40_000, LEADER_EPOCH: 4}), sync=True)
    assert f"t-0/{file.path}" in synced
    assert [path.name for path in tmp_path.rglob("*.parquet")] == [file.path.rpartition("/")[2]]
