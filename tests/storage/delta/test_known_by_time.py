"""A leader that has just made a commit on a far store makes the next one without a read; one that slept reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stratalog.storage.clock import RandomIds
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.delta.table import Committed, Conflict
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.objects.distance import FAR, NEAR
from stratalog.storage.objects.memory import MemoryStore
from tests.contract.table_labs import LATER_MS, TABLE, empty
from tests.storage.logs import FakeClock

KEPT_MS = 120_000


class Dated(MemoryStore):
    """A far store with a clock of its own. `asked`: what was read of the log; `losing`: how many answers of creates are
    lost from now on."""

    distance = FAR

    def __init__(self) -> None:
        self.time_ms = 7_000_000
        self.asked: list[str] = []
        self.losing = 0
        super().__init__({}, lambda: self.time_ms)

    def create(self, path: str, data: bytes) -> bool:
        created = super().create(path, data)
        if self.losing:
            self.losing -= 1
            raise StoreUnavailableError(f"the answer of {path} was lost")
        return created

    def get_optional(self, path: str) -> bytes | None:
        self.asked.append(path[-7:])
        return super().get_optional(path)


class Far:
    """One table; a leader of its own clock, and others."""

    def __init__(self) -> None:
        self.store, self.clock = Dated(), FakeClock()
        self.table = self.open()
        assert self.table.create({}, 1, "c0")
        self.version = 0

    def open(self) -> DeltaLogTable:
        return DeltaLogTable(self.store, TABLE, RandomIds(), kept_ms=KEPT_MS)

    def pass_ms(self, duration_ms: int, wall_ms: int | None = None) -> None:
        """Time passes everywhere."""
        self.store.time_ms += duration_ms
        self.clock.now_ms += duration_ms

    def commit(self) -> list[str]:
        """What the leader reads for one more commit."""
        self.store.asked.clear()
        self.version += 1
        committed = self.table.commit(self.version, empty(f"c{self.version}"), clock=self.clock)
        assert committed == Committed(self.version)
        return [*self.store.asked]

    def others_go_on(self, last: int) -> None:
        """Another process folds the table, commits up to `last`, writes a checkpoint and cleans up all it may."""
        other = self.open()
        other.snapshot()
        for version in range(self.version + 1, last + 1):
            assert other.commit(version, empty(f"d{version}")) == Committed(version)
        self.store.time_ms += KEPT_MS
        other.snapshot()
        other.checkpoint()
        list(self.open().clean_log(last, LATER_MS, last))


@pytest.fixture
def far() -> Iterator[Far]:
    return Far()


def test_the_commit_behind_an_own_one_needs_no_read(far: Far) -> None:
    assert far.commit() == ["00.json"]
    assert [far.commit() for _ in range(3)] == [[], [], []]
    far.pass_ms(KEPT_MS // 2 - 1)
    assert far.commit() == []


def test_what_was_made_long_ago_is_read(far: Far) -> None:
    far.commit()
    far.pass_ms(KEPT_MS // 2)
    assert far.commit() == ["01.json"]
    assert far.commit() == []


def test_a_commit_whose_answer_was_lost_is_read_with_the_one_before_it(far: Far) -> None:
    far.commit()
    far.store.losing = 1
    assert far.commit() == ["02.json", "01.json"]
    assert far.commit() == ["02.json"]


def test_a_wall_clock_that_moved_more_than_the_monotonic_one_is_not_believed(far: Far) -> None:
    """As after a suspended machine, whose monotonic clock stood still."""
    far.commit()
    wall_ms = far.clock.wall_ms
    far.clock.wall_ms = lambda: wall_ms() + KEPT_MS  # type: ignore[method-assign]
    assert far.commit() == ["01.json"]
    far.clock.wall_ms = wall_ms  # type: ignore[method-assign]
    assert far.commit() == ["02.json"]


def test_without_a_clock_or_near_by_each_is_read() -> None:
    far = Far()
    far.commit()
    far.store.asked.clear()
    assert far.table.commit(2, empty("c2")) == Committed(2)
    assert far.store.asked == ["01.json"]
    near = MemoryStore()
    near.distance = NEAR
    assert DeltaLogTable(near, TABLE, RandomIds()).kept_ms == 0


def test_a_leader_that_slept_past_clean_up_does_not_believe_its_orphan(far: Far) -> None:
    far.commit()
    far.others_go_on(last=9)
    assert far.store.get_optional(f"{TABLE}/_delta_log/{2:020}.json") is None, "cleaned up: the name is free"
    far.clock.now_ms += KEPT_MS
    far.version += 1
    assert far.table.commit(2, empty("c2"), clock=far.clock) == Conflict(2)


def test_clean_up_leaves_what_the_store_dates_less_than_the_kept_time_before_the_checkpoint(far: Far) -> None:
    """However crowded the log is, and whatever the clocks of brokers say."""
    for _ in range(5):
        far.commit()
    far.pass_ms(KEPT_MS)
    for _ in range(5):
        far.commit()
    far.table.snapshot()
    far.table.checkpoint()
    far.pass_ms(10 * KEPT_MS)
    assert list(far.open().clean_log(10, LATER_MS, 10)) == [0, 1, 2, 3, 4, 5]
    far.commit()
    far.table.snapshot()
    far.table.checkpoint()
    assert list(far.open().clean_log(11, LATER_MS, 11)) == [6, 7, 8, 9, 10]


def test_a_table_whose_topic_lives_on_is_deleted_once_its_newest_commit_is_old(far: Far) -> None:
    far.commit()
    far.pass_ms(KEPT_MS - 1)
    assert not far.open().has_rested()
    far.pass_ms(1)
    assert far.open().has_rested()
