"""A file system whose unsynced changes may be lost: what processes see, what is durable, and what a power cut leaves.

Pure. A file has its present content, the durable one, and the last few between them. A change of a directory (a file
made, linked, renamed, deleted) is pending until the directory is synced. `after_cut` makes one legal choice:

- Each block of an unsynced file, and the size, is that of any state since the last sync; what was never written reads
  as zeros, or as a block of a deleted file (`Rules.stale_blocks`, as on ext4 with `data=writeback`).
- Under `POSIX`, each pending change of a directory is kept or lost for itself, and fsync of a file does nothing for its
  name. Under `JOURNAL` (ext4, XFS), changes are durable in their order, and every fsync makes all earlier ones durable.

A rename is one change: it is kept or lost as a whole.
"""

from __future__ import annotations

import errno
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal
from zlib import crc32

ROOT = 1
BLOCK_BYTES, SECTOR_BYTES = 4_096, 512
VERSIONED_BYTES = 65_536
"""Size up to which the states between the durable content and the present one are remembered."""
VERSIONS = 4
STALE_BLOCKS = 64
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
POSIX, JOURNAL = "posix", "journal"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the file system guarantees.

    order          POSIX or JOURNAL, as the module says
    stale_blocks   unwritten blocks may hold what deleted files held
    writeback_ms   age at which the kernel writes back what was not synced; 0: never
    """

    order: Literal["posix", "journal"] = POSIX
    stale_blocks: bool = False
    writeback_ms: int = 5_000


class Chances:
    """Random choices of one cut: the same seed and the same names make the same choice."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def of(self, *names: object) -> float:
        """From [0, 1)."""
        return crc32(repr((self._seed, *names)).encode()) / 2**32


class FileError(Exception):
    """The error number that the system call returns."""

    def __init__(self, number: int) -> None:
        super().__init__(errno.errorcode[number])
        self.number = number


@dataclass(slots=True, eq=False)
class Change:
    """One change of directories, as (directory, name, file or None) each; `is_durable` once it is."""

    effects: tuple[tuple[Inode, str, Inode | None], ...]
    made_ms: int
    is_durable: bool = False


@dataclass(slots=True, eq=False)
class Inode:
    """A file or a directory. `entries` and `durable_entries` are a directory's; `lookups` is the kernel's count."""

    number: int
    mode: int
    mtime_ns: int = 0
    links: int = 0
    lookups: int = 0
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    versions: deque[bytes] = field(default_factory=lambda: deque(maxlen=VERSIONS))
    dirty_ms: int | None = None
    parent: Inode | None = None
    entries: dict[str, tuple[Inode, int]] = field(default_factory=dict)
    durable_entries: dict[str, Inode] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)


class VolatileDisk:
    """One file system. Times are arguments; errors are `FileError`."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.root = Inode(ROOT, stat.S_IFDIR | 0o755, links=2)
        self.inodes: dict[int, Inode] = {ROOT: self.root}
        self.syncs = 0
        self._last = ROOT
        self._cookie = 0
        self._dirty: dict[Inode, None] = {}
        self._pending: deque[Change] = deque()
        self._freed: deque[bytes] = deque(maxlen=STALE_BLOCKS)

    # -- names -------------------------------------------------------------------------------------------

    def find(self, directory: Inode, name: str) -> Inode | None:
        found = directory.entries.get(name)
        return found[0] if found else None

    def found(self, directory: Inode, name: str) -> Inode:
        inode = self.find(directory, name)
        if inode is None:
            raise FileError(errno.ENOENT)
        return inode

    def make(self, directory: Inode, name: str, mode: int, now_ms: int) -> Inode:
        self._check_absent(directory, name)
        inode = self.make_unnamed(mode, now_ms)
        if inode.is_directory:
            inode.parent = directory
        self._change(now_ms, (directory, name, inode))
        return inode

    def make_unnamed(self, mode: int, now_ms: int) -> Inode:
        """A file without a name (O_TMPFILE); a directory for `make`."""
        self._last += 1
        inode = self.inodes[self._last] = Inode(self._last, mode, now_ms * 1_000_000)
        return inode

    def link(self, inode: Inode, directory: Inode, name: str, now_ms: int) -> None:
        self._check_absent(directory, name)
        self._change(now_ms, (directory, name, inode))

    def unlink(self, directory: Inode, name: str, now_ms: int) -> None:
        inode = self.found(directory, name)
        if inode.is_directory:
            raise FileError(errno.EISDIR)
        if self.rules.stale_blocks and inode.links == 1 and inode.data:
            self._freed.append(bytes(inode.data[:BLOCK_BYTES]))
        self._change(now_ms, (directory, name, None))

    def remove_directory(self, directory: Inode, name: str, now_ms: int) -> None:
        inode = self.found(directory, name)
        if not inode.is_directory:
            raise FileError(errno.ENOTDIR)
        if inode.entries:
            raise FileError(errno.ENOTEMPTY)
        self._change(now_ms, (directory, name, None))

    def rename(self, old: tuple[Inode, str], new: tuple[Inode, str], flags: int, now_ms: int) -> None:
        inode, replaced = self.found(*old), self.find(*new)
        if flags == RENAME_EXCHANGE:
            self._change(now_ms, (*old, self.found(*new)), (*new, inode))
            return
        if replaced is not None:
            if flags & RENAME_NOREPLACE:
                raise FileError(errno.EEXIST)
            if replaced.is_directory and replaced.entries:
                raise FileError(errno.ENOTEMPTY)
        if replaced is inode:
            return
        self._change(now_ms, (*old, None), (*new, inode))
        if inode.is_directory:
            inode.parent = new[0]

    def names(self, directory: Inode, after: int) -> Iterator[tuple[str, Inode, int]]:
        """Name, file and cookie of the entries behind a cookie (0: all), in the order of cookies."""
        return ((name, *found) for name, found in directory.entries.items() if found[1] > after)

    def _check_absent(self, directory: Inode, name: str) -> None:
        if name in directory.entries:
            raise FileError(errno.EEXIST)

    def _change(self, now_ms: int, *effects: tuple[Inode, str, Inode | None]) -> None:
        change = Change(effects, now_ms)
        for directory, name, inode in effects:
            before = directory.entries.pop(name, None)
            if before is not None:
                before[0].links -= 1
            if inode is not None:
                self._cookie += 1
                directory.entries[name] = inode, self._cookie
                inode.links += 1
            directory.mtime_ns = now_ms * 1_000_000
            if not directory.pending or directory.pending[-1] is not change:
                directory.pending.append(change)
        self._pending.append(change)

    # -- content -----------------------------------------------------------------------------------------

    def write(self, inode: Inode, offset: int, data: bytes | memoryview, now_ms: int) -> None:
        self._remember(inode, now_ms)
        if offset > len(inode.data):
            inode.data.extend(bytes(offset - len(inode.data)))
        inode.data[offset : offset + len(data)] = data

    def truncate(self, inode: Inode, size: int, now_ms: int) -> None:
        if size == len(inode.data):
            return
        self._remember(inode, now_ms)
        if size < len(inode.data):
            del inode.data[size:]
        else:
            inode.data.extend(bytes(size - len(inode.data)))

    def _remember(self, inode: Inode, now_ms: int) -> None:
        """Before a change."""
        inode.mtime_ns = now_ms * 1_000_000
        if inode.dirty_ms is None:
            inode.dirty_ms = now_ms
            self._dirty[inode] = None
        elif len(inode.data) <= VERSIONED_BYTES:
            inode.versions.append(bytes(inode.data))

    # -- syncs -------------------------------------------------------------------------------------------

    def sync_file(self, inode: Inode) -> None:
        """fsync and fdatasync of a file, or of a directory."""
        self.syncs += 1
        if inode.is_directory:
            self._settle(list(inode.pending))
        else:
            self._write_back(inode)
        if self.rules.order == JOURNAL:
            self._settle(self._pending)

    def sync_all(self) -> None:
        """syncfs."""
        self.syncs += 1
        for inode in list(self._dirty):
            self._write_back(inode)
        self._settle(self._pending)

    def age(self, now_ms: int) -> None:
        """What the kernel writes back by itself; and inodes that nothing leads to are forgotten."""
        if self.rules.writeback_ms:
            due = now_ms - self.rules.writeback_ms
            for inode in [x for x in self._dirty if x.dirty_ms is not None and x.dirty_ms <= due]:
                self._write_back(inode)
            self._settle([change for change in self._pending if change.made_ms <= due])
        self._forget_unreachable()

    def _write_back(self, inode: Inode) -> None:
        if inode.dirty_ms is not None:
            inode.durable, inode.dirty_ms = bytes(inode.data), None
            inode.versions.clear()
            del self._dirty[inode]

    def _settle(self, changes: Iterable[Change]) -> None:
        """Make changes durable, and those before them that concern the same names."""
        wanted = [change for change in changes if not change.is_durable]
        for change in wanted:
            for directory, name, _ in change.effects:
                self._settle_before(directory, name, change)
            _apply(change)
        if wanted:
            self._pending = deque(change for change in self._pending if not change.is_durable)
            for directory in {directory for change in wanted for directory, _, _ in change.effects}:
                directory.pending = [change for change in directory.pending if not change.is_durable]

    def _settle_before(self, directory: Inode, name: str, limit: Change) -> None:
        for change in directory.pending:
            if change is limit:
                return
            if not change.is_durable and any(d is directory and n == name for d, n, _ in change.effects):
                _apply(change)

    def _forget_unreachable(self) -> None:
        reached: set[Inode] = {self.root, *(x for x in self.inodes.values() if x.lookups > 0)}
        pending = [inode for change in self._pending for d, _, i in change.effects for inode in (d, i) if inode]
        todo = [*reached, *(x for x in pending if x not in reached)]
        reached.update(pending)
        while todo:
            inode = todo.pop()
            for child in (*(found for found, _ in inode.entries.values()), *inode.durable_entries.values()):
                if child not in reached:
                    reached.add(child)
                    todo.append(child)
        for inode in [x for x in self.inodes.values() if x not in reached]:
            del self.inodes[inode.number]
            self._dirty.pop(inode, None)

    # -- cut ---------------------------------------------------------------------------------------------

    def after_cut(self, seed: int) -> tuple[VolatileDisk, CutResult]:
        """The file system that the power cut leaves. This one is not to be used any more."""
        return _Cut(self, Chances(seed)).make()

    def stale_block(self, chance: float) -> bytes:
        """A block of a deleted file, or zeros."""
        return self._freed[int(chance * len(self._freed))] if self._freed else bytes(BLOCK_BYTES)

    @property
    def pending(self) -> Iterable[Change]:
        return self._pending


def _apply(change: Change) -> None:
    change.is_durable = True
    for directory, name, inode in change.effects:
        if inode is None:
            directory.durable_entries.pop(name, None)
        else:
            directory.durable_entries[name] = inode


# -- the choice of one cut ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class CutResult:
    """What a cut did: pending changes of directories, unsynced files that a name still leads to."""

    seed: int
    kept_share: float = 0.0
    changes: int = 0
    changes_lost: int = 0
    files_unsynced: int = 0
    files_old: int = 0
    files_torn: int = 0
    files_lost: int = 0


class _Cut:
    def __init__(self, disk: VolatileDisk, chances: Chances) -> None:
        self._old, self._chances = disk, chances
        style = chances.of("style")
        share = 0.0 if style < 0.2 else 1.0 if style > 0.9 else chances.of("share")
        self._names_kept, self._files_kept = share, share
        if chances.of("split") < 0.4:  # names before content, or content before names
            self._names_kept, self._files_kept = chances.of("names"), chances.of("files")
        self._unit = SECTOR_BYTES if chances.of("unit") < 0.25 else BLOCK_BYTES
        self.result = CutResult(chances._seed, round(share, 3))

    def make(self) -> tuple[VolatileDisk, CutResult]:
        self._keep_changes()
        new = VolatileDisk(self._old.rules)
        new._freed = self._old._freed
        copies: dict[Inode, Inode] = {}
        before = self._named(lambda inode: [(n, i) for n, (i, _) in inode.entries.items()])
        self._copy(new, self._old.root, new.root, "", copies)
        self.result.files_lost = len(before - copies.keys())
        return new, self.result

    def _keep_changes(self) -> None:
        changes = [change for change in self._old.pending if not change.is_durable]
        if self._old.rules.order == JOURNAL:
            kept = changes[: round(len(changes) * self._names_kept)]
        else:
            kept = [c for i, c in enumerate(changes) if self._chances.of(i, c.effects[0][1]) < self._names_kept]
        for change in kept:
            _apply(change)
        self.result.changes, self.result.changes_lost = len(changes), len(changes) - len(kept)

    def _named(self, entries: object) -> set[Inode]:
        found, todo = set(), [self._old.root]
        while todo:
            for _, inode in entries(todo.pop()):  # type: ignore[operator]
                if inode not in found:
                    found.add(inode)
                    if inode.is_directory:
                        todo.append(inode)
        return {inode for inode in found if not inode.is_directory}

    def _copy(self, new: VolatileDisk, old: Inode, copy: Inode, path: str, copies: dict[Inode, Inode]) -> None:
        """The durable tree below a directory; a directory that two names lead to is under the first."""
        for name in sorted(old.durable_entries):
            inode = old.durable_entries[name]
            made = copies.get(inode)
            if made is not None and made.is_directory:
                continue
            if made is None:
                made = copies[inode] = new.make_unnamed(inode.mode, 0)
                made.mtime_ns = inode.mtime_ns
                if not inode.is_directory:
                    made.durable = self._content(inode, f"{path}/{name}")
                    made.data = bytearray(made.durable)
            new._cookie += 1
            copy.entries[name], copy.durable_entries[name] = (made, new._cookie), made
            made.links += 1
            if made.is_directory:
                made.parent = copy
                self._copy(new, inode, made, f"{path}/{name}", copies)

    def _content(self, inode: Inode, path: str) -> bytes:
        if inode.dirty_ms is None:
            return inode.durable
        self.result.files_unsynced += 1
        present, how = bytes(inode.data), self._chances.of(path, "how")
        if self._chances.of(path, "kept") < self._files_kept or present == inode.durable:
            return present
        if how < 0.3:
            self.result.files_old += 1
            return inode.durable
        content = self._mixed([inode.durable, *inode.versions, present], path, how)
        self.result.files_torn += content != present
        return content

    def _mixed(self, states: list[bytes], path: str, how: float) -> bytes:
        """Blocks of any states, up to a size that the file may have had."""
        sizes = sorted({len(state) for state in states})
        size = sizes[int(self._chances.of(path, "size") * len(sizes))] if how < 0.7 else sizes[-1]
        if 0.6 < how < 0.7 and sizes[-1] > len(states[0]):
            size = len(states[0]) + int(self._chances.of(path, "cut") * (sizes[-1] - len(states[0])))
        share_present = self._chances.of(path, "share") if how < 0.9 else 0.0
        content = bytearray()
        for start in range(0, size, self._unit):
            chance = self._chances.of(path, start)
            at = -1 if chance < share_present else int(self._chances.of(path, start, 1) * len(states))
            state = states[at]
            block = state[start : start + self._unit]
            if not block and self._old.rules.stale_blocks:
                block = self._old.stale_block(self._chances.of(path, start, 2))[: self._unit]
            content += block.ljust(self._unit, b"\0")
        return bytes(content[:size])


def tree_of(disk: VolatileDisk, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """Path and content of every file whose path begins with `prefix`, as processes see them."""

    def below(directory: Inode, path: str) -> Iterator[tuple[str, bytes]]:
        for name, (inode, _) in directory.entries.items():
            here = f"{path}{name}/" if inode.is_directory else path + name
            if inode.is_directory and (here.startswith(prefix) or prefix.startswith(here)):
                yield from below(inode, here)
            elif not inode.is_directory and here.startswith(prefix):
                yield here, bytes(inode.data)

    return below(disk.root, "")
