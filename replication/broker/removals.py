"""The removal of replicas that are not assigned to a broker any more: sealed, and deleted later. I/O: opens, seals and
drops tables of the broker's root. What fails is tried again in the next round.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from stratalog.replication import cadence
from stratalog.replication.broker.own_tables import OwnTables
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.replica.removal import Leaving, Sealed, seal
from stratalog.storage.errors import StoreError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TopicPartition

_LOG = line_logger("stratalog.broker")

NOT_ASSIGNED = "it is not assigned to this broker any more"
SEALED_CHECKED = 20
"""Tables that one such search opens at most."""


class ReplicaRemovals:
    """How far the removal of each table is: `Leaving`, then `Sealed`.

    applies  whether states were applied since the broker's start: before, no table is a stray
    """

    def __init__(self, tables: OwnTables, sealed: Callable[[TopicPartition], int]) -> None:
        """`sealed` is called once a replica is, and returns its `file.delete.delay.ms`."""
        self.applies = False
        self._tables = tables
        self._sealed = sealed
        self._removals: dict[TopicPartition, Leaving | Sealed] = {}
        """Invariant: what is `Sealed` here has a seal, or had no table."""
        self._strays_due_ms = 0
        self._sealed_due_ms = 0
        self._last_checked: TopicPartition | None = None
        """Where the search for sealed tables goes on: behind this one, in order."""

    def leaving(self) -> list[TopicPartition]:
        """Those that are still to be sealed."""
        return [tp for tp, removal in self._removals.items() if isinstance(removal, Leaving)]

    def begin(self, topic_partition: TopicPartition, topic_id: str, leader_epoch: int) -> None:
        """This replica left the assignment, or moved to a storage domain, in this leader epoch."""
        self._removals[topic_partition] = Leaving(topic_id, leader_epoch)

    def is_to_be_deleted(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """A start found its table sealed."""
        self._removals[topic_partition] = Sealed(now_ms)

    def finish(self, topic_partition: TopicPartition, state: PartitionRecord | None, now_ms: int) -> None:
        """Finish what an older state began, before this newer one is applied."""
        is_in_root = self._tables.is_in_root(state)
        if isinstance(self._removals.get(topic_partition), Leaving) and (is_in_root or state is None):
            self._seal(topic_partition, now_ms)
        if isinstance(self._removals.get(topic_partition), Sealed) and is_in_root:
            self._delete(topic_partition, now_ms)  # assigned again: it is copied again

    def seal_some(self, begun_ms: int) -> None:
        """Seal replicas that are not assigned any more, for a bounded time: each takes a commit that is synced."""
        for topic_partition in self.leaving():
            if self._tables.clock.monotonic_ms() - begun_ms > cadence.REMOVALS.ms:
                return
            try:
                self._seal(topic_partition, begun_ms)
            except StoreError as reason:
                _LOG.warning("%s is not removed yet: %s", topic_partition, reason)

    def _seal(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """End all writes to the table. It is deleted `file.delete.delay.ms` later: readers may still have it open, and
        writers may have left files for another leader."""
        leaving, tables = self._removals[topic_partition], self._tables
        assert isinstance(leaving, Leaving)
        may_be_deleted = seal(tables.table(topic_partition), leaving, tables.clock, tables.ports.ids)
        del self._removals[topic_partition]
        if not may_be_deleted:
            tables.log(f"keeps replica {topic_partition}: it was assigned again after leader epoch {leaving.epoch}")
            return
        self._removals[topic_partition] = Sealed(now_ms + self._sealed(topic_partition))
        tables.log(f"stopped replica {topic_partition}: {NOT_ASSIGNED}")

    def delete_some(self, now_ms: int) -> None:
        """Delete sealed tables whose delay has passed, for a bounded time."""
        for topic_partition, removal in list(self._removals.items()):
            if not isinstance(removal, Sealed) or removal.delete_ms > now_ms:
                continue
            if self._tables.clock.monotonic_ms() - now_ms > cadence.REMOVALS.ms:
                return
            try:
                self._delete(topic_partition, now_ms)
            except StoreError as reason:
                _LOG.warning("%s is not deleted yet: %s", topic_partition, reason)

    def _delete(self, topic_partition: TopicPartition, now_ms: int) -> None:
        table = self._tables.table(topic_partition)
        if not table.has_rested():  # an earlier process of this broker may be about to commit once more
            self._removals[topic_partition] = Sealed(now_ms + table.kept_ms // 2)
            return
        # not sealed: an earlier try did it after all
        if table.drop(lambda: self._tables.is_sealed(table, if_unreadable=True)):
            self._tables.log(f"deleted replica {topic_partition}")
        del self._removals[topic_partition]

    # -- searches ----------------------------------------------------------------------------------------

    def find_strays(
        self, image: Callable[[], ClusterImage], is_applied: Callable[[TopicPartition], bool], now_ms: int
    ) -> None:
        """Find tables that fetch sessions made for an assignment that was over before this broker's loop knew of it, or
        made again before they knew of its end. A table of an unknown topic waits for the next start: the topic may
        be so new that only the sessions know it.

        is_applied  whether a state was applied to this replica in the root: it may still lead, and is stopped before
        """
        if not self.applies or now_ms < self._strays_due_ms:
            return
        self._strays_due_ms = now_ms + cadence.STRAYS_SEARCHED.ms
        tables, newest = self._tables.names(), image()
        for topic_partition in tables:
            state, removal = newest.partitions.get(topic_partition), self._removals.get(topic_partition)
            is_its = state is None or self._tables.is_in_root(state)
            if is_its or isinstance(removal, Sealed) or is_applied(topic_partition):
                continue
            assert state is not None
            if self._tables.table(topic_partition).snapshot() is not None:
                self.begin(topic_partition, newest.topic_ids.get(topic_partition.topic, ""), state.leader_epoch)

    def find_sealed(self, waiting: Callable[[], set[TopicPartition]], now_ms: int) -> None:
        """Find tables of replicas that are assigned again, which another process of this broker sealed and did not
        delete before it died: fetch sessions and new leaders wait for the deletion. `SEALED_CHECKED` are checked at a
        time, of those that may be `waiting`."""
        if now_ms < self._sealed_due_ms:
            return
        self._sealed_due_ms = now_ms + cadence.SEALED_SEARCHED.ms
        candidates = sorted(waiting())
        first = bisect_right(candidates, self._last_checked) if self._last_checked is not None else 0
        for topic_partition in [*candidates[first:], *candidates[:first]][:SEALED_CHECKED]:
            self._last_checked = topic_partition
            if self._tables.is_sealed(self._tables.table(topic_partition)):
                self._removals.setdefault(topic_partition, Sealed(now_ms))
