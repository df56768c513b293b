"""Fetches that wait for more records: Kafka's DelayedFetch and its purgatory. I/O: a thread that waits on storage.

The thread sleeps until a leader publishes, metadata changes, or the next deadline comes. It visits the fetches that
wait for a partition that moved (`waiting_fetches`), and no other. What is in memory it reads itself; what has to come
from storage an io thread reads. It starts with the first fetch that has to wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import cache, partial

from stratalog.server.apis.fetch.sessions import WantedPartition
from stratalog.server.apis.fetch.waiting_fetches import (
    NOT_DUE,
    FetchRun,
    PartitionChange,
    Readiness,
    WaitingFetches,
    readiness,
)
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TopicPartition

_LOG = line_logger("stratalog.kafka")

POLL_MS = 5
"""The poll interval where storage cannot be watched."""
METADATA_AGE_MS = 50
NEVER = 2**63
"""A sequence above that of any change."""

Read = Callable[[FetchRun, Sequence[WantedPartition]], bool]


class DelayedFetches:
    """The waiting fetches of one broker.

    read     reads some partitions of a fetch again; True when that is enough for an answer
    answer   answers a fetch with what was read
    change_of  what is known of a partition, without a read of storage
    """

    def __init__(
        self,
        view: ClusterView,
        read: Read,
        answer: Callable[[FetchRun], None],
        change_of: Callable[[TopicPartition], PartitionChange],
        name: str,
        io: Executor | None = None,
    ) -> None:
        """`io` runs reads of storage; None: the thread does."""
        self._view = view
        self._read = read
        self._answer = answer
        self._change_of = change_of
        self._io = io
        self._changed = threading.Condition()
        self._waiting = WaitingFetches()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.sequence = -1
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_watching(self) -> bool:
        """Whether storage is watched, so that what leaders publish is read anyway."""
        return len(self._waiting) > 0

    def add(self, run: FetchRun) -> None:
        """Answer the fetch once it has enough, or at its deadline; at once when closed.

        `run.sequence` was taken before its partitions were read: what came since is looked at here.
        """
        wanted, found = self._wait(run)
        if wanted:
            self._go_on(run, wanted, found)

    def close(self) -> None:
        """Answer all fetches with what was read, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._view.changes.wake()
        if self._thread.ident is not None:
            self._thread.join()

    def _wait(self, run: FetchRun) -> tuple[Sequence[WantedPartition], Readiness]:
        """Let a fetch wait, unless it is due by now: then the partitions to be read. Answers it when closed."""
        with self._changed:
            is_closed = self._is_closed
            if not is_closed:
                is_next = self._waiting.add(run)
                self._changed.notify()
                if self._thread.ident is None:
                    self._thread.start()
        if is_closed:
            self._finish(run)
            return (), NOT_DUE
        if is_next:
            self._view.changes.wake()
        # The thread finds the fetch from here on; what it saw before, this call sees.
        wanted = self._moved(run)
        found = readiness(run, wanted, self._change_of) if wanted else NOT_DUE
        if not found.is_due or not self._claim(run):
            return (), NOT_DUE
        return wanted, found

    def _claim(self, run: FetchRun) -> bool:
        """Whether the caller is the one that goes on with a waiting fetch."""
        with self._changed:
            return self._waiting.remove(run)

    def _go_on(self, run: FetchRun, wanted: Sequence[WantedPartition], found: Readiness) -> None:
        """Read partitions of a fetch that was claimed: here, if all of it is in memory."""
        if self._io is None or found.from_memory:
            self._read_again(run, wanted)
            return
        try:
            self._io.submit(partial(self._read_again, run, wanted))
        except RuntimeError:  # its threads have ended: the broker stops
            self._finish(run)

    def _read_again(self, run: FetchRun, wanted: Sequence[WantedPartition]) -> None:
        """Read partitions of a fetch, and answer it or let it wait again."""
        while wanted:
            sequence = self._view.changes.moved_since(NEVER)[0]
            also = {each.key for each in (*wanted, *self._moved(run), *run.unread)}
            run.sequence = sequence
            if self._has_enough(run, [each for each in run.context.wanted if each.key in also]):
                self._finish(run)
                return
            wanted, found = self._wait(run)
            if wanted and not found.from_memory:
                self._go_on(run, wanted, found)
                return

    def _moved(self, run: FetchRun) -> list[WantedPartition]:
        """The fetch's partitions that may have moved since they were read."""
        return run.concerns(self._view.changes.moved_among(run.places, run.sequence))

    def _has_enough(self, run: FetchRun, wanted: Sequence[WantedPartition]) -> bool:
        try:
            return self._read(run, wanted)
        except Exception:  # noqa: BLE001 - a defect of one fetch must not end the thread
            _LOG.exception("%s: a fetch could not be read", self._thread.name)
            run.call.connection.close("a fetch could not be read")
            return True

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not len(self._waiting) and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    left = self._waiting.pop_all()
                    break
                first_due_ms = self._waiting.next_deadline_ms()
            left_ms = 0 if first_due_ms is None else first_due_ms - self._view.clock.monotonic_ms()
            if left_ms > 0:
                self._view.changes.wait(left_ms, POLL_MS)
            self._poll()
        for run in left:
            self._finish(run)

    def _poll(self) -> None:
        """Visit the fetches whose partitions moved, and answer those that are at their deadline."""
        try:
            self._view.refresh(METADATA_AGE_MS)
            self._view.changes.poll()
        except StratalogError as reason:
            _LOG.warning("%s, trying again: %s", self._thread.name, reason)
        self.sequence, moved = self._view.changes.moved_since(self.sequence)
        with self._changed:
            visited = self._waiting.waiting_for(self._waiting.partitions if moved is None else moved)
        change_of = cache(self._change_of)
        for run, wanted in visited.items():
            self._visit(run, wanted, change_of)
        with self._changed:
            expired = self._waiting.pop_expired(self._view.clock.monotonic_ms())
        for run in expired:
            if run.unread:
                self._has_enough(run, run.unread)
            self._finish(run)

    def _visit(
        self, run: FetchRun, wanted: Sequence[WantedPartition], change_of: Callable[[TopicPartition], PartitionChange]
    ) -> None:
        found = readiness(run, wanted, change_of)
        if not found.is_due or not self._claim(run):
            return
        self._go_on(run, wanted, found)

    def _finish(self, run: FetchRun) -> None:
        try:
            self._answer(run)
        except Exception:  # noqa: BLE001 - a failing answer must not end the thread
            _LOG.exception("%s: a fetch could not be answered", self._thread.name)
            run.call.connection.close("a fetch could not be answered")
