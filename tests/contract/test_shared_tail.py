"""A table that several brokers share keeps what was acknowledged when its tail is torn, whoever recovers it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.storage.delta.table import LEADER_EPOCH, LOG_END, Commit, Committed
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.files.data_file import FileEntry
from tests.contract.table_labs import TABLE, DeltaLab, Lab, MemoryLab, Table, empty
from tests.contract.test_log_table import rows
from tests.storage.memory_table import MemoryLogTable

Tear = Callable[[Lab, list[FileEntry]], object]


@pytest.fixture(params=["memory", "delta"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Lab:
    return MemoryLab() if request.param == "memory" else DeltaLab(tmp_path)


def append(table: Table, version: int, offset: int) -> FileEntry:
    file = table.write_file(rows(b"%d" % offset), None)
    entry = FileEntry(file, 0, 3, offset)
    commit = Commit(f"a{version}", "APPEND", 2_000, (entry,), (), {LOG_END: offset + 1, LEADER_EPOCH: 3})
    assert table.commit(version, commit) == Committed(version)
    return entry


def made(lab: Lab, *, is_checkpointed: bool = False) -> list[FileEntry]:
    """Version 1 begins an epoch, 2 and 3 append, 4 is upkeep, 5 appends: 4 and 5 were not synced. Perhaps 3 has a
    checkpoint."""
    table = lab.open()
    assert table.create({"stratalog.topic-id": "t1"}, 1_000, "c0")
    assert table.commit(1, empty("c1")) == Committed(1)
    entries = [append(table, 2, 0), append(table, 3, 1)]
    if is_checkpointed:
        other = lab.open()
        other.snapshot()
        other.checkpoint()
    assert table.commit(4, empty("c4")) == Committed(4)
    return [*entries, append(table, 5, 2)]


TORN: dict[str, tuple[Tear, int]] = {
    "nothing": (lambda lab, entries: None, 5),
    "last commit": (lambda lab, entries: lab.tear(5), 4),
    "last file": (lambda lab, entries: lab.lose_file(entries[2].file), 4),
    "upkeep, and an append above it": (lambda lab, entries: lab.tear(4), 3),
    "a lost version": (lambda lab, entries: lab.lose(4), 3),
    "both": (lambda lab, entries: [lab.tear(version) for version in (4, 5)], 3),
    "an older commit in its place": (lambda lab, entries: lab.misplace(2, 5), 4),
    "the first commit of another": (lambda lab, entries: lab.misplace(0, 4), 3),
}


def end_of(table: Table) -> tuple[int, int]:
    snapshot = table.snapshot()
    assert snapshot is not None
    return snapshot.version, snapshot.txns[LOG_END]


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("name", TORN)
def test_each_torn_version_becomes_a_commit_without_content(lab: Lab, name: str, is_checkpointed: bool) -> None:
    tear, kept = TORN[name]
    tear(lab, made(lab, is_checkpointed=is_checkpointed))
    recovering = lab.open()
    assert recovering.withdraw_tail() == kept
    expected = 3 if kept == 5 else 2
    assert end_of(recovering) == end_of(lab.open()) == (5, expected), "no version is used twice"
    assert lab.open().withdraw_tail() == 5
    append(recovering, 6, expected)
    assert end_of(lab.open()) == (6, expected + 1)
    assert [commit.commit_id for commit in lab.open().read_commits(1, 3) or ()] == ["c1", "a2"]


@pytest.mark.parametrize(
    "tear", [lambda lab, entries: lab.tear(2), lambda lab, entries: lab.lose_file(entries[0].file)]
)
def test_a_log_with_appends_that_were_acknowledged_above_is_not_touched(lab: Lab, tear: Tear) -> None:
    entries = made(lab)
    tear(lab, entries)
    with pytest.raises(CorruptMessageError, match="version 2 is damaged, and not torn by a loss of power: 2 later"):
        lab.open().withdraw_tail()
    assert lab.has_commit(3)
    assert lab.has_commit(5)


def test_nothing_is_done_where_there_is_no_table(lab: Lab) -> None:
    assert lab.open().withdraw_tail() == -1
    lab.open().create({"stratalog.topic-id": "t1"}, 1_000, "c0")
    lab.tear(0)
    assert lab.open().withdraw_tail() == -1
    assert lab.has_commit(0)


@pytest.mark.parametrize("name", [name for name in TORN if name != "nothing"])
def test_a_broker_that_slept_at_any_point_of_its_recovery_takes_nothing_that_was_acknowledged(name: str) -> None:
    """Another one recovers meanwhile, begins its epoch and acknowledges appends."""
    tear, _ = TORN[name]
    count = slept_at(tear, -1)
    assert count > 10
    for number in range(count):
        slept_at(tear, number)


def slept_at(tear: Tear, number: int) -> int:
    """The first broker sleeps before its access of this number. Returns how many there were."""
    lab, seen = MemoryLab(), 0
    tear(lab, made(lab))
    slow, quick = lab.open(), lab.open()

    def access(_operation: str, _table: str, _detail: str) -> None:
        nonlocal seen
        seen += 1
        if seen - 1 == number:
            recovered_and_appended(quick)

    def recovered_and_appended(table: MemoryLogTable) -> None:
        count, lab.disk.access = seen, lambda *_: None
        table.withdraw_tail()
        version, end = end_of(table)
        append(table, version + 1, end)
        append(table, version + 2, end + 1)
        lab.disk.access = access
        assert count == seen

    lab.disk.access = access
    slow.withdraw_tail()
    lab.disk.access = lambda *_: None
    version, end = end_of(lab.open())
    assert (version, end) == ((5, 2) if number < 0 else (7, 4)), (number, lab.disk.files_of(TABLE).commits)
    assert end_of(slow) == (version, end)
    append(slow, version + 1, end)
    return seen
