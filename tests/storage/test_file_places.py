"""Files made apart: which place has its turn, and that a store is the same to whoever reads it."""

from __future__ import annotations

import errno
import os
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from storage import file_places
from storage.errors import StoreUnavailableError
from storage.file_places import FILES_IN_TURN, FOLDER, PLACES, lacks_journal, place_in_turn
from storage.local_store import LocalStore
from storage.store import open_store


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path), uses_places=True)


@pytest.mark.parametrize(
    ("process_id", "number", "place"),
    [
        (0, 0, "0000"),
        (0, FILES_IN_TURN - 1, "0000"),
        (0, FILES_IN_TURN, "0001"),
        (0, PLACES * FILES_IN_TURN - 1, f"{PLACES - 1:04}"),
        (0, PLACES * FILES_IN_TURN, "0000"),
        (1, 0, "0389"),
        (2, 5, "0778"),
        (3, 0, "0143"),
    ],
)
def test_places_take_turns_from_a_place_of_the_processs_own(process_id: int, number: int, place: str) -> None:
    assert place_in_turn(process_id, number) == place


def test_a_machines_next_processes_begin_in_other_places() -> None:
    assert len({place_in_turn(process_id, 0) for process_id in range(4_000, 4_000 + PLACES)}) == PLACES
    begun = [int(place_in_turn(process_id, 0)) for process_id in range(4_000, 4_100)]
    assert all(abs(one - other) > 10 for one, other in pairwise(begun))


def test_every_new_file_is_made_in_a_place_and_none_is_left_there(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_in: list[str] = []
    real = os.link

    def link(source: str, target: str, **options: int) -> None:
        real(source, target, src_dir_fd=options["src_dir_fd"], follow_symlinks=True)
        made_in.append(os.path.dirname(os.readlink(source)))

    monkeypatch.setattr(os, "link", link)
    source = LocalStore(str(tmp_path), uses_places=False)
    source.put_new("t-1/a", b"copied")
    store.put("t-0/put", b"1")
    store.put_new("t-0/new", b"2")
    assert store.create("t-0/created", b"3")
    assert store.copy_new("t-0/copied", source, "t-1/a", 4, lambda tail: tail == b"pied")
    store.put_register("t-0/register", b"4")
    place = place_in_turn(os.getpid(), next(file_places._numbers))
    assert set(made_in) == {str(tmp_path / FOLDER / place)}
    assert len(made_in) == len(store.list("t-0/"))
    assert [path.name for path in (tmp_path / FOLDER / place).iterdir()] == []


def test_places_are_no_objects(store: LocalStore, tmp_path: Path) -> None:
    store.put_new("t-0/1", b"x")
    assert (tmp_path / FOLDER).is_dir()
    assert (store.directories(), [meta.path for meta in store.list("")]) == (["t-0"], ["t-0/1"])
    store.sync(["t-0/1"])
    store.sync_all()


def test_reading_makes_no_places(tmp_path: Path) -> None:
    LocalStore(str(tmp_path), uses_places=False).put("t-0/1", b"x")
    reader = LocalStore(str(tmp_path), uses_places=True)
    assert (reader.get("t-0/1"), reader.directories(), reader.get_optional("2")) == (b"x", ["t-0"], None)
    reader.delete("t-0/1")
    assert [path.name for path in tmp_path.iterdir()] == ["t-0"]


def test_places_that_were_removed_are_made_again(store: LocalStore, tmp_path: Path) -> None:
    for number in range(3):
        store.put_new(f"t-0/{number}", b"x")
        assert len(list((tmp_path / FOLDER).iterdir())) == 1
        shutil.rmtree(tmp_path / FOLDER)


def test_a_vanished_root_is_not_filled_in(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "disk"), create=True, uses_places=True)
    shutil.rmtree(tmp_path / "disk")
    for write in (store.put, store.put_new, store.create):
        with pytest.raises(StoreUnavailableError):
            write("t-0/1", b"x")
    assert not (tmp_path / "disk").exists()


@pytest.mark.parametrize("fault", [errno.EXDEV, errno.EPERM, errno.ENOENT])
def test_where_such_files_cannot_be_linked_they_are_made_where_they_belong(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    """As where a replica's directory is on a disk of its own."""
    real = os.link

    def link(source: str, target: str, **options: int) -> None:
        if f"/{FOLDER}/" in os.readlink(source):
            raise OSError(fault, os.strerror(fault))
        real(source, target, src_dir_fd=options["src_dir_fd"], follow_symlinks=True)

    monkeypatch.setattr(os, "link", link)
    store.put_new("t-0/new", b"1")
    store.put("t-0/put", b"2")
    assert [store.create("t-0/created", b"3"), store.create("t-0/created", b"4")] == [True, False]
    assert [store.get(f"t-0/{name}") for name in ("new", "put", "created")] == [b"1", b"2", b"3"]


def test_a_write_that_fails_leaves_nothing(store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store.put("t-0/before", b"x")
    monkeypatch.setattr(os, "write", write)
    for change in (store.put, store.put_new, store.create):
        with pytest.raises(StoreUnavailableError, match="No space"):
            change("t-0/1", b"x")
    assert [path.name for path in (tmp_path / "t-0").iterdir()] == ["before"]


def test_a_process_that_dies_between_making_and_naming_leaves_nothing(store: LocalStore, tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        os.link = lambda *_, **__: os._exit(9)
        store.put_new("t-0/1", b"x")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


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
    monkeypatch.setattr(file_places, "_SYSTEM", tmp_path / "sys")
    assert lacks_journal(str(tmp_path)) is expected
    store = open_store(str(tmp_path), "broker-1", create=True)
    store.put("t-0/1", b"x")
    assert (tmp_path / "broker-1" / FOLDER).exists() is expected
