"""Wakeups by the kernel when others write, by other threads, and by the clock; reading of watched places."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stratalog.storage.clock import SystemClock
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.objects.local import LocalStore
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.objects.wakeup import Wakeup, WatchedPlace

LONG_MS = 20_000
"""A wait that ends long before this was woken."""

OTHER_PROCESS = """
import os, sys
sys.stdin.readline()
kind, path = sys.argv[1:]
if kind == "in place":
    os.pwrite(os.open(path, os.O_WRONLY), b"new", 0)
elif kind == "rename":
    open(path + "#1", "w").write("new")
    os.replace(path + "#1", path)
elif kind == "link":
    open(path + "#1", "w").write("new")
    os.link(path + "#1", path)
else:
    os.makedirs(os.path.dirname(path))
    open(path, "w").write("new")
"""


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path), create=True)


@pytest.fixture
def wakeup() -> Iterator[Wakeup]:
    wakeup = Wakeup(SystemClock())
    yield wakeup
    wakeup.close()


@pytest.mark.parametrize("watched", ["a/b/object", "a/b/"])
@pytest.mark.parametrize("kind", ["in place", "rename", "link", "make with directories"])
def test_another_process_that_writes_wakes(store: LocalStore, wakeup: Wakeup, watched: str, kind: str) -> None:
    if kind != "make with directories":
        store.put("a/b/neighbour", b"")
    if kind in ("in place", "rename"):
        store.put("a/b/object", b"old")
    watch = wakeup.watch(store, watched)
    assert wakeup.is_active
    assert watch.was_written()  # the first look is always due
    assert not watch.was_written()
    command = [sys.executable, "-c", OTHER_PROCESS, kind, f"{store.root}/a/b/object"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as other:
        assert other.stdin is not None
        other.stdin.write(b"\n")
        other.stdin.close()
        deadline = time.monotonic() + LONG_MS / 1000
        while not (watch.was_written() and store.get_optional("a/b/object")):
            assert wakeup.wait_ms(LONG_MS)
            assert time.monotonic() < deadline


def test_a_write_is_heard_within_milliseconds(store: LocalStore, wakeup: Wakeup) -> None:
    store.put("object", b"0")
    wakeup.watch(store, "object")
    wakeup.wait_ms(0)
    delays = [_delay_of_a_write(store, wakeup) for _ in range(20)]
    assert sorted(delays)[10] < 0.005


def _delay_of_a_write(store: LocalStore, wakeup: Wakeup) -> float:
    """Seconds from a write of another thread until the sleeper goes on."""
    written: list[float] = []

    def write() -> None:
        written.append(time.monotonic())
        _write(store)

    thread = threading.Thread(target=write)
    thread.start()
    assert wakeup.wait_ms(LONG_MS)
    delay = time.monotonic() - written[0]
    thread.join()
    return delay


def _write(store: LocalStore) -> None:
    descriptor = os.open(f"{store.root}/object", os.O_WRONLY)
    os.pwrite(descriptor, b"1", 0)
    os.close(descriptor)


def test_an_object_is_watched_on_after_it_was_replaced_removed_or_its_directory_went(
    store: LocalStore, wakeup: Wakeup
) -> None:
    store.put("a/object", b"0")
    watch = wakeup.watch(store, "a/object")

    def write_anew() -> None:
        store.delete("a/object")
        store.put("a/object", b"3")

    changes: list[Callable[[], None]] = [
        lambda: store.put("a/object", b"1"),
        lambda: store.put("a/object", b"2"),
        write_anew,
        lambda: store.delete_tree("a", "1"),
        lambda: store.put("a/object", b"4"),
        lambda: store.put("a/object", b"5"),
    ]
    for change in changes:
        while wakeup.wait_ms(0):
            pass
        watch.was_written()
        change()
        assert wakeup.wait_ms(LONG_MS), store.get_optional("a/object")
        assert watch.was_written()
        assert wakeup.is_active


@pytest.mark.parametrize("watched", ["a/object", "a/"])
def test_what_is_beside_the_watched_does_not_wake(store: LocalStore, wakeup: Wakeup, watched: str) -> None:
    store.put("a/object", b"0")
    watch = wakeup.watch(store, watched)
    watch.was_written()
    store.put("b/object", b"1")
    Path(f"{store.root}/a/object#12345").write_bytes(b"a temporary file")
    if watched == "a/object":
        store.put("a/other", b"1")
    assert not wakeup.wait_ms(1)
    assert not watch.was_written()


def test_a_watch_for_new_objects_passes_over_what_is_written_in_place(store: LocalStore, wakeup: Wakeup) -> None:
    store.put("object", b"0")
    new, any_write = wakeup.watch(store, "", only_new=True), wakeup.watch(store, "/")
    assert (new.was_written(), any_write.was_written()) == (True, True)
    _write(store)
    assert wakeup.wait_ms(LONG_MS)
    assert (new.was_written(), any_write.was_written()) == (False, True)
    store.put("another", b"0")
    assert wakeup.wait_ms(LONG_MS)
    assert (new.was_written(), any_write.was_written()) == (True, True)


def test_each_of_many_watches_knows_whether_it_changed(store: LocalStore, wakeup: Wakeup) -> None:
    watches = [wakeup.watch(store, f"{n}/") for n in range(300)]
    store.put("7/x", b"")
    store.put("299/y", b"")
    while wakeup.wait_ms(0):
        pass
    assert all(watch.was_written() for watch in watches)
    store.put("7/x", b"")
    store.put("299/z", b"")
    while wakeup.wait_ms(0):
        pass
    assert [n for n, watch in enumerate(watches) if watch.was_written()] == [7, 299]


def test_a_watch_that_ended_does_not_wake_while_another_of_the_same_directory_does(
    store: LocalStore, wakeup: Wakeup
) -> None:
    store.put("a/x", b"")
    first, second = wakeup.watch(store, "a/"), wakeup.watch(store, "a/")
    wakeup.unwatch(first)
    first.was_written()
    store.put("a/x", b"")
    assert wakeup.wait_ms(LONG_MS)
    assert second.was_written()
    wakeup.unwatch(second)
    wakeup.unwatch(second)
    store.put("a/x", b"")
    assert not wakeup.wait_ms(1)


@pytest.mark.parametrize("with_watch", [False, True])
def test_a_thread_wakes_the_sleeper(store: LocalStore, wakeup: Wakeup, with_watch: bool) -> None:
    if with_watch:
        wakeup.watch(store, "a/")
    for _ in range(200):
        thread = threading.Thread(target=wakeup.wake)
        thread.start()
        assert wakeup.wait_ms(LONG_MS)
        thread.join()
    assert not wakeup.wait_ms(1)


def test_a_wake_before_the_wait_is_kept(wakeup: Wakeup) -> None:
    wakeup.wake()
    wakeup.wake()
    assert wakeup.wait_ms(LONG_MS)
    assert not wakeup.wait_ms(1)


def test_what_cannot_be_watched_is_always_due(store: LocalStore, wakeup: Wakeup) -> None:
    watch = wakeup.watch(MemoryStore(), "a/")
    assert not wakeup.is_active
    assert watch.was_written()
    assert watch.was_written()
    assert not wakeup.wait_ms(1)
    wakeup.unwatch(watch)
    assert wakeup.is_active


def test_with_a_virtual_clock_waiting_is_its_sleep(store: LocalStore) -> None:
    class VirtualClock:
        now_ms = 0.0

        def wall_ms(self) -> int:
            return int(self.now_ms)

        monotonic_ms = wall_ms

        def sleep_ms(self, duration_ms: float) -> None:
            self.now_ms += duration_ms

    clock = VirtualClock()
    wakeup = Wakeup(clock)
    assert wakeup.watch(store, "a/").was_written()
    assert not wakeup.is_active
    assert not wakeup.wait_ms(40)
    wakeup.wake()
    assert wakeup.wait_ms(2)
    assert clock.now_ms == 42
    wakeup.close()


def test_a_closed_wakeup_ignores_late_callers(wakeup: Wakeup, store: LocalStore) -> None:
    wakeup.watch(store, "a/")
    wakeup.close()
    wakeup.wake()


def reported(reports_writes: bool = True) -> tuple[MemoryStore, WatchedPlace]:
    """A store and its place `a/`, the first write of which was read."""
    store, wakeup = MemoryStore(reports_writes=reports_writes), Wakeup(SystemClock())
    place = wakeup.watch(store, "a/")
    assert place.read(lambda: "first", is_due=not reports_writes) == "first"
    return store, place


def test_a_place_is_read_once_for_all_writes_before_the_look() -> None:
    store, place = reported()
    assert place.read(lambda: "nothing was written") is None
    store.put("a/1", b"")
    store.put("a/2", b"")
    assert place.read(lambda: [m.path for m in store.list("a/")]) == ["a/1", "a/2"]
    assert place.read(lambda: "nothing was written") is None


def test_a_write_during_a_look_is_read_by_the_next() -> None:
    store, place = reported()
    store.put("a/1", b"")
    assert place.read(lambda: store.put("a/2", b"")) is None
    assert place.read(lambda: "the second write") == "the second write"


@pytest.mark.parametrize(("retries", "expected"), [(True, "the write"), (False, None)])
def test_a_look_that_fails_is_repeated_by_the_next_read_unless_the_caller_repeats_it(
    retries: bool, expected: str | None
) -> None:
    def fail() -> str:
        raise StoreUnavailableError("away")

    store, place = reported()
    store.put("a/1", b"")
    with pytest.raises(StoreUnavailableError):
        place.read(fail, retries=retries)
    assert place.read(lambda: "the write", retries=retries) == expected


def test_a_place_is_read_without_a_write_when_that_is_due() -> None:
    _, place = reported()
    assert [place.read(lambda: "due", is_due=is_due) for is_due in (False, True, False)] == [None, "due", None]


def test_where_writes_are_not_reported_only_time_or_each_read_looks() -> None:
    _, place = reported(reports_writes=False)
    assert [place.read(lambda: "look", is_due=is_due) for is_due in (False, True, None, None)] == [
        None,
        "look",
        "look",
        "look",
    ]
