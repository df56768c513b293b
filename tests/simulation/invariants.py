"""The invariants of DESIGN §10, looked at after every commit and every published high watermark.

They see everything at once, which no part of the system can: all tables, the metadata image as committed,
what clients were told. A violation raises `Violation` with the name of the invariant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from replication.progress import ReplicaProgress
from replication.state import NO_LEADER, PartitionRecord
from storage.memory_table import MemoryDisk
from storage.records import TopicPartition
from storage.table import LEADER_EPOCH, Commit, FileEntry


class Violation(AssertionError):  # noqa: N818 - the field's word
    """An invariant does not hold."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
        self.message = message

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str]]:
        return Violation, (self.invariant, self.message)


@dataclass(slots=True)
class Invariants:
    """The observer. `disks` are the brokers' storage domains by broker id."""

    disks: Mapping[int, MemoryDisk]
    clean: bool = True
    leader_of: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    partitions: dict[TopicPartition, PartitionRecord] = field(default_factory=dict)
    values: dict[tuple[TopicPartition, int, int], bytes | None] = field(default_factory=dict)
    read: dict[tuple[TopicPartition, int], bytes | None] = field(default_factory=dict)
    acked: dict[tuple[TopicPartition, int], bytes] = field(default_factory=dict)
    acked_values: dict[bytes, tuple[TopicPartition, int]] = field(default_factory=dict)
    high_watermarks: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    sequences: dict[tuple[TopicPartition, int, int], int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    places: dict[bytes, tuple[TopicPartition, int]] = field(default_factory=dict)
    on_event: Callable[[str], None] = lambda event: None

    # -- metadata ----------------------------------------------------------------------------------------

    def partition_committed(self, state: PartitionRecord) -> None:
        """A partition state stands in the metadata log."""
        key = (state.topic_partition, state.leader_epoch)
        previous = self.partitions.get(state.topic_partition)
        if state.leader != NO_LEADER:
            known = self.leader_of.setdefault(key, state.leader)
            if known != state.leader:
                raise Violation("SingleLeaderPerEpoch", f"{key}: {known} and {state.leader}")
            if state.leader not in state.isr:
                raise Violation("ValidPartitionState", f"leader not in ISR: {state}")
        if not state.isr or not set(state.isr) <= set(state.replicas):
            raise Violation("ValidPartitionState", f"ISR empty or outside the replicas: {state}")
        if previous is not None and state.leader_epoch < previous.leader_epoch:
            raise Violation("MonotonicLeaderEpoch", f"{previous} then {state}")
        if previous is not None and state.partition_epoch <= previous.partition_epoch:
            raise Violation("MonotonicLeaderEpoch", f"partition epoch: {previous} then {state}")
        self.partitions[state.topic_partition] = state

    # -- logs --------------------------------------------------------------------------------------------

    def table_committed(self, broker_id: int, topic_partition: TopicPartition, commit: Commit) -> None:
        """A version stands in a replica's table."""
        for entry in commit.adds:
            self._check_matching(broker_id, topic_partition, entry)
        if commit.operation in ("START EPOCH", "TRUNCATE"):
            self._check_leader_completeness(broker_id, topic_partition, commit.txns[LEADER_EPOCH])

    def _check_matching(self, broker_id: int, topic_partition: TopicPartition, entry: FileEntry) -> None:
        rows = self.disks[broker_id].tables[str(topic_partition)].data_files[entry.path]
        for delta, value in zip(rows["offset_delta"].to_pylist(), rows["value"].to_pylist(), strict=True):
            offset = entry.base_offset + delta
            known = self.values.setdefault((topic_partition, entry.leader_epoch, offset), value)
            if known != value:
                raise Violation(
                    "LogMatching",
                    f"{topic_partition} epoch {entry.leader_epoch} offset {offset}: {known!r}, "
                    f"{value!r} on {broker_id}",
                )

    def log_of(self, broker_id: int, topic_partition: TopicPartition) -> dict[int, bytes | None]:
        """What a replica's table holds, by offset, folded naively from all its commits."""
        files = self.disks[broker_id].tables.get(str(topic_partition))
        if files is None:
            return {}
        live: dict[str, FileEntry] = {}
        first = 0
        if files.checkpoint is not None:
            live = {entry.path: entry for entry in files.checkpoint.files}
            first = files.checkpoint.version + 1
        version = first
        while (stored := files.commits.get(version)) is not None:
            for path in stored.commit.removes:
                live.pop(path, None)
            live.update({entry.path: entry for entry in stored.commit.adds})
            version += 1
        content: dict[int, bytes | None] = {}
        for entry in live.values():
            rows = files.data_files[entry.path]
            for delta, value in zip(rows["offset_delta"].to_pylist(), rows["value"].to_pylist(), strict=True):
                content[entry.base_offset + delta] = value
        return content

    def _check_leader_completeness(self, broker_id: int, topic_partition: TopicPartition, epoch: int) -> None:
        """A clean leader holds every offset below any published high watermark, and every acknowledged record."""
        newest = self.partitions.get(topic_partition)
        if not self.clean or newest is None or (newest.leader, newest.leader_epoch) != (broker_id, epoch):
            return  # a follower, or a deposed leader that starts its epoch too late: nobody follows it
        content = self.log_of(broker_id, topic_partition)
        published = max(self.high_watermarks.get(topic_partition, {}).values(), default=0)
        missing = [offset for offset in range(published) if offset not in content]
        if missing:
            raise Violation(
                "LeaderCompleteness", f"{topic_partition}: leader {broker_id} of epoch {epoch} lacks offsets {missing}"
            )
        for (known_partition, offset), value in self.acked.items():
            if known_partition == topic_partition and content.get(offset) != value:
                raise Violation(
                    "AckedRecordsNotLost",
                    f"{topic_partition} offset {offset}: {value!r} was acknowledged, leader {broker_id} of epoch "
                    f"{epoch} has {content.get(offset)!r}",
                )

    # -- what is published and told ----------------------------------------------------------------------

    def high_watermark_published(self, broker_id: int, progress: ReplicaProgress) -> None:
        """A leader published a high watermark."""
        if progress.high_watermark < 0 or self.topic_ids.get(progress.topic_partition.topic) != progress.topic_id:
            return  # nothing yet, or of a deleted topic that had this name
        topic_partition, epoch = progress.topic_partition, progress.leader_epoch
        by_epoch = self.high_watermarks.setdefault(topic_partition, {})
        floor = max((hw for e, hw in by_epoch.items() if e <= epoch), default=0)
        if self.clean and progress.high_watermark < floor:
            raise Violation(
                "MonotonicHighWatermark",
                f"{topic_partition} epoch {epoch}: {progress.high_watermark} after {floor} (broker {broker_id})",
            )
        by_epoch[epoch] = max(by_epoch.get(epoch, 0), progress.high_watermark)

    def acknowledged(self, topic_partition: TopicPartition, offset: int, value: bytes) -> None:
        """A client was told that its record is committed (acks=all)."""
        known = self.acked.setdefault((topic_partition, offset), value)
        if known != value:
            raise Violation(
                "ConsistentRead", f"{topic_partition} offset {offset} acknowledged as {known!r} and {value!r}"
            )
        if self.read.get((topic_partition, offset), value) != value:
            raise Violation(
                "ConsistentRead", f"{topic_partition} offset {offset}: read {self.read[topic_partition, offset]!r}"
            )
        self.acked_values[value] = (topic_partition, offset)

    def was_read(
        self, topic_partition: TopicPartition, offset: int, value: bytes | None, producer_id: int, sequence: int
    ) -> None:
        """A consumer saw this value at this offset, below the high watermark."""
        known = self.read.setdefault((topic_partition, offset), value)
        if known != value:
            raise Violation("ConsistentRead", f"{topic_partition} offset {offset}: {known!r}, then {value!r}")
        if self.acked.get((topic_partition, offset), value) != value:
            raise Violation(
                "ConsistentRead",
                f"{topic_partition} offset {offset}: {self.acked[topic_partition, offset]!r}, but read {value!r}",
            )
        if value is not None and self.places.setdefault(value, (topic_partition, offset)) != (topic_partition, offset):
            raise Violation("NoDuplicates", f"{value!r} at {self.places[value]} and at {topic_partition} {offset}")
        if producer_id >= 0:
            first = self.sequences.setdefault((topic_partition, producer_id, sequence), offset)
            if first != offset:
                raise Violation(
                    "NoDuplicateSequence",
                    f"{topic_partition} producer {producer_id} sequence {sequence}: offsets {first} and {offset}",
                )
