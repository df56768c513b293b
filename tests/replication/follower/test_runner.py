"""What sessions of a process keep for the next one, and how they are spread over time."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.follower.partitions import FetchJob, FollowedPartitions
from stratalog.replication.follower.sessions.runner import FoldedPartitions
from stratalog.replication.spark.fetch import after_end_ms, session_length_ms
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores

JOB = FetchJob(2, 12, "broker-2", METADATA_ROOT, BrokerConfig())


def followed(job: FetchJob = JOB) -> FollowedPartitions:
    return FollowedPartitions(job, 0, MemoryStores().ports())


def test_what_a_session_folded_is_resumed_once_and_by_its_own_fetcher_only() -> None:
    folded, kept = FoldedPartitions(), followed()
    folded.keep(kept)
    assert folded.pop(JOB, 1) is None
    assert folded.pop(replace(JOB, root="broker-3"), 0) is None
    assert folded.pop(JOB, 0) is kept
    assert folded.pop(JOB, 0) is None


@pytest.mark.parametrize("now", [{"broker_epoch": 13}, {"config": BrokerConfig(num_partitions=7)}])
def test_a_new_registration_or_other_settings_begin_without_folds(now: dict[str, Any]) -> None:
    folded = FoldedPartitions()
    folded.keep(followed())
    assert folded.pop(replace(JOB, **now), 0) is None


def test_what_is_kept_is_bounded() -> None:
    folded = FoldedPartitions(fetchers_max=2)
    for root in "abc":
        folded.keep(followed(replace(JOB, root=root)))
    found = [folded.pop(replace(JOB, root=root), 0) for root in "abc"]
    assert [each is not None for each in found] == [False, True, True]


def session_ends_ms(session_ms: int, broker_id: int, sessions: int) -> list[int]:
    """When the first sessions of a broker's two queries end, both together, the queries begun at once."""
    config = BrokerConfig.from_properties({"stratalog.fetch.session.ms": session_ms})
    job = replace(JOB, broker_id=broker_id, config=config)
    lengths = [[session_length_ms(job, slot, number) for number in range(1, sessions + 1)] for slot in (0, 1)]
    return sorted(at_ms for each in lengths for at_ms in accumulate(each))


@pytest.mark.parametrize("session_ms", [2_000, 40_000, 60_000, 300_000])
def test_sessions_of_a_broker_end_at_even_distances_and_those_of_brokers_at_different_times(session_ms: int) -> None:
    half = session_ms // 2
    brokers = [session_ends_ms(session_ms, broker_id, 5)[2:-2] for broker_id in (1, 2, 3)]
    for at_ms in brokers:
        assert {round((later - earlier) / half, 3) for earlier, later in pairwise(at_ms)} == {1.0}
    phases = sorted(at_ms[0] % half for at_ms in brokers)
    gaps = [b - a for a, b in zip(phases, [*phases[1:], phases[0] + half], strict=True)]
    assert min(gaps) > half // 5


def test_each_query_was_active_before_long_sessions_begin() -> None:
    for broker_id in (1, 2, 3):
        first, second, third, _ = session_ends_ms(300_000, broker_id, 2)
        assert first < 40_000
        assert second - first == 20_000
        assert 150_000 < third <= 340_000


@pytest.mark.parametrize(
    ("session_ms", "sessions", "expected_ms"), [(60_000, 2, 500), (60_000, 3, 500), (1_600, 2, 200), (60_000, 1, 0)]
)
def test_a_session_that_has_ended_keeps_its_task_while_another_becomes_active(
    session_ms: int, sessions: int, expected_ms: int
) -> None:
    settings = {"stratalog.fetch.session.ms": session_ms, "stratalog.fetch.sessions": sessions}
    assert after_end_ms(BrokerConfig.from_properties(settings)) == expected_ms
