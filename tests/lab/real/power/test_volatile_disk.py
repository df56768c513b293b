"""What a power cut may take of a file system, and what it may not."""

from __future__ import annotations

import stat
from collections.abc import Callable

import pytest

from tests.lab.real.power.volatile_disk import JOURNAL, POSIX, FileError, Rules, VolatileDisk, tree_of

FILE, DIRECTORY = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755
SEEDS = range(300)
POSIX_RULES, JOURNAL_RULES = Rules(POSIX, writeback_ms=0), Rules(JOURNAL, writeback_ms=0)


def outcomes(make: Callable[[VolatileDisk], None], rules: Rules = POSIX_RULES) -> list[dict[str, bytes]]:
    """The trees that cuts with many seeds leave."""
    found = []
    for seed in SEEDS:
        disk = VolatileDisk(rules)
        make(disk)
        found.append(dict(tree_of(disk.after_cut(seed)[0])))
    return found


def write(disk: VolatileDisk, name: str, content: bytes, *, synced: bool = False) -> None:
    inode = disk.find(disk.root, name) or disk.make(disk.root, name, FILE, 0)
    disk.write(inode, 0, content, 0)
    if synced:
        disk.sync_file(inode)
        disk.sync_file(disk.root)


def test_what_was_synced_with_its_directory_survives_every_cut() -> None:
    def make(disk: VolatileDisk) -> None:
        write(disk, "a", b"one" * 4_000, synced=True)
        write(disk, "b", b"two")

    assert all(tree["a"] == b"one" * 4_000 for tree in outcomes(make))


def test_a_synced_file_may_be_absent_until_its_directory_is_synced() -> None:
    def make(disk: VolatileDisk) -> None:
        disk.make(disk.root, "other", FILE, 0)
        inode = disk.make(disk.root, "a", FILE, 0)
        disk.write(inode, 0, b"one", 0)
        disk.sync_file(inode)

    assert {tree.get("a") for tree in outcomes(make)} == {None, b"one"}
    assert {tree.get("a") for tree in outcomes(make, JOURNAL_RULES)} == {b"one"}, "ext4 and XFS commit the name with it"


def test_a_named_file_may_be_whole_empty_torn_or_full_of_zeros() -> None:
    def make(disk: VolatileDisk) -> None:
        inode = disk.make_unnamed(FILE, 0)
        disk.write(inode, 0, b"x" * 10_000, 0)
        disk.link(inode, disk.root, "a", 0)
        disk.sync_file(disk.root)

    found = {tree["a"] for tree in outcomes(make)}
    assert {b"x" * 10_000, b"", bytes(10_000), b"x" * 4_096 + bytes(5_904)} <= found
    assert all(len(content) <= 10_000 and set(content) <= set(b"x\0") for content in found)


def test_blocks_of_a_file_that_is_written_in_place_are_old_or_new_each() -> None:
    def make(disk: VolatileDisk) -> None:
        write(disk, "a", b"1" * 8_192, synced=True)
        for value in (b"2", b"3"):
            write(disk, "a", value * 8_192)

    found = {tree["a"] for tree in outcomes(make)}
    assert {b"1" * 8_192, b"3" * 8_192, b"1" * 4_096 + b"3" * 4_096, b"3" * 4_096 + b"2" * 4_096} <= found
    assert all(len(content) == 8_192 and set(content) <= set(b"123") for content in found)


def test_a_rename_leaves_the_old_file_or_the_new_one() -> None:
    def make(disk: VolatileDisk) -> None:
        write(disk, "a", b"old", synced=True)
        write(disk, "a#1", b"new", synced=True)
        disk.rename((disk.root, "a#1"), (disk.root, "a"), 0, 0)

    found = outcomes(make)
    assert {tuple(sorted(tree.items())) for tree in found} == {
        (("a", b"old"), ("a#1", b"new")), (("a", b"new"),),
    }  # fmt: skip


@pytest.mark.parametrize(("rules", "is_any"), [(POSIX_RULES, True), (JOURNAL_RULES, False)])
def test_names_are_lost_in_any_order_or_from_the_last_on(rules: Rules, is_any: bool) -> None:
    def make(disk: VolatileDisk) -> None:
        for name in "abcd":
            disk.make(disk.root, name, FILE, 0)

    found = {"".join(sorted(tree)) for tree in outcomes(make, rules)}
    assert found >= {"", "abcd"}
    assert ("d" in found) is is_any
    assert is_any or found <= {"", "a", "ab", "abc", "abcd"}


def test_a_deleted_file_may_be_back_unless_its_directory_was_synced() -> None:
    def make(disk: VolatileDisk) -> None:
        write(disk, "a", b"one", synced=True)
        write(disk, "b", b"two", synced=True)
        disk.unlink(disk.root, "a", 0)
        disk.sync_file(disk.root)
        disk.unlink(disk.root, "b", 0)

    found = outcomes(make)
    assert {tree.get("b") for tree in found} == {None, b"two"}
    assert not any("a" in tree for tree in found)


def test_what_is_below_a_lost_directory_is_lost() -> None:
    def make(disk: VolatileDisk) -> None:
        folder = disk.make(disk.root, "d", DIRECTORY, 0)
        inode = disk.make(folder, "a", FILE, 0)
        disk.write(inode, 0, b"one", 0)
        disk.sync_file(inode)
        disk.sync_file(folder)

    assert {tree.get("d/a") for tree in outcomes(make)} == {None, b"one"}


def test_syncfs_and_time_make_everything_durable() -> None:
    def synced(disk: VolatileDisk) -> None:
        write(disk, "a", b"one")
        disk.sync_all()

    def aged(disk: VolatileDisk) -> None:
        write(disk, "a", b"one")
        disk.age(5_000)

    assert all(tree == {"a": b"one"} for tree in outcomes(synced))
    assert all(tree == {"a": b"one"} for tree in outcomes(aged, Rules(POSIX, writeback_ms=5_000)))


def test_a_seed_makes_the_same_choice_again() -> None:
    def make(disk: VolatileDisk) -> None:
        for name in "abcdefgh":
            write(disk, name, name.encode() * 9_000)

    assert outcomes(make) == outcomes(make)


def test_errors_are_those_of_the_system_calls() -> None:
    disk = VolatileDisk(POSIX_RULES)
    write(disk, "a", b"one")
    folder = disk.make(disk.root, "d", DIRECTORY, 0)
    disk.make(folder, "b", FILE, 0)
    for call, name in (
        (lambda: disk.make(disk.root, "a", FILE, 0), "EEXIST"),
        (lambda: disk.unlink(disk.root, "x", 0), "ENOENT"),
        (lambda: disk.unlink(disk.root, "d", 0), "EISDIR"),
        (lambda: disk.remove_directory(disk.root, "d", 0), "ENOTEMPTY"),
        (lambda: disk.rename((disk.root, "a"), (folder, "b"), 1, 0), "EEXIST"),
    ):
        with pytest.raises(FileError, match=name):
            call()
