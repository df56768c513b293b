"""What changed in a cluster since a reader last asked, and waiting for the next change.

I/O: polls the leaders' progress objects and tables in storage domains, watches them and the metadata log.
"""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.replication.metadata.log import METADATA_PARTITION
from stratalog.server.view.change_wait import ChangeWait, Place
from stratalog.server.view.domain_tables import DomainTables
from stratalog.server.view.topology import ClusterTopology
from stratalog.storage.cadence import IdlePause, Poll
from stratalog.storage.objects.distance import Distance, farthest
from stratalog.storage.records import TopicPartition

PROGRESS = Poll(
    "leaders' progress and metadata, by a view, where each poll is a request to an object store",
    "a consumer of a quiet topic sees a record half a second later",
    share=10,
    longest_ms=500,
)


class ProgressChanges:
    """Of the leaders that a view has asked for so far. Thread-safe."""

    def __init__(self, topology: ClusterTopology, tables: DomainTables) -> None:
        """`tables`: of the partitions in storage domains."""
        self._topology = topology
        self._tables = tables
        self._wait = ChangeWait(topology.clock)
        tables.wakes(self._wait)
        self._idle = IdlePause(PROGRESS, topology.clock.monotonic_ms())
        self._waited_for = -1
        """The sequence of moves as of the last `wait`. Invariant: a larger one is news."""

    def poll(self) -> None:
        """Read the progress of every leader known so far, one small object a broker, and the next commit of each table
        in a storage domain that was asked for lately."""
        self._topology.progress.poll()
        self._tables.poll()

    def moved_since(self, sequence: int) -> tuple[int, list[TopicPartition] | None]:
        """The sequence for the next call, and the partitions whose progress moved after `sequence` (at first -1).

        None: any partition's may have, since metadata changed. Does not read progress: see `poll`.
        """
        return self._topology.progress.moved_since(sequence)

    def moved_among(self, topic_partitions: Iterable[TopicPartition], sequence: int) -> list[TopicPartition]:
        """Those whose progress may have moved after `sequence`. Does not read progress, as `moved_since`."""
        return self._topology.progress.moved_among(topic_partitions, sequence)

    def wait(self, timeout_ms: float, poll_ms: float) -> None:
        """Wait until leaders known so far or the metadata log may have news, at most `timeout_ms`.

        Where storage cannot be watched, it returns after `poll_ms`, or later while an object store has no news.
        """
        topology, poll_ms = self._topology, max(poll_ms, self._remote_pause_ms())
        metadata: Place = (topology.stores.objects(topology.root), f"{METADATA_PARTITION}/_delta_log/")
        places = {**topology.progress.places(), **self._tables.places(), "metadata": metadata}
        if "metadata" in self._wait.wait(places, timeout_ms, poll_ms):
            topology.expect_commit()

    def wake(self) -> None:
        """End a `wait` that is under way in another thread."""
        self._wait.wake()

    @property
    def requests_per_poll(self) -> int:
        """How many requests to object stores a refresh and `poll` make together; files here need none."""
        return sum(each.requests_per_call for each in self._distances())

    @property
    def distance(self) -> Distance:
        """FAR where a refresh or `poll` makes requests to an object store."""
        return farthest(self._distances())

    def _distances(self) -> list[Distance]:
        topology = self._topology
        stores = [topology.stores.objects(topology.root), *(store for store, _ in topology.progress.places().values())]
        return [*(store.distance for store in stores), *self._tables.distances()]

    def _remote_pause_ms(self) -> int:
        """The pause between polls that time without news allows; 0 where polls are no requests to object stores."""
        if not self.distance.is_far:
            return 0
        now_ms, (sequence, _) = self._topology.clock.monotonic_ms(), self.moved_since(self._waited_for)
        if sequence != self._waited_for:
            self._waited_for = sequence
            self._idle.changed(now_ms)
        return self._idle.pause_ms(now_ms)
