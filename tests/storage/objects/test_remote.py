"""Every object store keeps the port's promises: atomic create, whole reads, named errors."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import obstore.store
import pytest
from obstore.exceptions import GenericError

from stratalog.storage.errors import KafkaStorageError, LogDirNotFoundError, ObjectNotFoundError, StoreUnavailableError
from stratalog.storage.objects.local import SMALL_BYTES, LocalStore
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.objects.remote import ObstoreStore
from tests.stores.servers import SERVERS, StoreServer


@pytest.fixture(params=["memory", "local", "obstore memory", "obstore local", *SERVERS])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param.endswith("_server"):
        server: StoreServer = request.getfixturevalue(request.param)
        return open_store(server.new_root())
    made: dict[str, ObjectStore] = {
        "memory": MemoryStore(),
        "local": LocalStore(str(tmp_path)),
        "obstore memory": ObstoreStore(obstore.store.MemoryStore(), "memory:///"),
        "obstore local": ObstoreStore(obstore.store.LocalStore(str(tmp_path)), tmp_path.as_uri()),
    }
    return made[str(request.param)]


def test_an_object_is_created_once_and_replaced_by_put(store: ObjectStore) -> None:
    assert [store.create("a/b/1", b"x"), store.create("a/b/1", b"y")] == [True, False]
    assert store.get("a/b/1") == b"x"
    store.put("a/b/1", b"zz")
    assert (store.get("a/b/1"), store.size("a/b/1"), store.exists("a/b/1")) == (b"zz", 2, True)


def test_an_object_is_replaced_while_it_holds_what_was_read(store: ObjectStore) -> None:
    assert not store.replace("a", b"1", b"2")
    assert store.get_optional("a") is None
    store.put("a", b"1")
    if store.url.startswith("file:") and isinstance(store, ObstoreStore):  # no root: `open_store` takes LocalStore
        return
    assert store.replace("a", b"1", b"2")
    assert not store.replace("a", b"1", b"3")
    assert store.get("a") == b"2"


def test_a_replacement_on_a_local_disk_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, synced = LocalStore(str(tmp_path)), list[int]()
    store.put("a", b"1")
    monkeypatch.setattr(os, "fsync", synced.append)
    assert store.replace("a", b"1", b"2")
    assert len(synced) == 1
    assert store.get("a") == b"2"


def test_a_replacement_that_arrives_late_leaves_what_stands_there_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObstoreStore(obstore.store.MemoryStore(), "memory:///")
    store.put("a", b"1")
    put = obstore.put

    def late(to: object, path: str, data: bytes, **how: object) -> object:
        store.delete(path)
        put(store._store, path, b"another")
        return put(to, path, data, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(obstore, "put", late)
    assert not store.replace("a", b"1", b"2")
    assert store.get("a") == b"another"


def test_a_new_object_is_written_once_more_after_a_failed_try(store: ObjectStore) -> None:
    for data in (b"x" * 10, memoryview(b"y" * 5)):
        store.put_new("a/b/1", data)
        assert store.get("a/b/1") == bytes(data)
    assert [m.path for m in store.list("")] == ["a/b/1"]


def test_many_objects_are_deleted_by_one_call_and_absent_ones_are_fine(store: ObjectStore) -> None:
    for number in range(5):
        store.put(f"a/{number}", b"x")
    store.delete_all(["a/0", "a/2", "a/9", "b/0", "a/3"])
    assert [m.path for m in store.list("a/")] == ["a/1", "a/4"]
    store.delete_all(["a/1"])
    store.delete_all([])
    assert [m.path for m in store.list("a/")] == ["a/4"]


def test_a_store_that_refuses_to_delete_in_bulk_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    original = obstore.delete

    def delete(store: Any, paths: Any) -> None:
        if not isinstance(paths, str):
            asked.append(len(paths))
            raise GenericError("501 Not Implemented")
        original(store, paths)

    monkeypatch.setattr(obstore, "delete", delete)
    store = ObstoreStore(obstore.store.MemoryStore(), "memory:///")
    for _ in range(2):
        for number in range(3):
            store.put(f"a/{number}", b"x")
        store.delete_all([f"a/{number}" for number in range(3)])
        assert store.list("a/") == []
    assert asked == [3]


def test_a_register_is_one_object_with_its_newest_value(store: ObjectStore) -> None:
    assert store.get_register("a/r") is None
    for data in (b"1", b"22" * 5_000, b""):
        store.put_register("a/r", data)
        assert store.get_register("a/r") == data
    assert (store.exists("a/r"), [m.path for m in store.list("a/")]) == (True, ["a/r"])
    store.delete("a/r")
    assert (store.exists("a/r"), store.get_register("a/r")) == (False, None)
    store.put_register("a/r", b"again")
    assert store.get_register("a/r") == b"again"


def test_an_absent_object_is_named(store: ObjectStore) -> None:
    assert (store.get_optional("no/1"), store.size("no/1"), store.exists("no/1")) == (None, None, False)
    with pytest.raises(ObjectNotFoundError, match="no/1"):
        store.get("no/1")
    store.delete("no/1")


@pytest.mark.parametrize(
    ("start", "length", "found"),
    [(0, 10, b"0123456789"), (3, 4, b"3456"), (8, 5, b"89"), (10, 2, b""), (12, 3, b"")],
)
def test_a_part_of_an_object_ends_where_the_object_does(
    store: ObjectStore, start: int, length: int, found: bytes
) -> None:
    store.put("a/1", b"0123456789")
    assert store.get_range("a/1", start, length) == found
    with pytest.raises(ObjectNotFoundError, match="a/2"):
        store.get_range("a/2", start, length)


def test_a_listing_is_by_prefix_and_ordered(store: ObjectStore) -> None:
    for path in ("b/2", "a/x/1", "a/1", "ab/1"):
        store.put(path, path.encode())
    assert [m.path for m in store.list("")] == ["a/1", "a/x/1", "ab/1", "b/2"]
    assert [(m.path, m.size_bytes) for m in store.list("a/")] == [("a/1", 3), ("a/x/1", 5)]
    assert [m.path for m in store.list("a")] == ["a/1", "a/x/1", "ab/1"]
    assert store.list("none/") == []


def test_a_deleted_tree_is_gone_and_nothing_else(store: ObjectStore) -> None:
    for path in ("t-1/a/1", "t-1/2", "t-10/1"):
        store.put(path, b"x")
    store.delete_tree("t-1", "id")
    assert [m.path for m in store.list("")] == ["t-10/1"]
    store.delete_tree("t-1", "id")


def test_a_tree_that_was_made_in_the_place_of_the_deleted_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread sleeps before it renames; meanwhile another deletes the tree and makes a new one."""
    store, rename = LocalStore(str(tmp_path)), os.rename
    store.put("t-0/a", b"old")

    def slept(source: str, target: str) -> None:
        monkeypatch.setattr(os, "rename", rename)
        store.delete_tree("t-0", "1" * 32)
        store.put("t-0/a", b"new")
        rename(source, target)

    monkeypatch.setattr(os, "rename", slept)
    store.delete_tree("t-0", "2" * 32)
    assert [meta.path for meta in store.list("")] == ["t-0/a"]
    assert store.get("t-0/a") == b"new"


def test_sync_takes_files_directories_and_absent_ones(store: ObjectStore) -> None:
    store.put("a/b/1", b"x")
    store.sync(["a/b/1", "a/b", "a/gone"])
    assert store.get("a/b/1") == b"x"


def test_big_objects_are_whole(store: ObjectStore) -> None:
    data = os.urandom(6 << 20)
    store.put("big", data)
    assert store.get("big") == data


@pytest.mark.parametrize("size", [0, 1, SMALL_BYTES - 1, SMALL_BYTES, SMALL_BYTES + 1, 3 * SMALL_BYTES])
def test_an_object_of_any_size_is_read_as_a_whole(tmp_path: Path, size: int) -> None:
    store, data = LocalStore(str(tmp_path)), os.urandom(size)
    store.put("a", data)
    assert store.get("a") == store.get_optional("a") == data


def test_temporary_files_of_a_crash_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / "1.json#17").write_bytes(b"half")
    assert LocalStore(str(tmp_path)).list("") == []


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_local_root_is_opened_by_path_or_url(tmp_path: Path, form: str) -> None:
    place = form.format(tmp_path)
    with pytest.raises(LogDirNotFoundError, match="broker-1"):
        open_store(place, "broker-1")
    store = open_store(place, "broker-1", create=True)
    store.put("x", b"1")
    assert (tmp_path / "broker-1" / "x").read_bytes() == b"1"
    assert [m.path for m in open_store(place, "broker-1").list("")] == ["x"]


def test_a_url_with_odd_characters_comes_back(tmp_path: Path) -> None:
    store = open_store(f"{tmp_path}/a b%c", create=True)
    assert open_store(store.url).url == store.url


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(LogDirNotFoundError, match="gopher://x"):
        open_store("gopher://x")


def test_a_disk_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: str, **options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(KafkaStorageError, match="hard links"):
        open_store(str(tmp_path), "b", create=True)
    assert list((tmp_path / "b").iterdir()) == []


def test_a_disk_that_links_no_new_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel finds a name that exists before it asks the file system, as one of FUSE without link."""

    def refuse(source: str, target: str, **options: object) -> None:
        if os.path.exists(target):
            raise FileExistsError(errno.EEXIST, "File exists")
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(KafkaStorageError, match="hard links"):
        open_store(str(tmp_path), "b", create=True)
    assert list((tmp_path / "b").iterdir()) == []


@pytest.mark.parametrize("fault", [errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL])
def test_a_disk_without_unnamed_files_creates_by_a_second_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    real = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(fault, "no unnamed files")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    store = open_store(str(tmp_path), "b", create=True)
    assert [store.create("t/1", b"x"), store.create("t/1", b"y"), store.get("t/1")] == [True, False, b"x"]
    assert [m.path for m in store.list("")] == ["t/1"]


@pytest.mark.parametrize("fault", [errno.ENOENT, errno.EXDEV, errno.EPERM])
def test_a_machine_that_cannot_name_an_open_file_creates_by_a_second_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    real = os.link

    def refuse(source: str, target: str, **options: Any) -> None:
        if options:
            raise OSError(fault, "no /proc")
        real(source, target)

    monkeypatch.setattr(os, "link", refuse)
    store = open_store(str(tmp_path), "b", create=True)
    assert [store.create("t/1", b"x"), store.create("t/1", b"y"), store.get("t/1")] == [True, False, b"x"]


def test_a_vanished_root_is_not_filled_in(tmp_path: Path) -> None:
    store = open_store(f"{tmp_path}/disk", create=True)
    (tmp_path / "disk").rmdir()
    for write in (store.put, store.put_new, store.create):
        with pytest.raises(StoreUnavailableError):
            write("t-0/1", b"x")
    assert not (tmp_path / "disk").exists()


def test_sync_reaches_the_directories_that_were_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def record(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    store = LocalStore(str(tmp_path))
    store.put("t-0/_delta_log/0.json", b"x")
    store.sync(["t-0/_delta_log/0.json"])
    root = str(tmp_path)
    assert synced == [f"{root}/t-0/_delta_log/0.json", f"{root}/t-0/_delta_log", f"{root}/t-0", root]


@pytest.mark.parametrize("call", ["put", "put_new", "create"])
def test_a_write_that_the_kernel_cuts_short_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real, parts = os.write, []

    def write(descriptor: int, data: memoryview) -> int:
        parts.append(len(data))
        return real(descriptor, data[:200_000])

    data = os.urandom(600_000)
    store = LocalStore(str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        getattr(store, call)("t-0/1", data)
    assert store.get("t-0/1") == data
    assert parts == [600_000, 400_000, 200_000]


@pytest.mark.parametrize("server_name", SERVERS)
def test_a_store_copies_between_two_roots_itself(request: pytest.FixtureRequest, server_name: str) -> None:
    server: StoreServer = request.getfixturevalue(server_name)
    source, target = (open_store(server.new_root()) for _ in range(2))
    data = os.urandom(300_000)
    source.put("a/1", data)
    seen: list[bytes] = []
    assert target.copy_new("b/1", source, "a/1", 8, lambda tail: seen.append(tail) is None)
    assert (target.get("b/1"), seen) == (data, [data[-8:]])
    assert not target.copy_new("b/2", source, "a/1", 8, lambda _tail: False)
    with pytest.raises(ObjectNotFoundError):
        target.copy_new("b/2", source, "a/2", 8, lambda _tail: True)
    assert [meta.path for meta in target.list("")] == ["b/1"]


def test_stores_of_other_buckets_or_of_none_copy_through_the_process(tmp_path: Path) -> None:
    memory = ObstoreStore(obstore.store.MemoryStore(), "memory:///")
    memory.put("a", b"x")
    s3 = [open_store(f"s3://{bucket}/x") for bucket in ("one", "two")]
    for target, source in ((memory, memory), (s3[0], s3[1]), (s3[0], LocalStore(str(tmp_path)))):
        assert not target.copy_new("b", source, "a", 8, lambda _tail: True)


def test_a_store_that_refuses_copies_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(_store: object, _source: str, target: str) -> None:
        asked.append(target)
        raise GenericError("501 NotImplemented")

    monkeypatch.setattr(obstore, "copy", refuse)
    target = open_store("s3://bucket/x")
    source = MemoryStore()
    source.url = "s3://bucket/y"
    source.put("a", b"x")
    for _ in range(5):
        assert not target.copy_new("b", source, "a", 8, lambda _tail: True)
    assert asked == ["x/b"] * 3
