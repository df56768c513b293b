"""One watcher for many consumers of one process: it notifies each when its own partitions move.

I/O: a thread with a `ClusterView` of its own for each cluster, while more than `ALONE_MAX` consumers read it. Fewer
consumers watch by their own views, which saves a change of threads. A hundred of them would each wake, and read every
leader's progress, at every write: a hundred times the work of one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from stratalog.clients.client_view import ClientView
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

ALONE_MAX = 4
"""Number of consumers of a process up to which each watches by itself."""
WAIT_MS_MAX, POLL_MS = 500, 5
METADATA_REFRESH_MS = 50

_watchers: dict[str, SharedNotifications] = {}
_lock = threading.Lock()


class ConsumerNotifications:
    """One consumer's news. `wake` and `notify` may be called from any thread, the rest only from the consumer's."""

    def __init__(self, view: ClientView, shared: SharedNotifications | None = None) -> None:
        self._view = view
        self._shared = shared
        self._alarm = threading.Event()
        self._is_notified = True
        self._was_shared = False
        if shared is not None:
            shared.add(self)

    @classmethod
    def of_process(cls, view: ClusterView, make: Callable[[], ClusterView]) -> ConsumerNotifications:
        """Shared with the other consumers of the cluster in this process; `make` gives the watcher a view."""
        with _lock:
            shared = _watchers.setdefault(view.root, SharedNotifications(view.root, make))
            return cls(view, shared)

    @property
    def _is_shared(self) -> bool:
        return self._shared is not None and self._shared.is_crowded

    def poll(self) -> bool:
        """Whether metadata or the progress of a watched partition may have changed since the last call."""
        is_shared = self._is_shared
        began, self._was_shared = is_shared and not self._was_shared, is_shared
        was_notified = self._is_notified
        if was_notified:  # written only then: a notification that comes now must not be lost
            self._is_notified = False
        return was_notified or began or not is_shared

    @property
    def metadata_age_ms(self) -> int:
        """How old metadata may be: shared news may be about new metadata."""
        return 0 if self._was_shared else METADATA_REFRESH_MS

    def watch(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Watch exactly these from now on; all of them may have news already."""
        self._is_notified = True
        if self._shared is not None:
            self._shared.watch(self, frozenset(topic_partitions))

    def wait(self, timeout_ms: float, poll_ms: float) -> None:
        """Sleep until there may be news, or `wake`; at most `timeout_ms`."""
        if not self._is_shared or not self._was_shared:
            self._view.changes.wait(timeout_ms, poll_ms)
        elif not self._is_notified:
            self._alarm.wait(timeout_ms / 1000)
            self._alarm.clear()

    def notify(self) -> None:
        """There is news."""
        self._is_notified = True
        self._alarm.set()

    def wake(self) -> None:
        """End a `wait` that is under way, or the next one."""
        self._alarm.set()
        self._view.changes.wake()

    def close(self) -> None:
        """Stop watching."""
        if self._shared is not None:
            self._shared.remove(self)


class SharedNotifications:
    """The watcher of one cluster. Its thread runs while it has more than `ALONE_MAX` consumers."""

    def __init__(self, root: str, make: Callable[[], ClusterView]) -> None:
        self._root = root
        self._make = make
        self._watched: dict[ConsumerNotifications, frozenset[TopicPartition]] = {}
        self._listeners: dict[TopicPartition, set[ConsumerNotifications]] = {}
        self._unknown: set[TopicPartition] = set()
        self._view: ClusterView | None = None
        self._thread: threading.Thread | None = None
        self._changes = threading.Lock()
        self.is_crowded = False

    def add(self, news: ConsumerNotifications) -> None:
        with self._changes:
            self._watched[news] = frozenset()
            if len(self._watched) > ALONE_MAX and self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="consumer-news", daemon=True)
                self._thread.start()

    def remove(self, news: ConsumerNotifications) -> None:
        with _lock, self._changes:
            self._forget(news)
            self._watched.pop(news, None)
            if not self._watched:
                _watchers.pop(self._root, None)
            if self._view is not None:
                self._view.changes.wake()

    def watch(self, news: ConsumerNotifications, topic_partitions: frozenset[TopicPartition]) -> None:
        with self._changes:
            self._forget(news)
            self._watched[news] = topic_partitions
            for each in topic_partitions:
                if each not in self._listeners:
                    self._unknown.add(each)
                self._listeners.setdefault(each, set()).add(news)
            if self._view is not None and self._unknown:
                self._view.changes.wake()

    def _forget(self, news: ConsumerNotifications) -> None:
        for each in self._watched.get(news, ()):
            listeners = self._listeners.get(each, set())
            listeners.discard(news)
            if not listeners:
                self._listeners.pop(each, None)
                self._unknown.discard(each)

    def _watch(self) -> None:
        """Run until no more than `ALONE_MAX` consumers are left; these are notified a last time."""
        sequence = -1
        try:
            view = self._view = self._make()
            self.is_crowded = True
            while not self._is_over():
                sequence = self._refresh(view, sequence)
                view.changes.wait(WAIT_MS_MAX, POLL_MS)
        finally:
            with self._changes:
                self.is_crowded, self._thread, self._view = False, None, None
                listeners = list(self._watched)
                self._unknown.update(self._listeners)
            for each in listeners:
                each.notify()

    def _is_over(self) -> bool:
        with self._changes:
            return len(self._watched) <= ALONE_MAX

    def _refresh(self, view: ClusterView, sequence: int) -> int:
        with suppress(StratalogError):  # storage out of reach is handled where a partition is read
            view.refresh()
        with self._changes:
            unknown, self._unknown = self._unknown, set()
        for each in unknown:
            with suppress(StratalogError):
                view.watermarks.published(each, poll=False)
        view.changes.poll()
        sequence, moved = view.changes.moved_since(sequence)
        if moved is None:
            with self._changes:
                self._unknown.update(self._listeners)  # leaders may have changed
                notified = set(self._watched)
        else:
            with self._changes:
                notified = {news for each in moved for news in self._listeners.get(each, ())}
        for news in notified:
            news.notify()
        if moved is None:
            view.changes.wake()  # read the new leaders' progress before waiting
        return sequence
