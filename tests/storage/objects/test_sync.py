"""Which calls of the kernel make files durable: one for each, or one for all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stratalog.storage.objects import sync as file_sync
from stratalog.storage.objects.sync import ONE_BY_ONE_MAX, sync_files


class Disk:
    """Counts its syncs: of one file, of a whole file system."""

    def __init__(self) -> None:
        self.files = self.whole = 0

    def fsync(self, _descriptor: int) -> None:
        self.files += 1

    def syncfs(self, _descriptor: int) -> int:
        self.whole += 1
        return 0


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(os, "fsync", made.fsync)
    monkeypatch.setattr(file_sync, "SYNCFS", made.syncfs)
    return made


def files_in(folder: Path, count: int) -> list[str]:
    paths = [folder / f"{number}.json" for number in range(count)]
    for path in paths:
        path.touch()
    return [str(path) for path in paths]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, (0, 0)), (1, (1, 0)), (ONE_BY_ONE_MAX, (ONE_BY_ONE_MAX, 0)), (ONE_BY_ONE_MAX + 1, (0, 1))],
)
def test_a_few_files_are_synced_one_by_one_and_many_by_one_call(
    tmp_path: Path, disk: Disk, count: int, expected: tuple[int, int]
) -> None:
    sync_files(files_in(tmp_path, count))
    assert (disk.files, disk.whole) == expected


def test_many_files_take_one_call_for_each_file_system(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.stat
    (tmp_path / "other").mkdir()

    def stat(path: str) -> os.stat_result:
        found = list(real(path))
        found[2] = 1 if path.endswith("other") else 2
        return os.stat_result(found)

    paths = [*files_in(tmp_path, ONE_BY_ONE_MAX), *files_in(tmp_path / "other", 2)]
    monkeypatch.setattr(os, "stat", stat)
    sync_files(paths)
    assert (disk.files, disk.whole) == (0, 2)


def test_where_there_is_no_sync_of_everything_each_file_has_its_own(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_sync, "SYNCFS", None)
    sync_files(files_in(tmp_path, 2 * ONE_BY_ONE_MAX))
    assert (disk.files, disk.whole) == (2 * ONE_BY_ONE_MAX, 0)


@pytest.mark.parametrize("count", [1, 2 * ONE_BY_ONE_MAX])
def test_what_is_absent_needs_no_sync(tmp_path: Path, count: int) -> None:
    sync_files([str(tmp_path / f"{number}.json") for number in range(count)])
