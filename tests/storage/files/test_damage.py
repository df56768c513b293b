"""Damage is named with file and both values, recorded beside the table, and found by scrubbing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.storage.cadence import DAY_MS
from stratalog.storage.errors import (
    CorruptMessageError,
    DamagedFileError,
    ForeignCommitError,
    ObjectNotFoundError,
    StratalogError,
)
from stratalog.storage.files import batch_file
from stratalog.storage.files.damage import DAMAGE_PATH, UNSETTLED, Damage, damage_in, is_about
from stratalog.storage.files.data_file import DataFile
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import data_table
from stratalog.storage.upkeep.chore import UpkeepLimits, UpkeepView, Work
from stratalog.storage.upkeep.chores import SLOTS, Scrub, files_of_slot
from tests.storage.logs import Replicas, batch, write

NAME = "file:///b-1/t-0"


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def in_a_page(path: Path) -> None:
    """A bit of a key: one byte, after its length."""
    flip(path, path.read_bytes().index(b"\x01\x00\x00\x00") + 4)


def in_the_footer(path: Path) -> None:
    flip(path, -30)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (in_a_page, "."),
    (in_the_footer, r"footer CRC32C is [0-9a-f]{8}, expected [0-9a-f]{8}"),
    (cut_short, r"has \d+ bytes, expected \d+ bytes"),
    (emptied, r"has 0 bytes, expected \d+ bytes"),
    (Path.unlink, r"is gone, expected \d+ bytes"),
]


def written(root: Path) -> tuple[PartitionLog, list[Path]]:
    """A log of three files on a local disk."""
    log = Replicas.new(root).leader()
    write(log, "a", "b", "c")
    return log, [root / "1" / "t-0" / entry.path for entry in log.files]


@pytest.mark.parametrize(("harm", "text"), DAMAGES)
def test_a_damaged_file_is_named_with_both_values(tmp_path: Path, harm: Callable[[Path], None], text: str) -> None:
    log, paths = written(tmp_path)
    files = [entry.file for entry in log.files]
    log.table.check_files(files, bits=True)
    harm(paths[1])
    with pytest.raises(DamagedFileError, match=text) as caught:
        log.table.check_files(files, bits=True)
    assert caught.value.path == files[1].path
    assert is_about(caught.value, log.name)
    log.table.check_files([files[0], files[2]], bits=True)


@pytest.mark.parametrize("at", [5, 40_000, -40_000])
def test_a_wrong_bit_of_a_large_file_is_found_without_decoding_it(
    tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Replicas.new(tmp_path).leader().table
    file = table.write_file(data_table([batch([f"{number}" * 50 for number in range(40_000)])]), None)
    monkeypatch.setattr(batch_file, "decode", None)
    table.check_files([file], bits=True)
    flip(tmp_path / "1" / "t-0" / file.path, at)
    with pytest.raises(DamagedFileError, match=r"CRC32C of its data is [0-9a-f]{8}, expected [0-9a-f]{8}") as caught:
        table.check_files([file], bits=True)
    assert caught.value.path == file.path


@pytest.mark.parametrize(("harm", "is_seen"), [(in_a_page, False), (cut_short, True), (Path.unlink, True)])
def test_looking_for_files_reads_none(tmp_path: Path, harm: Callable[[Path], None], is_seen: bool) -> None:
    log, paths = written(tmp_path)
    harm(paths[0])
    try:
        log.table.check_files([entry.file for entry in log.files], bits=False)
    except DamagedFileError:
        assert is_seen
    else:
        assert not is_seen


@pytest.mark.parametrize("harm", [in_a_page, in_the_footer])
def test_reading_a_damaged_file_names_it(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    log, paths = written(tmp_path)
    harm(paths[2])
    with pytest.raises(DamagedFileError) as caught:
        log.read(2, 1_000)
    assert caught.value.path == log.files[2].path


@pytest.mark.parametrize("root", [None, "delta"])
def test_a_note_stands_until_it_is_healed_or_the_table_is_dropped(tmp_path: Path, root: str | None) -> None:
    replicas = Replicas.new(tmp_path if root else None)
    table = replicas.leader().table
    assert table.damage() is None
    noted = Damage("offset 3 is gone", "segment=0/x.parquet", 4)
    table.note_damage(Damage("first"))
    table.note_damage(noted)
    assert replicas.table("1").damage() == noted
    table.note_damage(None)
    table.note_damage(None)
    assert table.damage() is None
    table.note_damage(noted)
    table.drop()
    assert table.damage() is None


def test_a_torn_note_is_still_a_note() -> None:
    damage = Damage.from_json(b'{"reason": "a')
    assert (damage.path, damage.leader_epoch) == ("", UNSETTLED)
    assert DAMAGE_PATH in damage.reason


@pytest.mark.parametrize(
    ("reason", "damage"),
    [
        (DamagedFileError("f is gone", "f"), Damage("f is gone", "f")),
        (CorruptMessageError("version 3 is torn"), Damage("version 3 is torn")),
        (ObjectNotFoundError("f is gone"), Damage("f is gone")),
        (ForeignCommitError("version 3"), None),
    ],
)
def test_what_an_error_tells_of_damage(reason: StratalogError, damage: Damage | None) -> None:
    assert damage_in(reason) == damage


@pytest.mark.parametrize(
    ("text", "is_it"),
    [
        (f"{NAME} version 3: torn", True),
        (f"{NAME}/segment=0/x: is gone", True),
        (f"{NAME}: version 0 is gone", True),
        ("/b-1/t-0/segment=0/x does not exist", True),
        (f"{NAME}1: torn", False),
        ("file:///b-10/t-0: torn", False),
        (f"copying {NAME}: torn", False),
    ],
)
def test_whose_table_an_error_is_about(text: str, is_it: bool) -> None:
    assert is_about(CorruptMessageError(text), NAME) is is_it


# -- scrubbing -----------------------------------------------------------------------------------------------


def scrubbed(scrub: Scrub, log: PartitionLog, now_ms: int, *, is_busy: bool = False) -> bool:
    """One turn; whether anything was looked at."""
    work = scrub.begin(UpkeepView(log, now_ms, log.log_end_offset, log.leader_epoch, is_busy))
    if work is None:
        return False
    assert isinstance(work, Work)
    assert work.finish(work.run()) is None
    return True


@pytest.mark.parametrize("count", [0, 1, 3, 1_440, 4_000])
def test_a_pass_reads_each_file_once(count: int) -> None:
    files = [DataFile(str(number), 1, 1, 0, 0, None, None) for number in range(count)]
    read = [file for slot in range(7, 7 + SLOTS) for file in files_of_slot(files, slot, SLOTS)]
    assert sorted(read, key=lambda file: int(file.path)) == files
    assert max(len(files_of_slot(files, slot, SLOTS)) for slot in range(SLOTS)) <= count // SLOTS + 1


def test_flipped_bits_are_found_within_a_pass(tmp_path: Path) -> None:
    log, paths = written(tmp_path)
    scrub = Scrub(UpkeepLimits())
    minute_ms = DAY_MS // SLOTS
    in_a_page(paths[1])
    assert scrubbed(scrub, log, 0)  # all files are there
    found: list[str] = []
    for slot in range(1, SLOTS + 1):
        try:
            scrubbed(scrub, log, slot * minute_ms)
        except DamagedFileError as damaged:
            found.append(damaged.path)
    assert found == [log.files[1].path]


def test_a_missing_file_is_found_at_once(tmp_path: Path) -> None:
    log, paths = written(tmp_path)
    paths[0].unlink()
    with pytest.raises(DamagedFileError, match="is gone"):
        scrubbed(Scrub(UpkeepLimits()), log, 0, is_busy=True)


def test_a_file_that_was_merged_away_meanwhile_is_not_missed(tmp_path: Path) -> None:
    log, paths = written(tmp_path)
    work = Scrub(UpkeepLimits()).begin(UpkeepView(log, 0, 3, 0))
    assert isinstance(work, Work)
    log.replace_files(log.files[:1], [], leader_epoch=0, operation="DELETE", now_ms=1, data_change=True, log_start=1)
    paths[0].unlink()
    assert work.finish(work.run()) is None


def test_busy_or_in_the_same_slot_nothing_is_read(tmp_path: Path) -> None:
    log, _ = written(tmp_path)
    scrub = Scrub(UpkeepLimits(scrub_ms=1_000))
    assert scrubbed(scrub, log, 0)
    assert not scrubbed(scrub, log, 999)
    assert not scrubbed(scrub, log, 1_000, is_busy=True)
    assert scrubbed(scrub, log, 1_001)
    view = UpkeepView(log, 1_001, 3, 0)
    assert scrub.rest_ms(view) == 999


def test_a_foreign_commit_to_an_idle_log_is_noticed(tmp_path: Path) -> None:
    log, paths = written(tmp_path)
    version = log.version + 1
    commit = paths[0].parents[3] / "_delta_log" / f"{version:020}.json"
    commit.write_text('{"commitInfo":{"operation":"VACUUM END","engineInfo":"delta-rs:1"}}')
    with pytest.raises(ForeignCommitError, match=rf"version {version} \(VACUUM END by delta-rs:1\)"):
        scrubbed(Scrub(UpkeepLimits()), log, 0)


def test_memory_needs_no_scrubbing() -> None:
    log = Replicas.new().leader()
    scrub = Scrub(UpkeepLimits())
    assert not scrubbed(scrub, log, 0)
    assert scrub.rest_ms(UpkeepView(log, 0, 0, 0)) is None
