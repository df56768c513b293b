"""What the meter counts is what a store is asked: a relay before the server counts the same requests."""

from __future__ import annotations

import pytest

from stratalog.storage.metering.calls import calls_of
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.remote import ONE_REQUEST_BYTES
from tests.stores.cloud.simulated import endpoint_of, simulated_cloud
from tests.stores.servers import StoreServer

WRITES, READS = ("put", "conditional_put", "copy"), ("get", "head")
OF_KIND = {"write": WRITES, "read": READS, "list": ("list",), "delete": ("delete",)}
COMMIT = "orders-0/_delta_log/00000000000000000007.json"


@pytest.mark.parametrize(
    "server_name", [pytest.param(name, marks=pytest.mark.stores) for name in ("versity_server", "azure_server")]
)
def test_requests_are_billed_as_the_store_receives_them(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, server_name: str
) -> None:
    server: StoreServer = request.getfixturevalue(server_name)
    name, url = endpoint_of(server)
    with simulated_cloud(url, "0ms") as cloud:
        monkeypatch.setenv(name, cloud.url)
        store = open_store(server.new_root())
        store.put("sessions/1", b"one")
        assert store.create(COMMIT, b"commit")
        assert not store.create(COMMIT, b"other")
        assert store.replace("sessions/1", b"one", b"two")
        assert not store.replace("sessions/1", b"one", b"three")
        store.put_new("orders-0/segment=0/a.parquet", bytes(ONE_REQUEST_BYTES + 1))
        assert len(store.get("orders-0/segment=0/a.parquet")) == ONE_REQUEST_BYTES + 1
        assert store.get_optional(COMMIT.replace("7", "8")) is None
        assert store.size(COMMIT) == len(b"commit")
        assert store.directories() == ["orders-0", "sessions"]
        store.copy_within(COMMIT, "orders-0/_damage.json")
        assert len(store.list("orders-0/")) == 3
        store.delete_all([meta.path for meta in store.list("")])
        asked = cloud.counts().by_kind
    counted = calls_of(store.url)
    billed = {kind: sum(counted.requests[key] for key in counted.requests if key[1] == kind) for kind in OF_KIND}
    assert billed == {kind: sum(asked[each] for each in kinds) for kind, kinds in OF_KIND.items()}
    assert counted.requests["poll", "read"] == 1
    assert counted.requests["data", "read"] == 1
    assert counted.requests["session", "write"] == 2
    assert counted.read_of["data"] == ONE_REQUEST_BYTES + 1
    assert counted.written_of["commit"] == len(b"commit") + len(b"other")
