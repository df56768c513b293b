"""The storage domains of a simulated cluster: every access passes the scheduler, every version the invariants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from random import Random

import pyarrow as pa

from stratalog.storage.delta.commit_race import StoredCommit
from stratalog.storage.delta.snapshot import INITIAL_TXNS
from stratalog.storage.delta.table import Commit
from stratalog.storage.objects.distance import FAR, NEAR
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.objects.port import ObjectMeta
from tests.simulation.invariants import Violation
from tests.simulation.scheduler import LATE_MS_MAX, LostRequestError, Scheduler, SimClock
from tests.storage.memory_table import MemoryCommitLog, MemoryDisk, MemoryFiles, MemoryLogTable

FIT_POLL_MS = 5
OTHER_TABLE = "of another table"
"""Id of the commit that a power cut may leave in the place of a lost one."""
COPIED_PIECES = 2
"""Number of pieces of a copied file, where copies may fail half way."""

VersionSeen = Callable[[str, int, StoredCommit], None]
ObjectWritten = Callable[[str, str, bytes], None]
"""Root, path, content."""
FileDeleted = Callable[[str, MemoryFiles, str], None]


class SimObjects(MemoryStore):
    """The small objects of one root."""

    def __init__(
        self,
        root: str,
        scheduler: Scheduler,
        clock: SimClock,
        written: ObjectWritten,
        looked_at: Callable[[str], None],
        arrived_late: ObjectWritten,
        *,
        reports_writes: bool,
        is_durable: bool = False,
    ) -> None:
        """`is_durable`: as an object store, nothing is lost with the power."""
        super().__init__({}, clock.wall_ms, root, reports_writes=reports_writes)
        self.durable_on_answer = is_durable
        self.distance = NEAR if reports_writes else FAR
        self._root = root
        self._scheduler = scheduler
        self._written = written
        self._looked_at = looked_at
        self._arrived_late = arrived_late
        self._before: dict[str, bytes] = {}

    def put(self, path: str, data: bytes) -> None:
        try:
            self._scheduler.access(self._root, "put", "", path)
        except LostRequestError:
            self._scheduler.give_up(self._root, partial(self._stored, path, data, self._arrived_late))
            raise
        self._stored(path, data, self._written)
        self._scheduler.access(self._root, "put:done", "", path)

    def _stored(self, path: str, data: bytes, written: ObjectWritten) -> None:
        if path in self.objects:
            self._before[path] = self.objects[path]
        super().put(path, data)
        written(self._root, path, data)

    def get_optional(self, path: str) -> bytes | None:
        self._scheduler.access(self._root, "get", "", path)
        found = self.objects.get(path)
        self._looked_at(path)
        if found is not None and path.startswith("progress/") and self._scheduler.happens(self._scheduler.faults.stale):
            return self._before.get(path, found)
        return found

    def list(self, prefix: str) -> list[ObjectMeta]:
        self._scheduler.access(self._root, "list", "", prefix)
        return super().list(prefix)


class SimDisk(MemoryDisk):
    """The tables of one root. `created` is called with every version that is committed, `deleted` with every data file
    that is deleted."""

    def __init__(
        self,
        root: str,
        scheduler: Scheduler,
        clock: SimClock,
        created: VersionSeen,
        deleted: FileDeleted,
        kept_ms: int = 0,
    ) -> None:
        """`kept_ms`: as on an object store, which dates by a clock of its own; 0: a machine's disk."""
        now_ms = scheduler.store_ms if kept_ms else clock.wall_ms
        super().__init__(access=partial(scheduler.access, root), now_ms=now_ms, root=root, kept_ms=kept_ms)
        self.copied_pieces = COPIED_PIECES if scheduler.faults.failed_copy else 0
        self.scheduler = scheduler
        self.created = created
        self._deleted = deleted

    def file_deleted(self, table: str, files: MemoryFiles, path: str) -> None:
        self._deleted(table, files, path)

    def is_hedged(self) -> bool:
        """Whether the write of a data file that has just been answered was made twice, and the other one is under way:
        as where a request is slow, and is made again beside it."""
        return False

    def commit_log(self, table: str) -> SimCommitLog:
        return SimCommitLog(self, table)

    def answered(self, table: str, version: int, commit: Commit) -> None:
        files = self.tables.get(table)
        if files is None or not is_orphaned(files, version, commit.commit_id):
            return
        if self.kept_ms and is_of_a_deleted_topic(files, version):
            return  # a leader knows by the time that its table stands, unless the topic was deleted meanwhile
        raise Violation("CommitsFollow", f"{self.root}/{table}: version {version} is orphaned, and answered")

    def power_cut(self, rng: Random, *, tears: bool = True) -> None:
        """Unsynced commits are lost, from a random one on; with `tears` the first one lost may be torn, lack its file,
        or be the first commit of another table. So are requests that are under way."""
        self.scheduler.stops[self.root] += 1
        for files in self.tables.values():
            newest = max(files.commits, default=-1)
            oldest_lost = files.durable_version + 1
            if newest < oldest_lost:
                continue
            kept = rng.randrange(oldest_lost - 1, newest + 1)
            for version in [v for v in files.commits if v > kept]:
                torn = tears and version == kept + 1 and rng.random() < 0.5
                if not torn:
                    del files.commits[version]
                else:
                    _tear(files, version, rng)


class SimDomain(SimDisk):
    """The tables of a storage domain. `topic_ids`: those of the topics that there are now."""

    topic_ids: Callable[[], Collection[str]]

    def is_hedged(self) -> bool:
        return self.scheduler.happens(self.scheduler.faults.doubled)

    def answered(self, table: str, version: int, commit: Commit) -> None:
        """What is committed to a table that is being deleted with its topic may be answered, and is nowhere."""
        if table.partition("/")[0].rpartition(".")[2] in self.topic_ids():
            super().answered(table, version, commit)


def _tear(files: MemoryFiles, version: int, rng: Random) -> None:
    stored = files.commits[version]
    if rng.random() < 0.3:
        files.commits[version] = first_of_another_table(files)
        return
    if stored is not None and stored.commit.adds and rng.random() < 0.5:
        files.data_files.pop(stored.commit.adds[-1].path, None)
    else:
        files.commits[version] = None


def first_of_another_table(files: MemoryFiles) -> StoredCommit:
    """Version 0 of a table of the same topic, as of another partition."""
    checkpoint, first = files.checkpoint, files.commits.get(0)
    properties = checkpoint.properties if checkpoint is not None else first.properties if first is not None else {}
    return StoredCommit(Commit(OTHER_TABLE, "CREATE TABLE", 0, txns=INITIAL_TXNS), None, properties or {})


def is_orphaned(files: MemoryFiles, version: int, commit_id: str) -> bool:
    """Whether a commit is no part of the log: it stands alone below the newest checkpoint, or the commits before it do
    not lead to that checkpoint or to version 0, each naming the one before it.

    What stands below that checkpoint does not matter: a fold begins with the checkpoint, and clean-up deletes the rest.
    There a request that arrives again, late, may put the commit of a lost race where clean-up has just deleted another.
    """
    commits, newest_checkpoint = files.commits, max(files.checkpoints, default=-1)
    stored = commits.get(version)
    if stored is None or stored.commit.commit_id != commit_id:
        return False
    if newest_checkpoint > version:
        return version - 1 not in commits and version + 1 not in commits
    while version > newest_checkpoint and (before := commits.get(version - 1)) is not None:
        if stored is not None and stored.previous_id not in (None, before.commit.commit_id):
            return True
        version, stored = version - 1, before
    return version > newest_checkpoint + 1


def is_of_a_deleted_topic(files: MemoryFiles, version: int) -> bool:
    """Whether no other commit of this one's table stands: clean-up leaves those above it."""
    stored = files.commits[version]
    others = [each for number, each in files.commits.items() if number != version and each is not None]
    return stored is not None and all(stored.is_of_another(each.table_id) for each in others)


def continues_log(files: MemoryFiles, version: int, stored: StoredCommit) -> bool:
    """Whether this commit, which was just created, is part of the log. An orphaned commit, made where clean-up has
    deleted the version, is not: it follows no commit, or another orphan."""
    before = files.commits.get(version - 1)
    return version == 0 or (before is not None and stored.previous_id in (None, before.commit.commit_id))


class SimCommitLog(MemoryCommitLog):
    """The commits of one table, whose requests may arrive twice."""

    disk: SimDisk

    def create_version(self, version: int, stored: StoredCommit) -> bool:
        disk, detail, before = self.disk, f"_delta_log/{version}", self.files
        try:
            disk.access("create", self._name, detail)
        except LostRequestError:
            disk.scheduler.give_up(disk.root, lambda: self._create_late(before, version, stored))
            raise
        if self.files is not before:
            self._sleep_until_it_fits(version)
        files = self.files
        created = version not in files.commits
        if created:
            self._created_in(files, version, stored)
        disk.access("create:done", self._name, detail)
        if disk.scheduler.happens(disk.scheduler.faults.doubled):
            if disk.scheduler.random.random() < 0.5:
                return False  # the store's client sent the request again, and it met itself
            disk.scheduler.arrive_later(disk.root, lambda: self._create_late(files, version, stored))
        return created

    def _created_in(self, files: MemoryFiles, version: int, stored: StoredCommit) -> None:
        files.commits[version] = stored
        files.modified_ms[version] = self.disk.now_ms()
        self.disk.created(self._name, version, stored)

    def delete_from(self, files: MemoryFiles, version: int, *, alone: bool = False) -> None:
        try:
            super().delete_from(files, version, alone=alone)
        except LostRequestError:
            self.disk.scheduler.give_up(self.disk.root, lambda: self.deleted(files, version, alone=alone))
            raise

    def replace_version(self, version: int, old: StoredCommit, new: StoredCommit) -> None:
        files = self.files
        try:
            super().replace_version(version, old, new)
        except LostRequestError:
            self.disk.scheduler.give_up(self.disk.root, lambda: self.replaced(files, version, old, new))
            raise

    def replaced(self, files: MemoryFiles, version: int, old: StoredCommit, new: StoredCommit) -> bool:
        is_replaced = super().replaced(files, version, old, new)
        if is_replaced:
            self.disk.created(self._name, version, new)
        return is_replaced

    def put_pointer(self, version: int) -> None:
        files = self.files
        try:
            super().put_pointer(version)
        except LostRequestError:
            self.disk.scheduler.give_up(self.disk.root, partial(setattr, files, "pointer", version))
            raise

    def _sleep_until_it_fits(self, version: int) -> None:
        """The table was made again while this request was under way: it arrives where it does most harm, behind the
        other table's newest commit and checkpoint, if that moment comes."""
        scheduler = self.disk.scheduler
        end_ms = scheduler.now_ms + LATE_MS_MAX
        while scheduler.faults.is_on and scheduler.now_ms < end_ms:
            files = self.files
            if max(files.commits, default=-1) == version - 1 == max(files.checkpoints, default=-1):
                return
            scheduler.sleep(FIT_POLL_MS)

    def _create_late(self, files: MemoryFiles, version: int, stored: StoredCommit) -> None:
        """The request once more, after its answer, or after its client gave it up."""
        if self.disk.tables.get(self._name) is files and version not in files.commits:
            self._created_in(files, version, stored)


class SimLogTable(MemoryLogTable):
    """A replica's table whose writes may arrive late."""

    _disk: SimDisk

    def reopened(self) -> SimLogTable:
        return SimLogTable(self._disk, self._name, self._ids)

    def write_object(self, path: str, data: bytes) -> None:
        files = self._log.files
        try:
            super().write_object(path, data)
        except LostRequestError:
            self._give_up(files, path, partial(files.objects.__setitem__, path, data))
            raise

    def delete_objects(self, paths: Sequence[str]) -> None:
        files = self._log.files
        for path in paths:
            try:
                super().delete_objects([path])
            except LostRequestError:
                self._disk.scheduler.give_up(self._disk.root, partial(self._delete_late, files, path))
                raise

    def _delete_late(self, files: MemoryFiles, path: str) -> None:
        files.objects.pop(path, None)
        self._delete_file(files, path)
        files.modified_ms.pop(path, None)

    def _put_file(self, path: str, table: pa.Table) -> None:
        files = self._log.files
        put = partial(files.data_files.__setitem__, path, table)
        try:
            super()._put_file(path, table)
        except LostRequestError:
            self._give_up(files, path, put)
            raise
        if self._disk.is_hedged():
            self._disk.scheduler.arrive_later(self._disk.root, partial(self._arrive, files, path, put))

    def _give_up(self, files: MemoryFiles, path: str, put: Callable[[], None]) -> None:
        self._disk.scheduler.give_up(self._disk.root, partial(self._arrive, files, path, put))

    def _arrive(self, files: MemoryFiles, path: str, put: Callable[[], None]) -> None:
        put()
        files.modified_ms[path] = self._disk.now_ms()
