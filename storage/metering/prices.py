"""Lists of prices of object stores, and which one holds for a root. Pure.

The lists that come with stratalog are in conf/prices.toml, whose head describes a table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Self
from urllib.parse import urlsplit

from stratalog.storage.errors import InvalidConfigError

REQUESTS, TRANSFERS, STORAGE = ("write", "read", "list", "delete"), ("upload", "download"), "storage"
PRICES = (*REQUESTS, *TRANSFERS, STORAGE)
"""Names of prices: dollars of a million requests, of a GiB, of a GiB a month."""
_NAMES = {*PRICES, "service", "read_on", "source", "schemes", "is_default"}
FILE_SUFFIX = ".toml"


@dataclass(frozen=True, slots=True)
class PriceList:
    """The prices of one service.

    prices     by name (`PRICES`); one that is missing is not listed
    read_on    the day on which they were read in the source
    schemes    of URLs of roots that it is for
    """

    name: str
    service: str
    read_on: date
    source: str
    schemes: tuple[str, ...]
    prices: Mapping[str, float]
    is_default: bool = False

    @classmethod
    def of_toml(cls, name: str, table: object) -> Self:
        """InvalidConfigError names the table and what is wrong in it."""
        if not isinstance(table, dict):
            raise InvalidConfigError(f"prices: {name} is no table of prices")
        if unknown := sorted(table.keys() - _NAMES):
            raise InvalidConfigError(f"prices: {name}.{unknown[0]} is unknown; known: {', '.join(sorted(_NAMES))}")
        schemes, read_on = table.get("schemes"), table.get("read_on")
        if not isinstance(schemes, list) or not schemes or not all(isinstance(each, str) for each in schemes):
            raise InvalidConfigError(f"prices: {name}.schemes is to be a list of schemes, as ['s3', 's3a']")
        if type(read_on) is not date:
            raise InvalidConfigError(f"prices: {name}.read_on is to be a day, as 2026-12-01")
        prices = {key: table[key] for key in PRICES if key in table}
        for key, price in prices.items():
            if isinstance(price, bool) or not isinstance(price, int | float) or price < 0:
                raise InvalidConfigError(f"prices: {name}.{key} is to be dollars, 0 or more, not {price!r}")
        texts = str(table.get("service", name)), read_on, str(table.get("source", ""))
        floats = {key: float(price) for key, price in prices.items()}
        return cls(name, *texts, tuple(schemes), floats, bool(table.get("is_default", False)))

    @property
    def is_free(self) -> bool:
        """Whether every price is listed, and is 0."""
        return len(self.prices) == len(PRICES) and not any(self.prices.values())

    @property
    def not_listed(self) -> tuple[str, ...]:
        """The prices that the list lacks."""
        return tuple(name for name in PRICES if name not in self.prices)


def price_lists(text: str, where: str) -> dict[str, PriceList]:
    """The lists of a TOML file by name. InvalidConfigError; `where` is the file, for it."""
    try:
        return {name: PriceList.of_toml(name, table) for name, table in tomllib.loads(text).items()}
    except tomllib.TOMLDecodeError as reason:
        raise InvalidConfigError(f"{where} is not a TOML file: {reason}") from reason


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The list that holds for each scheme of URLs."""

    by_scheme: Mapping[str, PriceList]

    @classmethod
    def of(cls, chosen: Iterable[str], known: Mapping[str, PriceList], read: Callable[[str], str]) -> Self:
        """The defaults among `known`, and before them what is chosen (`stratalog.prices`).

        chosen  names of known lists, or paths of TOML files, whose lists all hold; later ones come first
        read    the text of the file at a path; it raises OSError

        Raises InvalidConfigError, with the known names for an unknown one.
        """
        lists = [each for each in known.values() if each.is_default]
        for name in chosen:
            if name.endswith(FILE_SUFFIX):
                try:
                    lists += price_lists(read(name), name).values()
                except OSError as reason:
                    raise InvalidConfigError(f"stratalog.prices: {name} cannot be read: {reason}") from reason
            elif name in known:
                lists.append(known[name])
            else:
                lists_known = ", ".join(known)
                raise InvalidConfigError(
                    f"stratalog.prices: no list of prices {name!r}; known: {lists_known}, or the path of a TOML file"
                )
        return cls({scheme: each for each in lists for scheme in each.schemes})

    def of_root(self, url: str) -> PriceList | None:
        """The list for a root, by its URL or path; None where its scheme has none.

        >>> PriceBook({}).of_root("hdfs://a") is None
        True
        """
        scheme = urlsplit(url).scheme if "://" in url else "file"
        return self.by_scheme.get(scheme)
