"""A process that ends while it deletes a table leaves a directory, which is found and deleted later."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stratalog.replication.folders import replica_of_leftover
from stratalog.storage.errors import KafkaStorageError
from stratalog.storage.objects.local import LocalStore
from stratalog.storage.records import TopicPartition

DELETION = "0123456789abcdef" * 2


class Killed(BaseException):
    """The process ends here."""


def test_what_a_deletion_left_is_found_and_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(str(tmp_path))
    for path in ("a.b-0/_delta_log/1", "a.b-0/segment=1/2", "a.b-1/_delta_log/1", "a-delete/1"):
        store.put(path, b"x")

    def kill(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", kill)
        with pytest.raises(Killed):
            store.delete_tree("a.b-0", DELETION)
    again = LocalStore(str(tmp_path))
    (left,) = again.leftovers()
    assert replica_of_leftover(left) == TopicPartition("a.b", 0)
    assert len(again.list(f"{left}/")) == 2
    again.delete_leftover(left)
    again.delete_leftover(left)
    assert (again.leftovers(), [meta.path for meta in again.list("")]) == ([], ["a-delete/1", "a.b-1/_delta_log/1"])


def test_a_table_is_no_leftover(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("a-1/_delta_log/1", b"x")
    with pytest.raises(KafkaStorageError, match="a-1 is not what a deletion left"):
        store.delete_leftover("a-1")
    assert store.exists("a-1/_delta_log/1")


def test_a_directory_that_is_made_during_the_question_stays(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("a-1/_delta_log/1", b"old")

    def another_takes_its_place() -> bool:
        store.delete_tree("a-1", "1" * 32)
        store.put("a-1/_delta_log/1", b"new")
        return True

    assert not store.delete_tree("a-1", DELETION, another_takes_its_place)
    assert store.get("a-1/_delta_log/1") == b"new"
    assert store.leftovers() == []
