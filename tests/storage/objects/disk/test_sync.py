"""Which calls of the kernel make files durable: one for each, or one for all."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from stratalog.storage.objects.disk import sync as file_sync
from stratalog.storage.objects.disk.sync import (
    NEW_MAX,
    NEW_MS,
    ONE_BY_ONE_MIN,
    ONE_BY_ONE_MS,
    one_by_one_ms,
    sync_files,
)
from tests.storage.logs import FakeClock


@dataclass
class Disk(FakeClock):
    """Its syncs are counted; each of one file takes a while."""

    file_ms: int = 1
    files: int = 0
    whole: int = 0

    def fsync(self, _descriptor: int) -> None:
        self.files += 1
        self.now_ms += self.file_ms

    def syncfs(self, _descriptor: int) -> int:
        self.whole += 1
        return 0


def files_in(folder: Path, count: int, age_ms: int) -> list[str]:
    """So many files, and their folder."""
    written_ns = (FakeClock.now_ms - age_ms) * 1_000_000
    for number in range(count):
        path = folder / f"{number}.json"
        path.touch()
        os.utime(path, ns=(written_ns, written_ns))
    os.utime(folder, ns=(0, 0))
    return [*(str(folder / f"{number}.json") for number in range(count)), str(folder)]


@pytest.mark.parametrize(
    ("count", "age_ms", "file_ms", "files", "whole"),
    [
        (NEW_MAX, 0, 1, NEW_MAX + 1, 0),
        (NEW_MAX + 1, 0, 1, 0, 1),
        (NEW_MAX + 1, NEW_MS, 1, NEW_MAX + 2, 0),
        (200, NEW_MS, 1, 201, 0),
        (200, NEW_MS, ONE_BY_ONE_MS // 50, 50, 1),
        (ONE_BY_ONE_MIN, NEW_MS, ONE_BY_ONE_MS, 1, 1),
        (ONE_BY_ONE_MIN - 1, NEW_MS, ONE_BY_ONE_MS, ONE_BY_ONE_MIN, 0),
    ],
)
def test_old_files_are_synced_one_by_one_until_it_takes_too_long_and_many_new_ones_together(
    tmp_path: Path,
    count: int,
    age_ms: int,
    file_ms: int,
    files: int,
    whole: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paths, disk = files_in(tmp_path, count, age_ms), Disk(file_ms=file_ms)
    monkeypatch.setattr(os, "fsync", disk.fsync)
    monkeypatch.setattr(file_sync, "_SYNCFS", disk.syncfs)
    sync_files(paths, disk)
    assert (disk.files, disk.whole) == (files, whole)


def test_where_there_is_no_sync_of_everything_each_file_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, disk = files_in(tmp_path, 200, 0), Disk(file_ms=ONE_BY_ONE_MS)
    monkeypatch.setattr(os, "fsync", disk.fsync)
    monkeypatch.setattr(file_sync, "_SYNCFS", None)
    sync_files(paths, disk)
    assert (disk.files, disk.whole) == (201, 0)


def test_what_is_absent_needs_no_sync(tmp_path: Path) -> None:
    sync_files([str(tmp_path / f"{number}.json") for number in range(200)], FakeClock())


@pytest.mark.parametrize(
    ("count", "new_count", "expected"),
    [
        (ONE_BY_ONE_MIN, None, math.inf),  # few: nobody asks how many are new
        (ONE_BY_ONE_MIN + 1, NEW_MAX, ONE_BY_ONE_MS),
        (ONE_BY_ONE_MIN + 1, NEW_MAX + 1, 0),
    ],
)
def test_how_long_files_are_synced_one_by_one(count: int, new_count: int | None, expected: float) -> None:
    def asked() -> int:
        assert new_count is not None
        return new_count

    assert one_by_one_ms(count, asked) == expected
