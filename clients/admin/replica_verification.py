"""Replicas verified against each other up to the high watermark, as storage holds them.

I/O: reads every replica's table, whether its broker runs or not, without this process's caches. Nothing is written.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from stratalog.clients.admin.replica_comparison import Difference, ReplicaRows, UnmatchedOffset, compare
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.replication.stores import Stores, client_stores
from stratalog.server.offset_spec import UNKNOWN_OFFSET, OffsetSpec
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.delta.table import LogTable
from stratalog.storage.errors import DamagedFileError, ObjectNotFoundError, OffsetOutOfRangeError, StratalogError
from stratalog.storage.files.cache import FileCache
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.leader_epochs import LeaderEpochCache
from stratalog.storage.log.reader import LogReader
from stratalog.storage.log.rows import no_rows
from stratalog.storage.records import TopicPartition

FETCH_BYTES = 1_048_576
LOGS_KEPT = 3_000
"""Limit of replicas whose folds are kept from one pass to the next, so that only new commits are read."""


@dataclass(frozen=True, slots=True)
class UnreadableReplica:
    """A replica, or one file of it, cannot be read: missing or damaged. `offset` is the first one affected."""

    topic_partition: TopicPartition
    replica: int
    offset: int
    reason: StratalogError

    def __str__(self) -> str:
        return (
            f"Error in processing replica {self.replica} in partition {self.topic_partition} at offset {self.offset}: "
            f"{self.reason.name}: {self.reason}"
        )


Finding = Difference | UnreadableReplica


@dataclass(frozen=True, slots=True)
class PartitionVerified:
    """Progress of a partition: `offset` is the first one that is not verified on all readable replicas."""

    topic_partition: TopicPartition
    offset: int
    high_watermark: int
    findings: tuple[Finding, ...] = ()

    @property
    def lag(self) -> int:
        """Records below the high watermark that are not verified, since a replica does not have them yet."""
        return max(0, self.high_watermark - self.offset)


@dataclass(slots=True)
class _Replica:
    """A readable replica: its log, and the end of the offsets on which it must equal the first one."""

    broker_id: int
    log: LogReader
    end_offset: int = 0


class ReplicaVerification:
    """Verifies partitions; each `run` verifies the records committed since the last one."""

    def __init__(
        self,
        view: ClusterView,
        topic_partitions: Iterable[TopicPartition],
        *,
        start: OffsetSpec | None = None,
        fetch_bytes: int = FETCH_BYTES,
        stores: Stores | None = None,
    ) -> None:
        """`start`: the first offset in each partition, the log start unless given; `fetch_bytes`: about the size of one
        comparison. Raises as `ClusterView.list_offset` does."""
        self.topic_partitions = tuple(topic_partitions)
        self._view = view
        self._fetch_bytes = fetch_bytes
        self._stores = stores or client_stores(view.ids, cache=FileCache(0))
        self._logs: OrderedDict[tuple[TopicPartition, str, str], LogReader] = OrderedDict()
        self._positions = {tp: self._first_offset(tp, start or OffsetSpec.earliest()) for tp in self.topic_partitions}
        self._reported: set[tuple[TopicPartition, int, str]] = set()

    def _first_offset(self, topic_partition: TopicPartition, start: OffsetSpec) -> int:
        offsets = self._view.offsets
        found = offsets.list_offset(topic_partition, start).offset
        return found if found != UNKNOWN_OFFSET else offsets.list_offset(topic_partition, OffsetSpec.latest()).offset

    def run(self) -> Iterator[PartitionVerified]:
        """One pass over all partitions, each up to its current high watermark. An error of a replica is reported once.
        LeaderNotAvailableError, UnknownTopicOrPartitionError."""
        for topic_partition in self.topic_partitions:
            one = self._pass(topic_partition)
            if any(isinstance(finding, UnmatchedOffset) for finding in one.findings):
                one = self._pass(topic_partition)  # the cleaner or an erasure may have run meanwhile
            self._positions[topic_partition] = one.position
            findings = tuple(self._not_reported(one.findings))
            yield PartitionVerified(topic_partition, one.position, one.high_watermark, findings)

    def _pass(self, topic_partition: TopicPartition) -> _Pass:
        """One pass over a partition, from the end of the last one."""
        high_watermark = self._view.watermarks.of(topic_partition).high_watermark
        state = self._view.partition_state(topic_partition)
        one = _Pass(state, self._positions[topic_partition], high_watermark, self._absent_end(topic_partition))
        one.open_replicas(self._view, self._log)
        while one.compare_next(self._fetch_bytes):
            pass
        return one

    def _log(self, topic_partition: TopicPartition, root: str) -> LogReader:
        """A replica's current log, from the fold of the last pass if that is kept. Raises what a refresh raises."""
        key = (topic_partition, root, self._view.image.topic_ids.get(topic_partition.topic, ""))
        log = self._logs.pop(key, None) or LogReader(self._stores.table(root, topic_partition), self._view.clock)
        log.refresh()
        self._logs[key] = log
        if len(self._logs) > LOGS_KEPT:
            self._logs.popitem(last=False)
        return log

    def _absent_end(self, topic_partition: TopicPartition) -> int:
        """The end of the offsets where records may be erased from one replica and not yet from another."""
        number = topic_partition.partition
        ends = [each.end_offsets for each in self._view.image.erases.get(topic_partition.topic, {}).values()]
        return max((end[number] for end in ends if number < len(end)), default=0)

    def _not_reported(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        for finding in findings:
            if isinstance(finding, UnreadableReplica):
                identity = (finding.topic_partition, finding.replica, str(finding.reason))
                if identity in self._reported:
                    continue
                self._reported.add(identity)
            yield finding


class _Pass:
    """One partition, from `position` to the high watermark or to the end of its shortest replica."""

    def __init__(self, state: PartitionRecord, position: int, high_watermark: int, absent_end: int) -> None:
        self.position = position
        self.high_watermark = high_watermark
        self.findings: list[Finding] = []
        self._state = state
        self._absent_end = absent_end
        self._replicas: list[_Replica] = []

    def open_replicas(self, view: ClusterView, open_log: Callable[[TopicPartition, str], LogReader]) -> None:
        """Fold the tables of all readable replicas, the leader's first; one that several share, once."""
        state = self._state
        opened: set[str] = set()
        first = state.leader if state.leader != NO_LEADER else state.isr[0]
        for broker_id in sorted(state.replicas, key=lambda each: (each != first, each not in state.isr)):
            try:
                root = view.replica_root(state.topic_partition, broker_id)
                if root is None or root in opened:
                    continue
                opened.add(root)
                log = open_log(state.topic_partition, root)
            except StratalogError as reason:
                self._add_error(broker_id, self.position, reason)
            else:
                self._replicas.append(_Replica(broker_id, log))
        self._bound()

    def _bound(self) -> None:
        """A replica that has not truncated yet may differ from the first one above the end of their common epochs."""
        for replica in self._replicas:
            own, leader = replica.log, self._replicas[0].log
            ends = (own.epochs, own.log_end_offset, leader.epochs, leader.log_end_offset, leader.log_start_offset)
            replica.end_offset = LeaderEpochCache.agreed_end(*ends)
            self._absent_end = max(self._absent_end, own.state.cleaner.cleaned_end)

    def compare_next(self, fetch_bytes: int) -> bool:
        """Compare the next range; False when there is none. A replica that cannot be read is left out from then on."""
        if not self._replicas:
            return False
        self.position = max(self.position, *(replica.log.log_start_offset for replica in self._replicas), 0)
        bound = min(self.high_watermark, *(replica.end_offset for replica in self._replicas))
        if self.position >= bound:
            self.position = min(self.position, self.high_watermark)
            return False
        read: list[ReplicaRows] = []
        end = bound
        for replica in list(self._replicas):
            try:
                rows = _rows(replica.log, self.position, end, max_bytes=None if read else fetch_bytes)
            except OffsetOutOfRangeError as reason:
                if replica.log.log_start_offset > self.position:
                    return True  # retention deleted records meanwhile
                self._leave_out(replica, reason)
            except StratalogError as reason:
                self._leave_out(replica, reason)
            else:
                if not read and rows.num_rows:
                    end = rows["offset"][-1].as_py() + 1
                read.append(ReplicaRows(replica.broker_id, rows))
        for other in read[1:]:
            self.findings += compare(self._state.topic_partition, read[0], other, end, self._absent_end)
        self.position = end if read else self.position
        return True

    def _leave_out(self, replica: _Replica, reason: StratalogError) -> None:
        self._replicas.remove(replica)
        starts = (entry.start_offset for entry in replica.log.files if _is_about(reason, entry, replica.log.table))
        self._add_error(replica.broker_id, max(self.position, next(starts, 0)), reason)
        self._bound()

    def _add_error(self, broker_id: int, offset: int, reason: StratalogError) -> None:
        self.findings.append(UnreadableReplica(self._state.topic_partition, broker_id, offset, reason))


def _is_about(reason: StratalogError, entry: FileEntry, table: LogTable) -> bool:
    if isinstance(reason, DamagedFileError):
        return entry.path == reason.path
    return isinstance(reason, ObjectNotFoundError) and not table.has_file(entry.file)


def _rows(log: LogReader, start_offset: int, end_offset: int, max_bytes: int | None) -> pa.Table:
    """Records of `[start_offset, end_offset)`; with `max_bytes`, the first of them."""
    if max_bytes is not None:
        return log.read(start_offset, max_bytes, end_offset)
    tables = list(log.read_range(start_offset, end_offset))
    return pa.concat_tables(tables) if tables else no_rows()
