"""Rates and lags over time: what files, readings and measurements say of an interval."""

from __future__ import annotations

import pyarrow as pa
import pytest

from stratalog.clients.console.over_time.arrivals import Arrivals, arrivals_of
from stratalog.clients.console.over_time.chart import line_chart
from stratalog.clients.console.over_time.ends import EndReadings
from stratalog.clients.console.over_time.intervals import MINUTE_MS, WINDOWS, Intervals
from stratalog.clients.console.over_time.lags import points_of
from stratalog.clients.console.over_time.past_lag import PastLag, SummedFiles, consumed, files_of, summed
from stratalog.server.lag.dated_table import DayFile
from stratalog.server.lag.history import LAG_SCHEMA
from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.records import TopicPartition

HOUR = Intervals(0, MINUTE_MS, 60, 60 * MINUTE_MS - 1)


def file(base: int, records: int, least: int | None, largest: int | None, size: int = 100) -> FileEntry:
    return FileEntry(DataFile(f"f{base}", size, records, 0, records - 1, least, largest), 0, 0, base)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_ends_now_and_its_intervals_are_round(window: str) -> None:
    now_ms = 1_764_543_210_987
    found = Intervals.of(window, now_ms)
    assert found.from_ms % found.step_ms == 0
    assert found.index(now_ms) == found.count - 1
    assert (found.index(found.from_ms - 1), found.index(now_ms + 1)) == (None, None)
    assert found.seconds(0) == found.step_ms / 1_000
    assert found.end_ms(found.count - 1) == now_ms


def test_a_file_within_one_interval_is_not_read() -> None:
    found = arrivals_of([file(0, 10, 61_000, 119_000)], HOUR, lambda _: pytest.fail("it was read"))
    assert (found.offsets[1], sum(found.offsets), found.size[1]) == (10, 10, 100)


def test_the_timestamps_of_a_long_file_say_when_its_records_came() -> None:
    found = arrivals_of([file(0, 10, 0, 180_000)], HOUR, lambda _: {0: 7, 3: 3})
    assert (found.offsets[:4], found.size[3], found.spread) == ([7, 0, 0, 3], 30, 0)


def test_a_long_file_without_time_to_read_it_counts_evenly_and_says_so() -> None:
    found = arrivals_of([file(0, 12, 0, 2 * MINUTE_MS - 1)], HOUR, lambda _: None)
    assert (found.offsets[:3], found.spread) == ([6, 6, 0], 12)


def test_records_outside_of_the_window_and_without_a_time_do_not_count() -> None:
    files = [file(0, 5, -10, -1), file(5, 5, HOUR.now_ms + 1, HOUR.now_ms + 9), file(10, 5, None, None)]
    found = arrivals_of(files, HOUR, lambda _: {})
    assert (sum(found.offsets), found.undated) == (0, 5)
    total = Arrivals.nothing(60)
    total.add(found)
    assert total.undated == 5


def test_a_rate_needs_two_readings_and_skips_what_one_of_them_lacks() -> None:
    orders, late = TopicPartition("orders", 0), TopicPartition("orders", 1)
    readings = EndReadings()
    assert readings.is_due(0)
    readings.observe({orders: 100}, 0)
    assert (readings.is_due(4_999), readings.rate()) == (False, None)
    readings.observe({orders: 150, late: 1_000}, 10_000)
    found = readings.rate()
    assert found is not None
    assert (found.by_topic, found.seconds, found.total({"orders"}), found.total(())) == ({"orders": 5.0}, 10.0, 5, 0)
    readings.observe({orders: 1_150, late: 1_000}, 1_010_000)
    later = readings.rate()
    assert later is not None
    assert (later.by_topic["orders"], later.seconds) == (1.0, 1_000)


def row(minute: float, group: str, topic: str, committed: int, lag: int, seconds: float | None = None) -> PastLag:
    return PastLag(int(minute * MINUTE_MS), group, topic, committed, lag, seconds)


def test_what_groups_read_is_what_they_committed_between_measurements() -> None:
    rows = [row(0, "g", "t", 0, 0), row(2, "g", "t", 120, 0), row(4, "g", "t", 60, 0), row(5, "h", "t", 900, 0)]
    found = consumed(rows, HOUR)
    assert found[:6] == [1.0, 1.0, 0.0, 0.0, None, None]
    assert consumed([row(0, "g", "t", 0, 0), row(59.9, "g", "t", 600, 0)], HOUR)[30] is not None
    assert consumed([row(0, "g", "t", 0, 0), row(61, "g", "t", 600, 0)], HOUR)[30] is None


def test_a_lag_of_an_interval_is_its_last_measurement_of_each_topic() -> None:
    rows = [
        row(1, "g", "a", 0, 5),
        row(1.5, "g", "a", 0, 7, 2.0),
        row(1.5, "g", "b", 0, 1, 9.0),
        row(3, "g", "a", 0, 0),
    ]
    points = points_of(rows, HOUR)
    assert [(each.lag, each.seconds) for each in points[:4]] == [(None, None), (8, 9.0), (None, None), (0, None)]


def test_rows_are_summed_over_partitions() -> None:
    columns = [[1_000, 1_000], ["g", "g"], ["t", "t"], [0, 1], [3, None], [9, 9], [6, None], [1.5, 0.5], [1, 1]]
    arrays = [pa.array(each, field.type) for each, field in zip(columns, LAG_SCHEMA, strict=True)]
    assert summed(pa.table(arrays, schema=LAG_SCHEMA)) == [PastLag(1, "g", "t", 3, 6, 1.5)]


def test_only_files_that_may_have_rows_of_the_window_are_read() -> None:
    def day_file(path: str, date: str, modified_ms: int) -> DayFile:
        return DayFile(path, date, {"add": {"modificationTime": modified_ms}})

    intervals = Intervals(86_400_000 + 1_000, 1_000, 10, 86_400_000 + 10_999)
    files = [day_file("before", "1970-01-01", 1), day_file("early", "1970-01-02", 86_400_500),
             day_file("inside", "1970-01-02", 86_405_000)]  # fmt: skip
    assert [each.path for each in files_of(files, intervals)] == ["inside"]


def test_sums_of_the_oldest_files_are_dropped() -> None:
    kept = SummedFiles()
    many = [row(0, "g", "t", 0, 0)] * 300_000
    kept.put("a", many)
    kept.put("b", many)
    assert (kept.get("a"), kept.get("b")) == (None, many)


def test_a_line_breaks_where_nothing_is_known_for_long() -> None:
    points = [(0, 1.0), (1_000, None), (2_000, 1.0), (3_000, None), (9_000, None), (10_000, 2.0)]
    assert len(line_chart(points, gap_ms=2_000).paths) == 2
    assert len(line_chart(points).paths) == 3
    assert (line_chart(points).largest, line_chart(points).newest) == (2.0, 2.0)
    empty = line_chart([])
    assert (empty.paths, empty.largest) == ([], None)


@pytest.mark.parametrize("window", WINDOWS)
def test_an_axis_of_times_has_a_few_labels(window: str) -> None:
    intervals = Intervals.of(window, 1_764_543_210_987)
    chart = line_chart([(intervals.start_ms(index), 1.0) for index in range(intervals.count)])
    assert 3 <= len(chart.times) <= 8
    assert all(chart.left <= each.at <= chart.width for each in chart.times)
