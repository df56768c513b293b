"""What counted calls and stored bytes cost by a list of prices. Pure.

None stands for a cost that the list does not tell: a price that is needed is not listed.
"""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.storage.cadence import DAY_MS
from stratalog.storage.metering.calls import StoreCalls
from stratalog.storage.metering.prices import REQUESTS, STORAGE, PriceList
from stratalog.storage.metering.purpose import PURPOSES

GIB_BYTES = 1 << 30
MILLION = 1_000_000
DAYS_OF_MONTH = 30


def dollars_of(prices: PriceList, calls: StoreCalls, purposes: Iterable[str] = PURPOSES) -> float | None:
    """The cost of requests and of moved bytes, of these purposes.

    Two million writes and ten million reads cost $14 by the prices of S3 Standard:

    >>> from datetime import date
    >>> prices = PriceList("s3", "", date(2026, 12, 1), "", ("s3",), {"write": 5.0, "read": 0.4, "upload": 0.0})
    >>> calls = StoreCalls()
    >>> calls.count("put", "a-0/segment=0/x.parquet", 1 << 30, requests=2_000_000)
    >>> calls.bill("read", "a-0/segment=0/x.parquet", 10_000_000)
    >>> dollars_of(prices, calls), dollars_of(prices, calls, ["session"])
    (14.0, 0.0)
    >>> calls.count("list", "a-0/")
    >>> dollars_of(prices, calls) is None  # listings have no price
    True
    """
    total = 0.0
    for purpose in purposes:
        amounts = [(kind, calls.requests[purpose, kind] / MILLION) for kind in REQUESTS]
        amounts.append(("upload", calls.written_of[purpose] / GIB_BYTES))
        amounts.append(("download", calls.read_of[purpose] / GIB_BYTES))
        for name, amount in amounts:
            if amount:
                price = prices.prices.get(name)
                if price is None:
                    return None
                total += price * amount
    return total


def storage_dollars_per_month(prices: PriceList, stored_bytes: int) -> float | None:
    """The cost of keeping so many bytes for a month.

    >>> from datetime import date
    >>> prices = PriceList("s3", "", date(2026, 12, 1), "", ("s3",), {"storage": 0.023})
    >>> storage_dollars_per_month(prices, 100 << 30)
    2.3
    """
    price = prices.prices.get(STORAGE)
    return None if price is None else price * stored_bytes / GIB_BYTES


def dollars_per_gib(dollars: float, written_bytes: int) -> float | None:
    """The cost of each GiB that was written; None while nothing was.

    >>> dollars_per_gib(0.007, 2 << 30)
    0.0035
    """
    return dollars * GIB_BYTES / written_bytes if written_bytes else None


def dollars_per_day(dollars_per_s: float) -> float:
    """The cost of a day at this rate.

    >>> round(dollars_per_day(0.0001), 2)
    8.64
    """
    return dollars_per_s * DAY_MS / 1_000


def dollars_per_month(dollars_per_s: float) -> float:
    """The cost of thirty days at this rate.

    >>> round(dollars_per_month(63 * 0.4e-6), 2)  # 63 reads a second
    65.32
    """
    return dollars_per_day(dollars_per_s) * DAYS_OF_MONTH
