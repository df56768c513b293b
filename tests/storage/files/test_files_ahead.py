"""Small files are asked for before they are read, several at a time."""

from __future__ import annotations

from stratalog.storage.files.files_ahead import AHEAD_BYTES_MAX, FilesAhead
from tests.storage.far_store import FarStore


def ahead_of(count: int, size_bytes: int = 1) -> tuple[FarStore, FilesAhead]:
    store = FarStore()
    for number in range(count):
        store.put(f"f{number}", str(number).encode())
    return store, FilesAhead(store, [(f"f{number}", size_bytes) for number in range(count)])


def test_more_are_asked_for_from_one_time_to_the_next() -> None:
    store, ahead = ahead_of(70)
    assert [ahead.take(f"f{number}") for number in range(70)] == [str(number).encode() for number in range(70)]
    assert store.rounds == [4, 8, 16, 32, 10]


def test_a_file_that_is_left_out_or_not_among_them_costs_the_others_nothing() -> None:
    store, ahead = ahead_of(12)
    assert ahead.take("f0") == b"0"
    assert ahead.take("large") is None
    assert [ahead.take(f"f{number}") for number in (2, 3, 6)] == [b"2", b"3", b"6"]
    assert store.rounds == [4, 6], "f4 and f5 were left out before they were asked for"


def test_a_file_is_given_once_and_an_absent_one_is_none() -> None:
    store, ahead = ahead_of(2)
    store.delete("f1")
    assert [ahead.take(name) for name in ("f0", "f0", "f1")] == [b"0", None, None]


def test_large_files_are_asked_for_alone() -> None:
    store, ahead = ahead_of(3, size_bytes=AHEAD_BYTES_MAX)
    assert [ahead.take(f"f{number}") for number in range(3)] == [b"0", b"1", b"2"]
    assert store.rounds == [1, 1, 1]
