"""The demo's web log: a line's fields, and that the file is the one that its README describes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from stratalog.jobs.demo.log import Hit, chunks, client_of, count_hits, hit_of, read_lines

LINE = '83.149.9.216 - - [17/May/2015:10:05:43 +0000] "GET /a.png HTTP/1.1" 200 171717 "http://x/" "Mozilla/5.0"'


def test_a_line_gives_client_minute_and_status() -> None:
    assert client_of(LINE) == "83.149.9.216"
    assert hit_of(LINE) == Hit(datetime(2015, 5, 17, 10, 5, tzinfo=UTC), 200)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (LINE.replace("GET /a.png", r"GET /a\"quoted\".png"), 200),
        (LINE.replace("HTTP/1.1", 'HTTP/1.1" 500 "').replace('" "" 200', '" 200'), 500),
        (LINE.replace("200 171717", "304 -"), 304),
        (LINE.removesuffix('"'), 200),
    ],
    ids=["escaped quotes in the request", "the first status counts", "no size", "cut off in the agent"],
)
def test_status_of_odd_lines(line: str, status: int) -> None:
    assert hit_of(line).status == status


def test_the_time_zone_of_a_line_counts() -> None:
    eastern = hit_of(LINE.replace("+0000", "-0400"))
    assert eastern.minute == datetime(2015, 5, 17, 14, 5, tzinfo=UTC)


@pytest.mark.parametrize("line", ["", "one-word", "a - - [no time] x", LINE.replace(" 200 ", " OK ")])
def test_what_is_no_log_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"not a line of an access log|does not match format"):
        hit_of(line)


@pytest.mark.parametrize("line", ["", "one-word", " - - x"])
def test_a_line_without_client_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a line of an access log"):
        client_of(line)


def test_chunks_keep_every_line_in_order() -> None:
    assert list(chunks(list("abcde"), 2)) == [["a", "b"], ["c", "d"], ["e"]]


def test_the_carried_log_is_the_one_described() -> None:
    lines = read_lines()
    assert len(lines) == 10_000
    assert len({client_of(line) for line in lines}) == 1_753
    counts = count_hits(lines)
    assert counts.total() == 10_000
    assert len({hit.minute for hit in counts}) == 84
    assert {hit.minute.minute for hit in counts} == {5}
