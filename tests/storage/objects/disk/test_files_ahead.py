"""Files that are made before they are needed: a store is the same to its readers, and nothing is left of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stratalog.storage.objects.disk import files_ahead
from stratalog.storage.objects.disk.spare_files import FOLDER, MISSED_MIN, READY_MAX, FilesAhead, SpareFiles, are_needed
from stratalog.storage.objects.local import LocalStore
from tests.real.storm.parties import wait_until


def ready(root: Path) -> int:
    """How many files without a name this process has open below a root."""
    return sum(_name(descriptor).startswith(f"{root}/{FOLDER}/#") for descriptor in os.listdir("/proc/self/fd"))


def _name(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:  # closed since
        return ""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    """One that has files ready."""
    monkeypatch.setattr(files_ahead, "MISSED_MIN", 1)
    store = LocalStore(str(tmp_path), spares=SpareFiles(str(tmp_path), are_used=True))
    store.put_new("t-0/first", b"made as usual")
    wait_until(lambda: ready(tmp_path) == READY_MAX, "files to be ready")
    return store


@pytest.mark.parametrize("change", ["put_new", "create"])
def test_they_become_objects(store: LocalStore, tmp_path: Path, change: str) -> None:
    """Also in directories that are new."""
    paths = [f"t-{number % 3}/a/{number}" for number in range(3 * READY_MAX)]
    for path in paths:
        getattr(store, change)(path, path.encode())
    assert [store.get(path) for path in paths] == [path.encode() for path in paths]
    assert (tmp_path / "t-1" / "a" / "1").stat().st_mode & 0o777 == 0o644
    assert len(store.list("")) == 3 * READY_MAX + 1
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_one_that_loses_a_race_goes(store: LocalStore) -> None:
    assert not store.create("t-0/first", b"second")
    assert store.get("t-0/first") == b"made as usual"
    store.put_new("t-0/first", b"whole")
    assert store.get("t-0/first") == b"whole"


@pytest.mark.parametrize(
    ("ready_count", "missed", "expected"),
    [
        (0, MISSED_MIN - 1, False),  # a process that makes few files
        (0, MISSED_MIN, True),
        (READY_MAX // 2, MISSED_MIN, True),
        (READY_MAX // 2 + 1, MISSED_MIN, False),  # enough for now
    ],
)
def test_when_more_are_made(ready_count: int, missed: int, expected: bool) -> None:
    assert are_needed(ready_count, missed) is expected


def test_a_folder_that_could_not_be_made_is_asked_for_again(tmp_path: Path) -> None:
    folders: list[str | None] = [None, str(tmp_path)]
    ahead = FilesAhead(lambda: folders.pop(0))
    for _ in range(2 * MISSED_MIN - 1):
        assert not ahead.make(b"", str(tmp_path / "t"))
    assert folders == [str(tmp_path)]
    assert not ahead.make(b"", str(tmp_path / "t"))
    assert folders == []
    wait_until(lambda: ahead.make(b"made", str(tmp_path / "t")), "a file to be ready")
    assert (tmp_path / "t").read_bytes() == b"made"


def test_a_forked_process_leaves_them_alone(store: LocalStore, tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        store.put_new("t-0/child", b"child")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.put_new("t-0/parent", b"parent")
    assert [store.get(f"t-0/{name}") for name in ("child", "parent")] == [b"child", b"parent"]
    assert (tmp_path / "t-0" / "child").stat().st_ino != (tmp_path / "t-0" / "parent").stat().st_ino


def test_they_go_when_nobody_needs_them(store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_ahead, "IDLE_S", 0.2)
    for number in range(READY_MAX):
        store.put_new(f"t-0/{number}", b"x")
    wait_until(lambda: ready(tmp_path) == 0, "them to go")
    store.put_new("t-0/again", b"1")
    wait_until(lambda: ready(tmp_path) == READY_MAX, "files to be ready")
    assert store.get("t-0/again") == b"1"


def test_a_disk_that_makes_files_quickly_needs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_ahead, "MISSED_MIN", 1)
    store = LocalStore(str(tmp_path), spares=SpareFiles(str(tmp_path), are_used=False))
    for number in range(3):
        store.put_new(f"t-0/{number}", b"x")
    assert (ready(tmp_path), (tmp_path / FOLDER).exists()) == (0, False)
