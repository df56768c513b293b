"""`__cluster_metadata`: the partition log that holds the cluster's state, and how a decision is committed to it.

I/O: through its `PartitionLog` only. Refresh, fold, decide, commit; after a Conflict again from the start.
Every commit is made durable before it counts (promise 4).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import pyarrow as pa

from stratalog.replication import cadence
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import (
    ControllerRecord,
    MetadataRecord,
    RemoveTopicRecord,
    TopicDeletionRecord,
    record_from_json,
    record_to_row,
    value_of_row,
)
from stratalog.replication.metadata.state_changes import check_epochs, check_transitions
from stratalog.replication.shared_fold import FoldedStep, SharedFold
from stratalog.replication.stores import Ports, Stores
from stratalog.storage import errors
from stratalog.storage.clock import Clock, Ids
from stratalog.storage.delta.checkpoint import commit_file
from stratalog.storage.delta.table import Conflict, LogTable
from stratalog.storage.log.append import Appended
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import NewRecordBatch, TopicPartition, payload_table
from stratalog.storage.topic_config import LogConfig

METADATA_PARTITION = TopicPartition("__cluster_metadata", 0)
METADATA_FOLDER = "metadata"
"""The folder of a cluster that is its metadata root, unless the brokers' configs name another place."""
METADATA_COMMITS = f"{METADATA_PARTITION}/_delta_log/"
"""The directory below the metadata root in which every commit is a new file, to be watched."""
METADATA_TOPIC_ID = "00000000000000000000000000000001"
METADATA_CONFIG = LogConfig.from_properties(
    {
        "cleanup.policy": "compact",
        "max.message.bytes": str(1 << 30),
        "flush.messages": "1",
        "segment.bytes": str(16 << 20),
        "segment.ms": str(3_600_000),
    }
)
"""An hour's records are a segment: the log has the last record of each key and those of some hours."""
SharedMetadata = SharedFold[ClusterImage, MetadataRecord]
"""What the parts of one process share of a metadata log that each of them reads."""
READ_BYTES = 8 << 20
REFOLD_TRIES = 20
PROPOSE_TRIES = 200
_LOG = line_logger("stratalog.state.change")

T = TypeVar("T")


class MetadataLog:
    """The metadata log as one part of a process reads it. Not thread-safe: each part of a broker opens one.

    image        after the records that this part has read; with `shared` the object that the other parts have there
    next_offset  the end of these records
    """

    def __init__(
        self, table: LogTable, clock: Clock, ids: Ids, *, acts: bool = False, shared: SharedMetadata | None = None
    ) -> None:
        """`acts`: the owner acts on what is folded, so that must not be lost with the power (promise 4). `shared`: of
        the process's parts, so that each record is folded once; None: this one shares with nobody."""
        self.log = PartitionLog(table, METADATA_CONFIG, clock, ids)
        self._shared: SharedMetadata = SharedFold(steps_max=0) if shared is None else shared
        self._key: Hashable | None = None
        self.image = ClusterImage()
        self._clock = clock
        self._ids = ids
        self.acts = acts
        self.next_offset = 0
        self._folded_load = 0
        self._unseen: list[MetadataRecord] = []
        self.commit_count = self.commit_ms = 0
        """Commits of decisions made here, and how long they took in all."""
        self.on_records: Callable[[ClusterImage, Sequence[MetadataRecord]], None] | None = None
        """Called with records that are folded, oldest first, and the image before them."""

    def create(self) -> None:
        """Create the log if it is absent."""
        self.log.exists_or_create(METADATA_TOPIC_ID)

    def next_commit(self) -> str | None:
        """The path of the commit that comes next, below the metadata root; None before the first fold. Called from any
        thread."""
        return f"{METADATA_COMMITS}{commit_file(self.log.version + 1)}" if self.log.is_folded else None

    def refresh(self) -> list[MetadataRecord]:
        """Fold new commits; the records folded since the last call, oldest first.

        After compaction or clean-up has passed this fold they are all records that are left, behind a removal of each
        topic that is gone: whoever acts on records misses none. The first call of a part that begins with the image of
        others returns the brokers and partitions of that image.
        """
        self._fold()
        records, self._unseen = self._unseen, []
        return records

    @property
    def has_unseen(self) -> bool:
        """Whether records were folded, as by `propose`, that `refresh` has not returned yet."""
        return bool(self._unseen)

    def refresh_image(self) -> None:
        """Fold all that was committed before this call into `image`; the next `refresh` still returns it."""
        self._fold(for_sure=True)

    def _fold(self, *, for_sure: bool = False) -> None:
        try:
            if for_sure:
                self.log.refresh_for_sure()
            else:
                self.log.refresh()
        except errors.UnknownTopicOrPartitionError as reason:
            raise errors.LogDirNotFoundError(f"{self.log.name}: no cluster metadata here") from reason
        if self.acts:
            self._make_durable()
        if self._folded_load == self.log.load_count and self.next_offset >= self.log.log_end_offset:
            return
        with self._shared.turn(cadence.FOLD_WAIT.s if self._folded_load else cadence.FIRST_FOLD_WAIT.s):
            if self._folded_load != self.log.load_count or not self._fold_next(self.log.log_end_offset):
                self._refold()

    def _make_durable(self) -> None:
        """Sync what other processes committed, before anything is done about it.

        If their writer dies before its sync, or the machine of the log does, a commit is gone, and its epochs and ISRs
        are decided again, and otherwise.
        """
        self.log.sync_others()

    def _fold_next(self, end_offset: int) -> bool:
        """Fold the records up to `end_offset` on; False when compaction has removed one, or the log was loaded again
        meanwhile: the fold begins again.

        What the missing ones changed need not be in the rest: a tombstone may have been removed, too.
        """
        before, after = self._key, self._key_of_log()
        known = self._shared.since(before, after)
        if known is not None:
            image, records = known
            self._fold_in(records, image)
            self.next_offset, self._key = end_offset, after
            return True
        self._key = None  # until all is folded
        folded: list[MetadataRecord] = []
        while self.next_offset < end_offset:
            rows = self.log.read(self.next_offset, READ_BYTES, end_offset)
            if not rows.num_rows or rows["offset"][-1].as_py() + 1 != self.next_offset + rows.num_rows:
                return False
            if self._folded_load != self.log.load_count:
                return False
            records = _records_of(rows)
            self._fold_in(records, self.image.fold(*records))
            self.next_offset += rows.num_rows
            folded += records
        self._key = after
        self.image = self._shared.add(FoldedStep(before, after, self.image, tuple(folded)))
        return True

    def _key_of_log(self) -> Hashable | None:
        """What no other content of the log has: its end, and the name of its last file, which is used once."""
        files = self.log.files
        return (self.log.log_end_offset, files[-1].path) if files else None

    def _fold_in(self, records: list[MetadataRecord], image: ClusterImage) -> None:
        if self.on_records is not None:
            self.on_records(self.image, records)
        self.image = image
        self._unseen += records

    def _begins_with_others(self) -> bool:
        """Begin with the image that another part of the process has, instead of the log's first record."""
        image = None if self._folded_load else self._shared.state(self._key_of_log())
        if image is None:
            return False
        self.image, self._key = image, self._key_of_log()
        self._unseen += [*(broker.registration for broker in image.brokers.values()), *image.partitions.values()]
        self.next_offset, self._folded_load = self.log.log_end_offset, self.log.load_count
        return True

    def _refold(self) -> None:
        """Fold the whole log. If compaction goes on meanwhile, the parts may not fit: once more.

        The log may have been loaded again because its root lost commits that this fold has, as in a power cut before
        their sync, and others may stand at their offsets by now: nothing of the earlier fold is kept.
        """
        if self._begins_with_others():
            return
        log = self.log
        for _ in range(REFOLD_TRIES):
            records: list[MetadataRecord] = []
            end_offset, read_from = log.log_end_offset, (log.load_count, log.state.swapped_version)
            key = self._key_of_log()
            for rows in log.read_range(log.log_start_offset, end_offset, READ_BYTES):
                records += _records_of(rows)
            if read_from == (log.load_count, log.state.swapped_version):
                break
        else:
            raise errors.StoreUnavailableError(f"{log.name}: compacted {REFOLD_TRIES} times while it was read")
        image = self._shared.add(FoldedStep(None, key, ClusterImage().fold(*records)))
        self._unseen += [*_removals(self.image, image), *records]
        self.image, self._key = image, key
        self.next_offset, self._folded_load = end_offset, log.load_count

    def propose(
        self,
        decide: Callable[[ClusterImage], Result[T]],
        *,
        controller_epoch: int | None = None,
        checks_transitions: bool = True,
    ) -> T:
        """Decide on the newest image and commit the records in one piece; on Conflict decide again.

        With `controller_epoch` the commit is refused with StaleControllerEpochError once a newer controller exists; an
        illegal transition or epoch is refused with IllegalStateError (`state_changes`). No error, not even one of
        `decide`, leaves anything behind. Only after StoreUnavailableError the outcome is unknown: a decision made again
        finds its own effect.
        """
        for attempt in range(PROPOSE_TRIES):
            self._fold()
            self._check_controller(controller_epoch)
            result = decide(self.image)
            if not result.records:
                self._make_durable()  # the answer builds on what others committed
                return result.response
            check_epochs(result.records)
            if checks_transitions:  # a restoration replaces the state, whatever it was
                self._check_transitions(result.records)
            if not isinstance(self._commit(result.records), Conflict):
                self._fold()
                return result.response
            self._back_off(attempt)
        raise errors.RequestTimedOutError(f"{self.log.name}: lost the race for a commit {PROPOSE_TRIES} times")

    def elect_controller(self, broker_id: int, seen_epoch: int) -> int | None:
        """Become controller of epoch `seen_epoch` + 1; None when another candidate was faster.

        The epoch start in the table (create-if-absent) lets one candidate win and refuses the next commit of the
        deposed controller; the record then names the winner (promise 12).
        """
        self._fold()
        if self.image.controller_epoch != seen_epoch:
            return None
        epoch = max(self.log.leader_epoch, seen_epoch) + 1
        check_epochs((ControllerRecord(broker_id, epoch),))
        try:
            if isinstance(self.log.start_epoch(epoch, as_leader=True), Conflict):
                return None
            return self.propose(lambda image: elect_controller(image, broker_id, epoch), controller_epoch=epoch)
        except (errors.FencedLeaderEpochError, errors.StaleControllerEpochError):
            return None

    def _check_controller(self, controller_epoch: int | None) -> None:
        if controller_epoch is None:
            return
        newest = max(self.log.leader_epoch, self.image.controller_epoch)
        if newest > controller_epoch:
            raise errors.StaleControllerEpochError(f"controller epoch {controller_epoch}, newest is {newest}")

    def _check_transitions(self, records: tuple[MetadataRecord, ...]) -> None:
        try:
            check_transitions(self.image, records)
        except errors.IllegalStateError as reason:
            _LOG.error("refused %d records: %s", len(records), reason)
            raise

    def _commit(self, records: tuple[MetadataRecord, ...]) -> Appended | Conflict:
        now_ms, begun_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        rows = [(now_ms, key, value, None) for key, value in map(record_to_row, records)]
        committed = self._append(NewRecordBatch(payload_table(rows)), now_ms)
        self.commit_count += 1
        self.commit_ms += self._clock.monotonic_ms() - begun_ms
        return committed

    def _append(self, records: NewRecordBatch, now_ms: int) -> Appended | Conflict:
        batch = [records]
        try:
            return self.log.append(batch, self.log.leader_epoch, now_ms)
        except errors.StoreUnavailableError:
            # The outcome is unknown: the same commit once more resolves that, unless the store stays away.
            return self.log.append(batch, self.log.leader_epoch, now_ms)

    def _back_off(self, attempt: int) -> None:
        spread = int(self._ids.new_id()[:4], 16) / 0xFFFF
        self._clock.sleep_ms(min(cadence.PROPOSAL_RETRY.ms, 1 << min(attempt, 6)) * spread)


def _records_of(rows: pa.Table) -> list[MetadataRecord]:
    pairs = zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
    return [record_from_json(value_of_row(key, value)) for key, value in pairs]


def _removals(before: ClusterImage, after: ClusterImage) -> list[MetadataRecord]:
    """The end of each topic that only the older image has, in the records that would have told of it."""
    removals: list[MetadataRecord] = []
    for name, topic_id in before.topic_ids.items():
        if after.topic_ids.get(name) != topic_id:
            removals.append(RemoveTopicRecord(name, topic_id))
            removals.append(TopicDeletionRecord(name, topic_id, len(before.partitions_of(name)), ()))
    return removals


def elect_controller(image: ClusterImage, broker_id: int, controller_epoch: int) -> Result[int]:
    """Broker `broker_id` becomes the controller of `controller_epoch`, which its epoch start has reserved.

    StaleControllerEpochError when that epoch or a newer one has a controller already. An election that the broker has
    won already is answered again without a record.
    """
    if (image.controller_id, image.controller_epoch) == (broker_id, controller_epoch):
        return Result((), controller_epoch)
    if image.controller_epoch >= controller_epoch:
        raise errors.StaleControllerEpochError(
            f"broker {broker_id} stood for controller epoch {controller_epoch}, but broker {image.controller_id} "
            f"is the controller of epoch {image.controller_epoch}"
        )
    return Result((ControllerRecord(broker_id, controller_epoch),), controller_epoch)


def open_metadata(
    stores: Stores,
    metadata_root: str,
    clock: Clock,
    ids: Ids,
    *,
    acts: bool = False,
    shared: SharedMetadata | None = None,
) -> MetadataLog:
    """The cluster's metadata log, not read yet; `acts` and `shared` as in `MetadataLog`."""
    return MetadataLog(stores.table(metadata_root, METADATA_PARTITION), clock, ids, acts=acts, shared=shared)


def metadata_of_part(ports: Ports, metadata_root: str) -> MetadataLog:
    """The metadata log of a part of a broker, which acts on it; shared with the other parts of its process."""
    return open_metadata(ports.stores, metadata_root, ports.clock, ports.ids, acts=True, shared=ports.metadata)
