"""A simulated cloud before real servers: times, counts and faults, as the product's own store meets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread

import pytest

from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.port import ObjectStore
from tests.stores.cloud.faults import CloudFault
from tests.stores.cloud.profiles import named_profile
from tests.stores.cloud.simulated import SimulatedCloud, endpoint_of, simulated_cloud
from tests.stores.servers import StoreServer

REQUEST_MS = 2_000
HOURS_OFF = 5
STORES = [pytest.param(name, marks=pytest.mark.stores) for name in ("versity_server", "azure_server")]

Near = tuple[SimulatedCloud, ObjectStore]


@pytest.fixture(params=STORES)
def near(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Near]:
    """A cloud whose requests take no time, and a store in it."""
    server: StoreServer = request.getfixturevalue(request.param)
    name, url = endpoint_of(server)
    with simulated_cloud(url, "0ms", prefix_depth=1) as cloud:
        monkeypatch.setenv(name, cloud.url)
        yield cloud, open_store(server.new_root(), request_ms=REQUEST_MS)


def prefix_of(store: ObjectStore) -> str:
    return store.url.rpartition("/")[2]


def in_background(call: Callable[[], object]) -> Thread:
    thread = Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_requests_are_counted_by_kind_and_prefix(near: Near) -> None:
    cloud, store = near
    store.put("a/1", b"one")
    assert store.create("a/2", b"two")
    assert not store.create("a/2", b"three")
    assert store.replace("a/2", b"two", b"four")
    assert store.get("a/2") == b"four"
    assert store.get_optional("absent") is None
    assert store.size("a/1") == 3
    assert [meta.path for meta in store.list("a/")] == ["a/1", "a/2"]
    store.delete("a/1")
    counts = cloud.counts()
    asked = {"put": 1, "conditional_put": 3, "get": 3, "head": 1, "list": 1, "delete": 1}
    assert counts.requests == {prefix_of(store): asked}
    cloud.reset()
    assert cloud.counts().total == 0


def test_large_objects_pass(near: Near) -> None:
    _, store = near
    data = bytes(range(256)) * 30_000
    store.put("large", data)
    assert store.get("large") == data
    assert store.get_range("large", 1_000_000, 300) == data[1_000_000:1_000_300]


def test_a_lost_answer_is_of_a_request_that_was_applied(near: Near) -> None:
    cloud, store = near
    cloud.fault(CloudFault.LOSE_ANSWER, "conditional_put")
    assert not store.create("c", b"mine"), "the client asked again, and met its own object"
    assert store.get("c") == b"mine"
    assert cloud.counts().faults == {"LOSE_ANSWER": 1}


def test_a_late_request_is_applied_after_its_client_gave_up(near: Near) -> None:
    cloud, store = near
    cloud.fault(CloudFault.LATE, "conditional_put", times=None)
    with pytest.raises(StoreUnavailableError):
        store.create("c", b"late")
    cloud.reset()
    assert store.get_optional("c") is None
    cloud.no_faults()
    cloud.wait_until(lambda counts: counts.faults.get("APPLIED_LATE", 0) > 0)
    assert store.get("c") == b"late"


def test_one_kind_of_operation_is_denied(near: Near) -> None:
    cloud, store = near
    store.put("a", b"x")
    cloud.fault(CloudFault.DENY, "delete", times=None)
    with pytest.raises(StoreUnavailableError, match="delete"):
        store.delete("a")
    assert store.get("a") == b"x"
    cloud.no_faults()
    store.delete("a")
    assert store.get_optional("a") is None


def test_a_clock_that_is_off_dates_objects_hours_away(near: Near) -> None:
    cloud, store = near
    store.put("a", b"x")
    (before,) = store.list("a")
    cloud.clock_off(-HOURS_OFF * 3_600)
    (after,) = store.list("a")
    assert before.last_modified_ms - after.last_modified_ms == HOURS_OFF * 3_600_000


def test_a_request_takes_no_less_than_what_is_drawn_for_it(near: Near) -> None:
    cloud, store = near
    cloud.profile("40ms")
    store.put("a", b"x")
    store.get("a")
    assert all(least_ms >= 39 for least_ms in cloud.counts().least_ms.values())
    with pytest.raises(RuntimeError, match="no profile 'fastest'; there are fast, slow"):
        cloud.profile("fastest")


def test_a_prefix_is_throttled_beyond_its_rate_and_another_one_is_not(near: Near) -> None:
    cloud, store = near
    other = open_store(f"{store.url}-other", request_ms=REQUEST_MS)
    cloud.rates(writes_per_s=0.001, reads_per_s=0)
    store.put("a", b"1")
    thread = in_background(lambda: store.put("b", b"2"))
    cloud.wait_until(lambda counts: counts.throttled > 0)
    assert store.get("a") == b"1"
    other.put("a", b"3")
    cloud.rates(0, 0)
    thread.join()
    assert store.get("b") == b"2"


@pytest.mark.stores
def test_a_client_that_is_throttled_or_late_asks_again_or_waits(
    versity_server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, url = endpoint_of(versity_server)
    with simulated_cloud(url, "0ms", prefix_depth=1) as cloud:
        monkeypatch.setenv(name, cloud.url)
        store = open_store(versity_server.new_root(), request_ms=REQUEST_MS)
        cloud.fault(CloudFault.SLOW_DOWN, "get", times=3)
        assert store.get_optional("a") is None
        assert cloud.counts().statuses == {"503": 3, "404": 1}
        cloud.fault(CloudFault.LATE, "put", after_ms=50)
        thread = in_background(lambda: store.put("slow", b"x"))
        cloud.wait_until(lambda counts: counts.faults.get("APPLIED_LATE") == 1)
        thread.join()
        assert store.get("slow") == b"x"


@pytest.mark.stores
def test_times_of_a_named_profile_are_drawn_from_its_distribution(
    versity_server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, url = endpoint_of(versity_server)
    with simulated_cloud(url, "express", seed=3) as cloud:
        monkeypatch.setenv(name, cloud.url)
        store = open_store(versity_server.new_root(), request_ms=REQUEST_MS)
        for number in range(100):
            store.put(f"{number}", b"x")
        counts = cloud.counts()
    assert counts.by_kind == {"put": 100}
    assert counts.p50_ms["put"] >= named_profile("express").times["put"].ms(-0.5)
