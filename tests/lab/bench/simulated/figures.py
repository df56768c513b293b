"""What is measured in a simulated bucket, and its rows. Pure.

Every row says that it is simulated: the times of requests are drawn, from distributions with their sources in
`tests/stores/cloud/profiles.toml`, and the prices are those of `conf/prices.toml`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from stratalog.storage.metering.calls import StoreCalls
from stratalog.storage.metering.cost import GIB_BYTES, MILLION, dollars_of, dollars_per_gib, dollars_per_month
from stratalog.storage.metering.prices import PriceList
from tests.lab.bench.measures import Row, Spread, latency_figures
from tests.stores.cloud.request_kinds import KINDS, READS

Billed = Mapping[tuple[str, str], int]
"""Requests by purpose and by the kinds of price lists (`metering.calls.BILLED`)."""
SIMULATED = "simulated"
SHOWN = ("p50", "p99")
WRITES = [kind for kind in KINDS if kind not in READS and kind != "delete"]
UNITS: Mapping[str, str] = {
    "requests an acknowledgement": "requests",
    "writes an acknowledgement": "requests",
    "a GiB written": "$",
    "a GiB within a budget": "$",
    "idle": "requests/s",
    "idle a month": "$",
}
"""By figure; all others are milliseconds."""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a round.

    took_s      how long it was
    requests    that the bucket got in it, by kind
    calls       what the meter counted in it
    p50_ms      what these requests took, by kind
    slower      those for which the server behind the relay took longer than what was drawn
    """

    took_s: float
    requests: Mapping[str, int]
    calls: StoreCalls
    p50_ms: Mapping[str, float]
    slower: int

    @property
    def requests_per_s(self) -> float:
        return sum(self.requests.values()) / self.took_s


@dataclass(frozen=True, slots=True)
class Load:
    """Much is produced for a time. `size_bytes`: values that were produced."""

    span: Span
    size_bytes: int

    @property
    def mib_per_s(self) -> float:
        return self.size_bytes / self.span.took_s / (GIB_BYTES >> 10)

    def dollars_per_gib(self, prices: PriceList) -> float:
        """ValueError where the list lacks a price."""
        dollars = dollars_of(prices, self.span.calls)
        if dollars is None or (found := dollars_per_gib(dollars, self.size_bytes)) is None:
            raise ValueError(f"{prices.name} lacks {', '.join(prices.not_listed)}, or nothing was produced")
        return found


@dataclass(frozen=True, slots=True)
class CloudRound:
    """One round in one bucket.

    latencies_ms   by loop
    closed, idle   the closed loop, and nothing to do
    acks           acknowledgements of the closed loop
    bulk           as much is produced as can be
    governed       as much as at the shape that is priced, with a budget for requests; None: not measured
    """

    latencies_ms: Mapping[str, Sequence[float]]
    closed: Span
    idle: Span
    acks: int
    bulk: Load
    governed: Load | None = None

    def requests_per_ack(self, kinds: Collection[str]) -> float:
        """Requests of an acknowledgement, without those of an idle cluster in the same time; 0 at least."""
        made, idle = (sum(span.requests.get(kind, 0) for kind in kinds) for span in (self.closed, self.idle))
        return max(0.0, made - idle * self.closed.took_s / self.idle.took_s) / self.acks

    def figures(self, prices: PriceList) -> dict[str, float]:
        """Figures by their names in the rows. ValueError where the list lacks a price."""
        per_gib = self.bulk.dollars_per_gib(prices)
        idle = dollars_of(prices, self.idle.calls)
        if idle is None:
            raise ValueError(f"{prices.name} lacks {', '.join(prices.not_listed)}")
        latencies = {
            f"{loop} {share}": latency_figures(times)[share]
            for loop, times in self.latencies_ms.items()
            for share in SHOWN
        }
        return {
            **latencies,
            "requests an acknowledgement": self.requests_per_ack(KINDS),
            "writes an acknowledgement": self.requests_per_ack(WRITES),
            "a GiB written": per_gib,
            **({} if self.governed is None else {"a GiB within a budget": self.governed.dollars_per_gib(prices)}),
            "idle": self.idle.requests_per_s,
            "idle a month": dollars_per_month(idle / self.idle.took_s),
        }


def rows_of_rounds(bench: str, rounds: Sequence[CloudRound], prices: PriceList) -> list[Row]:
    """A row for each figure; less is better in all."""
    found = [each.figures(prices) for each in rounds]
    more = {SIMULATED: True, "prices": prices.name, "prices_read_on": prices.read_on.isoformat()}
    return [
        Row(
            bench,
            name,
            f"{UNITS.get(name, 'ms')}, {SIMULATED}",
            True,
            Spread.of([each[name] for each in found]),
            None,
            more={**more, **_beside(name, rounds)},
        )
        for name in found[0]
    ]


def _beside(name: str, rounds: Sequence[CloudRound]) -> dict[str, object]:
    """What explains a figure: the last round's."""
    last = rounds[-1]
    if name == "requests an acknowledgement":
        return {"acknowledgements": last.acks, "closed_loop_requests": dict(last.closed.requests)}
    loads = {"a GiB written": last.bulk, "a GiB within a budget": last.governed}
    if (load := loads.get(name)) is not None:
        return {"mib_per_s": load.mib_per_s, "kinds": dict(load.span.requests)}
    if name == "idle":
        purposes: dict[str, int] = {}
        for (purpose, kind), count in last.idle.calls.requests.items():
            if count:
                purposes[f"{purpose} {kind}"] = count
        return {"seconds": last.idle.took_s, "purposes": purposes}
    if name == "closed loop p50":
        return {"requests_p50_ms": dict(last.closed.p50_ms), "requests_slower_than_drawn": last.closed.slower}
    return {}


def rows_of_idle(bench: str, rounds: Sequence[Billed], took_s: float, prices: PriceList) -> list[Row]:
    """What these requests, made in so many seconds, cost in thirty days: in all, and of each purpose that costs some.

    Three reads a second of one purpose, at $0.40 a million, are $3.11. ValueError where the list lacks a price.
    """
    found = [_dollars_by_purpose(each, took_s, prices) for each in rounds]
    purposes = sorted({purpose for each in found for purpose, dollars in each.items() if dollars})
    kinds = {f"{purpose} {kind}": count for (purpose, kind), count in sorted(rounds[-1].items())}
    more = {SIMULATED: True, "prices": prices.name, "prices_read_on": prices.read_on.isoformat()}

    def row(name: str, values: Sequence[float], **beside: object) -> Row:
        return Row(bench, name, f"$, {SIMULATED}", True, Spread.of(values), None, more={**more, **beside})

    whole = row("a month", [sum(each.values()) for each in found], seconds=took_s, requests=kinds)
    return [whole, *(row(purpose, [each.get(purpose, 0.0) for each in found]) for purpose in purposes)]


def _dollars_by_purpose(billed: Billed, took_s: float, prices: PriceList) -> dict[str, float]:
    found = dict[str, float]()
    for (purpose, kind), count in billed.items():
        price = prices.prices.get(kind)
        if price is None:
            raise ValueError(f"{prices.name} lacks the price of {kind}")
        found[purpose] = found.get(purpose, 0.0) + dollars_per_month(count * price / MILLION / took_s)
    return found
