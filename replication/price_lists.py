"""The lists of prices by which a process prices its requests to stores.

I/O: reads conf/prices.toml and the files that the setting names.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stratalog.replication.config import PRICES_TOML
from stratalog.storage.metering.prices import PriceBook, price_lists


def price_book(chosen: Iterable[str] = ()) -> PriceBook:
    """The list that holds for each kind of store. `chosen`: the value of `stratalog.prices`.

    Raises InvalidConfigError for an unknown list, with the known ones, and for a file that is no list of prices.
    """
    known = price_lists(PRICES_TOML.read_text(encoding="utf-8"), str(PRICES_TOML))
    return PriceBook.of(chosen, known, lambda path: Path(path).read_text(encoding="utf-8"))
