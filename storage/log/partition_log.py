"""One replica's log of one partition over a `LogTable`: append, copy, truncate, read. I/O: through its table.

Every commit is compare-and-swap on the version that this instance folded, and is refused when the table's
leader epoch is not the writer's (promise 2). A lost race is a value: `Conflict`; refresh, then decide again.
An instance is not thread-safe; several instances may be open on one table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import pyarrow as pa

from stratalog.storage.clock import Clock, Ids
from stratalog.storage.delta.removed import NO_PRODUCERS, producers_path
from stratalog.storage.delta.table import (
    LEADER_EPOCH,
    LOG_END,
    LOG_START,
    PRODUCERS,
    PRODUCERS_VERSION,
    Commit,
    Committed,
    Conflict,
    LogTable,
)
from stratalog.storage.errors import (
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    InvalidRecordError,
    ObjectNotFoundError,
    StoreUnavailableError,
    UnknownLeaderEpochError,
)
from stratalog.storage.files.codecs import codec_of_append, codec_of_merge
from stratalog.storage.files.data_file import DataFile, FileEntry
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
from stratalog.storage.log.copy import Copied, Cut, plan_copy, plan_cut, producers_after_copy, producers_after_cut
from stratalog.storage.log.flush import FlushState
from stratalog.storage.log.reader import RESOLVE_TRIES, LogReader
from stratalog.storage.log.rows import rows_before_cut, rows_between
from stratalog.storage.log.state import TOPIC_ID_PROPERTY, LogState, live_paths
from stratalog.storage.producers import ProducerChanges, ProducerStates
from stratalog.storage.records import NewRecordBatch, data_rows
from stratalog.storage.topic_config import LogConfig

EXPIRY_INTERVAL_MS = 60_000
WHOLE_PRODUCERS_COMMITS = 20
"""A commit whose version passes a multiple of this states the whole producer state: for clean-up and cold starts."""
_NUMBERS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class _PreparedCommit:
    """A commit to be made, and what holds after it. `record_count` counts towards `flush.messages`."""

    commit: Commit
    producers: ProducerStates | None
    record_count: int
    sync: bool


@dataclass(frozen=True, slots=True)
class _OpenAppend:
    """An append under way: its content as given, its commit, and the answer if that commit stands."""

    content: tuple[NewRecordBatch | HandedFiles, ...]
    prepared: _PreparedCommit
    appended: Appended


class PartitionLog(LogReader):
    """One replica's log, to read and write. The constructor does no I/O; the first use folds the table.

    `on_commit` is told of each own commit once it is folded.
    """

    remembers_removed = True
    reads_only = False

    def __init__(self, table: LogTable, config: LogConfig, clock: Clock, ids: Ids) -> None:
        super().__init__(table, clock)
        self.config = config
        self._ids = ids
        self._expired_ms = 0
        self._decided_on = -1
        self.flushing = FlushState(clock)
        self.on_commit: Callable[[Commit], None] | None = None
        self._open_append: _OpenAppend | None = None
        self._uncommitted: tuple[tuple[NewRecordBatch, ...], DataFile] | None = None
        self._producers_shift = crc32(table.name.rpartition("/")[2].encode())

    def exists_or_create(self, topic_id: str) -> None:
        """Create the table unless it exists. Raises InconsistentTopicIdError when it belongs to another topic."""
        if self.table.snapshot() is None:
            self.table.create({TOPIC_ID_PROPERTY: topic_id}, self.clock.wall_ms(), self._ids.new_id())
        self._load()
        if self.topic_id != topic_id:
            raise InconsistentTopicIdError(f"{self.name}: topic id {self.topic_id}, expected {topic_id}")

    def start_epoch(
        self, leader_epoch: int, *, as_leader: bool, truncate_to: int | None = None, log_start: int | None = None
    ) -> Committed | Conflict:
        """State `leader_epoch` in the table, truncating in the same commit; always synced.

        as_leader    also begin the epoch's entry at the (new) log end
        truncate_to  the log ends there at most; producer and sink state go back with it
        log_start    the log starts there at least
        Raises FencedLeaderEpochError when the table is at a newer epoch. No write when all of it holds already.
        """
        state = self.state
        self._check_not_fenced(state, leader_epoch)
        cut = plan_cut(state, truncate_to, log_start)
        epochs = cut.epochs.assign(leader_epoch, cut.log_end_offset) if as_leader else cut.epochs
        txns = {LOG_END: cut.log_end_offset, LEADER_EPOCH: leader_epoch, LOG_START: cut.log_start_offset}
        if txns == state.position_txns and epochs == state.epochs and not cut.removes:
            return Committed(state.version)
        sliced = self._slice_before(cut)
        producers = self._producers_after(state, cut, sliced)
        return self._commit(
            self._prepare(
                "TRUNCATE" if cut.removes or truncate_to is not None else "START EPOCH",
                self.clock.wall_ms(),
                adds=sliced,
                removes=cut.removes,
                txns={
                    **txns,
                    **cut.cleaner_txns,
                    **(state.erase_again_txns if cut.log_end_offset < state.log_end_offset else {}),
                    **(state.epoch_txns(epochs) if epochs != state.epochs else {}),
                },
                producers=producers,
                sync=True,
            )
        )

    def _slice_before(self, cut: Cut) -> tuple[FileEntry, ...]:
        entry = cut.straddling
        if entry is None:
            return ()
        rows = rows_before_cut(self.table.read_file(entry.file), entry, cut.log_end_offset)
        return self._rewritten(entry, rows)

    def _rewritten(self, entry: FileEntry, rows: pa.Table) -> tuple[FileEntry, ...]:
        """A part of a file as a file of its own, with the same labels."""
        if rows.num_rows == 0:
            return ()
        file = self.table.write_file(rows, entry.segment, codec_of_merge(self.config.compression_type))
        return (FileEntry(file, entry.segment, entry.leader_epoch, entry.base_offset),)

    def _producers_after(self, state: LogState, cut: Cut, sliced: Sequence[FileEntry]) -> ProducerStates | None:
        """Producer state at the cut; None when it stays. Ids whose kept batches all went are looked up again."""
        if cut.is_full:
            return ProducerStates()
        if cut.log_end_offset == state.log_end_offset:
            return None
        gone = set(cut.removes)
        kept = [entry for entry in state.files if entry.path not in gone]
        newest_first = reversed([*kept, *sliced])
        return producers_after_cut(self.producers, cut.log_end_offset, newest_first, self._batches_in)

    def append(self, batches: Sequence[NewRecordBatch], leader_epoch: int, now_ms: int) -> Appended | Conflict:
        """Append a group of batches as one file and one commit; one result per batch, in order.

        A refused batch (MESSAGE_TOO_LARGE, OUT_OF_ORDER_SEQUENCE_NUMBER, …) has its error as result and spoils
        no other. On Conflict nothing was appended; the file is kept for the next try with the same batches.
        After StoreUnavailableError the outcome is open: the same batches once more settle it, without a second copy.
        Raises FencedLeaderEpochError / UnknownLeaderEpochError unless the table is at `leader_epoch`.
        """
        settled = self._settled(batches)
        if settled is not None:
            return settled
        state = self._writable(leader_epoch)
        admission = admit(batches, self.producers, self.config, state.log_end_offset, now_ms)
        accepted = tuple([batches[i] for i in admission.accepted])
        if not accepted:
            return Appended(state.version, admission.results)
        segment = segment_of_append(state, accepted, self.config)
        file = self._file_of(accepted, segment)
        entry = FileEntry(file, segment, leader_epoch, state.log_end_offset)
        outcome = self._commit_append(batches, (entry,), admission, now_ms)
        if isinstance(outcome, Conflict):
            self._uncommitted = (accepted, file)
        return outcome

    def append_files(self, handed: Sequence[HandedFiles], leader_epoch: int, now_ms: int) -> Appended | Conflict:
        """Append files that writers in other processes left in this table's directory, as one commit.

        A sink's batch id at or below its last one is a success without a write. A hand-over with a file that is not
        there, or is in the log already, has InvalidRecordError as its result. Raises as `append`.
        """
        settled = self._settled(handed)
        if settled is not None:
            return settled
        state = self._writable(leader_epoch)
        refusals = [self._refusal(each, state, now_ms) for each in handed]
        sound = [each for each, refusal in zip(handed, refusals, strict=True) if refusal is None]
        admission = admit_files(sound, self.producers, state.log_end_offset, now_ms)
        files = [file for i in admission.accepted for file in sound[i].files]
        admitted = iter(admission.results)
        results = tuple(next(admitted) if refusal is None else refusal for refusal in refusals)
        if not files:
            return Appended(state.version, results)
        placed = assign_offsets(state, files, leader_epoch, self.config)
        return self._commit_append(handed, placed, replace(admission, results=results), now_ms)

    def _refusal(self, handed: HandedFiles, state: LogState, now_ms: int) -> InvalidRecordError | None:
        """A file that is not there would stop every reader and follower; one that is there twice would vanish.

        Not asked of what was appended before: a repeated hand-over is answered as such, wherever its files are now.
        """
        known = admit_files([handed], self.producers, state.log_end_offset, now_ms).results[0]
        if not isinstance(known, BatchAppended) or known.duplicate:
            return None
        live = live_paths(state.files)
        for file in handed.files:
            where = f"{self.name}: {file.path} of {file.size_bytes} bytes was handed over"
            if not self.table.has_file(file):
                return InvalidRecordError(f"{where}, but is not there")
            if file.path in live:
                return InvalidRecordError(f"{where}, but is in the log already")
        return None

    def _commit_append(
        self,
        content: Sequence[NewRecordBatch] | Sequence[HandedFiles],
        adds: tuple[FileEntry, ...],
        admission: Admission,
        now_ms: int,
    ) -> Appended | Conflict:
        if self.state.version != self._decided_on:
            return Conflict(self._decided_on + 1)
        producers = None
        if admission.producers is not self.producers:
            producers = self._without_expired(admission.producers, now_ms)
        prepared = self._prepare(
            "WRITE", now_ms, adds=adds, txns={LOG_END: admission.log_end_offset}, producers=producers
        )
        appended = Appended(self.state.version + 1, admission.results, adds)
        return self._put_append(_OpenAppend(tuple(content), prepared, appended))

    def _put_append(self, append: _OpenAppend) -> Appended | Conflict:
        try:
            outcome = self._put(append.prepared, append.appended.version)
        except StoreUnavailableError:
            self._open_append = append
            raise
        return outcome if isinstance(outcome, Conflict) else append.appended

    def _settled(self, content: Sequence[NewRecordBatch] | Sequence[HandedFiles]) -> Appended | Conflict | None:
        """What became of an append that got no answer, when the same content comes again; None for a new one.

        The very same commit at the same version settles it: it is there already, wins now, or lost.
        """
        append, self._open_append = self._open_append, None
        if append is None or len(append.content) != len(content) or not all(map(_is_same, append.content, content)):
            return None
        if self.state.version < append.appended.version:
            return self._put_append(append)
        path = append.appended.files[0].path
        return append.appended if any(entry.path == path for entry in reversed(self.state.files)) else None

    def _file_of(self, batches: tuple[NewRecordBatch, ...], segment: int) -> DataFile:
        """The batches as a data file: that of a lost race, which no commit names for certain, if they are the same."""
        unplaced, self._uncommitted = self._uncommitted, None
        if unplaced and len(unplaced[0]) == len(batches) and all(map(_is_same, unplaced[0], batches)):
            return unplaced[1]
        size_bytes = sum([batch.size_bytes for batch in batches])
        codec = codec_of_append(self.config.compression_type, (b.compression_type for b in batches), size_bytes)
        return self.table.write_file(data_rows(batches), segment, codec)

    def _load(self) -> None:
        super()._load()
        if self.state.durable_version < self.state.version:
            self.flushing.others_committed(self.state.durable_version + 1)

    def _fold_new_commits(self, commits_max: int | None = None) -> bool:
        first = self.state.version + 1
        changed = super()._fold_new_commits(commits_max)
        if changed:
            self.flushing.others_committed(first)
        return changed

    def _without_expired(self, producers: ProducerStates, now_ms: int) -> ProducerStates:
        if now_ms - self._expired_ms < EXPIRY_INTERVAL_MS:
            return producers
        self._expired_ms = now_ms
        return producers.expired(now_ms, log_start_offset=self.state.log_start_offset)

    def copy_from(self, leader: PartitionLog, leader_epoch: int, max_bytes: int) -> Copied | Conflict:
        """Take over what the leader has above this log's end, at most `max_bytes` (but one file), as one commit.

        Bytes are copied as they are; the first file is sliced when it begins below the own log end. Offsets
        that the leader lacks (compacted) are gaps here too. Log start, epoch entries and producer state follow. A log
        that misses tombstones which the leader has no more is emptied at first, and copied in the next rounds.
        Raises FencedLeaderEpochError / UnknownLeaderEpochError unless both tables are at `leader_epoch`,
        OffsetOutOfRangeError when this log must be truncated first.
        """
        for _ in range(RESOLVE_TRIES):
            try:
                return self._copy_round(leader, leader_epoch, max_bytes)
            except ObjectNotFoundError:
                if not leader.refresh_for_sure():
                    raise
        raise ObjectNotFoundError(f"{leader.name}: files to copy vanished {RESOLVE_TRIES} times")

    def _copy_round(self, leader: PartitionLog, leader_epoch: int, max_bytes: int) -> Copied | Conflict:
        their_producers = leader.producers  # may fold anew, so before anything is planned
        own, theirs = self._writable(leader_epoch), leader._writable(leader_epoch)
        plan = plan_copy(own, theirs, max_bytes)
        if not plan.is_complete:
            plan = plan_copy(own, theirs, max_bytes, their_producers.sink_ranges())
        txns = {LOG_END: plan.end_offset, LEADER_EPOCH: leader_epoch, LOG_START: plan.log_start_offset}
        if txns == own.position_txns and not plan.files:
            return Copied(plan.start_offset, plan.end_offset, own.version)
        copies = (copy for entry in plan.files for copy in self._copied(leader, entry, plan.start_offset))
        adds = tuple(c if c.segment >= plan.segment else replace(c, segment=plan.segment) for c in copies)
        producers = producers_after_copy(self.producers, their_producers, plan, adds, self._batches_in)
        outcome = self._commit(
            self._prepare(
                "COPY",
                self.clock.wall_ms(),
                adds=adds,
                removes=plan.removes,
                txns={
                    **txns,
                    **plan.cleaner_txns,
                    **(own.erase_again_txns if plan.removes else {}),
                    **(own.epoch_txns(plan.epochs) if plan.epochs != own.epochs else {}),
                },
                producers=producers,
            )
        )
        if isinstance(outcome, Conflict):
            return outcome
        return Copied(plan.start_offset, plan.end_offset, outcome.version)

    def _copied(self, leader: PartitionLog, entry: FileEntry, start_offset: int) -> tuple[FileEntry, ...]:
        """A leader's file in this table: its bytes under its name, or a slice under a new one.

        A file that left this log lately is written under a new name, since its old object may be deleted.
        """
        if entry.start_offset >= start_offset and entry.path not in self.state.removed:
            self.table.copy_file(leader.table, entry.file)
            return (entry,)
        rows = rows_between(leader.table.read_file(entry.file), entry, start_offset, entry.end_offset)
        return self._rewritten(entry, rows)

    def replace_files(
        self,
        removes: Iterable[FileEntry],
        adds: Iterable[FileEntry],
        *,
        leader_epoch: int,
        operation: str,
        now_ms: int,
        data_change: bool,
        log_start: int | None = None,
        txns: Mapping[str, int] | None = None,
        aborted_end: int = 0,
    ) -> Committed | Conflict:
        """Swap files in one commit: a merge or compaction (`data_change` False / True), retention (no adds).

        Log end, epochs and producers stay; `log_start` moves the log start up, `txns` says how far the log is
        compacted. Aborted transactions are forgotten that end below the log start, or below `aborted_end`, where none
        of their records is left. Raises as `append`.
        """
        forgotten_end = max(log_start or 0, aborted_end)
        known = self.producers if forgotten_end else None  # may fold anew, so before anything is decided
        producers = known.without_aborted(forgotten_end) if known is not None else None
        state = self._writable(leader_epoch)
        start = max(state.log_start_offset, log_start or 0)
        return self._commit(
            self._prepare(
                operation,
                now_ms,
                adds=tuple(adds),
                removes=tuple(entry.path for entry in removes),
                txns={**(txns or {}), LOG_START: start},
                producers=None if producers is known else producers,
                data_change=data_change,
            )
        )

    def _check_not_fenced(self, state: LogState, leader_epoch: int) -> None:
        self._decided_on = state.version
        if state.leader_epoch > leader_epoch:
            raise FencedLeaderEpochError(f"{self.name}: leader epoch {leader_epoch} < current {state.leader_epoch}")

    def _writable(self, leader_epoch: int) -> LogState:
        state = self.state
        self._check_not_fenced(state, leader_epoch)
        if state.leader_epoch < leader_epoch:
            raise UnknownLeaderEpochError(
                f"{self.name}: leader epoch {leader_epoch} has not started, current {state.leader_epoch}"
            )
        return state

    def _commit(self, prepared: _PreparedCommit) -> Committed | Conflict:
        """Commit and fold the next version. Producer state that was read may have brought more since it was decided."""
        if self.state.version != self._decided_on:
            return Conflict(self._decided_on + 1)
        return self._put(prepared, self.state.version + 1)

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
    ) -> _PreparedCommit:
        """A commit on what is folded."""
        changes, producer_txns = self._state_producers(producers)
        all_txns = {**self.state.position_txns, **txns, **producer_txns}
        records = sum([entry.file.record_count for entry in adds]) if data_change else 0
        commit = Commit(self._ids.new_id(), operation, now_ms, adds, removes, all_txns, data_change, producers=changes)
        return _PreparedCommit(commit, producers, records, sync or self.flushing.is_due(self.config, records))

    def _put(self, prepared: _PreparedCommit, version: int) -> Committed | Conflict:
        outcome = self.table.commit(
            version, prepared.commit, sync=prepared.sync, since=self.flushing.first_owed(self.config)
        )
        if isinstance(outcome, Conflict):
            self._is_in_doubt = True
            return outcome
        if prepared.producers is not None:
            self._producers_version = -1  # known as a whole below: `_replay` need not work it out
        self._replay(prepared.commit)
        self.flushing.committed(prepared.record_count, is_synced=prepared.sync)
        if prepared.producers is not None:
            self._producers, self._producers_version = prepared.producers, outcome.version
        if self.on_commit is not None:
            self.on_commit(prepared.commit)
        return outcome

    def _state_producers(self, producers: ProducerStates | None) -> tuple[ProducerChanges | None, dict[str, int]]:
        """What the next version says of producer state (None: it stays): changes, and txns that name it whole.

        Whole where changes cannot tell it, and every `WHOLE_PRODUCERS_COMMITS`: clean-up keeps commits still needed.
        Each partition counts from another version, by its name: those that are written to at the same pace, as by a
        producer that goes round them, would all write an object more within the same second.
        """
        state = self.state
        version, since = state.version + 1, state.producers_version
        period, shift = WHOLE_PRODUCERS_COMMITS, self._producers_shift
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

    def _write_producers(self, producers: ProducerStates) -> int:
        """Write the whole state, before the commit that names it."""
        if not producers.producers and not producers.sinks:
            return NO_PRODUCERS
        number = int(self._ids.new_id(), 16) % _NUMBERS + 1
        self.table.write_object(producers_path(number), producers.to_json())
        return number


def _is_same(left: object, right: object) -> bool:
    return left is right
