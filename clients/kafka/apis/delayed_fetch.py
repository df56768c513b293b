"""Fetches that wait for more records: Kafka's DelayedFetch and its purgatory. I/O: a thread that waits on storage.

The thread sleeps until a leader publishes or metadata changes, and then reads only the partitions that moved, for the
fetches that wait for them. It starts with the first fetch that has to wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from stratalog.clients.kafka.apis.fetch_read import PartitionRead
from stratalog.clients.kafka.apis.fetch_sessions import FetchContext, FetchKey, WantedPartition
from stratalog.clients.kafka.request.api import Call
from stratalog.clients.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

_LOG = logging.getLogger("stratalog.kafka")

POLL_MS = 5
"""The poll interval where storage cannot be watched."""
METADATA_AGE_MS = 50


@dataclass(slots=True)
class FetchRun:
    """A Fetch under way: the request, and what was read so far.

    sequence  of the view's newest change when the reading began: partitions with later changes are read again
    """

    call: Call
    context: FetchContext
    min_bytes: int
    max_bytes: int
    deadline_ms: int
    sequence: int
    reads: dict[FetchKey, PartitionRead] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(read.size_bytes for read in self.reads.values())

    @property
    def is_enough(self) -> bool:
        """Whether the fetch is answered without more waiting."""
        return self.size_bytes >= self.min_bytes or any(read.is_urgent for read in self.reads.values())

    def concerns(self, moved: Iterable[TopicPartition] | None) -> list[WantedPartition]:
        """The fetch's partitions among those that moved (None: any may have)."""
        wanted = self.context.wanted
        if moved is None:
            return list(wanted)
        among = set(moved)
        return [each for each in wanted if self.reads[each.key].topic_partition in among]


Read = Callable[[FetchRun, Sequence[WantedPartition]], bool]


class DelayedFetches:
    """The waiting fetches of one broker.

    read     reads some partitions of a fetch again; True when that is enough for an answer
    answer   answers a fetch with what was read
    """

    def __init__(self, view: ClusterView, read: Read, answer: Callable[[FetchRun], None], name: str) -> None:
        self._view = view
        self._read = read
        self._answer = answer
        self._name = name
        self._changed = threading.Condition()
        self._waiting: list[FetchRun] = []
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, run: FetchRun) -> None:
        """Answer the fetch once it has enough, or at its deadline; at once when closed."""
        with self._changed:
            is_closed = self._is_closed
            if not is_closed:
                self._waiting.append(run)
                self._changed.notify()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()
        if is_closed:
            self._answer(run)
        else:
            self._view.wake()  # its deadline may be the next one

    def close(self) -> None:
        """Answer all fetches with what was read, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._view.wake()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    left, self._waiting = self._waiting, []
                    break
                soonest_ms = min(run.deadline_ms for run in self._waiting)
            left_ms = soonest_ms - self._view.clock.monotonic_ms()
            if left_ms > 0:
                self._view.wait(left_ms, POLL_MS)
            self._poll()
        for run in left:
            self._finish(run)

    def _poll(self) -> None:
        """Read what moved, and answer the fetches that are ready or at their deadline."""
        try:
            self._view.refresh(METADATA_AGE_MS)
            self._view.poll_progress()
        except StratalogError as reason:
            _LOG.warning("%s, trying again: %s", self._name, reason)
        now_ms = self._view.clock.monotonic_ms()
        with self._changed:
            waiting = list(self._waiting)
        for run in waiting:
            if self._is_ready(run) or now_ms >= run.deadline_ms:
                with self._changed:
                    self._waiting.remove(run)
                self._finish(run)

    def _is_ready(self, run: FetchRun) -> bool:
        run.sequence, moved = self._view.moved_since(run.sequence)
        wanted = run.concerns(moved)
        return bool(wanted) and self._read(run, wanted)

    def _finish(self, run: FetchRun) -> None:
        try:
            self._answer(run)
        except Exception:  # noqa: BLE001 - a failing answer must not end the thread
            _LOG.exception("%s: a fetch could not be answered", self._name)
            run.call.connection.close("a fetch could not be answered")
