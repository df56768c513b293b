"""Leaders, ISRs and leader epochs of a topic in time, its failovers, and the records around them.

I/O: the metadata log, its history, leaders' tables. No broker is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.question import Parameter, Question
from stratalog.clients.console.stored.commits import CommitReader, commit_of_offset
from stratalog.clients.console.stored.past import WAIT_MS, epoch_starts, states_of_topic
from stratalog.clients.console.stored.storage import stored_view
from stratalog.clients.console.stored.timeline import FAILOVER, LeadershipEvent, events_of
from stratalog.clients.console.times import TIME_DOC, time_ms
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError, UnknownTopicOrPartitionError
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import TopicPartition

RECORDS_AROUND = 3
"""Records before and behind a failover that are shown."""
FAILOVERS_EXAMINED_MAX = 20
"""The newest failovers around which records are read."""
EVENTS_MAX = 1_000
"""Limit of `limit`."""


@dataclass(frozen=True, slots=True)
class RecordNear:
    """A record beside a failover.

    arrived_ms       when the present leader's table got it; null when that commit was cleaned up
    is_acknowledged  whether it is below the high watermark: an acknowledgement to `acks=all` is possible
    """

    offset: int
    leader_epoch: int
    timestamp_ms: int | None
    arrived_ms: int | None
    is_acknowledged: bool


@dataclass(frozen=True, slots=True)
class Failover:
    """A failover and the records around it.

    from_leader      the last leader before; -1: none is known
    at_ms            when the new leader was elected, by the metadata log
    without_ms       for how long nobody led before that
    start_offset     the records from here on were written under the new leader; null: not known, or none was
    last_before_ms, first_after_ms
                     timestamps of the records beside `start_offset`; null: not in the log
    silent_ms        the time between the two
    records          those beside `start_offset`, by offset
    """

    partition: int
    from_leader: int
    to_leader: int
    leader_epoch: int
    at_ms: int
    without_ms: int
    start_offset: int | None
    last_before_ms: int | None
    first_after_ms: int | None
    silent_ms: int | None
    records: tuple[RecordNear, ...]


@dataclass(frozen=True, slots=True)
class WhoLed:
    """The leadership of a topic.

    events     the newest `limit`, by partition and time
    failovers  the newest first
    is_cut     whether there were more events
    read_ms    when it was read
    """

    topic: str
    topic_id: str
    is_deleted: bool
    events: tuple[LeadershipEvent, ...]
    failovers: tuple[Failover, ...]
    is_cut: bool
    read_ms: int


def who_led(asker: Asker, topic: str, partition: int, since: str, until: str, topic_id: str, limit: int) -> WhoLed:
    """The leadership of a topic, or one partition of it, in time. UnknownTopicOrPartitionError when nothing of it is
    known."""
    asker.check_topic(topic)
    view = stored_view(asker, "the history of leaders is")
    states = states_of_topic(view, topic, None if partition < 0 else partition)
    present = view.image.topic_ids.get(topic)
    wanted = topic_id or present or (states[-1].topic_id if states else "")
    own = [state for state in states if state.topic_id == wanted]
    if not own:
        raise UnknownTopicOrPartitionError(
            f"{topic}: neither the metadata log nor its history has a state of it"
            + (f" under topic id {wanted}" if wanted else "")
        )
    numbers = sorted({state.partition for state in own})
    starts = epoch_starts(view, topic, numbers) if wanted == present else {}
    events = events_of(own, starts)
    from_ms, to_ms = time_ms(since or "0"), time_ms(until) if until else asker.now_ms
    inside = [each for each in events if is_inside(each, from_ms, to_ms)]
    kept = newest(inside, min(max(limit, 1), EVENTS_MAX))
    elected = sorted((each for each in kept if FAILOVER in each.what), key=lambda each: -each.metadata_offset)
    failovers = []
    for number, event in enumerate(elected):
        around: tuple[RecordNear, ...] = ()
        if wanted == present and number < FAILOVERS_EXAMINED_MAX:
            around = _records_around(view, TopicPartition(topic, event.partition), event.start_offset)
        failovers.append(failover_of(event, events, around))
    return WhoLed(
        topic, wanted, wanted != present, tuple(kept), tuple(failovers), len(kept) < len(inside), asker.now_ms
    )


def is_inside(event: LeadershipEvent, from_ms: int, to_ms: int) -> bool:
    """Whether the state of the event was in force at any time in `[from_ms, to_ms]`."""
    return event.at_ms <= to_ms and (event.until_ms is None or event.until_ms >= from_ms)


def newest(events: Sequence[LeadershipEvent], limit: int) -> list[LeadershipEvent]:
    """The newest events, in their order."""
    kept = {each.metadata_offset for each in sorted(events, key=lambda each: -each.metadata_offset)[:limit]}
    return [each for each in events if each.metadata_offset in kept]


def failover_of(event: LeadershipEvent, events: Sequence[LeadershipEvent], around: tuple[RecordNear, ...]) -> Failover:
    """A failover by its event and the partition's events."""
    earlier = [
        each for each in events if each.partition == event.partition and each.metadata_offset < event.metadata_offset
    ]
    led = [number for number, each in enumerate(earlier) if each.leader != NO_LEADER]
    from_leader = earlier[led[-1]].leader if led else NO_LEADER
    vacant = earlier[led[-1] + 1 :] if led else earlier
    start = event.start_offset
    before = [each.timestamp_ms for each in around if start is not None and each.offset < start]
    behind = [each.timestamp_ms for each in around if start is not None and each.offset >= start]
    last_before, first_after = before[-1] if before else None, behind[0] if behind else None
    silent = None if last_before is None or first_after is None else first_after - last_before
    without_ms = event.at_ms - vacant[0].at_ms if vacant else 0
    place = event.partition, from_leader, event.leader, event.leader_epoch, event.at_ms, without_ms
    return Failover(*place, start, last_before, first_after, silent, around)


def _records_around(view: ClusterView, place: TopicPartition, start: int | None) -> tuple[RecordNear, ...]:
    """Records beside an offset, by the leader's log; empty when it cannot be read or has none."""
    if start is None:
        return ()

    def look(log: LogReader) -> list[tuple[int, int, int | None, int | None]]:
        log.refresh()
        first = max(log.log_start_offset, start - RECORDS_AROUND)
        end = min(log.log_end_offset, start + RECORDS_AROUND)
        read, found = CommitReader(log.table, log.version), []
        for rows in log.read_range(first, end, columns=("offset", "leader_epoch", "timestamp")):
            times = rows["timestamp"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_pylist()
            pairs = zip(rows["offset"].to_pylist(), rows["leader_epoch"].to_pylist(), times, strict=True)
            for offset, epoch, time in pairs:
                commit = commit_of_offset(read, log.version, offset, epoch)
                found.append((offset, epoch, time, None if commit is None else commit.timestamp_ms))
        return found

    with suppress(StratalogError):
        marks = view.watermarks.published_now([place])[place]
        end = -1 if marks is None else marks.high_watermark
        return tuple(RecordNear(*each, each[0] < end) for each in view.records.read_from_log(place, look, WAIT_MS))
    return ()


QUESTIONS = (
    Question(
        "who_led",
        "Leaders, ISRs and epochs of a topic in time, its failovers, and which records were written around them.",
        who_led,
        {
            "topic": Parameter(str, "the topic"),
            "partition": Parameter(int, "the partition; -1: all", -1),
            "since": Parameter(str, f"states in force from this time on: {TIME_DOC}", ""),
            "until": Parameter(str, "states in force up to this time; empty: now", ""),
            "topic_id": Parameter(str, "the id of a topic that is gone; empty: the newest of the name", ""),
            "limit": Parameter(int, f"how many events, the newest; at most {EVENTS_MAX}", 200),
        },
    ),
)
