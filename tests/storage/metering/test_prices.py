"""Lists of prices: those in conf, an operator's own, and what counted calls cost by them."""

from __future__ import annotations

from datetime import date

import pytest

from stratalog.replication.price_lists import price_book
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.metering.calls import BILLED, BILLED_AS, KINDS, StoreCalls
from stratalog.storage.metering.cost import GIB_BYTES, dollars_of, storage_dollars_per_month
from stratalog.storage.metering.prices import PRICES, REQUESTS, PriceBook, PriceList, price_lists
from stratalog.storage.objects.remote import BUCKET_SCHEMES

OWN = """
[house]
schemes = ["s3"]
read_on = 2026-11-01
write = 2
read = 0.1
"""


def nothing_read(path: str) -> str:
    raise FileNotFoundError(path)


def of_root(url: str, *chosen: str) -> PriceList:
    found = price_book(chosen).of_root(url)
    assert found is not None
    return found


def test_each_scheme_of_a_store_has_a_list_with_its_source_and_day() -> None:
    for scheme in sorted(BUCKET_SCHEMES):
        prices = of_root(f"{scheme}://bucket/cluster")
        assert prices.source.startswith("https://")
        assert prices.read_on >= date(2026, 12, 1)
    for url in ("/var/lib/logs", "file:///var/lib/logs", "memory://a"):
        assert of_root(url).name == "local-disk"
        assert of_root(url).is_free
    assert price_book().of_root("hdfs://namenode/logs") is None


def test_the_published_prices_of_s3_are_in_the_lists() -> None:
    standard, express = of_root("s3://a"), of_root("s3://a", "s3-express-us-east-1")
    assert [standard.prices[name] for name in ("write", "read", "list", "storage")] == [5.0, 0.4, 5.0, 0.023]
    amounts = [express.prices[name] for name in ("write", "read", "upload", "download", "storage")]
    assert amounts == [1.13, 0.03, 0.0032, 0.0006, 0.11]


def test_the_example_of_the_faq_of_express_costs_what_it_says() -> None:
    """A million writes and nine million reads of 10 KB: $1.13 + $0.27 + $0.03 + $0.05."""
    calls, path = StoreCalls(), "a-0/segment=0/x.parquet"
    calls.count("put", path, 10 * 1_024 * 1_000_000, requests=1_000_000)
    calls.bill("read", path, 9_000_000)
    calls.read_of["data"] += 10 * 1_024 * 9_000_000
    dollars = dollars_of(of_root("s3://a", "s3-express-us-east-1"), calls)
    assert dollars == pytest.approx(1.13 + 0.27 + 0.03 + 0.05, abs=0.01)


def test_what_is_not_listed_has_no_cost() -> None:
    azure, calls = of_root("abfss://logs@account.dfs.core.windows.net/a"), StoreCalls()
    assert azure.not_listed == tuple(name for name in PRICES if name != "delete")
    assert dollars_of(azure, calls) == 0
    calls.count("delete", "a")
    assert dollars_of(azure, calls) == 0
    calls.count("put", "a", 1)
    assert dollars_of(azure, calls) is None
    assert storage_dollars_per_month(azure, GIB_BYTES) is None


def test_an_unknown_list_is_an_error_that_names_the_known_ones() -> None:
    known = "s3-standard-us-east-1, s3-express-us-east-1, gcs-us-central1, adls-gen2, own-servers, local-disk"
    with pytest.raises(InvalidConfigError, match=f"no list of prices 's3-cheap'; known: {known}, or the path"):
        price_book(["s3-cheap"])
    with pytest.raises(InvalidConfigError, match=r"none.toml cannot be read"):
        PriceBook.of(["none.toml"], {}, nothing_read)


def test_an_operators_file_comes_before_the_defaults_and_after_nothing() -> None:
    known = price_lists('[all]\nschemes = ["s3", "gs"]\nread_on = 2026-01-01\nis_default = true', "known")
    book = PriceBook.of(["own.toml"], known, lambda _: OWN)
    assert [list_.name for url in ("s3://a", "gs://a") if (list_ := book.of_root(url))] == ["house", "all"]
    assert PriceBook.of(["own.toml", "all"], known, lambda _: OWN).by_scheme["s3"].name == "all"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[a", "own.toml is not a TOML file"),
        ("a = 1", "a is no table of prices"),
        (OWN + "writes = 1", "house.writes is unknown; known: delete, download"),
        (OWN.replace("write = 2", "write = -2"), "house.write is to be dollars, 0 or more, not -2"),
        (OWN.replace("write = 2", "write = '2'"), "house.write is to be dollars"),
        (OWN.replace('["s3"]', '"s3"'), "house.schemes is to be a list"),
        (OWN.replace("2026-11-01", "'today'"), "house.read_on is to be a day"),
    ],
)
def test_what_is_wrong_in_a_file_of_prices_is_named(text: str, error: str) -> None:
    with pytest.raises(InvalidConfigError, match=error):
        price_lists(text, "own.toml")


def test_every_kind_of_call_but_a_sync_is_billed_as_a_request_that_lists_price() -> None:
    assert set(KINDS) - set(BILLED_AS) == {"sync"}
    assert set(BILLED_AS.values()) == set(BILLED) == set(REQUESTS)
