"""The messages of Linux's FUSE protocol (include/uapi/linux/fuse.h, version 7.31 and later) that a disk needs. Pure."""

from __future__ import annotations

import struct
from enum import IntEnum

MAJOR, MINOR = 7, 39
MAX_WRITE_BYTES = 262_144
READ_BUFFER_BYTES = MAX_WRITE_BYTES + 65_536
FOREVER_S = 1 << 30
"""Validity of entries and attributes: only this machine's kernel changes the disk."""

IN_HEADER = struct.Struct("<IIQQIIIHH")
OUT_HEADER = struct.Struct("<IiQ")
ATTR = struct.Struct("<6Q10I")
ENTRY_TIMES = struct.Struct("<QQQQII")
ATTR_TIMES = struct.Struct("<QII")
OPEN_OUT = struct.Struct("<QII")
INIT_IN = struct.Struct("<4I")
INIT_OUT = struct.Struct("<4I2H2I2H2I24x")
SETATTR_IN = struct.Struct("<IIQQQQQQ8I")
MKNOD_IN = struct.Struct("<4I")
MKDIR_IN = struct.Struct("<2I")
CREATE_IN = struct.Struct("<4I")
LINK_IN = struct.Struct("<Q")
RENAME_IN = struct.Struct("<Q")
RENAME2_IN = struct.Struct("<QII")
READ_IN = struct.Struct("<QQIIQII")
WRITE_IN = struct.Struct("<QQIIQII")
WRITE_OUT = struct.Struct("<II")
FORGET_IN = struct.Struct("<Q")
BATCH_FORGET_IN = struct.Struct("<II")
FORGET_ONE = struct.Struct("<QQ")
STATFS_OUT = struct.Struct("<5Q4I24x")
DIRENT = struct.Struct("<QQII")
FALLOCATE_IN = struct.Struct("<QQQII")


class Op(IntEnum):
    """The opcodes that are answered by more than ENOSYS."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    INIT = 26
    READDIR = 28
    FSYNCDIR = 30
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43
    RENAME2 = 45
    SYNCFS = 50
    TMPFILE = 51


WITHOUT_ANSWER = frozenset({Op.FORGET, Op.BATCH_FORGET, Op.INTERRUPT})
ASYNC_READ, BIG_WRITES, PARALLEL_DIROPS, MAX_PAGES = 1 << 0, 1 << 5, 1 << 18, 1 << 22
SET_MODE, SET_SIZE, SET_MTIME, SET_MTIME_NOW = 1, 8, 32, 256


def init_answer(max_readahead: int) -> bytes:
    flags = ASYNC_READ | BIG_WRITES | PARALLEL_DIROPS | MAX_PAGES
    pages = MAX_WRITE_BYTES // 4_096
    return INIT_OUT.pack(MAJOR, MINOR, max_readahead, flags, 16, 12, MAX_WRITE_BYTES, 1, pages, 0, 0, 0)


def attributes(number: int, mode: int, size: int, links: int, mtime_ns: int) -> bytes:
    seconds, nanos = divmod(mtime_ns, 1_000_000_000)
    blocks = (size + 511) // 512
    return ATTR.pack(
        number, size, blocks, seconds, seconds, seconds, nanos, nanos, nanos, mode, links, 0, 0, 0, 4_096, 0
    )


def entry(number: int, attr: bytes) -> bytes:
    """The answer that leads to a file; number 0: there is none, which the kernel remembers, too."""
    return ENTRY_TIMES.pack(number, 0, FOREVER_S, FOREVER_S, 0, 0) + attr


def attr_answer(attr: bytes) -> bytes:
    return ATTR_TIMES.pack(FOREVER_S, 0, 0) + attr


def directory_entry(number: int, cookie: int, kind: int, name: bytes) -> bytes:
    plain = DIRENT.pack(number, cookie, len(name), kind) + name
    return plain.ljust((len(plain) + 7) // 8 * 8, b"\0")


def names_in(data: bytes) -> list[str]:
    """The zero-terminated names of a request."""
    return [name.decode("utf-8", "surrogateescape") for name in data.split(b"\0")[:-1]]
