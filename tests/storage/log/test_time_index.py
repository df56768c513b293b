"""The time index finds the file that a scan of all files finds, and visits a handful of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.log.segments import NEAR_END_FILES, files_between, segments_of
from stratalog.storage.log.time_index import TimeIndex, straddling_file


def file(base: int, end: int, latest_ms: int | None, segment: int = 0) -> FileEntry:
    """A file with offsets `[base, end)`."""
    data = DataFile(f"f{base}", 100, end - base, 0, end - base - 1, latest_ms, latest_ms)
    return FileEntry(data, segment, 0, base)


def files_with(*latest_ms: int | None) -> list[FileEntry]:
    """Files of ten records each, with these largest timestamps."""
    return [file(10 * i, 10 * i + 10, latest) for i, latest in enumerate(latest_ms)]


def first_base(index: TimeIndex, files: Sequence[FileEntry], timestamp_ms: int, log_start: int = 0) -> int | None:
    found = index.first_file(files, log_start, timestamp_ms)
    return found.base_offset if found else None


SEGMENT = 3257573
NGINX_ACCESS_LOG = [
    file(2_000_000, 3257573, 1570792689300),
    file(3257573, 6506124, 1570793423470, SEGMENT),
    file(6506124, 6506137, 1570793423474, SEGMENT),
    file(6506137, 6506150, 1570793423476, SEGMENT),
    file(6506150, 6506162, 1570793423481, SEGMENT),
    file(6506162, 6506176, 1570793423484, SEGMENT),
    file(6506176, 6506188, 1570793423488, SEGMENT),
    file(6506188, 6506205, 1570793423493, SEGMENT),
    file(6506205, 6506217, 1570793423496, SEGMENT),
    file(6506217, 6506229, 1570793423500, SEGMENT),
    file(6506229, 6506243, 1570793423503, SEGMENT),
    file(6506243, 6506250, 1570793423505, SEGMENT),
    file(6506250, 6743299, 1570793999999, 6506250),
]
"""The end of a log: entries of Kafka's offset index are the starts of files, those of its time index their largest
timestamps."""


@pytest.mark.parametrize(
    ("offset", "segment", "entry"),
    [
        (6506155, "00000000000003257573", 6506150),
        (6506150, "00000000000003257573", 6506150),
        (6506149, "00000000000003257573", 6506137),
        (6506249, "00000000000003257573", 6506243),
        (6506250, "00000000000006506250", 6506250),
        (3257572, "00000000000000000000", 2_000_000),
    ],
)
def test_the_articles_offset_is_found_as_it_says(offset: int, segment: str, entry: int) -> None:
    bases = [each.base_offset for each in segments_of(NGINX_ACCESS_LOG)]
    assert f"{max(base for base in bases if base <= offset):020}" == segment
    assert [each.base_offset for each in files_between(NGINX_ACCESS_LOG, offset, offset + 1)] == [entry]


@pytest.mark.parametrize(
    ("timestamp_ms", "entry"),
    [
        (1570793423501, 6506229),
        (1570793423500, 6506217),
        (1570793423504, 6506243),
        (1570793423506, 6506250),
        (1570793999999, 6506250),
        (1570794000000, None),
        (0, 2_000_000),
    ],
)
def test_the_articles_timestamp_is_found_as_it_says(timestamp_ms: int, entry: int | None) -> None:
    """1570793423501: the entry below is (1570793423500, 6506228), and its scan begins at offset 6506229."""
    assert first_base(TimeIndex(), NGINX_ACCESS_LOG, timestamp_ms) == entry


@pytest.mark.parametrize(
    ("latest", "timestamp_ms", "log_start", "base"),
    [
        ((10, 30, 20, 40), 15, 0, 10),
        ((10, 30, 20, 40), 30, 0, 10),
        ((10, 30, 20, 40), 31, 0, 30),
        ((10, 30, 20, 40), 41, 0, None),
        ((10, 30, 20, 40), 15, 11, 20),
        ((10, 30, 20, 40), 15, 20, 20),
        ((None, None), -5, 0, None),
        ((None, -7, None, -3), -5, 0, 30),
        ((), 0, 0, None),
    ],
)
def test_the_first_file_at_or_after_a_time(
    latest: tuple[int | None, ...], timestamp_ms: int, log_start: int, base: int | None
) -> None:
    """A file that straddles the log start does not count: its records of that time may be hidden."""
    assert first_base(TimeIndex(), files_with(*latest), timestamp_ms, log_start) == base


@pytest.mark.parametrize(
    ("log_start", "end", "greatest"),
    [(0, 40, 40), (0, 39, 30), (0, 20, 30), (0, 19, 10), (11, 39, 20), (0, 9, None), (31, 40, None), (40, 40, None)],
)
def test_the_largest_timestamp_of_the_files_between(log_start: int, end: int, greatest: int | None) -> None:
    files = files_with(10, 30, 20, 40)
    assert TimeIndex().max_timestamp_ms(files, log_start, end) == greatest


@pytest.mark.parametrize(("offset", "base"), [(0, None), (1, 0), (9, 0), (10, None), (15, 10), (20, None), (99, None)])
def test_the_file_that_an_offset_lies_inside(offset: int, base: int | None) -> None:
    found = straddling_file(files_with(1, 2), offset)
    assert (found.base_offset if found else None) == base


def test_it_follows_appends_swaps_and_the_log_start() -> None:
    """Against a scan of all files, after each of 2,000 random changes."""
    chance = random.Random(5)
    files: list[FileEntry] = []
    index, log_start, end = TimeIndex(), 0, 0
    for _ in range(2_000):
        change = chance.random()
        if change < 0.6 or not files:
            files.append(file(end, end + 10, chance.choice([None, chance.randrange(1_000)])))
            end += 10
        elif change < 0.9:
            at = chance.randrange(len(files))
            last = min(len(files), at + chance.randrange(1, 6))
            merged = file(files[at].base_offset, files[last - 1].end_offset, chance.randrange(1_000))
            index.forget_from(at)
            files[at:last] = [merged]
        elif change < 0.95:
            log_start = chance.randrange(log_start, files[-1].end_offset + 1)
        else:
            gone = sum(entry.end_offset <= log_start for entry in files)
            index.forget_from(0)
            del files[:gone]
        wanted_ms, below = chance.randrange(1_000), chance.randrange(end + 1)
        whole = [entry for entry in files if entry.start_offset >= log_start]
        dated = [entry for entry in whole if entry.file.max_timestamp_ms is not None]
        naive = next((e.base_offset for e in dated if (e.file.max_timestamp_ms or 0) >= wanted_ms), None)
        assert first_base(index, files, wanted_ms, log_start) == naive
        latest = [e.file.max_timestamp_ms or 0 for e in dated if e.end_offset <= below]
        assert index.max_timestamp_ms(files, log_start, below) == max(latest, default=None)


class Visited(list[FileEntry]):
    """Files that count their accesses."""

    count = 0

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        self.count += 1 if isinstance(index, int) else 0
        return super().__getitem__(index)


def test_a_hundred_times_the_files_take_seven_more_looks() -> None:
    visits: dict[int, int] = {}
    for count in (100, 10_000):
        files, index = Visited(files_with(*range(count))), TimeIndex()
        index.first_file(files, 0, 0)
        files.count = 0
        assert first_base(index, files, count // 3) == count // 3 * 10
        assert files_between(files, count, count + 1)
        assert straddling_file(files, count * 5 + 1)
        visits[count] = files.count
    assert visits[100] <= 30 + NEAR_END_FILES
    assert visits[10_000] <= visits[100] + 3 * 7
