"""Commits that stand behind another one than they name, or outlive their table: who folds them, and who takes their
place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.storage.delta.table import Committed, Conflict
from stratalog.storage.errors import CorruptMessageError, KafkaStorageError, TableReplacedError
from tests.contract.table_labs import Fault, Lab, Table, clean_up_to, empty, grow, make_anew


@pytest.mark.parametrize("is_checkpointed", [True, False])
def test_a_commit_behind_another_tables_commit_is_a_conflict(lab: Lab, table: Table, is_checkpointed: bool) -> None:
    """The table was made again while a writer slept: the version before its own has another commit id."""
    grow(table, 3)
    sleeper = lab.open()
    sleeper.snapshot()
    make_anew(table, 3)
    if is_checkpointed:
        table.checkpoint()
    assert sleeper.commit(4, empty("late")) == Conflict(4)
    assert lab.open().read_commit(4) == replace(empty("late.withdrawn"), operation="WITHDRAW", data_change=False)
    assert lab.open().commit(5, empty("d5")) == Committed(5)


def test_a_commit_that_took_an_orphans_place_is_not_withdrawn_with_it(lab: Lab, table: Table) -> None:
    """The orphan's writer looks at what stands before its commit, and sleeps: meanwhile the log was cut there."""
    grow(table, 3)
    sleeper = lab.open()
    sleeper.snapshot()
    make_anew(table, 3)

    def let_another_take_its_place() -> None:
        lab.lose(4)
        table.commit(4, empty("d4"))

    lab.on("replace", 4, let_another_take_its_place)
    assert sleeper.commit(4, empty("late")) == Conflict(4)
    assert lab.open().read_commit(4) == empty("d4")
    assert lab.open().commit(5, empty("d5")) == Committed(5)


def test_a_commit_that_another_ones_orphan_precedes_is_committed(lab: Lab, table: Table) -> None:
    """Clean-up has overtaken it, and a writer that slept longer has just made the version before it once more."""
    grow(table, 3)
    sleeper = lab.open()
    sleeper.snapshot()
    grow(table, 4, first=4)
    other = lab.open()

    def let_an_orphan_precede() -> None:
        grow(other, 9, first=6)
        clean_up_to(other, 5)
        lab.on("create:done", 4, lambda: outcomes.append(table.commit(5, empty("c5"))))
        outcomes.append(sleeper.commit(4, empty("orphan")))

    outcomes: list[Committed | Conflict] = []
    lab.on("create:done", 5, let_an_orphan_precede)
    assert table.commit(5, empty("c5")) == Committed(5)
    assert outcomes == [Committed(5), Conflict(4)]
    assert lab.has_commit(5)
    assert not lab.has_commit(4)


def test_a_fold_never_contains_a_commit_that_does_not_follow(lab: Lab, table: Table) -> None:
    grow(table, 3)
    sleeper = lab.open()
    sleeper.snapshot()
    make_anew(table, 3)
    table.checkpoint()
    before = lab.open().snapshot()
    assert before is not None

    folded: list[int] = []

    def fold() -> None:
        found = lab.open().snapshot()
        folded.append(-1 if found is None else found.version)

    lab.on("create:done", 4, fold)
    assert sleeper.commit(4, empty("late")) == Conflict(4)
    snapshot = lab.open().snapshot()
    assert snapshot is not None
    assert (snapshot.version, snapshot.files, snapshot.txns) == (4, before.files, before.txns)
    assert folded == [3]


def die() -> None:
    raise KeyboardInterrupt


def left_behind(lab: Lab, sleeper: Table) -> None:
    """Commit version 4 on c3, with a writer that dies before it looks whether c3 still stands."""
    lab.on("create:done", 4, die)
    with pytest.raises(KeyboardInterrupt):
        sleeper.commit(4, empty("late"))
    assert lab.has_commit(4)


def test_a_commit_that_outlives_its_table_is_folded_by_nobody(lab: Lab, table: Table) -> None:
    grow(table, 3)
    sleeper, reader = lab.open(), lab.open()
    for handle in (sleeper, reader):
        handle.snapshot()
    table.drop()
    left_behind(lab, sleeper)
    for handle in (sleeper, reader, sleeper):
        with pytest.raises(TableReplacedError, match="version 3 is not commit c3 any more"):
            handle.read_commit(4)
        assert not handle.still_stands()
    assert sleeper.commit(4, empty("later")) == Conflict(4)
    assert lab.open().snapshot() is None


def test_a_commit_that_outlives_its_table_is_no_part_of_the_one_that_was_made_in_its_place(
    lab: Lab, table: Table
) -> None:
    """Those who folded the earlier table open it again; the next writer of the new one takes its place."""
    grow(table, 3)
    sleeper, reader = lab.open(), lab.open()
    for handle in (sleeper, reader):
        handle.snapshot()
    make_anew(table, 3)
    left_behind(lab, sleeper)
    for handle in (sleeper, reader):
        with pytest.raises(TableReplacedError, match="version 3 is not commit c3 any more"):
            handle.read_commit(4)
        assert not handle.still_stands()
    for handle in (table, lab.open()):
        snapshot = handle.snapshot()
        assert snapshot is not None
        assert snapshot.version == 3
        assert handle.read_commit(4) is None
    assert lab.open().commit(4, empty("d4")) == Conflict(4)
    assert table.read_commit(4) == replace(empty("late.withdrawn"), operation="WITHDRAW", data_change=False)
    assert table.commit(5, empty("d5")) == Committed(5)
    found = lab.open().snapshot()
    assert found is not None
    assert found.version == 5


def test_a_commit_of_a_dropped_table_arrives_twice(lab: Lab, table: Table) -> None:
    """Its writer takes it back, and the request arrives once more, since its client gave it up; then the table is made
    again up to the version before it."""
    grow(table, 1)
    sleeper = lab.open()
    sleeper.snapshot()
    table.drop()
    again: list[Fault] = []
    lab.on("create:done", 2, lambda: again.append(lab.repeat(2)))
    assert sleeper.commit(2, empty("late")) == Conflict(2)
    assert not lab.has_commit(2)
    again[0]()
    assert lab.has_commit(2)
    assert lab.open().snapshot() is None
    make_anew(table, 1)
    again[0]()
    assert table.commit(2, empty("d2")) == Conflict(2)
    assert lab.open().commit(3, empty("d3")) == Committed(3)
    assert lab.open().recover_tail() == 3


def test_several_commits_of_a_dropped_table_are_left(lab: Lab, table: Table) -> None:
    grow(table, 1)
    sleeper = lab.open()
    sleeper.snapshot()
    assert sleeper.commit(2, empty("c2")) == Committed(2)
    assert sleeper.commit(3, empty("c3")) == Committed(3)
    again = [lab.repeat(2), lab.repeat(3)]
    make_anew(table, 1)
    for each in again:
        each()
    assert [table.commit(version, empty(f"d{version}")) for version in (2, 3)] == [Conflict(2), Conflict(3)]
    found = lab.open().snapshot()
    assert found is not None
    assert found.version == 3


def test_a_lost_version_is_damage_also_where_another_tables_commit_takes_its_place(lab: Lab, table: Table) -> None:
    """A commit of this table stands above it: what stands there is not what was left of an earlier one."""
    grow(table, 3)
    late = lab.repeat(2)
    make_anew(table, 1)
    sleeper = lab.open()
    sleeper.snapshot()
    for version in (2, 3):
        table.commit(version, empty(f"d{version}"))
    lab.lose(2)
    late()
    for fold in (lambda: sleeper.read_commit(2), lab.open().snapshot):
        with pytest.raises(CorruptMessageError, match="version 2 follows commit c1, but version 1 is commit d1"):
            fold()
    assert sleeper.commit(2, empty("e2")) == Conflict(2)
    with pytest.raises(CorruptMessageError, match="version 2 follows commit c1, but version 1 is commit d1"):
        lab.open().snapshot()


def test_the_first_commit_that_clean_up_left_is_folded(lab: Lab, table: Table) -> None:
    grow(table, 3)
    reader = lab.open()
    reader.snapshot()
    grow(table, 4, first=4)
    clean_up_to(table, 4)
    assert not lab.has_commit(3)
    assert reader.read_commit(4) == empty("c4")


def test_a_replaced_table_is_noticed_by_its_reader(lab: Lab, table: Table) -> None:
    grow(table, 3)
    reader = lab.open()
    reader.snapshot()
    table.drop()
    table.create({"stratalog.topic-id": "t2"}, 1, "d0")
    for version in range(1, 5):
        table.commit(version, empty(f"d{version}"))
    with pytest.raises(KafkaStorageError, match="replaced"):
        reader.read_commit(4)
    assert reader.commit(4, empty("c4")) == Conflict(4)
