"""A store that cannot create an object only if it is absent is refused by name when it is opened for writing."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import obstore.store
import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.server.process.joined_cluster import join_cluster
from stratalog.storage.errors import KafkaStorageError, StoreUnavailableError
from stratalog.storage.objects import local as local_module
from stratalog.storage.objects import remote as store_module
from stratalog.storage.objects.local import LocalStore
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.remote import ObstoreStore
from tests.stores.s3_double import BUCKET, ConditionalPut, S3Double, Wrong
from tests.stores.servers import SERVERS, StoreServer

ROOT = f"s3://{BUCKET}/root"


def test_a_good_store_is_opened_by_few_requests_and_left_empty(s3: S3Double) -> None:
    open_store(ROOT, create=True)
    assert len(s3.requests) == 4
    assert s3.objects == {}


def test_a_store_that_is_only_read_is_not_probed(s3: S3Double) -> None:
    s3.conditional_put = ConditionalPut.IGNORED
    open_store(ROOT)
    assert s3.requests == []


@pytest.mark.parametrize("conditional_put", [ConditionalPut.IGNORED, ConditionalPut.REFUSED_BUT_APPLIED])
def test_a_store_that_creates_an_object_twice_is_refused_by_name(s3: S3Double, conditional_put: ConditionalPut) -> None:
    s3.conditional_put = conditional_put
    with pytest.raises(KafkaStorageError, match=re.escape(f"{ROOT} cannot hold logs: ") + ".*If-None-Match"):
        open_store(ROOT, create=True)
    assert s3.objects == {}


@pytest.mark.parametrize("conditional_put", [ConditionalPut.NOT_IMPLEMENTED, ConditionalPut.BAD_REQUEST])
def test_a_store_that_takes_no_conditional_put_is_refused_with_its_answer(
    s3: S3Double, monkeypatch: pytest.MonkeyPatch, conditional_put: ConditionalPut
) -> None:
    monkeypatch.setitem(store_module.RETRY, "max_retries", 1)
    s3.conditional_put = conditional_put
    status = conditional_put.value.partition(" ")[0]
    with pytest.raises(KafkaStorageError, match=rf"{ROOT} cannot hold logs: .*If-None-Match.*status code: {status}"):
        open_store(ROOT, create=True)
    assert s3.objects == {}


def test_a_store_that_is_out_of_reach_is_not_blamed(s3: S3Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(store_module.RETRY, "max_retries", 1)
    s3.fault(Wrong.SLOW_DOWN, "PUT", "", 1_000)
    with pytest.raises(StoreUnavailableError, match="503"):
        open_store(ROOT, create=True)


def test_a_store_that_was_out_of_reach_for_a_while_is_opened(s3: S3Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(store_module.RETRY, "max_retries", 1)
    s3.fault(Wrong.SLOW_DOWN, "PUT", "", 2)
    open_store(ROOT, create=True)
    assert s3.objects == {}


@pytest.mark.parametrize("wrong", [Wrong.LOSE_ANSWER, Wrong.FAIL_AFTER, Wrong.DOUBLE], ids=lambda wrong: wrong.name)
@pytest.mark.parametrize("times", [1, 2])
def test_a_good_store_whose_answers_are_lost_is_opened(s3: S3Double, wrong: Wrong, times: int) -> None:
    """A create that is sent again meets its own object."""
    s3.fault(wrong, "PUT", "", times)
    open_store(ROOT, create=True)
    assert s3.objects == {}


@pytest.mark.parametrize("wrong", [Wrong.LOSE_ANSWER, Wrong.FAIL_AFTER, Wrong.DOUBLE], ids=lambda wrong: wrong.name)
def test_lost_answers_do_not_hide_a_store_that_creates_twice(s3: S3Double, wrong: Wrong) -> None:
    s3.conditional_put = ConditionalPut.IGNORED
    s3.fault(wrong, "PUT", "")
    with pytest.raises(KafkaStorageError, match="If-None-Match"):
        open_store(ROOT, create=True)


def test_brokers_that_probe_a_root_at_once_do_not_meet_each_other(s3: S3Double) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: open_store(ROOT, create=True), range(24)))
    assert s3.objects == {}


def test_a_probe_that_cannot_be_deleted_does_not_refuse_a_good_store(
    s3: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(store_module.RETRY, "max_retries", 0)
    s3.fault(Wrong.SLOW_DOWN, "POST", "")
    open_store(ROOT, create=True)
    (left,) = s3.objects
    assert left.startswith("root/.create-probe-")
    assert open_store(ROOT, create=True).directories() == []


@pytest.mark.parametrize("bad", ["metadata", "broker-1"])
def test_no_cluster_is_made_where_two_controllers_could_lead_it(s3: S3Double, tmp_path: Path, bad: str) -> None:
    s3.conditional_put = ConditionalPut.IGNORED
    places = {name: f"{tmp_path}/{name}" for name in ("metadata", "broker-1")} | {bad: f"s3://{BUCKET}/{bad}"}
    with pytest.raises(KafkaStorageError, match=f"s3://{BUCKET}/{bad} cannot hold logs"):
        join_cluster(places["metadata"], {1: places["broker-1"]}, BrokerConfig())
    assert s3.objects == {}
    assert not (tmp_path / "metadata" / "__cluster_metadata-0").exists()


def test_a_store_that_obstore_emulates_is_sound(tmp_path: Path) -> None:
    for store in (obstore.store.MemoryStore(), obstore.store.LocalStore(str(tmp_path))):
        opened = ObstoreStore(store, "memory:///")
        opened.probe_create_if_absent()
        assert opened.list("") == []


@pytest.mark.parametrize("server", SERVERS)
def test_a_real_server_is_sound(server: str, request: pytest.FixtureRequest) -> None:
    running: StoreServer = request.getfixturevalue(server)
    assert open_store(running.new_root(), create=True).list("") == []


def test_what_another_machine_s_probe_left_does_not_refuse_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers every broker may have the same process id."""
    left = LocalStore(str(tmp_path))
    for probe in (left.probe_create_if_absent, partial(open_store, str(tmp_path), create=True)):
        with monkeypatch.context() as machine:
            machine.setattr(LocalStore, "delete", lambda store, path: None)
            machine.setattr(local_module, "_serial", iter(range(1, 100)))
            probe()
