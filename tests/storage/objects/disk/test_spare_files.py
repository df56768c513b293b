"""Deleted files that become new ones: whoever has one open sees no change, and a store is the same to its readers."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.objects import local as local_store
from stratalog.storage.objects.disk import spare_files
from stratalog.storage.objects.disk.spare_files import (
    BLOCK_BYTES,
    EMPTY,
    FOLDER,
    SPARE_BYTES_MAX,
    SPARES_MIN,
    SpareFiles,
    lacks_journal,
)
from stratalog.storage.objects.local import LocalStore
from stratalog.storage.objects.remote import open_store
from tests.storage.spare_stores import store_with_spares


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return store_with_spares(tmp_path, count=3, kind=LocalStore)


def spares(root: Path) -> list[str]:
    """Their content, oldest first; a line's end alone is none."""
    found = sorted((root / FOLDER).glob("*"), key=lambda path: int(path.name.partition("-")[2]))
    texts = [path.read_text() for path in found]
    return ["" if text == EMPTY.decode() else text for text in texts]


def inode(root: Path, path: str) -> int:
    return (root / path).stat().st_ino


def test_deleted_files_become_new_ones_oldest_first(tmp_path: Path) -> None:
    store = store_with_spares(tmp_path, count=0, kind=LocalStore)
    for name in ("a", "b", "c"):
        store.put_new(f"t-0/{name}", name.encode() * 9)
    inodes = [inode(tmp_path, f"t-0/{name}") for name in ("a", "b", "c")]
    for name in ("a", "b", "c"):
        store.delete(f"t-0/{name}")
    assert (store.list(""), spares(tmp_path)) == ([], ["", "", ""])
    store.put_new("t-0/d", b"longer than before")
    assert store.create("t-0/e", b"short")
    assert (store.get("t-0/d"), store.get("t-0/e")) == (b"longer than before", b"short")
    assert [inode(tmp_path, "t-0/d"), inode(tmp_path, "t-0/e")] == inodes[:2]
    assert [(tmp_path / "t-0" / name).stat().st_nlink for name in "de"] == [1, 1]


@pytest.mark.parametrize("old", [1, 100, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, SPARE_BYTES_MAX])
@pytest.mark.parametrize("new", [0, 1, 99, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, SPARE_BYTES_MAX])
def test_nothing_is_left_of_what_was_deleted(tmp_path: Path, old: int, new: int) -> None:
    """Neither in the spare file, which keeps one block (512 bytes are a unit of `st_blocks`), nor in the new one."""
    store = store_with_spares(tmp_path, count=0, kind=LocalStore)
    store.put_new("t-0/old", b"x" * old)
    store.delete("t-0/old")
    (spare,) = (tmp_path / FOLDER).iterdir()
    assert (spare.read_bytes(), spare.stat().st_blocks * 512 <= BLOCK_BYTES) == (EMPTY, True)
    assert store.create("t-0/new", b"y" * new)
    assert (store.get("t-0/new"), list((tmp_path / FOLDER).iterdir())) == (b"y" * new, [])
    with (tmp_path / "t-0" / "new").open("r+b") as file:
        file.truncate(2 * BLOCK_BYTES)
        assert file.read()[new:] == bytes(2 * BLOCK_BYTES)[new:]


def test_one_that_loses_a_race_stays_a_spare(store: LocalStore, tmp_path: Path) -> None:
    store.put("t-0/1", b"first")
    assert not store.create("t-0/1", b"second")
    assert (store.get("t-0/1"), len(spares(tmp_path))) == (b"first", 3)
    assert store.create("t-0/2", b"third")
    assert len(spares(tmp_path)) == 2


def test_a_file_that_is_replaced_becomes_a_spare(store: LocalStore, tmp_path: Path) -> None:
    """A reader that has it open goes on reading it; then it is deleted as ever."""
    before = {path.stat().st_ino for path in (tmp_path / FOLDER).iterdir()}
    store.put("t-0/1", b"first, and the longer one")
    first = inode(tmp_path, "t-0/1")
    store.put("t-0/1", b"second")
    assert (store.get("t-0/1"), inode(tmp_path, "t-0/1") in {*before, first}) == (b"second", False)
    assert {path.stat().st_ino for path in (tmp_path / FOLDER).iterdir()} == {*before, first}
    with (tmp_path / "t-0" / "1").open("rb") as reader:
        store.put("t-0/1", b"third")
        assert reader.read() == b"second"
    assert (store.get("t-0/1"), spares(tmp_path)) == (b"third", [""] * 4)
    assert [path.name for path in (tmp_path / "t-0").iterdir()] == ["1"]


@pytest.mark.parametrize("change", ["put", "put_new"])
def test_a_directory_is_not_replaced(store: LocalStore, tmp_path: Path, change: str) -> None:
    (tmp_path / "t-0" / "1").mkdir(parents=True)
    with pytest.raises(StoreUnavailableError, match="t-0/1"):
        getattr(store, change)("t-0/1", b"x")
    assert (tmp_path / "t-0" / "1").is_dir()
    assert spares(tmp_path) == ["", "", ""]


def test_a_failed_try_is_replaced_as_a_whole(store: LocalStore) -> None:
    store.put("t-0/1", b"a try that failed")
    store.put_new("t-0/1", b"whole")
    assert store.get("t-0/1") == b"whole"


def test_new_files_are_made_from_nothing_when_there_is_no_spare(tmp_path: Path) -> None:
    store = store_with_spares(tmp_path, count=1, kind=LocalStore)
    for number in range(3):
        assert store.create(f"t-0/{number}", b"x")
    assert [store.get(f"t-0/{number}") for number in range(3)] == [b"x"] * 3


def test_the_youngest_are_kept_back(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path), spares=SpareFiles(str(tmp_path), are_used=True))
    for number in range(SPARES_MIN + 1):
        store.put_new(f"t-0/{number}", b"x")
        store.delete(f"t-0/{number}")
    for number in range(3):
        store.put_new(f"t-0/{number}", b"x")
    assert len(spares(tmp_path)) == SPARES_MIN


def test_there_is_an_end_to_how_many_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_files, "SPARES_MAX", 2)
    store = store_with_spares(tmp_path, count=5, kind=LocalStore)
    assert (len(spares(tmp_path)), store.list("")) == (2, [])


@pytest.mark.parametrize("kind", ["large", "empty", "linked", "symbolic link"])
def test_what_is_no_plain_small_file_is_deleted(store: LocalStore, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t-0" / "x"
    path.parent.mkdir(exist_ok=True)
    (tmp_path / "elsewhere").write_bytes(b"x")
    if kind == "linked":
        os.link(tmp_path / "elsewhere", path)
    elif kind == "symbolic link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.write_bytes(b"x" * (SPARE_BYTES_MAX + 1) if kind == "large" else b"")
    store.delete("t-0/x")
    assert (store.exists("t-0/x"), len(spares(tmp_path)), (tmp_path / "elsewhere").read_bytes()) == (False, 3, b"x")


def test_large_files_are_made_from_nothing(store: LocalStore, tmp_path: Path) -> None:
    data = b"x" * (SPARE_BYTES_MAX + 1)
    store.put_new("t-0/1", data)
    assert store.create("t-0/2", data)
    assert len(spares(tmp_path)) == 3


@pytest.mark.parametrize("holder", ["descriptor", "map", "another process", "backup"])
def test_what_somebody_reads_or_keeps_is_not_written_over(tmp_path: Path, holder: str) -> None:
    """As a reader that began before the deletion, however long it takes, or a backup that linked files."""
    store = store_with_spares(tmp_path, count=0, kind=LocalStore)
    store.put_new("t-0/1", b"old")
    path = tmp_path / "t-0" / "1"
    if holder == "another process":
        reads = "import sys; f = open(sys.argv[1]); print(flush=True); sys.stdin.readline(); print(f.read())"
        reader = subprocess.Popen(
            [sys.executable, "-c", reads, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdout.readline()
        store.delete("t-0/1")
        store.put_new("t-0/2", b"new")
        assert reader.communicate("\n")[0].strip() == "old"
    elif holder == "backup":
        store.delete("t-0/1")
        (kept,) = (tmp_path / FOLDER).glob("*")
        os.link(kept, tmp_path / "backup")
        store.put_new("t-0/2", b"new")
        assert (tmp_path / "backup").read_bytes() == EMPTY
    else:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if holder == "map" else None
            if mapped is not None:
                file.close()
            store.delete("t-0/1")
            store.put_new("t-0/2", b"new")
            assert (mapped[:] if mapped is not None else file.read()) == b"old"
    assert (store.get("t-0/2"), spares(tmp_path)) == (b"new", [])


def test_a_lease_that_is_asked_back_does_not_end_the_process(tmp_path: Path) -> None:
    """Its signal is ignored by default."""
    assert signal.getsignal(signal.SIGURG) in (signal.SIG_DFL, signal.SIG_IGN)
    store = store_with_spares(tmp_path, count=1, kind=LocalStore)
    store.put_new("t-0/1", b"x")
    os.kill(os.getpid(), signal.SIGURG)
    assert store.get("t-0/1") == b"x"


def test_spares_are_no_objects(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    store.put_new("t-0/1", b"x")
    assert len(spares(tmp_path)) == 2
    assert (store.directories(), [meta.path for meta in store.list("")]) == (["t-0"], ["t-0/1"])
    store.sync(["t-0/1"])
    store.sync_all()


def test_a_folder_that_was_removed_is_made_again(store: LocalStore, tmp_path: Path) -> None:
    store.put("t-0/1", b"x")
    shutil.rmtree(tmp_path / FOLDER)
    store.put_new("t-0/2", b"y")
    for name in ("1", "2"):
        store.delete(f"t-0/{name}")
    assert store.list("") == []
    store.put("t-0/3", b"z")
    store.delete("t-0/3")
    assert spares(tmp_path)[-1] == ""
    store.put_new("t-0/4", b"4")
    assert store.get("t-0/4") == b"4"


def test_a_new_directory_is_made_for_a_new_file(store: LocalStore) -> None:
    store.put_new("t-1/a/1", b"1")
    assert store.create("t-2/b/2", b"2")
    assert [store.get(path) for path in ("t-1/a/1", "t-2/b/2")] == [b"1", b"2"]


def test_a_vanished_root_is_not_filled_in(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    store = store_with_spares(tmp_path / "disk", count=3, kind=LocalStore)
    shutil.rmtree(tmp_path / "disk")
    for write in (store.put, store.put_new, store.create):
        with pytest.raises(StoreUnavailableError):
            write("t-0/1", b"x")
    store.delete("t-0/1")
    assert not (tmp_path / "disk").exists()


@pytest.mark.parametrize("change", ["put_new", "create"])
def test_a_disk_that_is_full_is_told(store: LocalStore, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    def write(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(StoreUnavailableError, match="No space"):
            getattr(store, change)("t-0/1", b"x")
    assert not store.exists("t-0/1")
    getattr(store, change)("t-0/1", b"y")
    assert store.get("t-0/1") == b"y"


def test_a_process_that_deletes_nothing_takes_over_what_others_deleted(tmp_path: Path) -> None:
    """As a follower's session does, whose broker deletes; and whatever an ended process left."""
    code = (
        "import os, sys; from pathlib import Path; from stratalog.storage.objects.local import LocalStore;"
        "from tests.storage.spare_stores import store_with_spares;"
        "store = store_with_spares(Path(sys.argv[1]), count=4, kind=LocalStore); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 9
    living = store_with_spares(tmp_path, count=2, kind=LocalStore)
    inodes = {path.stat().st_ino for path in (tmp_path / FOLDER).iterdir()}
    (tmp_path / "t-0").mkdir()
    store = LocalStore(str(tmp_path), spares=SpareFiles(str(tmp_path), are_used=True, kept_back=0))
    for number in range(1, 7):
        store.put_new(f"t-0/{number}", b"x")
    assert {inode(tmp_path, f"t-0/{number}") for number in range(1, 7)} == inodes
    store.put_new("t-0/8", b"none is left")
    living.put_new("t-0/7", b"made from nothing")
    assert (living.get("t-0/7"), spares(tmp_path)) == (b"made from nothing", [])


def test_those_of_others_are_taken_over_a_few_for_each_new_file(tmp_path: Path) -> None:
    """Whoever writes a file waits for it: a follower's session that took over 500 at once held its log for 20 ms. Those
    taken over last are kept back, as those that the process deleted itself: they may have been deleted just now."""
    store_with_spares(tmp_path, count=8, kind=LocalStore)
    inodes = [path.stat().st_ino for path in sorted((tmp_path / FOLDER).iterdir())]
    mine = SpareFiles(str(tmp_path), are_used=True, kept_back=3)
    store, own = LocalStore(str(tmp_path), spares=mine), []
    (tmp_path / "t-0").mkdir()
    for number in range(5):
        store.put_new(f"t-0/{number}", b"x")
        own.append(sum(path.name.startswith(mine.own) for path in (tmp_path / FOLDER).iterdir()))
    assert own == [2, 3, 4, 3, 4]
    used = [each for number in range(5) if (each := inode(tmp_path, f"t-0/{number}")) in inodes]
    assert used == inodes[:4]


def test_one_that_was_written_while_it_was_taken_over_is_emptied_before_it_is_used(tmp_path: Path) -> None:
    """Its last owner had it open by then, and was killed before it found the name gone."""
    store_with_spares(tmp_path, count=1, kind=LocalStore)
    (spare,) = (tmp_path / FOLDER).iterdir()
    store = LocalStore(str(tmp_path), spares=SpareFiles(str(tmp_path), are_used=True, kept_back=1))
    (tmp_path / "t-0").mkdir()
    with spare.open("wb") as last_owner:
        store.put_new("t-0/0", b"made from nothing, as the only one is kept back")
        last_owner.write(b"what was never given a name")
    (taken,) = (tmp_path / FOLDER).iterdir()
    assert (taken.name != spare.name, taken.read_bytes()) == (True, b"what was never given a name")
    store.delete("t-0/0")
    used = taken.stat().st_ino
    store.put_new("t-0/1", b"x")
    assert (inode(tmp_path, "t-0/1"), store.get("t-0/1")) == (used, b"x")


KILLED = {
    "written, before it has its name": "spare_files.rename_if_absent = local_store.rename_if_absent = os.rename = die",
    "taken away, before it is emptied": "spare_files._is_emptied = die",
}
"""Where a process is killed, and how."""


@pytest.mark.parametrize("when", KILLED)
@pytest.mark.parametrize("call", ["put_new", "create"])
@pytest.mark.parametrize("finder", ["take over", "start", "deletion"])
def test_what_a_killed_process_left_is_emptied(tmp_path: Path, when: str, call: str, finder: str) -> None:
    """Else its content would outlive an erasure, and its end would follow a shorter one that is written over it."""
    code = (
        "import os, sys; from pathlib import Path; from storage import local_store, spare_files;"
        "from tests.storage.spare_stores import store_with_spares;"
        "die = lambda *_: os._exit(9);"
        f"store = store_with_spares(Path(sys.argv[1]), count=1, kind=local_store.LocalStore); {KILLED[when]};"
        f"store.{call}('t-0/1', b'longer than what comes after it'); store.delete('t-0/1')"
    )
    (tmp_path / "t-0").mkdir()
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 9
    assert spares(tmp_path) == ["longer than what comes after it"]
    mine = SpareFiles(str(tmp_path), are_used=True, kept_back=0)
    store = LocalStore(str(tmp_path), create=finder == "start", spares=mine)
    if finder == "deletion":
        store.put("t-0/2", b"x")
        store.delete("t-0/2")
    if finder != "take over":
        assert set(spares(tmp_path)) <= {""}
    for number in range(3, 9):
        getattr(store, call)(f"t-0/{number}", b"short")
    assert {store.get(f"t-0/{number}") for number in range(3, 9)} == {b"short"}
    assert spares(tmp_path) == []


@pytest.mark.parametrize("other", ["holds it open", "has a second name of it"])
def test_what_was_left_is_not_emptied_under_anybody(tmp_path: Path, other: str) -> None:
    """A process that is about to give the file a name, or one that was killed by an older release's link(2)."""
    (tmp_path / FOLDER).mkdir()
    left = tmp_path / FOLDER / "abc-1"
    left.write_bytes(b"content")
    if other == "has a second name of it":
        os.link(left, tmp_path / "object")
        LocalStore(str(tmp_path), create=True, spares=SpareFiles(str(tmp_path), are_used=True))
        assert (tmp_path / "object").read_bytes() == b"content"
    else:
        with left.open("r+b") as file:
            LocalStore(str(tmp_path), create=True, spares=SpareFiles(str(tmp_path), are_used=True))
            assert file.read() == b"content"
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_what_others_took_over_is_not_counted_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_files, "SPARES_MAX", 2)
    monkeypatch.setattr(spare_files, "SHARE", 2)
    store = store_with_spares(tmp_path, count=2, kind=LocalStore)
    for path in (tmp_path / FOLDER).iterdir():
        path.unlink()
    kept = []
    for number in range(3):
        (tmp_path / f"{number}").write_bytes(b"x")  # not over a spare one
        store.delete(f"{number}")
        kept.append(len(spares(tmp_path)))
    assert kept == [0, 0, 1]


def test_a_forked_process_leaves_them_alone(store: LocalStore, tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        store.put_new("t-0/1", b"x")
        store.delete("t-0/1")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(spares(tmp_path)) == 3


@pytest.mark.parametrize("fault", [errno.EXDEV, errno.EPERM, errno.EINVAL])
def test_where_they_cannot_be_moved_files_are_made_as_usual(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    """As where a replica's directory is on a disk of its own."""

    def rename(source: str, target: str) -> None:
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(local_store, "rename_if_absent", rename)
    store.put_new("t-0/new", b"1")
    assert [store.create("t-0/created", b"3"), store.create("t-0/created", b"4")] == [True, False]
    assert [store.get(f"t-0/{name}") for name in ("new", "created")] == [b"1", b"3"]
    store.delete("t-0/new")
    assert not store.exists("t-0/new")


def test_a_system_without_a_rename_that_never_replaces_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_files, "_LIBRARY", object())
    with pytest.raises(OSError, match=os.strerror(errno.ENOSYS)):
        spare_files.rename_if_absent("a", "b")


@pytest.mark.parametrize(
    ("told", "expected"), [("<none>\n", True), ("171\n", False), (None, False)], ids=["none", "journal", "not ext4"]
)
def test_the_disk_tells_whether_it_has_a_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str | None, expected: bool
) -> None:
    device = os.stat(tmp_path).st_dev
    blocks, ext4 = tmp_path / "sys" / "dev" / "block", tmp_path / "sys" / "fs" / "ext4" / "vdz"
    blocks.mkdir(parents=True)
    ext4.mkdir(parents=True)
    (blocks / f"{os.major(device)}:{os.minor(device)}").symlink_to("../../devices/virtual/block/vdz")
    if told is not None:
        (ext4 / "journal_task").write_text(told, encoding="utf-8")
    monkeypatch.setattr(spare_files, "_SYSTEM", tmp_path / "sys")
    assert lacks_journal(str(tmp_path)) is expected
    store = open_store(str(tmp_path), "broker-1", create=True)
    store.put("t-0/1", b"x")
    assert not (tmp_path / "broker-1" / FOLDER).exists()
    store.delete("t-0/1")
    assert (tmp_path / "broker-1" / FOLDER).exists() is expected
