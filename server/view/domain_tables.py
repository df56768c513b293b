"""Partitions in storage domains, as their tables show them: all that a table holds is committed.

I/O: folds the tables, unless a leader of this process has said what it committed. No broker is asked, and none has to
run. A view polls the partitions that it was asked for lately, each by the name of its table's next commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.metadata.storage_domains import replica_directory, replica_root
from stratalog.replication.progress.led_here import LedHere, Waiting
from stratalog.server.view.change_wait import Place
from stratalog.server.view.leader_progress import Watermarks
from stratalog.server.view.partition_logs import PartitionLogs
from stratalog.server.view.topology import ClusterTopology
from stratalog.storage.errors import LogDirNotFoundError, StoreError, UnknownTopicOrPartitionError
from stratalog.storage.log.leader_epochs import LeaderEpochCache
from stratalog.storage.objects.distance import Distance
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.objects.together import in_groups
from stratalog.storage.records import TopicPartition

ASKED_MS = 60_000
"""The time without a question after which a partition is polled no more."""
FOUND_AGAIN_MS = 1_000
"""The time after which a view looks again which of the partitions are led in its process."""
AT_ONCE = 16
"""Tables that are polled side by side, where each poll is a request: half of what a store makes at a time, since a
first fold makes several requests of its own."""


def committed_end(epochs: LeaderEpochCache, leader_epoch: int, log_end_offset: int) -> int:
    """Up to where a table is committed by itself, as the metadata show its partition under `leader_epoch`. Pure.

    Under a later epoch, of which they do not know yet, the partition may have other tables as well, for which what is
    appended then has to wait. An example: epoch 3 from offset 0 on, 4 from 70, 5 from 90, log end 100.

    >>> epochs = LeaderEpochCache().assign(3, 0).assign(4, 70).assign(5, 90)
    >>> committed_end(epochs, 5, 100), committed_end(epochs, 4, 100), committed_end(epochs, 3, 100)
    (100, 90, 70)
    """
    later = epochs.end_after(leader_epoch)
    return log_end_offset if later is None else min(later, log_end_offset)


class DomainTables:
    """Of the partitions that a view was asked for. Thread-safe; calls may block on storage."""

    def __init__(
        self,
        topology: ClusterTopology,
        logs: PartitionLogs,
        led_here: LedHere,
        moved: Callable[[list[TopicPartition]], None],
    ) -> None:
        """`moved` is called with the partitions whose bounds a read found changed, after `marks` returns the new
        ones."""
        self._topology = topology
        self._logs = logs
        self._led_here = led_here
        self._moved = moved
        self._known: dict[TopicPartition, Watermarks] = {}
        self._asked_ms: dict[TopicPartition, int] = {}
        self._seen_puts = 0
        self._elsewhere: tuple[tuple[int, int], tuple[PartitionRecord, ...]] = ((-1, 0), ())
        """The partitions that were asked for lately and are not led in this process, as of a version of the metadata
        and a time."""

    def wakes(self, reader: Waiting) -> None:
        """Wake a reader by what leaders of this process commit."""
        self._led_here.add_reader(reader)

    def marks(self, state: PartitionRecord, *, poll: bool) -> Watermarks | None:
        """The bounds of a partition in a domain; None while it has no table. `poll` False: as of the last `poll`, if
        there was one. StoreError, LogDirNotFoundError."""
        topic_partition = state.topic_partition
        if topic_partition not in self._asked_ms:
            self._elsewhere = (-1, 0), ()
        self._asked_ms[topic_partition] = self._topology.clock.monotonic_ms()
        known = self._known.get(topic_partition)
        if poll or known is None or known.topic_id != self._topic_id(state):
            return self._read(state)
        return known

    def poll(self) -> None:
        """Read the partitions that were asked for lately: of those that are led in this process what its leaders have
        put since. What is out of reach is handled where it is asked for."""
        partitions = self._topology.image.partitions
        self._seen_puts, put = self._led_here.put_since(self._seen_puts)
        for topic_partition in put:
            put_state = partitions.get(topic_partition)
            if put_state is not None and topic_partition in self._asked_ms:
                self._read_if_there(put_state)
        for store, some in self._by_store(self._asked_elsewhere()):
            store.each(self._read_if_there, some)

    def read(self, states: Iterable[PartitionRecord]) -> None:
        """Read these: `marks` without a poll returns what their tables hold now. Raises what the first that is out of
        reach raises."""
        for store, some in self._by_store(states):
            store.each(self._read, some)

    def places(self) -> Mapping[str, Place]:
        """Where commits of those appear that were asked for lately; leaders of this process wake readers by
        themselves."""
        return {f"table {state.topic_partition}": self._place(state) for state in self._asked_elsewhere()}

    def distances(self) -> list[Distance]:
        """How far the tables are that `poll` reads."""
        return [self._place(state)[0].distance for state in self._asked_elsewhere()]

    def _asked_elsewhere(self) -> tuple[PartitionRecord, ...]:
        """Those that were asked for lately and are not led in this process: found again with other metadata, after a
        while, and when one is asked for the first time."""
        now_ms, version = self._topology.clock.monotonic_ms(), self._topology.metadata_version
        (known_version, found_ms), found = self._elsewhere
        if known_version == version and now_ms - found_ms < FOUND_AGAIN_MS:
            return found
        partitions, made = self._topology.image.partitions, list[PartitionRecord]()
        for topic_partition, asked_ms in list(self._asked_ms.items()):
            state = partitions.get(topic_partition)
            if state is None or not state.has_one_table or asked_ms < now_ms - ASKED_MS:
                self._asked_ms.pop(topic_partition, None)
                self._known.pop(topic_partition, None)
            elif self._led_here.get(topic_partition, self._topic_id(state), state.leader_epoch) is None:
                made.append(state)
        self._elsewhere = (version, now_ms), tuple(made)
        return self._elsewhere[1]

    def _by_store(self, states: Iterable[PartitionRecord]) -> Iterator[tuple[ObjectStore, Sequence[PartitionRecord]]]:
        """As many of one store as are read side by side."""
        by_domain: dict[str, list[PartitionRecord]] = {}
        for state in states:
            by_domain.setdefault(state.domain_of(state.replicas[0]), []).append(state)
        for same in by_domain.values():
            for some in in_groups(same, AT_ONCE):
                yield self._place(same[0])[0], some

    def _read_if_there(self, state: PartitionRecord) -> None:
        with suppress(StoreError, LogDirNotFoundError):
            self._read(state)

    def _read(self, state: PartitionRecord) -> Watermarks | None:
        topic_partition, topic_id = state.topic_partition, self._topic_id(state)
        led = self._led_here.get(topic_partition, topic_id, state.leader_epoch)
        found = self._folded(state, topic_id) if led is None else Watermarks.of(led)
        before = self._known.get(topic_partition)
        if found is None or found == before:
            return found
        if before is not None and before.topic_id == topic_id:
            found = before.later(found)
        self._known[topic_partition] = found
        self._moved([topic_partition])
        return found

    def _folded(self, state: PartitionRecord, topic_id: str) -> Watermarks | None:
        replicas = self._logs.of(state.topic_partition)
        with replicas.lock:
            log = replicas.log(self._root(state), topic_id)
            try:
                log.refresh()
            except UnknownTopicOrPartitionError:
                return None
            if log.topic_id != topic_id:
                return None
            end = committed_end(log.epochs, state.leader_epoch, log.log_end_offset)
            bounds = min(log.log_start_offset, end), end, max(log.leader_epoch, 0), log.version
            return Watermarks(*bounds, topic_id, log.state.removed_records)

    def _topic_id(self, state: PartitionRecord) -> str:
        return self._topology.image.topic_ids.get(state.topic, "")

    def _root(self, state: PartitionRecord) -> str:
        root = replica_root(self._topology.image, state, state.replicas[0])
        assert root is not None
        return root

    def _place(self, state: PartitionRecord) -> Place:
        found = replica_directory(self._topology.image, state, state.replicas[0])
        assert found is not None  # a domain's, which needs no broker
        return self._topology.stores.objects(found[0]), f"{found[1]}/_delta_log/"
