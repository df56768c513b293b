"""One replica's log of one partition over a `LogTable`: append, copy, truncate, read. I/O: through its table.

Every commit is compare-and-swap on the version that this instance folded, and is refused when the table's leader epoch
is not the writer's (promise 2). A lost race is a value, `Conflict`: refresh, then decide again. An instance is not
thread-safe; several instances may be open on one table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import is_
from zlib import crc32

import pyarrow as pa

from stratalog.storage import cadence, errors
from stratalog.storage.clock import Clock, Ids
from stratalog.storage.delta.removed import NO_PRODUCERS, RemovedObjects, producers_path
from stratalog.storage.delta.table import (
    LOG_END,
    LOG_START,
    PRODUCERS,
    PRODUCERS_VERSION,
    REMOVED_FILES_PROPERTY,
    START_EPOCH,
    TRUNCATE,
    WRITER_VERSION,
    Commit,
    Committed,
    Conflict,
    LogTable,
    TableSnapshot,
)
from stratalog.storage.files.batch_file import name_of, placed_path
from stratalog.storage.files.codecs import codec_of_append, codec_of_merge
from stratalog.storage.files.data_file import FileEntry, PartitionValues
from stratalog.storage.log.append import (
    Admission,
    Appended,
    BatchAppended,
    HandedFiles,
    admit,
    admit_files,
    assign_offsets,
    segment_of_append,
)
from stratalog.storage.log.copy import (
    Copied,
    Cut,
    epochs_after,
    plan_copy,
    plan_cut,
    producers_after_copy,
    producers_after_cut,
)
from stratalog.storage.log.flush import FlushState
from stratalog.storage.log.leader_epochs import LeaderEpochCache
from stratalog.storage.log.reader import LogReader
from stratalog.storage.log.rows import rows_before_cut, rows_between
from stratalog.storage.log.segments import LogSegment
from stratalog.storage.log.state import PRODUCERS_FROM_PROPERTY, TOPIC_ID_PROPERTY, LogState, position_txns
from stratalog.storage.producers import ProducerChanges, ProducerStates
from stratalog.storage.records import NewRecordBatch, data_rows
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.transactions import OffsetAndEpoch

WHOLE_PRODUCERS_COMMITS, WHOLE_PRODUCERS_COMMITS_MAX = 20, 200
"""Commits between two that name the whole producer state, which clean-up and a first fold need: so many for each
thousand producers, sinks and aborted transactions, at least for one thousand, and never more than the maximum."""
_NUMBERS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class _PreparedCommit:
    """The commit of a version, and the producer state after it. `record_count` counts towards `flush.messages`."""

    version: int
    commit: Commit
    producers: ProducerStates | None
    record_count: int
    sync: bool


@dataclass(frozen=True, slots=True)
class FileAhead:
    """The data file of batches that are not appended yet: no commit names it."""

    batches: tuple[NewRecordBatch, ...]
    entry: FileEntry


@dataclass(frozen=True, slots=True)
class _OpenAppend:
    """An append whose outcome is open: its content, its commit, and its result if the commit was made."""

    content: tuple[NewRecordBatch | HandedFiles, ...]
    prepared: _PreparedCommit
    appended: Appended


SentAppend = Appended | Conflict | _OpenAppend
"""What `PartitionLog.send` has done: nothing was to be written, or the race was lost, or its commit is to be folded."""


@dataclass(frozen=True, slots=True)
class LogAhead:
    """What the log will be once the commit that is under way is made: what the append behind it is decided on."""

    producers: ProducerStates
    end: OffsetAndEpoch
    active_segment: LogSegment | None


class PartitionLog(LogReader):
    """One replica's log, to read and write. The constructor does no I/O; the first use folds the table.

    `on_commit` is called with each own commit after its fold.
    """

    remembers_removed = True
    reads_only = False

    def __init__(
        self,
        table: LogTable,
        config: LogConfig,
        clock: Clock,
        ids: Ids,
        producer_id_expiration_ms: int = cadence.PRODUCER_ID_EXPIRATION.ms,
    ) -> None:
        super().__init__(table, clock)
        self.config = config
        self._ids = ids
        self.knows_by_time = False
        """Whether what this instance committed a moment ago may stand for a read: of a leader's log."""
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._expired_ms = 0
        self._decided_on = -1
        self.flushing = FlushState(clock)
        self.on_commit: Callable[[Commit], None] | None = None
        self._open_append: _OpenAppend | None = None
        self.ahead: LogAhead | None = None
        """Set by `send` when its commit begins; whoever calls `send` takes it away before."""
        self._uncommitted: FileAhead | None = None
        self.left_names: list[str] = []
        """Paths of files that got their partition values, and a path that names them, since. Upkeep deletes them."""
        self._producers_shift = crc32(table.name.rpartition("/")[2].encode())

    def exists_or_create(
        self, topic_id: str, check_absent: Callable[[], None] = lambda: None, producers_from: int = 0
    ) -> None:
        """Create the table unless it exists; `check_absent` is called before and may raise.

        producers_from  producers with an id below it may have written to an earlier topic of the name
        Raises InconsistentTopicIdError when it belongs to another topic.
        """
        found = self.table.snapshot()
        if found is None:
            check_absent()
            properties = {TOPIC_ID_PROPERTY: topic_id, PRODUCERS_FROM_PROPERTY: str(producers_from)}
            if self.config.removed_ms_max != cadence.REMOVED_FILES_KEPT.ms:
                properties[REMOVED_FILES_PROPERTY] = f"interval {self.config.removed_ms_max // 1_000} seconds"
            self.table.create(properties, self.clock.wall_ms(), self._ids.new_id())
            self._load()
        else:
            self._loaded(found)
        if self.topic_id != topic_id:
            raise errors.InconsistentTopicIdError(f"{self.name}: topic id {self.topic_id}, expected {topic_id}")

    def start_epoch(
        self,
        leader_epoch: int,
        *,
        as_leader: bool,
        truncate_to: int | None = None,
        log_start: int | None = None,
        leader: LeaderEpochCache | None = None,
    ) -> Committed | Conflict:
        """Begin `leader_epoch` in the table and truncate the log in the same commit, which is always synced.

        as_leader    also begin the epoch's entry at the (new) log end
        truncate_to  the log ends there or below; producer and sink state are truncated with it
        log_start    the log starts there or above
        leader       a follower's: its leader's entries, of which it takes those up to its (new) log end
        A table of an older release becomes one that foreign writers refuse (`WRITER_VERSION`), in the same commit.
        Raises FencedLeaderEpochError when the table is at a newer epoch. When nothing changes it writes nothing, and
        syncs the commits up to the one that began the epoch: that may be of a call whose answer was lost.
        """
        state = self.state
        self._check_not_fenced(state, leader_epoch)
        cut = plan_cut(state, truncate_to, log_start)
        epochs = cut.epochs
        if as_leader:
            epochs = epochs.assign(leader_epoch, cut.log_end_offset)
        elif leader is not None:
            followed = epochs_after(epochs, leader, cut.log_end_offset, cut.log_end_offset)
            epochs = followed.truncate_from_start(cut.log_start_offset)
        txns = position_txns(cut.log_end_offset, leader_epoch, cut.log_start_offset)
        ends_before = state.epochs.truncate_from_start(cut.log_start_offset)
        may_come_back = cut.log_end_offset < state.log_end_offset or not epochs.keeps_ends_of(ends_before)
        is_upgraded = state.writer_version >= WRITER_VERSION
        if txns == state.position_txns and epochs == state.epochs and not cut.removes and is_upgraded:
            self._sync_epoch()
            return Committed(state.version)
        sliced = self._sliced(cut)
        producers = self._producers_after(state, cut, sliced)
        prepared = self._prepare(
            TRUNCATE if cut.removes or truncate_to is not None else START_EPOCH,
            self.clock.wall_ms(),
            adds=sliced,
            removes=cut.removes,
            txns={
                **txns,
                **cut.cleaner_txns,
                **(state.erase_again_txns(cut.log_end_offset) if may_come_back else {}),
                **state.epoch_txns(epochs),
            },
            producers=producers,
            sync=True,
            writer_version=None if is_upgraded else WRITER_VERSION,
        )
        return self._put(prepared)

    def _sliced(self, cut: Cut) -> tuple[FileEntry, ...]:
        entry = cut.straddling
        if entry is None:
            return ()
        return self._rewritten(entry, rows_before_cut(self.table.read_file(entry.file), entry, cut.log_end_offset))

    def _rewritten(self, entry: FileEntry, rows: pa.Table) -> tuple[FileEntry, ...]:
        """A part of a file as a new file with the same labels."""
        if rows.num_rows == 0:
            return ()
        return (replace(entry, file=self.table.write_file(rows, entry.partition_values, codec_of_merge(self.config))),)

    def _producers_after(self, state: LogState, cut: Cut, sliced: Sequence[FileEntry]) -> ProducerStates | None:
        """Producer state after the cut; None when it stays."""
        if cut.is_full:
            return ProducerStates(forgotten_below=state.producers_from)
        if cut.log_end_offset == state.log_end_offset:
            return None
        gone = set(cut.removes)
        kept = [entry for entry in state.files if entry.path not in gone]
        newest_first = reversed([*kept, *sliced])
        return producers_after_cut(self.producers, cut.log_end_offset, newest_first, self._batches_in)

    def append(self, batches: Sequence[NewRecordBatch], leader_epoch: int, now_ms: int) -> Appended | Conflict:
        """Append a group of batches as one file and one commit; one result per batch, in order.

        A refused batch (MESSAGE_TOO_LARGE, OUT_OF_ORDER_SEQUENCE_NUMBER, …) has its error as result and does not affect
        the others. On Conflict nothing was appended; the file is kept for a retry with the same batches. After
        StoreUnavailableError the outcome is open: a retry with the same batches decides it, without a second copy.
        Raises FencedLeaderEpochError / UnknownLeaderEpochError unless the table is at `leader_epoch`.
        """
        return self.settle(self.send(batches, leader_epoch, now_ms))

    def send(
        self,
        batches: Sequence[NewRecordBatch],
        leader_epoch: int,
        now_ms: int,
        commit_begins: Callable[[], None] | None = None,
    ) -> SentAppend:
        """All of an `append` but its fold, for `settle`: in any thread, while nobody else changes this log; others may
        read it. `commit_begins` is called once `ahead` is known, and the commit is next. Raises as `append`."""
        decided = self._outcome_of_open(batches)
        if decided is not None:
            return decided
        state = self._writable(leader_epoch)
        admission = admit(batches, self.producers, self.config, state.end, now_ms)
        accepted = tuple([batches[i] for i in admission.accepted])
        if not accepted:
            return self._known(admission, sum(batch.record_count for batch in batches))
        segment = segment_of_append(state.active_segment, accepted, state.log_end_offset, self.config, state.name)
        entry = self._file_of(accepted, PartitionValues(segment.base_offset, leader_epoch, state.log_end_offset))
        if commit_begins is not None:
            end = OffsetAndEpoch(admission.log_end_offset, leader_epoch)
            self.ahead = LogAhead(admission.producers, end, segment.with_file(entry))
            commit_begins()
        outcome = self._commit_append(batches, (entry,), admission, now_ms)
        if isinstance(outcome, Conflict):
            self._uncommitted = FileAhead(accepted, entry)
        return outcome

    def settle(self, sent: SentAppend) -> Appended | Conflict:
        """Fold what `send` has committed; the outcome of the append."""
        match sent:
            case _OpenAppend(prepared=prepared):
                self._fold(prepared)
                return self._settled(sent)
            case Conflict():
                self._is_in_doubt = True
        return sent

    def file_ahead(
        self, batches: Sequence[NewRecordBatch], leader_epoch: int, now_ms: int, behind: LogAhead | None = None
    ) -> Callable[[], FileAhead] | None:
        """What writes the data file of an `append` of these batches, in any thread: then `use_ahead`, and `append`
        only commits, unless another append came in between. None where that append writes no new file. Raises as
        `append`.

        behind  the append follows the one that is under way, which will leave the log like this
        """
        if behind is None:
            if self._open_append is not None or self._uncommitted is not None:
                return None
            state = self._writable(leader_epoch)
            behind = LogAhead(self.producers, state.end, state.active_segment)
        admission = admit(batches, behind.producers, self.config, behind.end, now_ms)
        accepted = tuple([batches[i] for i in admission.accepted])
        if not accepted:
            return None
        base_offset = behind.end.offset
        segment = segment_of_append(behind.active_segment, accepted, base_offset, self.config, self.state.name)
        values, table = PartitionValues(segment.base_offset, leader_epoch, base_offset), self.table.reopened()
        return lambda: FileAhead(accepted, self._written(table, accepted, values))

    def use_ahead(self, ahead: FileAhead) -> None:
        """The next `append` uses this file, if its batches and their place are the same."""
        self._uncommitted = self._uncommitted or ahead

    def append_files(self, handed: Sequence[HandedFiles], leader_epoch: int, now_ms: int) -> Appended | Conflict:
        """Append files that other processes wrote into this table's directory, as one commit.

        A sink's batch id at or below its last one is a success without a write. A hand-over of a missing file, or of
        one that is in the log already, has InvalidRecordError as its result. Raises as `append`.
        """
        return self.settle(self.send_files(handed, leader_epoch, now_ms))

    def send_files(self, handed: Sequence[HandedFiles], leader_epoch: int, now_ms: int) -> SentAppend:
        """All of `append_files` but its fold; as `send`."""
        decided = self._outcome_of_open(handed)
        if decided is not None:
            return decided
        state = self._writable(leader_epoch)
        refusals = [self._refusal(each, state, now_ms) for each in handed]
        sound = [each for each, refusal in zip(handed, refusals, strict=True) if refusal is None]
        admission = admit_files(sound, self.producers, state.end, now_ms)
        files = [file for i in admission.accepted for file in sound[i].files]
        admitted = iter(admission.results)
        admission.results = [next(admitted) if refusal is None else refusal for refusal in refusals]
        if not files:
            return self._known(admission, sum(each.record_count for each in handed))
        entries = tuple(self.table.place_files(assign_offsets(state, files, leader_epoch, self.config)))
        outcome = self._commit_append(handed, entries, admission, now_ms)
        if isinstance(outcome, Conflict):  # under this leader epoch nobody else gives them a place
            given = {file.path for file in files}
            self.table.delete_objects([entry.path for entry in entries if entry.path not in given])
        return outcome

    def _refusal(self, handed: HandedFiles, state: LogState, now_ms: int) -> errors.InvalidRecordError | None:
        """The error of a new hand-over with a missing file, which would stop every reader and follower, or with a file
        that is in the log already, which would vanish from there.

        A repeated hand-over is not checked: it is a duplicate, wherever its files are now.
        """
        known = admit_files([handed], self.producers, state.end, now_ms).results[0]
        if not isinstance(known, BatchAppended) or known.duplicate:
            return None
        live = {name_of(entry.path) for entry in state.files}
        for file in handed.files:
            where = f"{self.name}: {file.path} of {file.size_bytes} bytes was handed over"
            if not self.table.has_file(file):
                return errors.InvalidRecordError(f"{where}, but is not there")
            if name_of(file.path) in live:
                return errors.InvalidRecordError(f"{where}, but is in the log already")
        return None

    def _commit_append(
        self,
        content: Sequence[NewRecordBatch] | Sequence[HandedFiles],
        adds: tuple[FileEntry, ...],
        admission: Admission,
        now_ms: int,
    ) -> _OpenAppend | Conflict:
        if self.state.version != self._decided_on:
            return Conflict(self._decided_on + 1)
        producers = None
        if admission.producers is not self.producers:
            producers = self._without_expired(admission.producers, now_ms)
        prepared = self._prepare(
            "WRITE", now_ms, adds=adds, txns={LOG_END: admission.log_end_offset}, producers=producers
        )
        appended = Appended(prepared.version, tuple(admission.results), adds)
        return self._put_append(_OpenAppend(tuple(content), prepared, appended))

    def _put_append(self, append: _OpenAppend) -> _OpenAppend | Conflict:
        try:
            outcome = self._commit(append.prepared)
        except errors.StoreUnavailableError:
            self._open_append = append
            raise
        return outcome if isinstance(outcome, Conflict) else append

    def _known(self, admission: Admission, record_count: int) -> Appended:
        """The answer where all batches are known; their commit is synced first, since its answer may have been lost."""
        if self.flushing.is_due(self.config, record_count):
            self.sync_others()
        return Appended(self.state.version, tuple(admission.results))

    def sync_others(self) -> None:
        """Sync the commits that were folded and not made by this instance, as far as it knows. A writer syncs its
        commit after others can see it, and may have died in between."""
        if self.flushing.others_from is not None:
            self.table.flusher(self.state.version, self.flushing.others_from)()
            self.flushing.synced(self.flushing.record_count)

    def _sync_epoch(self) -> None:
        """Sync what other instances committed up to the newest commit that began an epoch or truncated the log. Every
        fetch session begins with this: the appends above, as many as the session before it made, are left to
        `flush.messages` and `flush.ms`."""
        others_from, version = self.flushing.others_from, self.state.epoch_version
        if others_from is not None and others_from <= version:
            self.table.flusher(version, others_from)()
            self.flushing.others_synced(version, self.state.version)

    def _settled(self, append: _OpenAppend) -> Appended:
        """The result of an append that was made; the files that were handed over for it have other paths now."""
        handed = {file.path for each in append.content if isinstance(each, HandedFiles) for file in each.files}
        self.left_names += handed - {entry.path for entry in append.appended.files}
        return append.appended

    def _outcome_of_open(self, content: Sequence[NewRecordBatch] | Sequence[HandedFiles]) -> SentAppend | None:
        """The outcome of an open append that is retried with the same content; None for other content.

        The very same commit at the same version decides it: it was made already, wins now, or lost.
        """
        append, self._open_append = self._open_append, None
        if append is None or not _are_same(append.content, content):
            return None
        if self.state.version < append.appended.version:
            return self._put_append(append)
        path = append.appended.files[0].path
        if all(entry.path != path for entry in reversed(self.state.files)):
            return None
        if append.prepared.sync:
            self.sync_others()
        return self._settled(append)

    def _file_of(self, batches: tuple[NewRecordBatch, ...], values: PartitionValues) -> FileEntry:
        """The batches as a data file: that of a lost race, or one written ahead, which certainly no commit names, if it
        has the same."""
        uncommitted, self._uncommitted = self._uncommitted, None
        if uncommitted and _are_same(uncommitted.batches, batches):
            if uncommitted.entry.partition_values == values:
                return uncommitted.entry
            self.table.delete_objects([uncommitted.entry.path])
        return self._written(self.table, batches, values)

    def _written(self, table: LogTable, batches: tuple[NewRecordBatch, ...], values: PartitionValues) -> FileEntry:
        size_bytes = sum([batch.size_bytes for batch in batches])
        codec = codec_of_append(self.config.compression_type, (b.compression_type for b in batches), size_bytes)
        return FileEntry(table.write_file(data_rows(batches), values, codec), *values)

    def _loaded(self, snapshot: TableSnapshot) -> None:
        super()._loaded(snapshot)
        if self.state.durable_version < self.state.version:
            self.flushing.others_committed(self.state.durable_version + 1)

    def _fold_new_commits(self, commits_max: int | None = None) -> bool:
        first = self.state.version + 1
        changed = super()._fold_new_commits(commits_max)
        if changed:
            self.flushing.others_committed(first)
        return changed

    def _without_expired(self, producers: ProducerStates, now_ms: int) -> ProducerStates:
        if now_ms - self._expired_ms < cadence.PRODUCERS_EXPIRY.ms:
            return producers
        self._expired_ms = now_ms
        log_start_offset = self.state.log_start_offset
        return producers.expired(now_ms, self._producer_id_expiration_ms, log_start_offset=log_start_offset)

    def copy_from(self, leader: PartitionLog, leader_epoch: int, max_bytes: int) -> Copied | Conflict:
        """Copy the leader's files above this log's end, at most `max_bytes` (at least one file), as one commit.

        Bytes are copied as they are; the first file is sliced when it begins below the own log end. Offsets that the
        leader lacks (compacted) are gaps here too. The commit carries log start, epoch entries and producer state. A
        log that misses tombstones which the leader no longer has is emptied first, and copied in the next rounds.
        Raises FencedLeaderEpochError / UnknownLeaderEpochError unless both tables are at `leader_epoch`,
        OffsetOutOfRangeError when this log must be truncated first.
        """
        return leader._resolving(lambda: self._copy_round(leader, leader_epoch, max_bytes))

    def _copy_round(self, leader: PartitionLog, leader_epoch: int, max_bytes: int) -> Copied | Conflict:
        their_producers = leader.producers  # may fold, so before the plan
        own, theirs = self._writable(leader_epoch), leader._writable(leader_epoch)
        plan = plan_copy(own, theirs, max_bytes)
        if not plan.is_complete:
            plan = plan_copy(own, theirs, max_bytes, their_producers.sink_ranges())
        txns = position_txns(plan.end_offset, leader_epoch, plan.log_start_offset)
        if txns == own.position_txns and not plan.files:
            return Copied(plan.start_offset, plan.end_offset, own.version)
        adds = tuple(self._copied(leader, plan.files, plan.start_offset, plan.segment))
        producers = producers_after_copy(self.producers, their_producers, plan, adds, self._batches_in)
        erase_again_txns = own.erase_again_txns(plan.start_offset) if plan.removes else {}
        prepared = self._prepare(
            "COPY",
            self.clock.wall_ms(),
            adds=adds,
            removes=plan.removes,
            txns={**txns, **plan.cleaner_txns, **erase_again_txns, **own.epoch_txns(plan.epochs)},
            producers=producers,
        )
        outcome = self._put(prepared)
        if isinstance(outcome, Conflict):
            return outcome
        return Copied(plan.start_offset, plan.end_offset, outcome.version)

    def _copied(
        self, leader: PartitionLog, files: Sequence[FileEntry], start_offset: int, segment_min: int
    ) -> list[FileEntry]:
        """The leader's files in this table: their bytes under their names, or slices under new ones; none in a segment
        below `segment_min`.

        A file that left this log recently is written under a new name, since its old object may be deleted.
        """
        removed, copies, as_they_are = self.state.removed, list[FileEntry](), list[FileEntry]()
        for entry in files:
            own = entry if entry.segment >= segment_min else replace(entry, segment=segment_min)
            placed = placed_path(entry.path, own.partition_values)
            if entry.start_offset >= start_offset and not removed.may_name(entry, entry.path, placed):
                as_they_are.append(own)
                continue
            copies += self._copied_as_they_are(leader, as_they_are)
            as_they_are = []
            rows = rows_between(leader.table.read_file(entry.file), entry, start_offset, entry.end_offset)
            copies += self._rewritten(own, rows)
        return copies + self._copied_as_they_are(leader, as_they_are)

    def _copied_as_they_are(self, leader: PartitionLog, entries: Sequence[FileEntry]) -> list[FileEntry]:
        """Those whose paths at the leader name other partition values get their own: files of older releases, and
        those of segments that only the leader has joined."""
        self.table.copy_files(leader.table, [entry.file for entry in entries])
        placed = list(self.table.place_files(entries))
        self.left_names += [was.path for was, now in zip(entries, placed, strict=True) if was.path != now.path]
        return placed

    def replace_files(
        self,
        removes: Iterable[FileEntry],
        adds: Iterable[FileEntry],
        *,
        leader_epoch: int,
        operation: str,
        now_ms: int,
        data_change: bool = True,
        log_start: int | None = None,
        txns: Mapping[str, int] | None = None,
        aborted_end: int = 0,
    ) -> Committed | Conflict:
        """Swap files in one commit: a merge or compaction (`data_change` False / True), retention (no adds).

        Log end, epochs and producers stay; `log_start` moves the log start up, `txns` are further txns of the commit.
        Aborted transactions that end below the log start, or below `aborted_end`, where none of their records is left,
        are removed from producer state. Raises as `append`.
        """
        forgotten_end = max(log_start or 0, aborted_end)
        known = self.producers if forgotten_end else None  # may fold, so before the decision
        producers = known.without_aborted(forgotten_end) if known is not None else None
        state = self._writable(leader_epoch)
        start = max(state.log_start_offset, log_start or 0)
        prepared = self._prepare(
            operation,
            now_ms,
            adds=tuple(adds),
            removes=tuple(entry.path for entry in removes),
            txns={**(txns or {}), LOG_START: start},
            producers=None if producers is known else producers,
            data_change=data_change,
        )
        return self._put(prepared)

    def _check_not_fenced(self, state: LogState, leader_epoch: int) -> None:
        self._decided_on = state.version
        if state.leader_epoch > leader_epoch:
            raise errors.FencedLeaderEpochError(
                f"{self.name}: leader epoch {leader_epoch} < current {state.leader_epoch}"
            )

    def _writable(self, leader_epoch: int) -> LogState:
        state = self.state
        self._check_not_fenced(state, leader_epoch)
        if state.leader_epoch < leader_epoch:
            raise errors.UnknownLeaderEpochError(
                f"{self.name}: leader epoch {leader_epoch} has not started, current {state.leader_epoch}"
            )
        return state

    def _prepare(
        self,
        operation: str,
        now_ms: int,
        *,
        adds: tuple[FileEntry, ...] = (),
        removes: tuple[str, ...] = (),
        txns: Mapping[str, int],
        producers: ProducerStates | None = None,
        data_change: bool = True,
        sync: bool = False,
        writer_version: int | None = None,
    ) -> _PreparedCommit:
        """A commit on top of the fold."""
        changes, producer_txns = self._producers_of_commit(producers)
        all_txns = {**self.state.position_txns, **self.state.deleted_txns, **txns, **producer_txns}
        records = sum([entry.file.record_count for entry in adds]) if data_change else 0
        commit = Commit(
            self._ids.new_id(),
            operation,
            now_ms,
            adds,
            removes,
            all_txns,
            data_change,
            producers=changes,
            writer_version=writer_version,
        )
        is_synced = sync or self.flushing.is_due(self.config, records)
        return _PreparedCommit(self._decided_on + 1, commit, producers, records, is_synced)

    def _put(self, prepared: _PreparedCommit) -> Committed | Conflict:
        """Commit and fold."""
        outcome = self._commit(prepared)
        if isinstance(outcome, Conflict):
            self._is_in_doubt = True
        else:
            self._fold(prepared)
        return outcome

    def _commit(self, prepared: _PreparedCommit) -> Committed | Conflict:
        """Conflict also when reading producer state has folded a commit since the decision."""
        version = prepared.version
        if self.state.version != version - 1:
            return Conflict(version)
        clock = self.clock if self.knows_by_time else None
        others_from = self.flushing.others_from
        return self.table.commit(version, prepared.commit, sync=prepared.sync, since=others_from, clock=clock)

    def _fold(self, prepared: _PreparedCommit) -> None:
        if prepared.producers is not None:
            self._producers_version = -1  # set below: `_replay` need not fold the changes
        self._replay(prepared.commit)
        self.flushing.committed(prepared.record_count, is_synced=prepared.sync)
        if prepared.producers is not None:
            self._producers, self._producers_version = prepared.producers, prepared.version
        if self.on_commit is not None:
            self.on_commit(prepared.commit)

    def _producers_of_commit(self, producers: ProducerStates | None) -> tuple[ProducerChanges | None, dict[str, int]]:
        """Producer state (None: it stays) in the next version: its changes, and txns that name the whole state.

        The whole is written when no changes lead to it, and after some commits, since clean-up keeps those after it:
        after more of them when it is large. Each partition counts from another version, by its name: partitions that a
        producer writes to in turn would otherwise all write the object within the same second.
        """
        state = self.state
        version, since = state.version + 1, state.producers_version
        period, shift = _whole_producers_commits(self.cached_producers), self._producers_shift
        is_due = since is not None and (version + shift) // period > (since + shift) // period
        if producers is None and not is_due:
            return None, {}
        if producers is None and not state.has_producer_changes:
            return None, {PRODUCERS_VERSION: version}
        before = self.producers
        changes = before.changes_to(producers or before)
        if changes is not None and since is not None and not is_due:
            return changes, {}
        number = self._write_producers(producers or before)
        return changes, {PRODUCERS: number, PRODUCERS_VERSION: version}

    def checkpoint(self) -> tuple[Callable[[], int], Callable[[], None]]:
        """A checkpoint of this fold: what writes it, also in another thread, and what is to be called here after it."""
        state = self.state
        lists = state.removed.lists_due(self._ids, state.log_end_offset, state.erased_ms)
        named = RemovedObjects(state.removed.as_mapping())
        named.replaced_by(lists)
        snapshot = replace(state.snapshot(), removed=named.as_mapping())
        write = self.table.checkpointer(snapshot, {each.path: each.to_json() for each in lists})
        return write, partial(state.removed.replaced_by, lists)

    def _write_producers(self, producers: ProducerStates) -> int:
        """Write the whole state before the commit that names it."""
        if not producers.producers and not producers.sinks:
            return NO_PRODUCERS
        number = int(self._ids.new_id(), 16) % _NUMBERS + 1
        self.table.write_object(producers_path(number), producers.to_json())
        return number


def _whole_producers_commits(known: ProducerStates | None) -> int:
    entries = len(known.producers) + len(known.sinks) + len(known.transactions.aborted) if known else 0
    return min(WHOLE_PRODUCERS_COMMITS * max(1, entries // 1_000), WHOLE_PRODUCERS_COMMITS_MAX)


def _are_same(left: Sequence[object], right: Sequence[object]) -> bool:
    return len(left) == len(right) and all(map(is_, left, right))
