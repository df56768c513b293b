"""Tables and small objects by root: the layout of roots.

I/O: opens object stores. The simulation has an in-memory implementation of the same port.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ParamSpec, Protocol, TypeVar

from stratalog.replication.folders import is_topic_folder, replica_of
from stratalog.replication.shared_fold import SharedFold
from stratalog.storage import cadence
from stratalog.storage.clock import Clock, Ids
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.delta.table import LogTable
from stratalog.storage.files.cache import SHARED_FILE_CACHE, FileCache
from stratalog.storage.objects.distance import NEAR, Distance
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.objects.store_settings import FROM_ENVIRONMENT, StoreSettings
from stratalog.storage.objects.together import NO_HEDGING, Hedging
from stratalog.storage.records import TopicPartition

P = ParamSpec("P")
T = TypeVar("T")


class Stores(Protocol):
    """Tables and objects by root URL. A root is a broker's, or that of the metadata."""

    def objects(self, root: str) -> ObjectStore:
        """Small objects below the root (progress, sessions, inbox)."""

    def table(self, root: str, topic_partition: TopicPartition) -> LogTable:
        """The replica `<root>/<topic>-<partition>`. The folder of a topic in a storage domain is a root, too."""

    def replicas(self, root: str) -> list[TopicPartition]:
        """The replicas that have a directory below the root."""


class Threads(Protocol):
    """Threads beside the caller's, one for each root of another broker: a root that answers nothing blocks its own
    thread alone."""

    def start(self, name: str, run: Callable[[], None]) -> None:
        """Run `run` in a thread of its own."""


class Together(Protocol):
    """Makes calls to a store that do not depend on each other, and waits for all of them.

    distance  of that store: how many calls are made at a time
    """

    distance: Distance

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """What the calls return, in their order. Raises what the first that failed raises, after all have returned."""


class OneByOne:
    """Where a store answers at once."""

    distance = NEAR

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        return [call() for call in calls]


class SessionTurn(AbstractContextManager[None], Protocol):
    """Held by the one thread of a fetch session that works; a call to another broker's root gives it up meanwhile."""

    def away(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make this call without the turn: anything may have changed afterwards."""


class NoTurn(nullcontext[None]):
    """That of a single thread."""

    def away(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return call(*args, **kwargs)


LARGE_APPEND_BYTES = 2 << 20
"""Of batches, from which their data file is written beside the loop: smaller ones take less than to hand them over."""


@dataclass(frozen=True, slots=True)
class FileWriters:
    """Writes the data files of large appends beside a broker's loop, which then only commits them.

    executor   its threads
    bytes_min  of the batches of such an append, as Arrow data
    """

    executor: Executor
    bytes_min: int = LARGE_APPEND_BYTES


@dataclass(frozen=True, slots=True)
class StoresBeside:
    """Stores the appends of partitions while the loop goes on, where each takes as long as a far store's requests: one
    at a time of a partition, while the file of its next one is written.

    executor  its threads
    wake      ends the loop's wait: an append was stored
    takes     whether the appends to a table are stored so
    """

    executor: Executor
    wake: Callable[[], None]
    takes: Callable[[LogTable], bool]


def any_table(_table: LogTable) -> bool:
    """All appends are stored beside the loop."""
    return True


@dataclass(frozen=True, slots=True)
class FarAppends:
    """What stores appends beside a broker's loop: its threads, and the tables whose appends they store."""

    executor: Executor
    takes: Callable[[LogTable], bool] = any_table


@dataclass(frozen=True, slots=True)
class AppendStores:
    """How the groups of several partitions are stored.

    together  those that the loop waits for
    beside    those that it does not wait for; None: it waits for all
    """

    together: Together = field(default_factory=OneByOne)
    beside: StoresBeside | None = None


@dataclass(frozen=True, slots=True)
class Ports:
    """The dependencies of a part of a broker: storage, time, fresh ids, other threads.

    executor      runs long upkeep of logs; None: it runs in the calling thread
    threads       read the roots of other brokers; None: the calling thread does
    turn          what a fetch session's threads hold while they work
    executors     by a leader's root: runs the long upkeep that reads from there; None: `executor` does
    together      makes the calls to the own root that a turn needs for several partitions
    file_writers   writes the data files of large appends; None: the loop writes all files
    appends       stores the appends of partitions beside the loop; None: the loop waits for them
    metadata      what the process's parts share of the metadata log; None: this part shares with nobody
    """

    stores: Stores
    clock: Clock
    ids: Ids
    executor: Executor | None = None
    threads: Threads | None = None
    turn: SessionTurn = field(default_factory=NoTurn)
    executors: Callable[[str], Executor] | None = None
    together: Together = field(default_factory=OneByOne)
    file_writers: FileWriters | None = None
    appends: FarAppends | None = None
    metadata: SharedFold[Any, Any] | None = None

    def executor_at(self, leader_root: str) -> Executor | None:
        """Runs upkeep that reads a leader's table: one that answers nothing blocks no other upkeep."""
        return self.executors(leader_root) if self.executors is not None else self.executor


def request_ms_max(session_timeout_ms: int) -> int:
    """The deadline of a broker's requests: with their retries they end within a third of its session.

    >>> request_ms_max(9_000), request_ms_max(1_500)
    (1000, 250)
    """
    return max(1, min(cadence.REQUEST.ms, session_timeout_ms // 6))


class DeltaStores:
    """Delta tables on object stores, one cached connection a root. `cache` keeps the newest files' rows."""

    def __init__(
        self,
        ids: Ids,
        cache: FileCache = SHARED_FILE_CACHE,
        *,
        request_ms: int = cadence.REQUEST.ms,
        retries_ms: int | None = None,
        settings: StoreSettings = FROM_ENVIRONMENT,
        hedging: Hedging = NO_HEDGING,
    ) -> None:
        """`request_ms`: the deadline of a request to an object store, and, without `retries_ms`, the time within which
        a failed one is repeated. `settings`, `hedging`: of the object stores."""
        self._ids = ids
        self._settings = settings
        self._hedging = hedging
        self._request_ms = request_ms
        self._retries_ms = retries_ms
        self._cache = cache
        self._objects: dict[str, ObjectStore] = {}

    @property
    def settings(self) -> StoreSettings:
        """Of the object stores, as given."""
        return self._settings

    def objects(self, root: str) -> ObjectStore:
        if root not in self._objects:
            self._objects[root] = self._open(root)
        return self._objects[root]

    def _open(self, root: str) -> ObjectStore:
        return open_store(
            root,
            request_ms=self._request_ms,
            retries_ms=self._retries_ms,
            settings=self._settings,
            hedging=self._hedging,
        )

    def table(self, root: str, topic_partition: TopicPartition) -> LogTable:
        place, _, folder = root.rpartition("/")
        if place and is_topic_folder(folder):  # all topics of a storage domain share its connections
            return DeltaLogTable(self.objects(place), f"{folder}/{topic_partition}", self._ids, self._cache)
        return DeltaLogTable(self.objects(root), str(topic_partition), self._ids, self._cache)

    def replicas(self, root: str) -> list[TopicPartition]:
        return [found for name in self.objects(root).directories() if (found := replica_of(name)) is not None]


def client_stores(
    ids: Ids, settings: StoreSettings = FROM_ENVIRONMENT, cache: FileCache = SHARED_FILE_CACHE
) -> DeltaStores:
    """Those of a client, or of a query: they wait for a slow store longer than a broker may."""
    return DeltaStores(
        ids, cache, request_ms=cadence.CLIENT_REQUEST.ms, retries_ms=cadence.CLIENT_RETRIES.ms, settings=settings
    )
