"""Waiting for a write to storage or a call from another thread, whichever comes first.

I/O: inotify and an eventfd by system calls (Linux). A store that reports its writes (`add_listener`) needs neither.
What cannot be watched (other systems, network mounts, object stores) has to be polled: `is_active` is False there.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from stratalog.storage import cadence
from stratalog.storage.clock import Clock, Event, SystemClock, WakingClock
from stratalog.storage.objects.port import ObjectStore, WriteListener

Found = TypeVar("Found")


_MODIFY, _MOVED_TO, _CREATE, _DELETE_SELF, _MOVE_SELF = 0x2, 0x80, 0x100, 0x400, 0x800
_UNMOUNT, _OVERFLOW, _IGNORED, _ONLY_DIRECTORY, _MASK_ADD = 0x2000, 0x4000, 0x8000, 0x1000000, 0x20000000
_GONE = _DELETE_SELF | _MOVE_SELF | _UNMOUNT | _IGNORED
_NAMES = _CREATE | _MOVED_TO | _DELETE_SELF | _MOVE_SELF | _ONLY_DIRECTORY
_EVENT = struct.Struct("iIII")
_TEMPORARY = re.compile(r"#\d+$")
_LIBC = ctypes.CDLL(None)

_LOCAL_FILE_SYSTEMS = {
    0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x858458F6, 0x794C7630, 0x2FC12FC1, 0xF2F52010, 0xCA451A4E,
}  # fmt: skip
"""ext, XFS, btrfs, tmpfs, ramfs, overlay, ZFS, F2FS, bcachefs. On a network mount inotify does not report what
other hosts write, so every other file system is polled."""


class WatchedPlace:
    """One watched directory or object. Made by `Wakeup.watch`.

    `is_active` is False where writes are not reported: such a place has to be polled.
    """

    __slots__ = ("_is_written", "descriptors", "directory", "is_active", "mask", "name", "root")

    def __init__(self, root: str, directory: str, name: str, mask: int) -> None:
        self.root = root
        self.directory = directory
        self.name = name
        self.mask = mask
        self.is_active = False
        self.descriptors: set[int] = set()
        self._is_written = True

    def read(self, look: Callable[[], Found], *, is_due: bool | None = None, retries: bool = True) -> Found | None:
        """What `look` returns, or None without a call: nothing was written since the last read, and none is due.

        is_due   whether to look although no write was reported; None: wherever writes are not reported
        retries  whether the next read repeats a look that raised; False leaves that to `is_due`
        """
        is_written = self.was_written()
        if not (is_written if is_due is None else is_due or (is_written and self.is_active)):
            return None
        try:
            return look()
        except BaseException:
            if retries:
                self.mark_written()
            raise

    def was_written(self) -> bool:
        """True when the place may have been written since the last call; always where it is not active.

        Call it before the look: a write that comes after it is reported by the next call.
        """
        was_written, self._is_written = self._is_written, not self.is_active
        return was_written

    def mark_written(self) -> None:
        """A write was reported, or a look failed: the next `was_written` is True."""
        self._is_written = True


@dataclass(slots=True)
class _Node:
    """A watch descriptor of the kernel: the places that it reports every event to, and those for one name each."""

    descriptor: int
    whole: set[WatchedPlace] = field(default_factory=set)
    by_name: dict[str, set[WatchedPlace]] = field(default_factory=dict)

    def places(self) -> set[WatchedPlace]:
        return self.whole.union(*self.by_name.values())

    def remove(self, place: WatchedPlace) -> bool:
        """True while another place needs the descriptor."""
        self.whole.discard(place)
        for places in self.by_name.values():
            places.discard(place)
        self.by_name = {name: places for name, places in self.by_name.items() if places}
        return bool(self.whole or self.by_name)


class Wakeup:
    """What one thread sleeps on. `wake` may be called from any thread, everything else only from the sleeper's.

    With a virtual clock `wait_ms` takes that clock's time; unless it is a `WakingClock`, nothing ends it early.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_woken = False
        self._is_waiting = False
        self._only_sleeps = not isinstance(clock, SystemClock | WakingClock)
        self._event: Event = clock.event() if isinstance(clock, WakingClock) else threading.Event()
        self._listeners: dict[WatchedPlace, tuple[ObjectStore, WriteListener]] = {}
        self._places: set[WatchedPlace] = set()
        self._inactive: set[WatchedPlace] = set()
        self._nodes: dict[int, _Node] = {}
        self._inotify: int | None = None
        self._signal: int | None = None
        self._poll: select.poll | None = None
        self._retry_at_ms = 0
        if isinstance(clock, SystemClock) and sys.platform == "linux":
            self._signal = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._poll = select.poll()
            self._poll.register(self._signal, select.POLLIN)

    @property
    def is_active(self) -> bool:
        """True when the writes of every watched place are reported: polling may back off."""
        return not self._inactive

    def watch(self, store: ObjectStore, path: str, *, only_new: bool = False) -> WatchedPlace:
        """Wake when an object below the directory `path` (it ends in `/`) is written or made, or when the
        object `path` is. Neither needs to exist. Temporary files do not count.

        only_new   of a directory: made or replaced as a whole, not written in place
        """
        directory, _, name = path.rpartition("/")
        root = store.file_path("") or ""
        mask = _NAMES if name or only_new else _NAMES | _MODIFY
        place = WatchedPlace(root, f"{root}/{directory}".rstrip("/"), name, mask)
        self._places.add(place)
        self._inactive.add(place)
        listener = partial(self._on_write, place, path, only_new)
        if root and self._has_inotify(root):
            self._activate(place)
        elif store.add_listener(listener):
            self._listeners[place] = store, listener
            self._became_active(place)
        return place

    def _on_write(self, place: WatchedPlace, watched: str, only_new: bool, written: str, is_new: bool) -> None:
        if written == watched or (not place.name and written.startswith(watched) and (is_new or not only_new)):
            place.mark_written()
            self.wake()

    def unwatch(self, place: WatchedPlace) -> None:
        """The end of a watch; one that has ended already is fine."""
        self._places.discard(place)
        self._remove_listener(place)
        self._inactive.discard(place)
        self._deactivate(place)

    def _remove_listener(self, place: WatchedPlace) -> None:
        if place in self._listeners:
            store, listener = self._listeners.pop(place)
            store.remove_listener(listener)

    def wake(self) -> None:
        """End the wait that is under way, or else the next one at once."""
        self._is_woken = True
        if self._is_waiting:
            if self._signal is None:
                self._event.set()
            else:
                try:  # not `suppress`, which takes as long as the call
                    os.eventfd_write(self._signal, 1)
                except OSError:  # closed meanwhile
                    return

    def wait_ms(self, timeout_ms: float) -> bool:
        """Sleep until woken, at most `timeout_ms`; True when woken. 0 does not sleep."""
        if self._only_sleeps:
            self._clock.sleep_ms(timeout_ms)
            return self._consume_woken()
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._retry_at_ms:
            self._retry_inactive(now_ms)
        deadline_ms = now_ms + timeout_ms
        while True:
            self._is_waiting = True  # before the check: every `wake` from now on signals
            try:
                is_changed = self._sleep(0 if self._is_woken else timeout_ms)
            finally:
                self._is_waiting = False
            if self._consume_woken() or is_changed:
                return True
            timeout_ms = deadline_ms - self._clock.monotonic_ms()
            if timeout_ms <= 0:
                return False

    def close(self) -> None:
        """Close the descriptors."""
        for place in list(self._listeners):
            self._remove_listener(place)
        self._places.clear()
        self._inactive.clear()
        self._nodes.clear()
        self._poll = None
        for descriptor in (self._inotify, self._signal):
            if descriptor is not None:
                os.close(descriptor)
        self._inotify = self._signal = None

    def _consume_woken(self) -> bool:
        was_woken, self._is_woken = self._is_woken, False
        return was_woken

    def _sleep(self, timeout_ms: float) -> bool:
        """True when a watched place was written."""
        if self._poll is None:
            self._event.wait(timeout_ms / 1000)
            self._event.clear()
            return False
        is_changed = False
        for descriptor, _ in self._poll.poll(max(timeout_ms, 0)):
            if descriptor == self._signal:
                try:
                    os.eventfd_read(descriptor)
                except BlockingIOError:
                    continue
            else:
                is_changed |= self._read_events(descriptor)
        return is_changed

    # -- events of the kernel ----------------------------------------------------------------------------

    def _read_events(self, descriptor: int) -> bool:
        marked = False
        for number, mask, name in _events(os.read(descriptor, 1 << 16)):
            for place, is_moved in self._affected(number, mask, name):
                place.mark_written()
                marked = True
                if is_moved:
                    self._activate(place)
        return marked

    def _affected(self, number: int, mask: int, name: str) -> list[tuple[WatchedPlace, bool]]:
        """The places of an event, each with whether it must be activated again because files or directories moved."""
        if mask & _OVERFLOW:
            return [(place, True) for place in self._places]
        node = self._nodes.get(number)
        if node is None:
            return []
        if mask == _MODIFY and not name:  # a register was written, as with nearly all events
            return [(place, False) for place in node.whole]
        if mask & _GONE:
            del self._nodes[number]
            if not mask & _IGNORED:
                _LIBC.inotify_rm_watch(self._inotify, number)
            return [(place, True) for place in node.places()]
        affected = [] if mask & _MODIFY else [(place, True) for place in node.by_name.get(name, ())]
        if not _TEMPORARY.search(name):
            affected += [(place, False) for place in node.whole if place.name or place.mask & mask]
        return affected

    # -- activation --------------------------------------------------------------------------------------

    def _has_inotify(self, root: str) -> bool:
        if self._poll is None or not _is_local(root):
            return False
        if self._inotify is None:
            descriptor = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if descriptor < 0:  # too many of them for this user
                return False
            self._inotify = descriptor
            self._poll.register(descriptor, select.POLLIN)
        return True

    def _retry_inactive(self, now_ms: int) -> None:
        """Try those again that cannot be watched so far."""
        self._retry_at_ms = now_ms + cadence.WATCH_RETRY.ms
        for place in list(self._inactive):
            if place.root and self._has_inotify(place.root):
                self._activate(place)

    def _became_active(self, place: WatchedPlace) -> None:
        place.is_active = True
        self._inactive.discard(place)

    def _activate(self, place: WatchedPlace) -> None:
        """Watch the directory, or the nearest existing one above it; for an object its file, too."""
        self._deactivate(place)
        path = place.directory
        for _ in range(100):
            node = self._add(place, path, place.mask if path == place.directory else _NAMES)
            if node is not None:
                missing = place.directory[len(path) + 1 :].partition("/")[0]
                if not self._attach(place, node, missing):
                    self._deactivate(place)
                    return
                if not missing or not os.path.isdir(f"{path}/{missing}"):
                    self._became_active(place)
                    return
                self._deactivate(place)  # made meanwhile
                path = place.directory
            elif path == place.root:
                return
            else:
                path = os.path.dirname(path)

    def _attach(self, place: WatchedPlace, node: _Node, missing: str) -> bool:
        """False when the kernel has no watch left for the file itself, which is written in place."""
        name = missing or place.name
        if name:
            node.by_name.setdefault(name, set()).add(place)
        else:
            node.whole.add(place)
        if place.name and not missing:
            path = f"{place.directory}/{place.name}"
            file = self._add(place, path, _MODIFY)
            if file is None and os.path.exists(path):
                file = self._add(place, path, _MODIFY)  # unless it was made meanwhile
                if file is None:
                    return False
            if file is not None:
                file.whole.add(place)
        return True

    def _add(self, place: WatchedPlace, path: str, mask: int) -> _Node | None:
        number = _LIBC.inotify_add_watch(self._inotify, os.fsencode(path), mask | _MASK_ADD)
        if number < 0:
            return None
        place.descriptors.add(number)
        return self._nodes.setdefault(number, _Node(number))

    def _deactivate(self, place: WatchedPlace) -> None:
        place.is_active = False
        if place in self._places:
            self._inactive.add(place)
        for number in place.descriptors:
            node = self._nodes.get(number)
            if node is not None and not node.remove(place):
                del self._nodes[number]
                _LIBC.inotify_rm_watch(self._inotify, number)
        place.descriptors.clear()


def _events(data: bytes) -> Iterator[tuple[int, int, str]]:
    """(watch descriptor, mask, name in the directory or "") of each event that the kernel wrote."""
    at = 0
    while at < len(data):
        number, mask, _, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size + length
        yield number, mask, os.fsdecode(data[at - length : at].rstrip(b"\0")) if length else ""


def _is_local(root: str) -> bool:
    answer = ctypes.create_string_buffer(256)
    if _LIBC.statfs(os.fsencode(root), answer) != 0:
        return False
    return ctypes.c_long.from_buffer(answer).value in _LOCAL_FILE_SYSTEMS
