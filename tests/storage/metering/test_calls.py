"""Calls to stores are counted by kind, with the bytes that they moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.storage.errors import ObjectNotFoundError, StoreUnavailableError
from stratalog.storage.metering.calls import StoreCalls, calls_of, calls_of_others
from stratalog.storage.objects.local import LocalStore


def test_a_local_stores_calls_are_counted_by_kind(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    before = StoreCalls()
    before.add(calls_of(store.url))
    store.put("a", b"123")
    assert store.create("b", b"12")
    assert not store.create("b", b"12")
    assert store.get("a") == b"123"
    with pytest.raises(ObjectNotFoundError):
        store.get("absent")
    store.put_register("r", b"1")
    assert store.get_register("r") == b"1"
    store.list("")
    store.size("a")
    store.sync(["a"])
    store.delete("a")
    made = {kind: count - before.made[kind] for kind, count in calls_of(store.url).made.items()}
    assert made == {
        "put": 2, "create": 2, "replace": 0, "get": 3, "head": 1, "list": 1, "delete": 1, "copy": 0, "sync": 1,
    }  # fmt: skip
    assert calls_of(store.url).read_bytes - before.read_bytes == 4
    assert calls_of(store.url).written_bytes - before.written_bytes == 3 + 2 + 2 + 1


def test_a_fault_is_counted_and_stores_of_one_root_share_their_counts(tmp_path: Path) -> None:
    store, same = LocalStore(str(tmp_path)), LocalStore(str(tmp_path))
    assert calls_of(store.url) is calls_of(same.url)
    (tmp_path / "folder").mkdir()
    before = calls_of(store.url).failed
    with pytest.raises(StoreUnavailableError):
        store.get("folder")
    assert calls_of(same.url).failed == before + 1
    assert store.url not in calls_of_others({store.url})
