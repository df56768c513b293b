"""Calls of a throttled or failing object store are retried, with growing, random pauses and for a limited time."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.stores import DeltaStores, client_stores, request_ms_max
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.metering.calls import calls_of
from stratalog.storage.objects import remote as store_module
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.objects.together import Hedging
from tests.stores.s3_double import BUCKET, S3Double, Wrong

TIMES = 3
PAUSE_MIN_S = 0.045
"""The least first pause: 50 ms, less an allowance for clocks."""

CALLS: dict[str, tuple[str, Callable[[ObjectStore], object], object]] = {
    "put": ("PUT", lambda store: store.put("a/1", b"new"), None),
    "create": ("PUT", lambda store: store.create("a/2", b"new"), True),
    "get": ("GET", lambda store: store.get("a/1"), b"old"),
    "size": ("HEAD", lambda store: store.size("a/1"), 3),
    "list": ("GET", lambda store: [meta.path for meta in store.list("a/")], ["a/1"]),
    "delete": ("POST", lambda store: store.delete("a/1"), None),
}


@pytest.fixture
def store(s3: S3Double) -> ObjectStore:
    opened = open_store(f"s3://{BUCKET}/root")
    opened.put("a/1", b"old")
    s3.requests.clear()
    s3.arrived_s.clear()
    return opened


@pytest.mark.parametrize("wrong", [Wrong.SLOW_DOWN, Wrong.TOO_MANY, Wrong.LOSE_REQUEST], ids=lambda wrong: wrong.name)
@pytest.mark.parametrize("name", CALLS)
def test_a_refused_call_is_made_again_until_it_is_answered(
    s3: S3Double, store: ObjectStore, name: str, wrong: Wrong
) -> None:
    method, call, answer = CALLS[name]
    s3.fault(wrong, method, "", TIMES)
    assert call(store) == answer
    assert len(s3.requests) == TIMES + 1


def test_each_pause_is_drawn_anew(s3: S3Double, store: ObjectStore) -> None:
    s3.fault(Wrong.SLOW_DOWN, "GET", "", 5)
    store.get("a/1")
    pauses_s = [late - early for early, late in zip(s3.arrived_s, s3.arrived_s[1:], strict=False)]
    assert len(pauses_s) == 5
    assert min(pauses_s) >= PAUSE_MIN_S
    assert len({round(pause_s, 3) for pause_s in pauses_s}) > 1


def test_a_store_that_never_answers_is_unavailable(s3: S3Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(store_module.RETRY, "max_retries", 2)
    s3.fault(Wrong.SLOW_DOWN, "PUT", "", 1_000)
    with pytest.raises(StoreUnavailableError, match=r"create s3://bucket/root/a/1: .*503"):
        open_store(f"s3://{BUCKET}/root").create("a/1", b"x")
    assert s3.requests == [("PUT", "root/a/1")] * 3


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_a_store_that_answers_nothing_ends_within_a_third_of_the_session(
    s3: S3Double, store: ObjectStore, name: str
) -> None:
    """A server that takes every request and says nothing: what a broken network looks like."""
    method, call, _ = CALLS[name]
    s3.fault(Wrong.LATE, method, "", 1_000)
    begun_s = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        call(store)
    took_ms = 1_000 * (time.monotonic() - begun_s)
    s3.arrive.set()
    assert took_ms < BrokerConfig().broker_session_timeout_ms / 3


def test_a_client_waits_for_a_store_that_a_broker_gives_up(s3: S3Double) -> None:
    """A throttled store fails no query: see `CLIENT_RETRIES_MS`."""
    store = DeltaStores(RandomIds()).objects(f"s3://{BUCKET}/root")
    store.put("a/1", b"old")
    s3.fault(Wrong.SLOW_DOWN, "GET", "", 20)
    with pytest.raises(StoreUnavailableError, match="503"):
        store.get("a/1")
    assert client_stores(RandomIds()).objects(f"s3://{BUCKET}/root").get("a/1") == b"old"


def test_a_client_waits_for_an_answer_longer_than_a_broker(s3: S3Double) -> None:
    """As the executors of a query do while the store, or their own machine, has much to do."""
    store = DeltaStores(RandomIds()).objects(f"s3://{BUCKET}/root")
    store.put("a/1", b"old")
    s3.fault(Wrong.LATE, "GET", "", 1_000)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(client_stores(RandomIds()).objects(f"s3://{BUCKET}/root").get_register, "a/1")
        with pytest.raises(StoreUnavailableError):
            store.get_register("a/1")
        s3.arrive.set()
        assert read.result(30) == b"old"


def test_a_short_session_has_short_requests(s3: S3Double) -> None:
    opened = open_store(f"s3://{BUCKET}/root", request_ms=request_ms_max(1_500))
    s3.fault(Wrong.LATE, "GET", "", 1_000)
    begun_s = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        opened.get_register("a/1")
    took_ms = 1_000 * (time.monotonic() - begun_s)
    s3.arrive.set()
    assert took_ms < 750


@pytest.mark.parametrize("wrong", [Wrong.LOSE_ANSWER, Wrong.FAIL_AFTER, Wrong.DOUBLE], ids=lambda wrong: wrong.name)
def test_a_retried_create_that_meets_its_own_object_is_false(s3: S3Double, store: ObjectStore, wrong: Wrong) -> None:
    """Callers therefore read the object back."""
    s3.fault(wrong, "PUT", "a/2")
    assert store.create("a/2", b"mine") is False
    assert store.get("a/2") == b"mine"


def test_many_objects_are_deleted_by_one_request(s3: S3Double, store: ObjectStore) -> None:
    paths = [f"t-0/segment=0/{number}.parquet" for number in range(150)]
    for path in paths[:-1]:
        store.put(path, b"x")
    s3.requests.clear()
    store.delete_all(paths)
    assert [method for method, _ in s3.requests] == ["POST"]
    assert [meta.path for meta in store.list("")] == ["a/1"]


def test_a_slow_upload_is_made_a_second_time_beside_the_first(s3: S3Double) -> None:
    """A network that holds one request back, as long as the test lets it."""
    store = open_store(f"s3://{BUCKET}/hedged", hedging=Hedging(share_max=0.5, samples_min=4))
    for number in range(4):
        store.put_new(f"a/{number}", b"x")
    before = calls_of(store.url).hedged
    s3.requests.clear()
    s3.fault(Wrong.LATE, "PUT", "")
    store.put_new("a/slow", b"file")
    assert s3.requests == [("PUT", "hedged/a/slow")] * 2
    assert store.get("a/slow") == b"file"
    assert calls_of(store.url).hedged == before + 1
    s3.arrive.set()
    assert s3.applied_late.wait(60)
    assert store.get("a/slow") == b"file"


def test_the_stores_of_one_place_count_their_second_uploads_together(s3: S3Double) -> None:
    """As those of the parts of a broker, each of which decides for itself when to ask again."""
    hedging = Hedging(share_max=0.5, samples_min=4)
    stores = [open_store(f"s3://{BUCKET}/together", hedging=hedging) for _ in range(2)]
    before = calls_of(stores[0].url).hedged
    for number, store in enumerate((*stores, stores[0])):
        for other in range(4):
            store.put_new(f"a/{number}-{other}", b"x")
        s3.arrive.clear()
        s3.fault(Wrong.LATE, "PUT", "")
        store.put_new(f"a/{number}-slow", b"file")
        s3.arrive.set()
        assert calls_of(store.url).hedged == before + number + 1


def test_a_large_upload_and_a_store_without_hedging_are_made_once(s3: S3Double) -> None:
    plain = open_store(f"s3://{BUCKET}/plain")
    hedging = open_store(f"s3://{BUCKET}/large", hedging=Hedging(share_max=1.0, samples_min=0))
    s3.requests.clear()
    plain.put_new("a", b"x")
    hedging.put_new("a", bytes(store_module.BULK_BYTES))
    assert s3.requests == [("PUT", "plain/a"), ("PUT", "large/a")]
