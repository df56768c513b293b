"""How far a group was behind over time, in each of its topics. I/O: the table of past lags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.over_time.intervals import Intervals
from stratalog.clients.console.over_time.past_lag import PastLag, consumed, past_lags_of
from stratalog.clients.console.over_time.rates import WINDOW
from stratalog.clients.console.question import Parameter, Question
from stratalog.clients.console.stored.storage import stored_view
from stratalog.replication.metadata.acls import ResourceType

TOPICS_MAX = 50
"""Topics whose points are in one answer."""


@dataclass(frozen=True, slots=True)
class LagPoint:
    """The last measurement of an interval. None: there was none.

    seconds     the age of the oldest first unread record
    read_per_s  records that the group committed as read
    """

    at_ms: int
    lag: int | None
    seconds: float | None
    read_per_s: float | None


@dataclass(frozen=True, slots=True)
class TopicLag:
    """A group in one topic, over all partitions; `newest` is its last measurement, `largest` the largest lag."""

    topic: str
    newest: int
    newest_ms: int
    largest: int
    seconds: float | None
    points: list[LagPoint]


@dataclass(frozen=True, slots=True)
class LagOverTime:
    """A group over time.

    points  of all visible topics together, or of the one that was asked for
    topics  with the largest lag first, at most `TOPICS_MAX`
    hidden  topics that the asker may not see
    unread  files for which there was no time: ask again, since those that were read are kept
    """

    group: str
    topic: str
    window: str
    points: list[LagPoint]
    topics: list[TopicLag]
    hidden: int
    unread: int
    read_ms: int


def lag_over_time(asker: Asker, group: str, topic: str, window: str) -> LagOverTime:
    """The lags of a group, as they were measured."""
    asker.check_group(group)
    if topic:
        asker.check_topic(topic)
    view = stored_view(asker, "past lags are")
    intervals = Intervals.of(window, asker.now_ms)
    found = past_lags_of(view, intervals)
    of_group = [row for row in found.rows if row.group == group and topic in ("", row.topic)]
    named = {row.topic for row in of_group}
    visible = set(asker.visible(ResourceType.TOPIC, named))
    rows = [row for row in of_group if row.topic in visible]
    by_topic = {name: [row for row in rows if row.topic == name] for name in sorted(visible)}
    topics = sorted((_topic(name, own, intervals) for name, own in by_topic.items()), key=lambda each: -each.newest)
    return LagOverTime(
        group,
        topic,
        window,
        points_of(rows, intervals),
        topics[:TOPICS_MAX],
        len(named) - len(visible),
        found.unread,
        asker.now_ms,
    )


def _topic(name: str, rows: Sequence[PastLag], intervals: Intervals) -> TopicLag:
    newest = rows[-1]
    largest = max(row.lag for row in rows)
    return TopicLag(name, newest.lag, newest.at_ms, largest, newest.seconds, points_of(rows, intervals))


def points_of(rows: Iterable[PastLag], intervals: Intervals) -> list[LagPoint]:
    """One point an interval: of each topic the last measurement in it, summed; ages by their largest."""
    measured = list(rows)
    last: list[dict[str, PastLag]] = [{} for _ in range(intervals.count)]
    for row in measured:
        index = intervals.index(row.at_ms)
        if index is not None:
            last[index][row.topic] = row
    read = consumed(measured, intervals)
    return [
        LagPoint(
            intervals.start_ms(index),
            sum(row.lag for row in of_topic.values()) if of_topic else None,
            max((row.seconds for row in of_topic.values() if row.seconds is not None), default=None),
            read[index],
        )
        for index, of_topic in enumerate(last)
    ]


QUESTIONS = (
    Question(
        "lag_over_time",
        "How far a group was behind over the last hour, day or week, in records and seconds, in each of its topics.",
        lag_over_time,
        {
            "group": Parameter(str, "the group"),
            "topic": Parameter(str, "only in this topic; empty: in all", ""),
            "window": WINDOW,
        },
    ),
)
