"""What a storm on a bucket is judged by: orphans of a listing, times of failovers; and a short storm."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from stratalog.replication.metadata.image import ClusterImage
from tests.lab.real.bucket_storm.failovers import Strike, failovers_ms
from tests.lab.real.bucket_storm.leftovers import first_of_row, small_orphans, table_orphans
from tests.lab.real.bucket_storm.run import run_storm
from tests.lab.real.harness.faults import KILL
from tests.lab.real.harness.history import ACK, SEND, HistoryEvent


def commit(version: int, end: str = "json") -> str:
    return f"_delta_log/{version:020}.{end}"


def test_what_neither_snapshot_nor_log_names_is_an_orphan() -> None:
    kinds = Counter[str]()
    paths = [commit(2), commit(7), commit(8), commit(8, "checkpoint.parquet"), commit(2, "checkpoint.parquet")]
    paths += ["_delta_log/_last_checkpoint", "segment=0/a.parquet", "segment=0/b.parquet", "_removed/1.json"]
    first = first_of_row(paths, 8)
    assert first == 7
    orphans = table_orphans(paths, first, 8, {"segment=0/a.parquet", "_removed/1.json"}, kinds)
    assert set(orphans) == {commit(2), commit(2, "checkpoint.parquet"), "segment=0/b.parquet"}
    assert kinds == {"commit": 2, "checkpoint": 1, "pointer": 1, "file": 2}


def test_the_objects_of_a_broker_that_nobody_knows_are_orphans() -> None:
    paths = ["broker-9/progress/1/leader", "broker-1/meta.properties", "broker-1/inbox/a.json", "metadata/sessions/1"]
    kinds = Counter[str]()
    assert small_orphans(paths, ClusterImage(), kinds) == ["broker-9/progress/1/leader", "broker-1/inbox/a.json"]
    assert kinds == {"identity": 1, "session": 1}


def test_a_failover_ends_with_the_slowest_partition_that_was_led() -> None:
    sent = {"a": (0, 900), "b": (0, 1_100), "c": (1, 1_200), "d": (2, 1_050)}
    acks = {"a": 1_150, "b": 1_400, "c": 3_000, "d": 9_000}
    events = [HistoryEvent(at_ms, "w", SEND, of, value=value) for value, (of, at_ms) in sent.items()]
    events += [HistoryEvent(at_ms, "w", ACK, sent[value][0], 0, value=value) for value, at_ms in acks.items()]
    strikes = [Strike(1_000, KILL, frozenset({0, 1})), Strike(1_000, KILL, frozenset())]
    assert list(failovers_ms(events, strikes)) == [2_000]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.stores
@pytest.mark.timeout(900)
@pytest.mark.parametrize("_server", ["versity_server"])
def test_a_short_storm_loses_nothing_and_leaves_nothing(tmp_path: Path, _server: str) -> None:
    result = run_storm(tmp_path, 45, 5, "0ms", {"broker.session.timeout.ms": 6_000})
    assert result.findings == []
    assert result.orphans == []
    assert result.stored == result.stored_by_deltalake >= result.acknowledged
    assert sum(result.faults.values()) >= 2
