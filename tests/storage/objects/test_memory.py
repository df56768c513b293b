"""Stores at `memory://` URLs: one for all of a process that open it, until it is forgotten."""

from __future__ import annotations

import threading

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.follower.sessions.runner import ThreadFetchRunner
from stratalog.server.process.fetch_choice import fetch_runner
from stratalog.storage.errors import InvalidConfigError, LogDirNotFoundError, StoreUnavailableError
from stratalog.storage.objects.memory import forget_memory, memory_store
from stratalog.storage.objects.opened import open_store

PLACE = "memory://test-memory"


def test_all_that_open_a_place_find_the_same_objects() -> None:
    made = open_store(f"{PLACE}/broker-1", create=True)
    heard: list[str] = []
    assert made.add_listener(lambda path, _is_new: heard.append(path))
    open_store(f"{PLACE}/broker-1/").put("a/b", b"1")
    assert made.get("a/b") == b"1"
    assert heard == ["a/b"]
    assert open_store(f"{PLACE}/broker-2", create=True).list("") == []
    forget_memory(PLACE)
    with pytest.raises(LogDirNotFoundError, match="test-memory/broker-1 is not in this process"):
        open_store(f"{PLACE}/broker-1")


def test_of_many_creates_one_wins() -> None:
    store, won = memory_store(f"{PLACE}/creates", create=True), []

    def create(number: int) -> None:
        if store.create("commit", b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    forget_memory(PLACE)
    assert [b"%d" % number for number in won] == [store.get("commit")]


def test_every_call_passes_the_access() -> None:
    store = memory_store(f"{PLACE}/access", create=True)
    store.put("x", b"1")

    def refuse() -> None:
        raise StoreUnavailableError("away")

    store.access = refuse
    calls = (
        lambda: store.get("x"),
        lambda: store.get_optional("x"),
        lambda: store.get_range("x", 0, 1),
        lambda: store.get_register("x"),
        lambda: store.size("x"),
        lambda: store.exists("x"),
        lambda: store.list(""),
        store.directories,
        lambda: store.put("y", b""),
        lambda: store.put_new("y", b""),
        lambda: store.put_register("y", b""),
        lambda: store.create("y", b""),
        lambda: store.create("x", b""),
        lambda: store.replace("x", b"1", b"2"),
        lambda: store.copy_within("x", "y"),
        lambda: store.delete("x"),
    )
    for call in calls:
        with pytest.raises(StoreUnavailableError):
            call()
    forget_memory(PLACE)
    assert store.objects == {"x": b"1"}


def test_spark_does_not_fetch_from_this_processs_memory() -> None:
    memory_store(f"{PLACE}/metadata", create=True)
    with pytest.raises(InvalidConfigError, match="is in this process's memory"):
        fetch_runner("spark", None, f"{PLACE}/metadata", [], BrokerConfig())
    runner, _ = fetch_runner("auto", None, f"{PLACE}/metadata", [], BrokerConfig())
    forget_memory(PLACE)
    assert isinstance(runner, ThreadFetchRunner)
