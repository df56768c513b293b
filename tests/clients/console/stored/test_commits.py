"""How many requests a search of commits makes, and what it finds after clean-up."""

from __future__ import annotations

import pytest

from stratalog.clients.console.stored.commits import CommitReader
from stratalog.storage.clock import RandomIds
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.delta.table import Commit
from tests.storage.far_store import FarStore

NEWEST = 100


@pytest.fixture
def store() -> FarStore:
    return FarStore()


@pytest.fixture
def table(store: FarStore) -> DeltaLogTable:
    made = DeltaLogTable(store, "t-0", RandomIds())
    made.create({}, 0, "c0")
    for version in range(1, NEWEST + 1):
        made.commit(version, Commit(f"c{version}", "WRITE", version))
    store.rounds.clear()
    return made


@pytest.mark.parametrize("versions", [range(NEWEST + 1), range(NEWEST, -1, -1), range(40, 80), range(70, 5, -1)])
def test_a_search_to_and_fro_asks_for_many_at_a_time(table: DeltaLogTable, store: FarStore, versions: range) -> None:
    read = CommitReader(table, NEWEST)
    for _ in range(2):
        commits = [read(version) for version in versions]
        assert [None if each is None else each.commit_id for each in commits] == [f"c{v}" for v in versions]
    assert len(store.rounds) <= 12


def test_what_was_cleaned_up_is_none_in_either_direction(table: DeltaLogTable, store: FarStore) -> None:
    snapshot = table.snapshot()
    assert snapshot is not None
    table.checkpointer(snapshot)()
    for version in range(90):
        store.delete(f"t-0/_delta_log/{version:020d}.json")
    up, down = CommitReader(table, NEWEST), CommitReader(table, NEWEST)
    assert [up(version) is not None for version in range(85, NEWEST + 1)] == [v > 90 for v in range(85, NEWEST + 1)]
    assert [down(version) is not None for version in range(NEWEST, 84, -1)] == [v > 90 for v in range(NEWEST, 84, -1)]
