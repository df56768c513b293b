"""A reader hears of what moved since it last asked, and of nothing else; it sleeps until something is written."""

from __future__ import annotations

import threading
from pathlib import Path

from stratalog.server.view.change_wait import ChangeWait, Moves
from stratalog.storage.clock import SystemClock
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.objects.opened import open_store
from stratalog.storage.records import TopicPartition

A, B, C = (TopicPartition("t", partition) for partition in range(3))


def test_each_reader_hears_what_moved_after_its_mark_newest_first() -> None:
    moves = Moves()
    first, everything = moves.since(-1)
    assert everything is None
    moves.add([A, B])
    second, moved = moves.since(first)
    assert moved == [B, A]
    moves.add([A, A])
    assert moves.since(second)[1] == [A]
    assert moves.since(first)[1] == [A, B]
    assert moves.since(moves.since(second)[0])[1] == []


def test_a_change_of_metadata_may_have_moved_any() -> None:
    moves = Moves()
    mark, _ = moves.since(-1)
    moves.add([A])
    moves.add_all()
    moves.add([C])
    mark, moved = moves.since(mark)
    assert moved is None
    assert moves.since(mark)[1] == []


def test_a_write_ends_the_wait_and_is_named(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    store.put_register("progress/1/leader", b"old")
    store.put_register("progress/2/leader", b"old")
    places = {"1": (store, "progress/1/leader"), "2": (store, "progress/2/leader")}
    clock, news = SystemClock(), ChangeWait(SystemClock())
    assert news.wait(places, 10_000, 10_000) == {"1", "2"}, "what is new to it may have been written before"
    writer = threading.Timer(0.05, lambda: store.put_register("progress/2/leader", b"new"))
    before_ms = clock.monotonic_ms()
    writer.start()
    heard = set[str]()
    while not heard and clock.monotonic_ms() - before_ms < 5_000:
        heard = news.wait(places, 5_000, 5_000)
    assert heard == {"2"}
    assert clock.monotonic_ms() - before_ms >= 40
    writer.join()


def test_what_cannot_be_watched_is_polled() -> None:
    clock, news = SystemClock(), ChangeWait(SystemClock())
    places = {"1": (MemoryStore(), "progress/1/leader")}
    news.wait(places, 10_000, 5)
    before_ms = clock.monotonic_ms()
    assert news.wait(places, 10_000, 5) == {"1"}
    assert clock.monotonic_ms() - before_ms < 5_000
