"""A broker's metrics of requests by purpose and of dollars."""

from __future__ import annotations

import pytest

from stratalog.replication.metrics import Metric
from stratalog.replication.price_lists import price_book
from stratalog.server.metrics.exposition import prometheus_text
from stratalog.server.metrics.of_costs import Produced, StoreCosts
from stratalog.storage.metering.calls import StoreCalls

BUCKET, DISK, AZURE = "s3://logs/broker-1", "file:///logs/broker-1", "abfss://logs@a.dfs.core.windows.net/broker-1"
COMMIT = "orders-0/_delta_log/00000000000000000007.json"


def counted(writes: int, reads: int) -> StoreCalls:
    calls = StoreCalls()
    calls.count("create", COMMIT, 100, requests=writes)
    calls.bill("read", COMMIT, reads)
    return calls


def shown(costs: StoreCosts, url: str, calls: StoreCalls, now_ms: int = 0) -> dict[str, float]:
    produced = Produced(2 << 30, {(url, "own"): 10 << 30})
    by_root = {"metadata": {DISK: StoreCalls()}, "own": {url: calls}, "other": {}}
    metrics: list[Metric] = costs.metrics(by_root, produced, now_ms)
    lines = prometheus_text(metrics).decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in values.items()}


def test_requests_and_dollars_are_shown_by_purpose() -> None:
    found = shown(StoreCosts(price_book(), 0), BUCKET, counted(1_000, 10_000), 86_400_000)
    of_commits = 'purpose="commit",root="own"'
    assert found['stratalog_store_requests_total{kind="write",purpose="commit",root="own"}'] == 1_000
    assert found['stratalog_store_requests_total{kind="read",purpose="commit",root="own"}'] == 10_000
    assert found[f"stratalog_store_cost_dollars_total{{{of_commits}}}"] == pytest.approx(0.009)
    assert found["stratalog_store_dollars_per_gib"] == pytest.approx(0.0045)
    assert found['stratalog_store_storage_dollars_per_month{root="own"}'] == pytest.approx(0.23)
    assert found['stratalog_store_dollars_per_day{root="own"}'] == pytest.approx(0.009), "the mean of the first day"
    assert found['stratalog_store_prices{prices="s3-standard-us-east-1",read_on="2026-12-01",root="own"}'] == 1
    assert len([name for name in found if name.startswith("stratalog_store_requests_total")]) == 2


def test_a_rate_follows_what_is_asked_since_the_last_reading() -> None:
    costs = StoreCosts(price_book(), 0)
    shown(costs, BUCKET, counted(1_000, 0), 1_000_000)
    later = shown(costs, BUCKET, counted(1_000, 0), 100_000_000)
    assert later['stratalog_store_dollars_per_day{root="own"}'] < 0.001


def test_a_disk_costs_nothing_and_says_so() -> None:
    found = shown(StoreCosts(price_book(), 0), DISK, counted(1_000, 10_000))
    assert found['stratalog_store_cost_dollars_total{purpose="commit",root="own"}'] == 0
    assert found["stratalog_store_dollars_per_gib"] == 0
    assert found['stratalog_store_storage_dollars_per_month{root="own"}'] == 0
    assert found['stratalog_store_prices{prices="local-disk",read_on="2026-12-01",root="own"}'] == 1


def test_what_no_list_prices_has_requests_and_no_dollars() -> None:
    for url in (AZURE, "hdfs://namenode/logs"):
        found = shown(StoreCosts(price_book(), 0), url, counted(1, 1))
        assert found['stratalog_store_requests_total{kind="write",purpose="commit",root="own"}'] == 1
        assert [name for name in found if "dollars" in name and "own" in name] == []
        assert "stratalog_store_dollars_per_gib" not in found
