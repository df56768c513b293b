"""What a broker asks its stores for and what that costs, by purpose. Pure: rates are of what was read before.

Costs are those of requests and moved bytes by the list of prices that holds for a root (`stratalog.prices`). What the
list does not price has no cost here, rather than a wrong one. Counts are the process's: of several brokers in one, each
shows the same metadata root and domains, and the others' roots among `other`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from stratalog.replication.metrics import COUNTER, GAUGE, Labels, Metric
from stratalog.server.metrics.rates import DecayingRates
from stratalog.storage.metering.calls import StoreCalls
from stratalog.storage.metering.cost import dollars_of, dollars_per_day, dollars_per_gib, storage_dollars_per_month
from stratalog.storage.metering.prices import REQUESTS, PriceBook, PriceList
from stratalog.storage.metering.purpose import PURPOSES

NANO = 1_000_000_000
"""Rates are of whole numbers: of nanodollars."""
NO_LIST = "none"

CallsOfRoots = Mapping[str, Mapping[str, StoreCalls]]
"""By the root's name in metrics (`metadata`, `own`, `domain:<name>`, `other`): the counts of its stores by URL."""


class Produced(NamedTuple):
    """What a broker keeps.

    written_bytes  that producers wrote since the start
    led_bytes      of the data files of the logs that it leads, by the URL and the name in metrics of where they are
    """

    written_bytes: int
    led_bytes: Mapping[tuple[str, str], int]


class StoreCosts:
    """The costs of one broker's stores, of which rates remember the last reading."""

    def __init__(self, book: PriceBook, begun_ms: int) -> None:
        self._book = book
        self._rates = DecayingRates(begun_ms)

    def metrics(self, by_root: CallsOfRoots, produced: Produced, now_ms: int) -> list[Metric]:
        """Requests, dollars by purpose, dollars a day at the rate of fifteen minutes, a GiB, and of storage a month."""
        requests, dollars, totals = dict[Labels, float](), dict[Labels, float](), dict[Labels, float | None]()
        lists = dict[Labels, float]()
        for root, stores in by_root.items():
            for url, calls in stores.items():
                prices = self._book.of_root(url)
                lists[_of_list(root, prices)] = 1
                _add_requests(requests, root, calls)
                self._add_dollars(dollars, totals, root, prices, calls)
        known = {labels: total for labels, total in totals.items() if total is not None}
        per_day = {
            labels: dollars_per_day(self._rates.rate(labels, round(total * NANO), now_ms) / NANO)
            for labels, total in known.items()
        }
        whole = sum(known.values()) if len(known) == len(totals) else None
        per_gib = None if whole is None else dollars_per_gib(whole, produced.written_bytes)
        stored = dict[Labels, float]()
        for (url, root), size_bytes in produced.led_bytes.items():
            prices = self._book.of_root(url)
            per_month = None if prices is None else storage_dollars_per_month(prices, size_bytes)
            if per_month is not None:
                stored[(("root", root),)] = per_month
        of_process = "of this process to the metadata root, the broker's own and others"
        return [
            Metric("stratalog_store_requests_total", COUNTER, f"Requests as they are billed, {of_process}.", requests),
            Metric("stratalog_store_cost_dollars_total", COUNTER, "What these requests and their bytes cost.", dollars),
            Metric("stratalog_store_dollars_per_day", GAUGE, "The same at the rate of fifteen minutes.", per_day),
            Metric("stratalog_store_prices", GAUGE, "1: the list of prices by which a root is priced.", lists),
            Metric("stratalog_store_storage_dollars_per_month", GAUGE, "For the data files of led partitions.", stored),
            *_one(
                "stratalog_store_dollars_per_gib",
                "What each GiB cost that producers wrote, of a process with one broker.",
                per_gib,
            ),
        ]

    def _add_dollars(
        self,
        dollars: dict[Labels, float],
        totals: dict[Labels, float | None],
        root: str,
        prices: PriceList | None,
        calls: StoreCalls,
    ) -> None:
        of_root: Labels = (("root", root),)
        total = totals.get(of_root, 0.0)
        for purpose in PURPOSES:
            if not any(calls.requests[purpose, kind] for kind in REQUESTS):
                continue
            cost = None if prices is None else dollars_of(prices, calls, [purpose])
            total = None if total is None or cost is None else total + cost
            if cost is not None:
                labels: Labels = (*of_root, ("purpose", purpose))
                dollars[labels] = dollars.get(labels, 0.0) + cost
        totals[of_root] = total


def _add_requests(requests: dict[Labels, float], root: str, calls: StoreCalls) -> None:
    for (purpose, kind), count in calls.requests.items():
        if count:
            labels: Labels = (("root", root), ("purpose", purpose), ("kind", kind))
            requests[labels] = requests.get(labels, 0.0) + count


def _of_list(root: str, prices: PriceList | None) -> Labels:
    if prices is None:
        return (("root", root), ("prices", NO_LIST), ("read_on", ""))
    return (("root", root), ("prices", prices.name), ("read_on", prices.read_on.isoformat()))


def _one(name: str, doc: str, value: float | None) -> list[Metric]:
    """A metric of one value; none where it is unknown."""
    return [] if value is None else [Metric(name, GAUGE, doc, {(): value})]
