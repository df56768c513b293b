"""Figures, ratios, quantiles and the rule of the warm-up."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest

from tests.lab.bench.measures import (
    Row,
    Spread,
    is_warm,
    json_line,
    latency_figures,
    plain,
    quantile,
    ratio,
    rows_of,
    slope,
)


@pytest.mark.parametrize(
    ("ours", "peer", "less_is_better", "expected"),
    [
        (300.0, 100.0, False, 3.0),
        (100.0, 300.0, False, 1 / 3),
        (5.0, 20.0, True, 4.0),
        (20.0, 5.0, True, 0.25),
        (0.0, 5.0, True, math.inf),
    ],
)
def test_a_ratio_above_one_means_that_ours_is_better(
    ours: float, peer: float, less_is_better: bool, expected: float
) -> None:
    assert ratio(ours, peer, less_is_better) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (0.999, 100.0), (1.0, 100.0), (0.001, 1.0)]
)
def test_a_quantile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert quantile([float(n) for n in range(100, 0, -1)], share) == expected


def test_a_quantile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        quantile([], 0.5)


def test_latency_figures_are_named_as_in_the_report() -> None:
    figures = latency_figures([float(n) for n in range(1, 2_001)])
    assert figures == {"p50": 1_000.0, "p99": 1_980.0, "p99.9": 1_998.0, "max": 2_000.0}


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([], False),
        ([100.0, 100.0], False),
        ([100.0, 100.0, 100.0], True),
        ([50.0, 100.0, 102.0, 105.0], True),
        ([50.0, 100.0, 102.0, 106.0], False),
        ([105.0, 100.0, 102.0], True),
        ([100.0, 105.0, 100.0, 110.0], False),
    ],
)
def test_a_peer_is_warm_when_three_runs_in_a_row_differ_by_at_most_five_percent(
    runs: Sequence[float], expected: bool
) -> None:
    assert is_warm(runs) is expected


def test_a_spread_is_of_all_rounds() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(1.0, 2.0, 3.0, 3)
    with pytest.raises(ValueError, match="at least one round"):
        Spread.of([])


def test_a_slope_is_least_squares() -> None:
    assert slope([(0.0, 0.0), (1.0, 3.0), (2.0, 3.0)]) == pytest.approx(1.5)
    with pytest.raises(ValueError, match="two different x"):
        slope([(1.0, 1.0), (1.0, 2.0)])


def test_a_json_line_has_the_medians_the_ratio_and_the_spreads() -> None:
    row = Row(
        "produce_100B", "", "records/s", False, Spread.of([800_000.0, 900_000.0, 850_000.0]), Spread.of([250_000.0])
    )
    line = json.loads(json_line(row))
    assert [line[name] for name in ("bench", "ours", "peer", "ratio", "unit")] == [
        "produce_100B", 850_000, 250_000, 3.4, "records/s",
    ]  # fmt: skip
    assert line["ours_of_rounds"] == {"min": 800_000, "median": 850_000, "max": 900_000, "rounds": 3}


def test_a_row_comes_back_from_its_json_line() -> None:
    beside = Row("memory", "", "MiB a minute", True, Spread.of([0.5]), None, more={"java_mib_in_the_end": 700})
    compared = Row("idle_cpu", "", "% of one core", True, Spread.of([4.0]), Spread.of([5.0]))
    assert beside.ratio is None
    assert [Row.from_json(json.loads(json_line(row))) for row in (beside, compared)] == [beside, compared]


def test_rows_of_a_latency_are_its_figures() -> None:
    rows = rows_of("latency_acks_all", "ms", [{"p50": 1.0}, {"p50": 3.0}], [{"p50": 4.0}, {"p50": 4.0}])
    assert [(row.of, row.ours.median, row.ratio) for row in rows] == [("p50", 2.0, 2.0)]


@pytest.mark.parametrize(
    ("value", "expected"), [(265_745.123, 265_750), (0.1234567, 0.12346), (2.0, 2), (math.inf, math.inf)]
)
def test_five_digits_are_what_a_measurement_bears(value: float, expected: float) -> None:
    assert plain(value) == expected
