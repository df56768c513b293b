"""The tables of pauses and bounds: what each row says, and which rows have to agree."""

from __future__ import annotations

from types import ModuleType

import pytest

from stratalog.replication import cadence
from stratalog.replication.config import BrokerConfig
from stratalog.storage import cadence as storage_cadence
from stratalog.storage.cadence import BackOff, Bound, Poll
from stratalog.storage.upkeep.chore import UpkeepLimits

TABLES = cadence, storage_cadence
SESSION_MS = BrokerConfig().broker_session_timeout_ms


def rows(table: ModuleType) -> dict[str, Bound | Poll | BackOff]:
    return {name: row for name, row in vars(table).items() if isinstance(row, Bound | Poll | BackOff)}


@pytest.mark.parametrize("table", TABLES)
def test_a_row_says_what_it_bounds_and_why(table: ModuleType) -> None:
    named = {name: row for name, row in rows(table).items() if not isinstance(row, BackOff)}
    assert named
    assert [name for name, row in named.items() if not (row.of and row.why)] == []
    assert [name for name, row in named.items() if isinstance(row, Bound) and row.ms <= 0] == []


@pytest.mark.parametrize("table", TABLES)
def test_a_pause_that_grows_has_its_bounds_in_order(table: ModuleType) -> None:
    polls = [(row.shortest_ms, row.longest_ms) for row in rows(table).values() if isinstance(row, Poll)]
    retries = [(row.first_ms, row.most_ms) for row in rows(table).values() if isinstance(row, BackOff)]
    assert [bounds for bounds in polls + retries if bounds[0] > bounds[1]] == []


@pytest.mark.parametrize(
    ("shorter_ms", "longer_ms"),
    [
        (3 * cadence.BEAT.ms, cadence.SILENCE.ms),
        (3 * cadence.QUIET_BEAT.ms, cadence.RESTING_SILENCE.ms),
        (cadence.RESTING_SILENCE.ms, SESSION_MS),
        (cadence.RESTS_AFTER.ms, cadence.RESTING_LENGTH.ms),
        (cadence.QUIET_BEAT.ms, cadence.FORGETTING_GAP.ms),
        (cadence.FORGETTING_GAP.ms, cadence.SESSION_FORGOTTEN.ms),
        (3 * cadence.COPY_TIMES_PUBLISHED.ms, cadence.COPY_TIMES_STALE.ms),
        (3 * cadence.SUPERVISED.ms, cadence.AT_WORK.ms),
        (cadence.UPKEEP_PIECE.ms, cadence.UPKEEP_ROUND.ms),
        (cadence.TURNS_APART.ms, cadence.TURNS_APART_MOST.ms),
        (cadence.APPENDS.ms, cadence.TURN_WORK_MANY.ms),
        (cadence.COPIES.ms, cadence.TURN_WORK_MANY.ms),
        (cadence.LOAD_WINDOW.ms + cadence.READS_HOLD_MERGES.ms, UpkeepLimits().leader_first_ms),
        (storage_cadence.APPENDS_SLOWED.ms, storage_cadence.APPENDS_STOPPED.ms),
        (storage_cadence.REQUEST.ms, SESSION_MS // 6),
        (storage_cadence.REQUEST.ms, storage_cadence.CLIENT_REQUEST.ms),
    ],
)
def test_rows_that_depend_on_each_other_agree(shorter_ms: int, longer_ms: int) -> None:
    assert shorter_ms <= longer_ms
