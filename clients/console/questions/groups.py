"""Groups: their members and how far they are behind, in records and in seconds. I/O: coordinators or storage, records.

Seconds are the age of the first record that a group has not read; 0 when it has read everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from stratalog.clients.admin.groups import GroupAdmin
from stratalog.clients.console.asker import WAIT_MS, Asker
from stratalog.clients.console.question import Parameter, Question
from stratalog.clients.records import OffsetAndMetadata
from stratalog.replication.metadata.acls import ResourceType
from stratalog.server.view.watermarks import Watermarks
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

PAGE_ROWS = 100
PAGE_ROWS_MAX = 1_000
DATED_MS_MAX = 1_500
"""Time in which one question reads timestamps of first unread records; the rest has no seconds."""
ORDERS = ("lag", "name", "state")


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in a list. `lag` counts offsets in the topics that the asker may see.

    kind  the protocol: `classic` or `consumer`
    """

    group_id: str
    kind: str
    state: str
    topics: list[str]
    lag: int
    unknown: int


@dataclass(frozen=True, slots=True)
class GroupList:
    """Groups from number `first` on, of `count` that fit and that the asker may see."""

    groups: list[GroupRow]
    first: int
    count: int
    read_ms: int


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member with its visible partitions, `topic-0`. `epoch` is None in a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[str]
    epoch: int | None


@dataclass(frozen=True, slots=True)
class LagRow:
    """A partition of a group. `lag` and `end_offset` are -1 while nobody leads; `seconds` is None when it is not known.

    member_id  the member that reads it; empty: none
    """

    topic: str
    partition: int
    committed: int
    start_offset: int
    end_offset: int
    lag: int
    seconds: float | None
    member_id: str


@dataclass(frozen=True, slots=True)
class Group:
    """A group. `hidden` counts partitions of topics that the asker may not see."""

    group_id: str
    state: str
    assignor: str
    coordinator: int
    members: list[MemberRow]
    partitions: list[LagRow]
    hidden: int
    read_ms: int

    @property
    def lag(self) -> int:
        """Of all partitions whose end is known."""
        return sum(max(0, each.lag) for each in self.partitions)

    @property
    def seconds(self) -> float | None:
        """The largest; None when none is known."""
        return max((each.seconds for each in self.partitions if each.seconds is not None), default=None)


@dataclass(frozen=True, slots=True)
class TopicGroups:
    """The groups that have committed offsets of a topic."""

    topic: str
    groups: list[GroupRow]
    read_ms: int


Committed = Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]


def groups(asker: Asker, contains: str, order: str, first: int, limit: int) -> GroupList:
    """A page of the groups that the asker may describe."""
    rows = [row for row in _all_rows(asker) if contains.lower() in row.group_id.lower()]
    if order == "lag":
        rows.sort(key=lambda row: (-row.lag, row.group_id))
    elif order == "state":
        rows.sort(key=lambda row: (row.state, row.group_id))
    limit = max(1, min(limit, PAGE_ROWS_MAX))
    return GroupList(rows[first : first + limit], first, len(rows), asker.now_ms)


def topic_groups(asker: Asker, topic: str) -> TopicGroups:
    """The groups that have committed offsets of a topic, those furthest behind first; their lag is in this topic."""
    asker.check_topic(topic)
    rows = [row for row in _all_rows(asker, topic) if topic in row.topics]
    return TopicGroups(topic, sorted(rows, key=lambda row: (-row.lag, row.group_id)), asker.now_ms)


def _all_rows(asker: Asker, only_topic: str | None = None) -> list[GroupRow]:
    view = asker.cluster.view
    view.refresh(max_age_ms=1)
    with asker.cluster.groups(WAIT_MS, changes=False) as asked:
        admin = GroupAdmin(asked, view)
        listed = {each.group_id: each for each in admin.list_groups()}
        names = sorted(asker.visible(ResourceType.GROUP, listed))
        committed = {name: _visible(asker, admin.committed(name), only_topic) for name in names}
    marks = view.watermarks.published_now(sorted({named for found in committed.values() for named in found}))
    rows = []
    for name in names:
        lags = [_lag(held.offset, marks.get(named)) for named, held in committed[name].items()]
        topics = sorted({named.topic for named in committed[name]})
        known = [each for each in lags if each is not None]
        found = listed[name]
        rows.append(GroupRow(name, found.group_type, found.group_state, topics, sum(known), len(lags) - len(known)))
    return rows


def _visible(
    asker: Asker, committed: Mapping[TopicPartition, OffsetAndMetadata], only_topic: str | None = None
) -> dict[TopicPartition, OffsetAndMetadata]:
    topics = set(asker.visible(ResourceType.TOPIC, {each.topic for each in committed}))
    wanted = topics if only_topic is None else topics & {only_topic}
    return {named: held for named, held in committed.items() if named.topic in wanted}


def _lag(committed: int, marks: Watermarks | None) -> int | None:
    return None if marks is None else max(0, marks.high_watermark - committed)


def group(asker: Asker, group: str) -> Group:
    """A group with its members and its lag. GroupIdNotFoundError."""
    asker.check_group(group)
    view = asker.cluster.view
    view.refresh(max_age_ms=1)
    with asker.cluster.groups(WAIT_MS, changes=False) as asked:
        admin = GroupAdmin(asked, view)
        described = admin.describe_group(group)
        committed = admin.committed(group)
        coordinator = admin.coordinator(group)
    if described.error is not None and not committed:
        raise described.error
    visible = _visible(asker, committed)
    assigned = {named: member.member_id for member in described.members for named in member.assignment}
    topics = set(asker.visible(ResourceType.TOPIC, {named.topic for named in assigned}))
    marks = view.watermarks.published_now(sorted(visible))
    deadline_ms = view.clock.monotonic_ms() + DATED_MS_MAX
    rows = [
        _lag_row(asker, named, visible[named].offset, marks.get(named), assigned.get(named, ""), deadline_ms)
        for named in sorted(visible)
    ]
    members = [
        MemberRow(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.host,
            [str(named) for named in each.assignment if named.topic in topics],
            each.member_epoch,
        )
        for each in described.members
    ]
    hidden = len(committed) - len(visible)
    return Group(
        group,
        described.group_state or "Empty",
        described.partition_assignor,
        coordinator,
        members,
        rows,
        hidden,
        asker.now_ms,
    )


def _lag_row(
    asker: Asker, named: TopicPartition, committed: int, marks: Watermarks | None, member_id: str, deadline_ms: int
) -> LagRow:
    lag = _lag(committed, marks)
    if marks is None or lag is None:
        return LagRow(*named, committed, -1, -1, -1, None, member_id)
    seconds: float | None = 0.0
    if lag:
        seconds = None
        if asker.cluster.view.clock.monotonic_ms() < deadline_ms:
            begin = max(committed, marks.log_start_offset)
            first_ms = _first_time_ms(asker, named, begin, marks.high_watermark)
            seconds = None if first_ms is None else max(0, asker.now_ms - first_ms) / 1_000
    return LagRow(*named, committed, marks.log_start_offset, marks.high_watermark, lag, seconds, member_id)


def _first_time_ms(asker: Asker, named: TopicPartition, offset: int, end_offset: int) -> int | None:
    """The timestamp of the first record from an offset on; None when it cannot be read now."""
    try:
        found = asker.cluster.view.records.fetch(named, offset, 1, end_offset, timeout_ms=0)
    except StratalogError:
        return None
    if not found.rows.num_rows:
        return None
    times = found.rows["timestamp"].slice(0, 1).cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    time_ms = times[0].as_py()
    return None if time_ms is None else int(time_ms)


QUESTIONS = (
    Question(
        "groups",
        "The groups with their state and how far they are behind.",
        groups,
        {
            "contains": Parameter(str, "a part of the name, in any case", ""),
            "order": Parameter(str, "by what the list is sorted", "lag", ORDERS),
            "first": Parameter(int, "the number of the first group to show, from 0", 0),
            "limit": Parameter(int, f"how many groups to show, at most {PAGE_ROWS_MAX}", PAGE_ROWS),
        },
    ),
    Question(
        "group",
        "A group: its members, and how far it is behind in each partition, in records and seconds.",
        group,
        {"group": Parameter(str, "the group")},
    ),
    Question(
        "topic_groups",
        "The groups that read a topic, those furthest behind first.",
        topic_groups,
        {"topic": Parameter(str, "the topic")},
    ),
)
