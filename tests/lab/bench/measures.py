"""A bench's measures: figures of several rounds, rows of both sides, quantiles, and when a peer is warm. Pure."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

WARM_RUNS = 3
WARM_SPREAD = 1.05
"""The largest ratio of the best to the worst of the last three runs of a warm peer."""


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure's smallest, median and largest value over the rounds."""

    least: float
    median: float
    most: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """ValueError when there is no value."""
        if not values:
            raise ValueError("a figure needs at least one round")
        return cls(min(values), statistics.median(values), max(values), len(values))

    def as_json(self) -> dict[str, float]:
        return {"min": plain(self.least), "median": plain(self.median), "max": plain(self.most), "rounds": self.rounds}

    @classmethod
    def from_json(cls, body: Mapping[str, float]) -> Self:
        return cls(body["min"], body["median"], body["max"], int(body["rounds"]))


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one bench, ours beside the peer's.

    bench, of      the bench's name, and which of its figures ("" for its main one, `p99` …)
    unit           of `ours` and `peer`; `less_is_better` for times, bytes and CPU
    peer_is        what the peer's side is when it is not Kafka, None when there is nothing to compare with
    more           single numbers and words beside it, for the JSON line
    """

    bench: str
    of: str
    unit: str
    less_is_better: bool
    ours: Spread
    peer: Spread | None
    peer_is: str = "Kafka"
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """The ratio of the medians; above 1: ours is better. None when there is nothing to compare with."""
        return None if self.peer is None else ratio(self.ours.median, self.peer.median, self.less_is_better)

    def as_json(self) -> dict[str, Any]:
        """The JSON line: the medians, then the spreads."""
        found = self.ratio
        return {
            "bench": self.bench,
            "of": self.of,
            "ours": plain(self.ours.median),
            "peer": None if self.peer is None else plain(self.peer.median),
            "ratio": None if found is None else plain(found),
            "unit": self.unit,
            "less_is_better": self.less_is_better,
            "peer_is": self.peer_is,
            "ours_of_rounds": self.ours.as_json(),
            "peer_of_rounds": None if self.peer is None else self.peer.as_json(),
            **({"more": dict(self.more)} if self.more else {}),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """The row that `as_json` was made from."""
        return cls(
            bench=body["bench"],
            of=body["of"],
            unit=body["unit"],
            less_is_better=body["less_is_better"],
            ours=Spread.from_json(body["ours_of_rounds"]),
            peer=Spread.from_json(body["peer_of_rounds"]) if body["peer_of_rounds"] else None,
            peer_is=body["peer_is"],
            more=body.get("more", {}),
        )


def rows_of(
    bench: str, unit: str, ours: Sequence[Mapping[str, float]], peer: Sequence[Mapping[str, float]]
) -> list[Row]:
    """A row for each figure that both sides have in all rounds, e.g. p50 and p99; less is better."""
    return [
        Row(bench, name, unit, True, Spread.of([r[name] for r in ours]), Spread.of([r[name] for r in peer]))
        for name in ours[0]
    ]


def ratio(ours: float, peer: float, less_is_better: bool) -> float:
    """How many times better ours is; infinite when the worse side is 0.

    >>> ratio(10.0, 5.0, less_is_better=True)
    0.5
    """
    better, worse = (peer, ours) if less_is_better else (ours, peer)
    return better / worse if worse else math.inf


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value for which at least `share` (0 to 1) of all are at most as large. ValueError without values.

    >>> quantile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    """
    if not values:
        raise ValueError("a quantile needs at least one value")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def latency_figures(latencies_ms: Sequence[float]) -> dict[str, float]:
    """p50, p99, p99.9 and max [ms]."""
    shares = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    return {name: quantile(latencies_ms, share) for name, share in shares.items()}


def is_warm(runs: Sequence[float]) -> bool:
    """True when the last three runs differ by at most 5 %.

    >>> is_warm([80.0, 100.0, 102.0]), is_warm([80.0, 100.0, 102.0, 105.0])
    (False, True)
    """
    last = runs[-WARM_RUNS:]
    return len(last) == WARM_RUNS and max(last) <= WARM_SPREAD * min(last)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The least-squares slope of (x, y) points. ValueError with fewer than two different x.

    >>> slope([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)])
    2.0
    """
    mean_x, mean_y = (statistics.fmean(p[axis] for p in points) for axis in (0, 1))
    width = sum((x - mean_x) ** 2 for x, _ in points)
    if not width:
        raise ValueError("a slope needs two different x")
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / width


def plain(value: float) -> float:
    """Five significant digits, the precision of a measurement, without zeros at the end.

    >>> plain(265745.123), plain(2.0), plain(0.123456)
    (265750, 2, 0.12346)
    """
    if not math.isfinite(value):
        return value
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded == int(rounded) else rounded


def json_line(row: Row) -> str:
    """The row as one line."""
    return json.dumps(row.as_json())
