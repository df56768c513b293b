"""Groups: their members and how far they are behind, in records and in seconds. I/O: coordinators or storage, records.

Seconds are the age of the first record that a group has not read; 0 when it has read everything.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from stratalog.clients.admin.groups import GroupAdmin, Groups, StoredGroups
from stratalog.clients.console.asker import WAIT_MS, Asker
from stratalog.clients.console.question import Parameter, Question
from stratalog.clients.records import OffsetAndMetadata
from stratalog.clients.wire.group_offsets import committed_offsets
from stratalog.clients.wire.view import WireView
from stratalog.replication.metadata.acls import ResourceType
from stratalog.replication.requests.groups import ListedGroup
from stratalog.server.view.cluster_view import ClusterView
from stratalog.server.view.marks import Watermarks
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

PAGE_ROWS = 100
PAGE_ROWS_MAX = 1_000
DATED_MS_MAX = 1_500
"""Time in which one question reads timestamps of first unread records; the rest has no seconds."""
ASKED_MS_MAX = 2_000
"""Time in which one question asks brokers for what groups have committed; the lag of the rest is not known."""
LIST_DATED_MS_MAX = 500
"""The same for a list of groups."""
KEPT_MAX = 4
"""Number of clusters whose fold is kept."""
UNKNOWN = -1
ORDERS = ("lag", "name", "state")


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in a list. `lag` counts offsets in the topics that the asker may see; -1: there was no time to ask.

    kind     the protocol: `classic` or `consumer`
    seconds  the age of the oldest first unread record; None: it was not read
    """

    group_id: str
    kind: str
    state: str
    topics: list[str]
    lag: int
    unknown: int
    seconds: float | None = None


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
class GroupDetail:
    """A group, in the topics that the asker may see; how many others it reads is not shown either."""

    group_id: str
    state: str
    assignor: str
    coordinator: int
    members: list[MemberRow]
    partitions: list[LagRow]
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


@dataclass(frozen=True, slots=True)
class TopicLags:
    """Topic -> the lag of each visible group in it, the largest first, in records."""

    lags: dict[str, list[int]]
    read_ms: int


Committed = dict[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class _Kept:
    groups: StoredGroups
    lock: threading.Lock


_KEPT: dict[ClusterView, _Kept] = {}
_KEPT_LOCK = threading.Lock()


@contextmanager
def _asked_groups(asker: Asker) -> Iterator[Groups]:
    """The source of answers about groups. For a cluster known by its root the fold is kept, and each question reads the
    records that were committed since."""
    view = asker.cluster.view
    if not isinstance(view, ClusterView):
        with asker.cluster.groups(WAIT_MS, changes=False) as asked:
            yield asked
        return
    with _KEPT_LOCK:
        kept = _KEPT.setdefault(view, _Kept(StoredGroups(view), threading.Lock()))
        while len(_KEPT) > KEPT_MAX:
            del _KEPT[next(iter(_KEPT))]
    with kept.lock:
        kept.groups.refresh()
        yield kept.groups


def groups(asker: Asker, contains: str, order: str, first: int, limit: int, wait_ms: int, seconds: bool) -> GroupList:
    """A page of the groups that the asker may describe."""
    measured = _measured(asker, None, contains.lower(), max(0, min(wait_ms, WAIT_MS)))
    rows = _rows(measured)
    if order == "lag":
        rows.sort(key=lambda row: (-row.lag, row.group_id))
    elif order == "state":
        rows.sort(key=lambda row: (row.state, row.group_id))
    limit = max(1, min(limit, PAGE_ROWS_MAX))
    shown = _dated(asker, measured, rows[first : first + limit]) if seconds else rows[first : first + limit]
    return GroupList(shown, first, len(rows), asker.now_ms)


def _dated(asker: Asker, measured: _Measured, rows: Sequence[GroupRow]) -> list[GroupRow]:
    """The rows with seconds, of as many as can be read in `LIST_DATED_MS_MAX`."""
    clock = asker.cluster.view.clock
    deadline_ms = clock.monotonic_ms() + LIST_DATED_MS_MAX
    dated = []
    for row in rows:
        held = measured.committed.get(row.group_id, {})
        ages = [
            _lag_row(asker, named, each.offset, measured.marks.get(named), "", deadline_ms).seconds
            for named, each in held.items()
        ]
        known = [age for age in ages if age is not None]
        dated.append(replace(row, seconds=max(known, default=None) if len(known) == len(ages) else None))
    return dated


def topic_groups(asker: Asker, topic: str) -> TopicGroups:
    """The groups that have committed offsets of a topic, those furthest behind first; their lag is in this topic."""
    asker.check_topic(topic)
    rows = [row for row in _rows(_measured(asker, topic, "", ASKED_MS_MAX)) if topic in row.topics]
    return TopicGroups(topic, sorted(rows, key=lambda row: (-row.lag, row.group_id)), asker.now_ms)


@dataclass(frozen=True, slots=True)
class _Measured:
    """Visible groups by name, what they have committed in visible topics, and where these end."""

    listed: dict[str, ListedGroup]
    committed: dict[str, Committed]
    marks: Mapping[TopicPartition, Watermarks | None]

    def lags(self, name: str) -> dict[TopicPartition, int | None]:
        """Of each partition that the group has committed an offset of."""
        return {named: _lag(held.offset, self.marks.get(named)) for named, held in self.committed[name].items()}


def _measured(asker: Asker, only_topic: str | None, contains: str, wait_ms: int) -> _Measured:
    view = asker.cluster.view
    view.refresh(max_age_ms=1)
    with _asked_groups(asker) as asked:
        admin = GroupAdmin(asked, view)
        listed = {each.group_id: each for each in admin.list_groups() if contains in each.group_id.lower()}
        names = sorted(asker.visible(ResourceType.GROUP, listed))
        found = _committed(asker, admin, names, wait_ms)
    committed = {name: _visible(asker, offsets, only_topic) for name, offsets in found.items()}
    marks = view.watermarks.published_now(sorted({named for offsets in committed.values() for named in offsets}))
    return _Measured({name: listed[name] for name in names}, committed, marks)


def _rows(measured: _Measured) -> list[GroupRow]:
    rows = []
    for name, about in measured.listed.items():
        if name not in measured.committed:
            rows.append(GroupRow(name, about.group_type, about.group_state, [], UNKNOWN, 0))
            continue
        lags = measured.lags(name)
        topics = sorted({named.topic for named in lags})
        known = [each for each in lags.values() if each is not None]
        rows.append(GroupRow(name, about.group_type, about.group_state, topics, sum(known), len(lags) - len(known)))
    return rows


def topic_lags(asker: Asker) -> TopicLags:
    """The lag of each group in each topic, as far as it is known."""
    measured = _measured(asker, None, "", ASKED_MS_MAX)
    found: dict[str, list[int]] = {}
    for name in measured.committed:
        sums: dict[str, int] = {}
        for named, lag in measured.lags(name).items():
            sums[named.topic] = sums.get(named.topic, 0) + (lag or 0)
        for topic, lag in sums.items():
            found.setdefault(topic, []).append(lag)
    return TopicLags({topic: sorted(lags, reverse=True) for topic, lags in sorted(found.items())}, asker.now_ms)


def _committed(asker: Asker, admin: GroupAdmin, names: Sequence[str], wait_ms: int) -> dict[str, Committed]:
    """What the groups have committed, of as many as can be asked in time."""
    view = asker.cluster.view
    if isinstance(view, WireView):
        return committed_offsets(view.cluster, names, view.clock.monotonic_ms() + wait_ms)
    return {name: admin.committed(name) for name in names}


def _visible(
    asker: Asker, committed: Mapping[TopicPartition, OffsetAndMetadata], only_topic: str | None = None
) -> dict[TopicPartition, OffsetAndMetadata]:
    topics = set(asker.visible(ResourceType.TOPIC, {each.topic for each in committed}))
    wanted = topics if only_topic is None else topics & {only_topic}
    return {named: held for named, held in committed.items() if named.topic in wanted}


def _lag(committed: int, marks: Watermarks | None) -> int | None:
    return None if marks is None else max(0, marks.high_watermark - committed)


def group(asker: Asker, group: str) -> GroupDetail:
    """A group with its members and its lag. GroupIdNotFoundError."""
    asker.check_group(group)
    view = asker.cluster.view
    view.refresh(max_age_ms=1)
    with _asked_groups(asker) as asked:
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
    return GroupDetail(
        group,
        described.group_state or "Empty",
        described.partition_assignor,
        coordinator,
        members,
        rows,
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
            "wait_ms": Parameter(int, f"how long brokers are asked for, at most {WAIT_MS} ms", ASKED_MS_MAX),
            "seconds": Parameter(bool, "how old the first unread records are, too", False),
        },
    ),
    Question(
        "group",
        "A group: its members, and how far it is behind in each partition, in records and seconds.",
        group,
        {"group": Parameter(str, "the group")},
    ),
    Question("topic_lags", "The lag of the groups in each topic.", topic_lags),
    Question(
        "topic_groups",
        "The groups that read a topic, those furthest behind first.",
        topic_groups,
        {"topic": Parameter(str, "the topic")},
    ),
)
