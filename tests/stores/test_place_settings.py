"""Settings of object stores by place, at a real server with two accounts: each may use its own bucket alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.place_settings import VARIABLE, use_settings_file
from tests.stores.servers import VersityAccounts, versity_accounts

OWNERS = {"ours": "secret-of-ours", "theirs": "secret-of-theirs"}


def table_of(accounts: VersityAccounts, owner: str, secret: str) -> str:
    return f"""
        ["s3://{owner}"]
        aws.endpoint.url = "{accounts.endpoint}"
        aws.access.key.id = "{owner}"
        aws.secret.access.key = "{secret}"
        aws.allow.http = true
    """


@pytest.fixture(params=[pytest.param("versity_server", marks=pytest.mark.stores)])
def accounts() -> Iterator[VersityAccounts]:
    with versity_accounts() as server:
        for owner, secret in OWNERS.items():
            server.add(owner, secret)
        yield server


@pytest.fixture
def settings_file(accounts: VersityAccounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One for both accounts; nothing else in the environment tells credentials or an endpoint."""
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv(VARIABLE, "")
    found = tmp_path / "stores.toml"
    found.write_text("".join(table_of(accounts, *owner) for owner in OWNERS.items()))
    return found


@pytest.mark.timeout(300)
def test_a_domain_of_another_account_takes_a_topic(settings_file: Path, tmp_path: Path) -> None:
    config = {"stratalog.storage.settings.file": str(settings_file)}
    with Cluster.start("s3://ours/logs", fetcher="thread", config=config) as cluster:
        admin = Admin(cluster)
        added = admin.add_storage_domain("lake", "s3://theirs/kafka")
        assert added.durable
        lake = {"stratalog.storage.domain": "lake", "min.insync.replicas": 2}
        admin.create_topics([NewTopic("orders", 1, 3, lake)])
        with Producer(cluster, acks="all") as producer:
            sent = [producer.send("orders", b"order %d" % number, partition=0) for number in range(10)]
            assert [each.result(60).offset for each in sent] == list(range(10))
        with Consumer(cluster.root, auto_offset_reset="earliest") as consumer:
            consumer.assign([("orders", 0)])
            assert len(consumer.poll(10_000)) == 10
        ours, theirs = open_store("s3://ours/logs"), open_store("s3://theirs/kafka")
        assert any("orders-0/_delta_log/" in meta.path for meta in theirs.list(""))
        assert not any("orders-0" in meta.path for meta in ours.list("domain/"))
        stored = b"".join(store.get(meta.path) for store in (ours, theirs) for meta in store.list(""))
    assert not any(secret.encode() in stored for secret in OWNERS.values())


def test_credentials_that_were_replaced_are_taken_from_the_file_by_the_next_call(
    accounts: VersityAccounts, settings_file: Path
) -> None:
    use_settings_file(str(settings_file))
    store = open_store("s3://theirs/kafka", request_ms=1_000)
    store.put("a", b"1")
    accounts.change_secret("theirs", "another-secret")
    with pytest.raises(StoreUnavailableError) as refused:
        store.put("a", b"2")
    assert "secret-of-theirs" not in str(refused.value)
    settings_file.write_text(table_of(accounts, "theirs", "another-secret"))
    with pytest.raises(StoreUnavailableError):
        store.put("a", b"3")  # it looks at the file once more
    store.put("a", b"4")
    assert store.get("a") == b"4"
