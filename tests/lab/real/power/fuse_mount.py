"""One `VolatileDisk` mounted by FUSE.

I/O: /dev/fuse, mount(2), umount2(2). There is no library between: the kernel's messages are read and answered here.
The kernel keeps entries, attributes and pages for ever, so that only changes and first reads come here. Every write
comes at once (no writeback cache): what is unsynced is known to the disk alone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import time
from collections.abc import Callable

from tests.lab.real.power import fuse_protocol as fuse
from tests.lab.real.power.fuse_protocol import Op
from tests.lab.real.power.volatile_disk import FileError, Inode, VolatileDisk

_LIBC = ctypes.CDLL(None, use_errno=True)
_DETACH = 2
NONE = bytes(fuse.ATTR.size)
ANSWERS_AT_ONCE = 200


class FuseMount:
    """A mount of `disk` at `path`. `serve` answers what waits on `descriptor`.

    device  a block device for the type `fuseblk`, whose syncfs(2) the kernel passes on; empty: type `fuse`
    """

    def __init__(self, path: str, disk: VolatileDisk, device: str = "") -> None:
        self.path, self.disk = path, disk
        self.requests = 0
        self.descriptor = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._buffer = bytearray(fuse.READ_BUFFER_BYTES)
        options = f"fd={self.descriptor},rootmode=40755,user_id=0,group_id=0,allow_other"
        kind, source = ("fuseblk", device) if device else ("fuse", "power")
        if device:
            options += ",blksize=4096"
        if _LIBC.mount(source.encode(), path.encode(), kind.encode(), 6, options.encode()) != 0:
            number = ctypes.get_errno()
            os.close(self.descriptor)
            raise OSError(number, os.strerror(number), path)
        disk.root.lookups = 1
        self._answers: dict[int, Callable[[Inode, memoryview], bytes | list[bytes]]] = {
            Op.LOOKUP: self._lookup, Op.FORGET: self._forget, Op.GETATTR: self._getattr, Op.SETATTR: self._setattr,
            Op.MKNOD: self._mknod, Op.MKDIR: self._mkdir, Op.UNLINK: self._unlink, Op.RMDIR: self._rmdir,
            Op.RENAME: self._rename, Op.RENAME2: self._rename2, Op.LINK: self._link, Op.READ: self._read,
            Op.WRITE: self._write, Op.STATFS: self._statfs, Op.RELEASE: self._nothing, Op.FSYNC: self._fsync,
            Op.FSYNCDIR: self._fsync, Op.READDIR: self._readdir, Op.DESTROY: self._nothing,
            Op.BATCH_FORGET: self._batch_forget, Op.FALLOCATE: self._fallocate, Op.SYNCFS: self._syncfs,
            Op.TMPFILE: self._tmpfile, Op.INTERRUPT: self._nothing,
        }  # fmt: skip

    def abort(self) -> None:
        """From now on every call on a file of the mount is an error: ENOTCONN."""
        os.close(self.descriptor)

    def unmount(self) -> None:
        detach(self.path)

    def serve(self) -> None:
        """Answer requests until none waits."""
        for _ in range(ANSWERS_AT_ONCE):
            try:
                length = os.readv(self.descriptor, [self._buffer])
            except BlockingIOError:
                return
            except OSError as reason:
                if reason.errno in (errno.ENOENT, errno.EINTR):  # the caller was killed while it waited
                    continue
                if reason.errno == errno.ENODEV:  # unmounted
                    return
                raise
            self._answer(memoryview(self._buffer)[:length])

    def _answer(self, request: memoryview) -> None:
        _, code, unique, number, *_ = fuse.IN_HEADER.unpack_from(request)
        body = request[fuse.IN_HEADER.size :]
        self.requests += 1
        error, parts = 0, []
        if code == Op.INIT:
            parts = [fuse.init_answer(fuse.INIT_IN.unpack_from(body)[2])]
        elif (answer := self._answers.get(code)) is None:
            error = errno.ENOSYS  # the kernel then does without, and does not ask again
        else:
            try:
                found = answer(self._inode(code, number), body)
                parts = found if isinstance(found, list) else [found]
            except FileError as reason:
                error = reason.number
        if code in fuse.WITHOUT_ANSWER:
            return
        size = fuse.OUT_HEADER.size + sum(map(len, parts))
        try:
            os.writev(self.descriptor, [fuse.OUT_HEADER.pack(size, -error, unique), *parts])
        except OSError as reason:
            if reason.errno not in (errno.ENOENT, errno.ENODEV):
                raise

    def _inode(self, code: int, number: int) -> Inode:
        inode = self.disk.inodes.get(number)
        if inode is not None:
            return inode
        if code in fuse.WITHOUT_ANSWER or code in (Op.DESTROY, Op.RELEASE, Op.STATFS, Op.SYNCFS):
            return self.disk.root
        raise FileError(errno.ESTALE)

    # -- answers ---------------------------------------------------------------------------------------------

    def _entry(self, inode: Inode) -> bytes:
        inode.lookups += 1
        return fuse.entry(inode.number, _attr(inode))

    def _lookup(self, inode: Inode, body: memoryview) -> bytes:
        found = self.disk.find(inode, fuse.names_in(bytes(body))[0])
        return self._entry(found) if found else fuse.entry(0, NONE)

    def _forget(self, inode: Inode, body: memoryview) -> bytes:
        if inode is not self.disk.root:
            inode.lookups -= fuse.FORGET_IN.unpack_from(body)[0]
        return b""

    def _batch_forget(self, inode: Inode, body: memoryview) -> bytes:
        count, _ = fuse.BATCH_FORGET_IN.unpack_from(body)
        for i in range(count):
            number, lookups = fuse.FORGET_ONE.unpack_from(body, fuse.BATCH_FORGET_IN.size + i * fuse.FORGET_ONE.size)
            if number in self.disk.inodes and number != self.disk.root.number:
                self.disk.inodes[number].lookups -= lookups
        return b""

    def _getattr(self, inode: Inode, body: memoryview) -> bytes:
        return fuse.attr_answer(_attr(inode))

    def _setattr(self, inode: Inode, body: memoryview) -> bytes:
        valid, _, _, size, _, _, mtime, _, _, mtime_nanos, _, mode, *_ = fuse.SETATTR_IN.unpack_from(body)
        if valid & fuse.SET_SIZE:
            self.disk.truncate(inode, size, now_ms())
        if valid & fuse.SET_MODE:
            inode.mode = stat.S_IFMT(inode.mode) | stat.S_IMODE(mode)
        if valid & fuse.SET_MTIME:
            inode.mtime_ns = time.time_ns() if valid & fuse.SET_MTIME_NOW else mtime * 1_000_000_000 + mtime_nanos
        return fuse.attr_answer(_attr(inode))

    def _mknod(self, inode: Inode, body: memoryview) -> bytes:
        mode, *_ = fuse.MKNOD_IN.unpack_from(body)
        return self._entry(self.disk.make(inode, _name(body, fuse.MKNOD_IN.size), mode, now_ms()))

    def _mkdir(self, inode: Inode, body: memoryview) -> bytes:
        mode, _ = fuse.MKDIR_IN.unpack_from(body)
        made = self.disk.make(inode, _name(body, fuse.MKDIR_IN.size), stat.S_IFDIR | stat.S_IMODE(mode), now_ms())
        return self._entry(made)

    def _tmpfile(self, inode: Inode, body: memoryview) -> list[bytes]:
        _, mode, *_ = fuse.CREATE_IN.unpack_from(body)
        made = self.disk.make_unnamed(stat.S_IFREG | stat.S_IMODE(mode), now_ms())
        return [self._entry(made), fuse.OPEN_OUT.pack(0, 2, 0)]

    def _unlink(self, inode: Inode, body: memoryview) -> bytes:
        self.disk.unlink(inode, _name(body, 0), now_ms())
        return b""

    def _rmdir(self, inode: Inode, body: memoryview) -> bytes:
        self.disk.remove_directory(inode, _name(body, 0), now_ms())
        return b""

    def _rename(self, inode: Inode, body: memoryview) -> bytes:
        (new_number,) = fuse.RENAME_IN.unpack_from(body)
        return self._renamed(inode, new_number, 0, body[fuse.RENAME_IN.size :])

    def _rename2(self, inode: Inode, body: memoryview) -> bytes:
        new_number, flags, _ = fuse.RENAME2_IN.unpack_from(body)
        return self._renamed(inode, new_number, flags, body[fuse.RENAME2_IN.size :])

    def _renamed(self, inode: Inode, new_number: int, flags: int, names: memoryview) -> bytes:
        old, new = fuse.names_in(bytes(names))
        self.disk.rename((inode, old), (self.disk.inodes[new_number], new), flags, now_ms())
        return b""

    def _link(self, inode: Inode, body: memoryview) -> bytes:
        linked = self.disk.inodes[fuse.LINK_IN.unpack_from(body)[0]]
        self.disk.link(linked, inode, _name(body, fuse.LINK_IN.size), now_ms())
        return self._entry(linked)

    def _read(self, inode: Inode, body: memoryview) -> bytes:
        _, offset, size, *_ = fuse.READ_IN.unpack_from(body)
        return bytes(inode.data[offset : offset + size])

    def _write(self, inode: Inode, body: memoryview) -> bytes:
        _, offset, size, _, _, flags, _ = fuse.WRITE_IN.unpack_from(body)
        start = fuse.WRITE_IN.size
        self.disk.write(inode, offset, body[start : start + size], now_ms())
        if flags & os.O_DSYNC:
            self.disk.sync_file(inode)
        return fuse.WRITE_OUT.pack(size, 0)

    def _fallocate(self, inode: Inode, body: memoryview) -> bytes:
        _, offset, length, mode, _ = fuse.FALLOCATE_IN.unpack_from(body)
        if mode != 0:
            raise FileError(errno.EOPNOTSUPP)
        if offset + length > len(inode.data):
            self.disk.truncate(inode, offset + length, now_ms())
        return b""

    def _fsync(self, inode: Inode, body: memoryview) -> bytes:
        self.disk.sync_file(inode)
        return b""

    def _syncfs(self, inode: Inode, body: memoryview) -> bytes:
        self.disk.sync_all()
        return b""

    def _statfs(self, inode: Inode, body: memoryview) -> bytes:
        free = 1 << 24
        return fuse.STATFS_OUT.pack(free, free, free, free, free, 4_096, 255, 4_096, 0)

    def _readdir(self, inode: Inode, body: memoryview) -> bytes:
        _, cookie, size, *_ = fuse.READ_IN.unpack_from(body)
        answer = bytearray()
        for name, found, at in self.disk.names(inode, cookie):
            entry = fuse.directory_entry(found.number, at, found.mode >> 12, os.fsencode(name))
            if len(answer) + len(entry) > size:
                break
            answer += entry
        return bytes(answer)

    def _nothing(self, inode: Inode, body: memoryview) -> bytes:
        return b""


def detach(path: str) -> None:
    """Unmount whatever is mounted there, used or not; nothing when nothing is."""
    _LIBC.umount2(path.encode(), _DETACH)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _attr(inode: Inode) -> bytes:
    return fuse.attributes(inode.number, inode.mode, len(inode.data), inode.links, inode.mtime_ns)


def _name(body: memoryview, start: int) -> str:
    return fuse.names_in(bytes(body[start:]))[0]
