"""The port between a partition log and the table that holds it, and the values that cross it. Pure.

A table is a sequence of commits `0, 1, 2 ...`; creating commit N if it is absent is the only lock. The product's table
is `storage.delta.delta_table.DeltaLogTable` (a real Delta table on an object store); rules and simulation are tested on
one in memory. `tests/contract` runs one suite on both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol

import pyarrow as pa

from stratalog.storage.clock import Clock
from stratalog.storage.errors import ObjectNotFoundError
from stratalog.storage.files.codecs import ZSTD
from stratalog.storage.files.damage import Damage
from stratalog.storage.files.data_file import DataFile, FileEntry, PartitionValues, RowsWanted
from stratalog.storage.objects.port import always
from stratalog.storage.producers import ProducerChanges
from stratalog.storage.records import FewRows

LOG_END = "stratalog.log-end"
LEADER_EPOCH = "stratalog.leader-epoch"
LOG_START = "stratalog.log-start"
PRODUCERS = "stratalog.producers"
PRODUCERS_VERSION = "stratalog.producers-version"
"""Name of the version whose producer state is in the object that `PRODUCERS` numbers; later commits carry changes."""
DELETED = "stratalog.deleted"
"""Name of the version up to which everything that commits removed from the log is deleted from storage."""
ERASED = "stratalog.erased"
"""Name of the id up to which every erasure is done in this replica."""
ERASE_PREFIX = "stratalog.erase."
"""`txn stratalog.erase.<id>` counts the records that the erasure removed here, `….<id>.files` the files."""
ERASE_PASS = "stratalog.erase.pass"
"""Name of the id up to which erasures were read for together: below `ERASE_POSITION` no record matches one of them."""
ERASE_POSITION = "stratalog.erase.position"
WRITER_VERSION = 7
"""Version of Delta's protocol for writers: features are listed by name, and a writer that lacks one must not commit."""
OPEN_WRITER_VERSION = 2
"""Writer version of tables that any Delta writer may commit to. Their next epoch start raises it."""
REMOVED_FILES_PROPERTY = "delta.deletedFileRetentionDuration"
"""Delta's name of the time for which a file stays that left the table."""
START_EPOCH, TRUNCATE = "START EPOCH", "TRUNCATE"
EPOCH_OPERATIONS = frozenset({START_EPOCH, TRUNCATE})
"""Operations of the commits that begin a leader epoch or cut the log: whoever makes one syncs it."""
EPOCH_PREFIX = "stratalog.epoch."
REMOVED_EPOCH = -1
"""Value of `txn stratalog.epoch.<e>` once the entry of epoch e was truncated away."""


NO_OBJECTS: Mapping[str, bytes] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Commit:
    """The content of one table version, as decided by its writer.

    commit_id       the writer's own id, by which it finds its commit again after an ambiguous result
    txns            names (`LOG_END` ...) -> 64-bit numbers; the last value of a name holds
    data_change     False for upkeep that leaves the readable records as they were
    is_foreign      True on read when no stratalog committer wrote the version
    producers       what the commit adds to producer and sink state. None: nothing, unless `txns` has `PRODUCERS`; then
                    the state is in that object
    writer_version  of the table from this commit on; None: as before
    """

    commit_id: str
    operation: str
    timestamp_ms: int
    adds: tuple[FileEntry, ...] = ()
    removes: tuple[str, ...] = ()
    txns: Mapping[str, int] = field(default_factory=dict)
    data_change: bool = True
    is_foreign: bool = False
    producers: ProducerChanges | None = None
    writer_version: int | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit is version `version` of the table."""

    version: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another writer's commit is (or was) at the wanted version: refresh, fold, decide again."""

    version: int


class RemovedObject(NamedTuple):
    """An object that version `version` removed from the log at `removed_ms`. `end_offset`: of a data file, else 0.

    Of a list of such objects (`storage.delta.removed`) it has the first and the last version, and the newest time and
    end.
    """

    version: int
    removed_ms: int
    end_offset: int
    last_version: int = -1


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A full fold of a table at `version`. `files` are live, in no particular order.

    removed           objects that left the log and may still be on storage, by path
    durable_version   the version of the checkpoint that the fold began with: it outlives a power loss; -1 = none
    producer_changes  (version, what it adds to producer and sink state), of versions after the checkpoint and after
                      the one that `PRODUCERS_VERSION` names
    epoch_version     the newest version after the checkpoint that began a leader epoch or truncated the log; -1 = none
    """

    version: int
    files: tuple[FileEntry, ...]
    txns: Mapping[str, int]
    properties: Mapping[str, str]
    removed: Mapping[str, RemovedObject] = field(default_factory=dict)
    durable_version: int = -1
    producer_changes: tuple[tuple[int, ProducerChanges], ...] = ()
    writer_version: int = WRITER_VERSION
    epoch_version: int = -1


class Ahead(Protocol):
    """Small files that are about to be read in turn (`LogTable.ahead`)."""

    def take(self, path: str) -> bytes | None:
        """The bytes of the object at a path of the store; None when it is not among them, or absent."""


class LogTable(Protocol):
    """One replica's table. Not thread-safe: each part that works on it opens its own.

    Every call may raise StoreUnavailableError (retriable; a write may have been applied).

    kept_ms  the age up to which its commits stay, however crowded the log is, the same in all handles; 0: any may go
    """

    kept_ms: int

    @property
    def name(self) -> str:
        """The table's place, for messages: e.g. `file:///data/broker-1/access-log-0`."""

    def create(self, properties: Mapping[str, str], timestamp_ms: int, commit_id: str) -> bool:
        """Make version 0 with table properties (`stratalog.topic-id` …). False when it exists already."""

    def snapshot(self) -> TableSnapshot | None:
        """Fold the whole table (checkpoint and later commits); None when there is no table.

        Raises UnsupportedTableFeatureError, ForeignCommitError, CorruptMessageError (unreadable log).
        """

    def read_commit(self, version: int) -> Commit | None:
        """One version; None when it is absent (not written yet, or cleaned up)."""

    def read_on(self, version: int, count_max: int) -> Sequence[Commit]:
        """The next commits after the one that this handle saw last, which is `version` - 1. Empty where `read_commit`
        returns None. A near store returns one commit, a far store all that exist, at most `count_max`."""

    def read_commits(self, start: int, end: int) -> Sequence[Commit] | None:
        """The versions `[start, end)` of the log that this handle has folded; None when clean-up has passed one."""

    def still_stands(self) -> bool:
        """Whether the newest commit that this handle read or made still exists: neither cleaned up, nor gone with
        a table that was made again since."""

    def commit(
        self,
        version: int,
        commit: Commit,
        *,
        sync: bool = False,
        since: int | None = None,
        clock: Clock | None = None,
    ) -> Committed | Conflict:
        """Create `version` if absent. A win counts only if version - 1 still exists: else the commit is orphaned.

        On a lost race reads the version back: the own `commit_id` there means Committed. `sync` makes the
        commit, its directory and everything written before through this table durable first; with `since`,
        also the commits from that version on, whoever made them. With `clock`, what this handle did a moment ago on a
        far store may stand for the read of version - 1 (`commit_race`).
        """

    def flusher(self, version: int, since: int | None) -> Callable[[], None]:
        """A function, also for another thread, that makes durable what was written through this table until now, and
        the commits in `[since, version]`."""

    def write_file(self, rows: pa.Table | FewRows, values: PartitionValues | None, codec: str = ZSTD, /) -> DataFile:
        """Write rows of `DATA_SCHEMA` as a new data file that no commit names yet; `codec` as in
        `storage.files.codecs`.

        values  its partition values, which its path names; None: they are not known yet, see `place_files`
        """

    def place_files(self, entries: Sequence[FileEntry]) -> Sequence[FileEntry]:
        """The same files under paths that name their partition values: each gets a second name there, or a copy. What
        lies at the old paths stays. ObjectNotFoundError."""

    def copy_file(self, source: LogTable, file: DataFile) -> None:
        """Copy a data file's bytes from another replica under the same path, footer checked."""

    def copy_files(self, source: LogTable, files: Sequence[DataFile]) -> None:
        """`copy_file` of each, several at a time where requests take long."""

    def ahead(self, files: Sequence[DataFile]) -> Ahead | None:
        """For `read_file` of these, one after the other; None where nothing is gained by it."""

    def read_file(
        self,
        file: DataFile,
        columns: Sequence[str] | None = None,
        wanted: RowsWanted | None = None,
        ahead: Ahead | None = None,
    ) -> pa.Table:
        """Rows of a data file: all, or at least those wanted. `ahead`: of files that are read in turn, this one too.

        Raises ObjectNotFoundError when it is gone, CorruptMessageError when a bit of what was read is wrong.
        """

    def read_files(self, files: Sequence[DataFile]) -> pa.Table:
        """All rows of some data files, one file after the other. Raises as `read_file`."""

    @property
    def free_share(self) -> float:
        """The share of the table's storage that is free; 1 where it has no bound."""
        return 1.0

    def has_file(self, file: DataFile) -> bool:
        """Whether a data file is there in its full size."""

    @property
    def decays(self) -> bool:
        """Whether bits may decay on the table's storage, so that its owner checks them: on a local disk."""

    def check_files(self, files: Sequence[DataFile], *, bits: bool) -> None:
        """Raise DamagedFileError, naming file and both values, for the first that is gone, short or, with `bits` and
        where they decay, has a wrong bit. Cached rows are not used."""

    def check_bits(self, file: DataFile) -> None:
        """Raise DamagedFileError for a file with a wrong bit, ObjectNotFoundError for one that is gone. Cached rows are
        not used."""

    def damage(self) -> Damage | None:
        """The recorded damage of this table that is not repaired yet."""

    def note_damage(self, damage: Damage | None) -> None:
        """Record damage beside the data, for every handle; None: it is repaired."""

    def read_object(self, path: str) -> bytes:
        """A small object of the table (`_producers/…json`). ObjectNotFoundError when absent."""

    def write_object(self, path: str, data: bytes) -> None:
        """Write a small object of the table."""

    def delete_objects(self, paths: Sequence[str]) -> None:
        """Delete data files or small objects, in bulk where the store can; absent ones are fine."""

    def list_objects(self, prefix: str) -> list[tuple[str, int]]:
        """`(path, last_modified_ms)` below a prefix, outside `_delta_log`."""

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version on storage. Returns its version."""
        snapshot = self.snapshot()
        if snapshot is None:
            raise ObjectNotFoundError(f"{self.name}: there is no table to checkpoint")
        return self.checkpointer(snapshot)()

    def checkpointer(self, snapshot: TableSnapshot, objects: Mapping[str, bytes] = NO_OBJECTS) -> Callable[[], int]:
        """A function, also for another thread, that writes a checkpoint of what this handle folded and returns its
        version; none is written where a newer one stands.

        objects  small objects by path that it writes before, and which are durable when the checkpoint is
        """

    def adopt_checkpoint(self) -> int:
        """The newest checkpoint's version by the cheap pointer, whoever wrote it; -1 when there is none. This handle
        owes no sync for anything up to it any more."""

    def reopened(self) -> LogTable:
        """Another handle on the same table, for another thread."""

    def clean_log(self, keep_from_version: int, keep_from_ms: int, crowded_below: int = 0) -> Iterator[int]:
        """Delete commits below both limits and below the newest checkpoint, ascending: one for each step, whose
        version it yields. Those below version `crowded_below` are deleted although they are young, but on a far store
        none of the last `cadence.COMMITS_KEPT`."""

    def delete_strays(self, before_ms: int) -> int:
        """Delete the commits of no fold that were made where clean-up had been, and that the store dates before
        `before_ms`: by a request that arrived late. They stand below the newest checkpoint, apart from those that lead
        to it, so that `clean_log`, which goes up from the oldest of these, does not meet them. How many there were.

        Commits 3 and 7 to 18, checkpoint 17: commit 3 is one.
        """

    def recover_tail(self) -> int:
        """After an unclean stop: drop commits from the first that is unreadable, does not follow the one before it, or
        whose data file is missing.

        Returns the version kept, -1 when nothing is left. Only while no other handle works on the table.
        """

    def withdraw_tail(self) -> int:
        """As `recover_tail`, of a table that others may work on, and of which each append is synced before its answer:
        each version from the first that would be dropped gets a commit without content (`shared_tail`).

        Nothing is done where writes are durable once they are answered, nor without a sound version.
        CorruptMessageError where acknowledged records would be lost.
        """

    def has_rested(self) -> bool:
        """Whether the table may be deleted although its topic lives on: its newest commit is `kept_ms` old, and nobody
        relies any more on its standing."""

    def drop(self, is_still: Callable[[], bool] = always) -> bool:
        """Delete the table, log first, so that no late writer can commit to it again; True when none is left.

        is_still  reads the table once the deletion has begun: whether this is the one to be deleted. What it is asked
                  about is what is deleted: a table that is made in its place meanwhile stays. Without it, any table.
        """
