"""Where a reset puts a group: times, durations, plans, and offsets that do not exist."""

from __future__ import annotations

import pytest

from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.text.offset_reset import (
    parse_datetime_ms,
    parse_duration_ms,
    parse_plan,
    plan_csv,
    shifted,
    topic_argument,
    within,
)
from stratalog.storage.records import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("1970-01-01T00:00:00.000Z", 0),
        ("1970-01-01T01:00:00.001+01:00", 1),
        ("2019-10-07T07:30:23.501", 1_570_433_423_501),
    ],
)
def test_a_datetime_is_utc_unless_it_has_a_zone(text: str, ms: int) -> None:
    assert parse_datetime_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "message"),
    [("xx", "It does not contain a 'T' according to ISO8601"), ("2019-13-07T00:00:00.000", "Unparseable date")],
)
def test_what_is_no_datetime_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_datetime_ms(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1H", 3_600_000),
        ("P1DT2H3M4.567S", 93_784_567),
        ("pt5m", 300_000),
        ("-PT1M", -60_000),
        ("PT-1M", -60_000),
        ("PT0.05S", 50),
        ("PT-1.5S", -1_500),
        ("P2D", 172_800_000),
    ],
)
def test_a_duration_is_iso_8601_as_java_reads_it(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["xx", "P", "PT", "P1H", "1D", "P1DT"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="Text cannot be parsed to a Duration"):
        parse_duration_ms(text)


def test_offsets_outside_the_log_are_moved_into_it() -> None:
    bounds = {A: 2, B: 0}, {A: 4, B: 0}
    plan, warnings = within({A: 99, B: 0}, *bounds)
    assert plan == {A: 4, B: 0}
    assert warnings == ["New offset (99) is higher than latest offset for topic partition t-0. Value will be set to 4"]
    plan, warnings = within({A: 1}, *bounds)
    assert plan == {A: 2}
    assert warnings == ["New offset (1) is lower than earliest offset for topic partition t-0. Value will be set to 2"]
    assert within({A: 3}, *bounds) == ({A: 3}, [])


def test_only_what_is_committed_can_be_shifted() -> None:
    assert shifted([A, B], {A: 5, B: 7}, -2) == {A: 3, B: 5}
    with pytest.raises(UsageError, match="Cannot shift offset for partition t-1 since there is no current committed"):
        shifted([A, B], {A: 5}, 1)


def test_a_plan_is_written_and_read_back() -> None:
    assert plan_csv({"g": {B: 9, A: 1}}, one_group=True) == "t,0,1\nt,1,9\n"
    assert parse_plan("t,0,1\nt,1,9\n", ["g"]) == {"g": {A: 1, B: 9}}
    several = {"g": {A: 1}, "h": {A: 2}}
    text = plan_csv(several, one_group=False)
    assert text == "g,t,0,1\nh,t,0,2\n"
    assert parse_plan(text, ["g", "h"]) == several
    assert parse_plan(text, ["g"]) == several


@pytest.mark.parametrize(
    ("text", "groups", "message"),
    [
        ("t,0", ["g"], "line 1 of the reset plan is not topic,partition,offset: t,0"),
        ("t,0,1\nt,x,1", ["g"], "line 2 of the reset plan is not topic,partition,offset: t,x,1"),
        ("t,0,1", ["g", "h"], "line 1 of the reset plan is not group,topic,partition,offset: t,0,1"),
    ],
)
def test_a_line_that_is_no_plan_is_named(text: str, groups: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_plan(text, groups)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t:x", "Invalid partition 'x' specified in topic arg 't:x''"),
        ("t:0,", "Invalid partition '' specified in topic arg 't:0,''"),
        ("t:", "Invalid topic arg 't:', expected topic name and partitions"),
        (":1", "Invalid topic arg ':1', expected topic name and partitions"),
    ],
)
def test_a_topic_argument_that_is_none_is_refused_in_kafkas_words(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        topic_argument(text)
