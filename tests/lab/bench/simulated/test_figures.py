"""The rows of a round in a simulated bucket."""

from __future__ import annotations

import pytest

from stratalog.replication.price_lists import price_book
from stratalog.storage.metering.calls import StoreCalls
from stratalog.storage.metering.prices import PriceList
from tests.lab.bench.report import table
from tests.lab.bench.simulated.figures import CloudRound, Load, Span, rows_of_idle, rows_of_rounds

COMMIT = "orders-0/_delta_log/00000000000000000007.json"


def span(took_s: float, writes: int, reads: int) -> Span:
    calls = StoreCalls()
    calls.count("create", COMMIT, requests=writes)
    calls.bill("read", COMMIT, reads)
    return Span(took_s, {"conditional_put": writes, "get": reads}, calls, {"get": 26.0}, 1)


@pytest.fixture
def one() -> CloudRound:
    """Ten acknowledgements in ten seconds, 20 writes and 70 reads of which 50 are those of an idle cluster."""
    return CloudRound(
        {"closed loop": [10.0] * 99 + [50.0]},
        span(10, 20, 70),
        span(30, 0, 150),
        10,
        Load(span(20, 1_000, 0), 1 << 30),
        Load(span(20, 400, 0), 1 << 31),
    )


def prices_of(url: str) -> PriceList:
    found = price_book().of_root(url)
    assert found is not None
    return found


def test_the_requests_of_an_acknowledgement_are_without_those_of_an_idle_cluster(one: CloudRound) -> None:
    found = one.figures(prices_of("s3://a"))
    assert found["requests an acknowledgement"] == pytest.approx((90 - 10 * 5) / 10)
    assert found["writes an acknowledgement"] == 2


def test_dollars_are_of_full_load_and_of_an_idle_month(one: CloudRound) -> None:
    found = one.figures(prices_of("s3://a"))
    assert found["a GiB written"] == pytest.approx(0.005)
    assert found["a GiB within a budget"] == pytest.approx(0.001)
    assert found["idle"] == 5
    assert found["idle a month"] == pytest.approx(5 * 86_400 * 30 * 0.4e-6)
    assert (found["closed loop p50"], found["closed loop p99"]) == (10.0, 10.0)


def test_every_row_says_that_it_is_simulated_and_names_its_prices(one: CloudRound) -> None:
    rows = rows_of_rounds("simulated_fast", [one, one], prices_of("s3://a"))
    assert all(row.unit.endswith(", simulated") for row in rows)
    assert {row.more["prices"] for row in rows} == {"s3-standard-us-east-1"}
    assert len(table(rows).splitlines()) == 2 + len(rows)


def test_a_list_without_prices_makes_no_row(one: CloudRound) -> None:
    with pytest.raises(ValueError, match="adls-gen2 lacks write, read"):
        rows_of_rounds("simulated_fast", [one], prices_of("az://a"))


def test_an_idle_month_is_shown_by_purpose() -> None:
    rounds = [{("session", "write"): 12, ("session", "read"): 30, ("poll", "read"): 0}, {("inbox", "list"): 6}]
    rows = {row.of: row.ours for row in rows_of_idle("simulated_idle", rounds, 120, prices_of("s3://a"))}
    month_s = 30 * 86_400
    session = (12 * 5e-6 + 30 * 0.4e-6) / 120 * month_s
    assert set(rows) == {"a month", "session", "inbox"}
    assert (rows["session"].least, rows["session"].most) == pytest.approx((0, session))
    assert rows["a month"].most == pytest.approx(session)
    assert rows["inbox"].most == pytest.approx(6 * 5e-6 / 120 * month_s)
