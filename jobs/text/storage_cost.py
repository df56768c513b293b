"""What the roots of a cluster cost where they are, for `strata log-dirs --cost`. I/O: lists roots on storage.

By the metadata root every object of a root is counted, the commits and the files that wait for deletion, too, which
takes a request for each thousand of them. Brokers that are asked tell the sizes of data files alone. What is asked of a
store is counted by the process that asks, so neither shows the cost of requests: the brokers' metrics do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stratalog.server.admin.log_dirs import LogDirDescription
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError
from stratalog.storage.metering.cost import GIB_BYTES, storage_dollars_per_month
from stratalog.storage.metering.prices import STORAGE, PriceBook, PriceList

REQUESTS = (
    "The cost of requests is counted by each broker: stratalog_store_cost_dollars_total and "
    "stratalog_store_dollars_per_day at its stratalog.metrics.port. Neither storage nor brokers that are asked show it."
)
METADATA_ROOT, DOMAIN = "the metadata root", "the storage domain "
NO_LIST = "no list of prices is for this kind of root: give one by --prices"
DATA_FILES_ALONE = (
    "the data files alone, a storage domain's with their leader: --root instead of --bootstrap-server counts every "
    "object where it is"
)


@dataclass(frozen=True, slots=True)
class RootCost:
    """The cost of one root.

    stored_bytes  None: they are unknown
    is_whole      whether they are of every object, or of data files alone
    """

    root: str
    prices: PriceList | None
    stored_bytes: int | None
    is_whole: bool

    @property
    def dollars_per_month(self) -> float | None:
        """Of storage; None where bytes or price are unknown."""
        if self.prices is None or self.stored_bytes is None:
            return None
        return storage_dollars_per_month(self.prices, self.stored_bytes)

    @property
    def lacks(self) -> str:
        """What cannot be had and why; empty: nothing."""
        if self.stored_bytes is None:
            return "the root cannot be read"
        if self.prices is None:
            return NO_LIST
        if STORAGE in self.prices.not_listed:
            return f"{self.prices.name} lists no price of storage; its source is {self.prices.source}"
        return "" if self.is_whole or self.prices.is_free else DATA_FILES_ALONE

    def to_json(self) -> dict[str, object]:
        """As it stands in the tool's JSON."""
        prices = self.prices
        return {
            "prices": None if prices is None else prices.name,
            "pricesReadOn": None if prices is None else prices.read_on.isoformat(),
            "storedBytes": self.stored_bytes,
            "storageDollarsPerMonth": self.dollars_per_month,
            "requestDollarsPerDay": 0 if prices is not None and prices.is_free else None,
            "lacks": self.lacks,
        }

    def line(self, name: str) -> str:
        """A sentence for the reader.

        >>> RootCost("hdfs://a", None, 1 << 30, True).line("broker 1").partition(": no list")[0]
        'Cost of broker 1, hdfs://a: 1.00 GiB, of which the cost is unknown'
        """
        begin = f"Cost of {name}, {self.root}:"
        if self.stored_bytes is None:
            return f"{begin} {self.lacks}"
        size = f"{self.stored_bytes / GIB_BYTES:.2f} GiB"
        if self.prices is not None and self.prices.is_free:
            return f"{begin} {size} by {self.prices.name}, which cost nothing, as do requests"
        dollars = self.dollars_per_month
        if self.prices is None or dollars is None:
            return f"{begin} {size}, of which the cost is unknown: {self.lacks}"
        of_list = f"by {self.prices.name}, read on {self.prices.read_on.isoformat()}"
        more = f"; {self.lacks}" if self.lacks else ""
        return f"{begin} {size} for ${dollars:.4f} a month {of_list}{more}"


def costs_of_roots(
    view: ClusterView | None, described: Mapping[int, LogDirDescription], book: PriceBook
) -> dict[str, RootCost]:
    """By a name for the reader: each described broker's root; on storage the domains and the metadata root, too.

    view  the cluster on storage; None: its brokers were asked
    """
    found = {}
    for broker_id, log_dir in sorted(described.items()):
        stored = _of_replicas(log_dir) if view is None else _listed(view, log_dir.path)
        found[f"broker {broker_id}"] = _cost(log_dir.path, book, stored, is_whole=view is not None)
    if view is not None:
        for name, domain in sorted(view.image.storage_domains.items()):
            found[f"{DOMAIN}{name}"] = _cost(domain.url, book, _listed(view, domain.url), is_whole=True)
        found[METADATA_ROOT] = _cost(view.root, book, _listed(view, view.root), is_whole=True)
    return found


def _cost(root: str, book: PriceBook, stored: Callable[[], int | None], *, is_whole: bool) -> RootCost:
    try:
        stored_bytes = stored()
    except StratalogError:
        stored_bytes = None
    return RootCost(root, book.of_root(root), stored_bytes, is_whole)


def _of_replicas(log_dir: LogDirDescription) -> Callable[[], int | None]:
    def stored() -> int | None:
        return None if log_dir.error else sum(max(0, each.size_bytes) for each in log_dir.replicas.values())

    return stored


def _listed(view: ClusterView, root: str) -> Callable[[], int | None]:
    return lambda: sum(meta.size_bytes for meta in view.stores.objects(root).list(""))
