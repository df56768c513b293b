"""A register holds one whole value, whatever becomes of its writer, and however it is read meanwhile."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.objects import registers as register_file
from stratalog.storage.objects.local import LocalStore

SLOT_BYTES = 16
FIRST_SLOT = 16
SECOND_SLOT = FIRST_SLOT + SLOT_BYTES + register_file.CAPACITY_MIN


def spoil(path: Path, position: int, data: bytes) -> None:
    """What a writer leaves that dies in the middle of a write."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_a_value_is_replaced_in_the_same_file(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put_register("progress/1/leader", b"0")
    inode = os.stat(tmp_path / "progress/1/leader").st_ino
    for number in range(1, 6):
        store.put_register("progress/1/leader", str(number).encode())
        assert store.get_register("progress/1/leader") == str(number).encode()
    assert os.stat(tmp_path / "progress/1/leader").st_ino == inode
    assert [m.path for m in store.list("")] == ["progress/1/leader"]


@pytest.mark.parametrize("writes", [1, 2, 3, 4])
def test_a_torn_write_leaves_the_value_before_it(tmp_path: Path, writes: int) -> None:
    store = LocalStore(str(tmp_path))
    for number in range(writes):
        store.put_register("r", f"value {number}".encode())
    torn = register_file.encoded_slot(writes + 1, b"a longer value that was never whole")[:-3]
    spoil(tmp_path / "r", SECOND_SLOT if writes % 2 else FIRST_SLOT, torn)
    before = f"value {writes - 1}".encode()
    assert store.get_register("r") == before
    restarted = LocalStore(str(tmp_path))
    restarted.put_register("r", b"next")
    assert restarted.get_register("r") == b"next"
    spoil(tmp_path / "r", SECOND_SLOT if writes % 2 else FIRST_SLOT, torn)
    assert restarted.get_register("r") == before  # it stood in the other slot all the while


def test_a_register_with_no_whole_slot_is_as_good_as_none_and_is_written_anew(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put_register("r", b"x")
    for position in (FIRST_SLOT, SECOND_SLOT):
        spoil(tmp_path / "r", position, b"\xff" * 40)
    assert store.get_register("r") is None
    store.put_register("r", b"y")
    assert store.get_register("r") == b"y"


@pytest.mark.parametrize(
    ("first", "second", "newest", "replaced"),
    [
        pytest.param((1, True), (0, True), b"1", SECOND_SLOT, id="written once"),
        pytest.param((5, True), (6, True), b"6", FIRST_SLOT, id="the second slot is one ahead"),
        pytest.param((7, True), (6, True), b"7", SECOND_SLOT, id="the first slot is one ahead"),
        pytest.param((7, True), (6, False), b"7", SECOND_SLOT, id="the older one is not sound"),
        pytest.param((5, True), (6, False), b"5", SECOND_SLOT, id="the newer one is being written, or its writer died"),
        pytest.param((6, False), (5, True), b"5", FIRST_SLOT, id="the newer one is torn and comes first"),
        pytest.param((5, True), (8, False), b"5", SECOND_SLOT, id="one was written twice while the other was read"),
        pytest.param((5, True), (8, True), b"8", FIRST_SLOT, id="two ahead"),
        pytest.param((9, True), (6, True), b"9", SECOND_SLOT, id="two ahead, the other way round"),
        pytest.param((5, False), (6, False), None, None, id="both spoilt"),
    ],
)
def test_the_newest_sound_slot_counts_and_the_other_one_is_replaced(
    tmp_path: Path, first: tuple[int, bool], second: tuple[int, bool], newest: bytes | None, replaced: int | None
) -> None:
    path = tmp_path / "r"
    path.write_bytes(register_file.new_file(b""))
    for position, (sequence, is_sound) in ((FIRST_SLOT, first), (SECOND_SLOT, second)):
        slot = register_file.encoded_slot(sequence, str(sequence).encode()) if sequence else bytes(SLOT_BYTES)
        spoil(path, position, slot if is_sound else slot[:-1] + b"?")
    before = path.read_bytes()
    assert register_file.read(str(path)) == newest
    assert register_file.replace_in_place(str(path), b"next") == (replaced is not None)
    if replaced is not None:
        assert register_file.read(str(path)) == b"next"
        kept = slice(FIRST_SLOT, SECOND_SLOT) if replaced == SECOND_SLOT else slice(SECOND_SLOT, None)
        assert path.read_bytes()[kept] == before[kept]


@pytest.mark.parametrize("size", [0, 1, 2_016, 2_017, 5_000, 300_000])
def test_a_value_of_any_size_fits_and_may_shrink_again(tmp_path: Path, size: int) -> None:
    store = LocalStore(str(tmp_path))
    for data in (b"small", os.urandom(size), os.urandom(size), b"small", b""):
        store.put_register("r", data)
        assert store.get_register("r") == data


def test_a_plain_object_is_read_as_it_is_and_becomes_a_register(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    for data in (b"", b"x", b"y" * 4_096, b"z" * 10_000):
        store.put("r", data)
        assert store.get_register("r") == data
    store.put_register("r", b"new")
    assert store.get_register("r") == b"new"


def test_a_register_in_a_vanished_root_is_refused(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "disk"), create=True)
    (tmp_path / "disk").rmdir()
    with pytest.raises(StoreUnavailableError):
        store.put_register("r", b"x")


def write_for_a_while(root: str, started: Event, stop: Event) -> None:
    store = LocalStore(root)
    number = 0
    while not stop.is_set():
        number += 1
        store.put_register("r", (f"{number}," * (1 + number % 700)).encode())
        started.set()


def test_a_reader_in_another_process_sees_whole_values_that_only_grow_newer(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    started, stop = context.Event(), context.Event()
    writer = context.Process(target=write_for_a_while, args=(str(tmp_path), started, stop))
    writer.start()
    try:
        assert started.wait(60)
        store, newest, seen = LocalStore(str(tmp_path)), 0, set[int]()
        while len(seen) < 300 and writer.is_alive():
            data = store.get_register("r")
            assert data is not None
            numbers = data.decode().rstrip(",").split(",")
            assert len(numbers) == 1 + int(numbers[0]) % 700
            assert set(numbers) == {numbers[0]}
            assert int(numbers[0]) >= newest
            newest = int(numbers[0])
            seen.add(newest)
    finally:
        stop.set()
        writer.join(60)
    assert len(seen) == 300
