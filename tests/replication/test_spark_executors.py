"""What is asked of Spark's executors before fetch sessions run there. Without Spark: folders are the roots."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from stratalog.replication import cadence
from stratalog.replication.progress.progress import ENDED, ProgressHeader, encode_progress, fetch_progress_path
from stratalog.replication.spark.executors import (
    PROBE_PREFIX,
    ROUNDS_TO_MOVE,
    SessionName,
    SparkSettings,
    check_roots,
    driver_path,
    is_beside_another,
)
from stratalog.storage.clock import SystemClock
from stratalog.storage.objects.opened import open_store


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, []),
        ({"spark.speculation": "false", "spark.python.worker.killOnIdleTimeout": "false"}, []),
        ({"spark.speculation": "TRUE"}, ["spark.speculation=true"]),
        ({"spark.python.worker.killOnIdleTimeout": "true"}, []),  # without a timeout nothing is killed
        (
            {"spark.python.worker.killOnIdleTimeout": "true", "spark.python.worker.idleTimeoutSeconds": "60"},
            ["spark.python.worker.idleTimeoutSeconds=60"],
        ),
        ({"spark.python.worker.killOnIdleTimeout": "true", "spark.python.worker.idleTimeoutSeconds": "61"}, []),
    ],
)
def test_settings_that_disturb_sessions_of_60_seconds(settings: dict[str, str], expected: list[str]) -> None:
    assert [warning.split()[0] for warning in SparkSettings(settings).warnings(60_000)] == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({"spark.dynamicAllocation.enabled": "true"}, (1 << 31) - 1),
        ({"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "3"}, 3),
        (
            {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "3",
                "spark.executor.cores": "5",
                "spark.task.cpus": "2",
            },
            6,
        ),
    ],
)
def test_slots_that_dynamic_allocation_may_bring(settings: dict[str, str], expected: int | None) -> None:
    assert SparkSettings(settings).slots_to_come == expected


def test_a_task_tells_a_shared_root_from_a_folder_of_the_same_name(tmp_path: Path) -> None:
    shared, own = str(tmp_path / "shared"), str(tmp_path / "own")
    open_store(shared, create=True).put(driver_path("x"), b"x")
    open_store(own, create=True)
    answers = list(check_roots([shared, own], "x", 3))
    assert [(root, path) for _, root, path, _ in answers] == [
        (shared, f"{PROBE_PREFIX}x-task-3"),
        (own, f"{PROBE_PREFIX}x-task-3"),
    ]
    assert answers[0][3] == ""
    assert "other storage of the same name" in answers[1][3]
    assert open_store(shared).get(f"{PROBE_PREFIX}x-task-3") == b"x"
    assert open_store(own).get_optional(f"{PROBE_PREFIX}x-task-3") is None


class Meanwhile(SystemClock):
    """Waits in which `act` happens each `interval_ms`."""

    def __init__(self, act: Callable[[], None] = lambda: None, interval_ms: float = cadence.BEAT.ms) -> None:
        self.act = act
        self.interval_ms = interval_ms
        self.waited_ms = 0.0

    def sleep_ms(self, duration_ms: float) -> None:
        before = self.waited_ms // self.interval_ms
        self.waited_ms += duration_ms
        for _ in range(int(self.waited_ms // self.interval_ms - before)):
            self.act()


def published(sequence: int, state: str) -> bytes:
    return encode_progress(ProgressHeader(sequence, 0, sequence, state), [])


@pytest.mark.parametrize(
    ("elder", "beat_ms", "expected", "waited_ms"),
    [
        (SessionName(1, 4, "aaaa", "here"), cadence.BEAT.ms, True, cadence.ELDER_LOOKS_MS[0]),
        (
            SessionName(1, 4, "aaaa", "here"),
            cadence.QUIET_BEAT.ms,
            True,
            sum(cadence.ELDER_LOOKS_MS),
        ),  # it rests, on an object store
        (SessionName(1, 4, "aaaa", "here"), None, False, sum(cadence.ELDER_LOOKS_MS)),  # killed, say
        (SessionName(1, 4, "aaaa", "else"), cadence.BEAT.ms, False, 0),
        (SessionName(0, 4, "aaaa", "here"), cadence.BEAT.ms, False, 0),  # an earlier round of the same query
    ],
)
def test_a_session_beside_one_of_the_followers_other_query(
    tmp_path: Path, elder: SessionName, beat_ms: int | None, expected: bool, waited_ms: int
) -> None:
    objects = open_store(str(tmp_path), create=True)
    path = fetch_progress_path(5, f"0-{elder}")
    objects.put_register(path, published(0, "active"))
    beats = count(1)
    clock = Meanwhile(lambda: objects.put_register(path, published(next(beats), "active")), beat_ms or 1 << 40)
    own = SessionName(0, 9, "bbbb", "here")
    assert is_beside_another(objects, 5, 0, own, clock) is expected
    assert clock.waited_ms == waited_ms
    assert not is_beside_another(objects, 5, 0, own._replace(number=2 * ROUNDS_TO_MOVE), clock)
    assert not is_beside_another(objects, 5, 1, own, clock)


def test_a_session_that_has_ended_is_nobodys_neighbour(tmp_path: Path) -> None:
    objects = open_store(str(tmp_path), create=True)
    path = fetch_progress_path(5, f"0-{SessionName(1, 4, 'aaaa', 'here')}")
    objects.put_register(path, published(1, ENDED))
    assert not is_beside_another(objects, 5, 0, SessionName(0, 9, "bbbb", "here"), Meanwhile())
