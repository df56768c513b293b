"""A write that fails never removes or spoils the object that another process wrote under the same name meanwhile."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stratalog.storage.errors import StoreFullError, StoreUnavailableError
from stratalog.storage.objects.local import LocalStore

NAME = "t-0/segment=0/1.parquet"
DATA = os.urandom(300_000)


def without_unnamed_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")


def with_unnamed_files(_monkeypatch: pytest.MonkeyPatch) -> None:
    pass


disks = pytest.mark.parametrize("disk", [with_unnamed_files, without_unnamed_files])


def files_below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.fixture
def leader(tmp_path: Path) -> LocalStore:
    store = LocalStore(str(tmp_path / "leader"), create=True)
    store.put(NAME, DATA)
    return store


def copy(follower: LocalStore, leader: LocalStore) -> None:
    """As a table does: in the kernel, else through this process."""
    if not follower.copy_new(NAME, leader, NAME, 8, lambda tail: tail == DATA[-8:]):
        follower.put_new(NAME, leader.get(NAME))


def failing(real: Callable[..., int], meanwhile: Callable[[], None], fault: int) -> Callable[..., int]:
    """A system call that does a part of its work; `meanwhile` happens before it fails. Every other call works."""
    calls: list[int] = []

    def call(*arguments: Any) -> int:
        calls.append(1)
        if len(calls) > 1:
            return real(*arguments)
        if real.__name__ == "write":
            real(arguments[0], arguments[1][:100])
        else:
            real(*arguments[:3], 100)
        meanwhile()
        raise OSError(fault, os.strerror(fault))

    return call


@disks
@pytest.mark.parametrize(("fault", "error"), [(errno.ENOSPC, StoreFullError), (errno.EIO, StoreUnavailableError)])
def test_a_copy_that_fails_keeps_the_file_that_another_session_copied_meanwhile(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    leader: LocalStore,
    disk: Callable[[pytest.MonkeyPatch], None],
    fault: int,
    error: type[StoreUnavailableError],
) -> None:
    disk(monkeypatch)
    slow, fast = (LocalStore(str(tmp_path / "follower"), create=True) for _ in range(2))
    monkeypatch.setattr(os, "sendfile", failing(os.sendfile, lambda: copy(fast, leader), fault))
    with pytest.raises(error):
        copy(slow, leader)
    assert files_below(tmp_path / "follower") == [NAME]
    assert fast.get(NAME) == DATA


def test_a_small_file_that_cannot_be_written_keeps_the_one_that_another_session_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = (LocalStore(str(tmp_path), create=True) for _ in range(2))
    monkeypatch.setattr(os, "write", failing(os.write, lambda: fast.put_new(NAME, DATA), errno.ENOSPC))
    with pytest.raises(StoreFullError):
        slow.put_new(NAME, DATA)
    assert files_below(tmp_path) == [NAME]
    assert fast.get(NAME) == DATA


@disks
def test_a_copy_that_fails_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leader: LocalStore, disk: Callable[[pytest.MonkeyPatch], None]
) -> None:
    disk(monkeypatch)
    follower = LocalStore(str(tmp_path / "follower"), create=True)
    monkeypatch.setattr(os, "sendfile", failing(os.sendfile, lambda: None, errno.ENOSPC))
    with pytest.raises(StoreFullError):
        copy(follower, leader)
    assert files_below(tmp_path / "follower") == []
    copy(follower, leader)
    assert follower.get(NAME) == DATA


def test_a_copy_is_seen_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leader: LocalStore
) -> None:
    follower, seen = LocalStore(str(tmp_path / "follower"), create=True), list[list[str]]()
    real = os.sendfile

    def look_first(*arguments: Any) -> int:
        seen.append(files_below(tmp_path / "follower"))
        return real(*arguments)

    monkeypatch.setattr(os, "sendfile", look_first)
    copy(follower, leader)
    assert seen == [[]]
    assert follower.get(NAME) == DATA


@disks
@pytest.mark.parametrize("fault", [errno.EINVAL, errno.ENOSYS])
def test_where_the_kernel_does_not_copy_the_process_does(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    leader: LocalStore,
    disk: Callable[[pytest.MonkeyPatch], None],
    fault: int,
) -> None:
    disk(monkeypatch)
    follower = LocalStore(str(tmp_path / "follower"), create=True)

    def refuse(*_arguments: Any) -> int:
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "sendfile", refuse)
    assert not follower.copy_new(NAME, leader, NAME, 8, lambda tail: True)
    assert files_below(tmp_path / "follower") == []
    copy(follower, leader)
    assert follower.get(NAME) == DATA
    assert follower.put_filled("t-0", lambda descriptor: f"t-0/{os.write(descriptor, b'x')}") == (
        disk is with_unnamed_files
    )


def test_a_file_that_another_process_made_durable_is_replaced_by_durable_bytes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power loss could leave an empty file under the name of an acknowledged one."""
    slow, fast = (LocalStore(str(tmp_path), create=True) for _ in range(2))
    fast.put_new(NAME, DATA)
    fast.sync([NAME])
    steps: list[tuple[str, int]] = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(descriptor: int) -> None:
        steps.append(("sync", os.fstat(descriptor).st_ino))
        real_sync(descriptor)

    def replace(source: str, target: str) -> None:
        steps.append(("replace", os.stat(source).st_ino))
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    slow.put_new(NAME, DATA)
    inode = os.stat(tmp_path / NAME).st_ino
    assert steps == [("sync", inode), ("replace", inode)]


def test_a_file_that_cannot_be_made_durable_replaces_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(str(tmp_path), create=True)
    store.put_new(NAME, DATA)

    def refuse(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreUnavailableError, match="Input/output error"):
        store.put_new(NAME, b"other")
    assert files_below(tmp_path) == [NAME]
    assert store.get(NAME) == DATA
