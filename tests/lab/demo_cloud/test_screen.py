"""The one screen of the demo in a bucket."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.jobs.demo.verdict import Differences
from stratalog.replication.price_lists import price_book
from stratalog.storage.metering.calls import StoreCalls
from tests.lab.bench.simulated.figures import CloudRound, Load, Span
from tests.lab.demo_cloud.screen import CLOSED, KILLED, OUTSIDE, CloudOutcome, checks_of, screen_lines
from tests.lab.demo_cloud.stored import Place, moved

RIGHT = CloudOutcome(10, 10, Differences(0, 0, 0, 0), 2, 9_400.0, {"deltalake": 10}, 0)


def figures() -> CloudRound:
    calls = StoreCalls()
    calls.count("create", "orders-0/_delta_log/00000000000000000007.json", requests=20)
    calls.bill("read", "orders-0/_delta_log/00000000000000000007.json", 50)
    span = Span(10, {"conditional_put": 20, "get": 50}, calls, {}, 0)
    return CloudRound(
        {CLOSED: [70.0], OUTSIDE: [200.0], KILLED: [90.0]}, span, replace(span, took_s=30), 10, Load(span, 1 << 20)
    )


def test_a_run_without_faults_holds_every_claim() -> None:
    assert all(check.holds for check in checks_of(RIGHT))


@pytest.mark.parametrize(
    ("changes", "fails"),
    [
        ({"acknowledged": 9}, "acknowledged"),
        ({"failover_ms": None}, "failover"),
        ({"failover_ms": 13_000.0}, "failover"),
        ({"differences": Differences(1, 0, 0, 0)}, "lost"),
        ({"differences": Differences(0, 1, 0, 0)}, "twice"),
        ({"differences": Differences(0, 0, 0, 1)}, "order per key"),
        ({"stored": {"deltalake": 11}}, "read by deltalake"),
        ({"moved": 1}, "offsets"),
    ],
)
def test_each_fault_fails_its_claim_alone(changes: dict[str, object], fails: str) -> None:
    outcome = replace(RIGHT, **changes)  # type: ignore[arg-type]
    assert [check.name for check in checks_of(outcome) if not check.holds] == [fails]


def test_the_screen_names_profile_and_prices_and_says_that_it_is_simulated() -> None:
    prices = price_book().of_root("s3://bucket")
    assert prices is not None
    lines = screen_lines("fast", checks_of(RIGHT), figures(), prices)
    text = "\n".join(lines)
    for part in ("The verdict holds.", "Simulated: ", "'fast'", "s3-standard-us-east-1", "2026-12-01", "a GiB written"):
        assert part in text
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 120


def test_a_record_that_is_elsewhere_or_another_one_has_moved() -> None:
    acknowledged = {Place(0, 0): b"a", Place(0, 1): b"b", Place(1, 0): b"c"}
    assert moved(acknowledged, acknowledged) == 0
    assert moved(acknowledged, {Place(0, 0): b"a", Place(0, 1): b"c"}) == 2
