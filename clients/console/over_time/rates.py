"""Records and bytes a second over time, of one topic or of the cluster. I/O: leaders' tables, or brokers.

By the metadata root, data files say what came when, by the records' timestamps, and past commits of groups what was
read. By brokers' addresses, leaders are asked for the first offset of each interval: a record counts with younger ones
before it, and bytes are not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from stratalog.clients.console.asker import Asker, is_internal
from stratalog.clients.console.over_time.arrivals import Arrivals, CountedFiles, arrivals_of
from stratalog.clients.console.over_time.ends import begin_ends, begin_rate
from stratalog.clients.console.over_time.intervals import WINDOWS, Intervals
from stratalog.clients.console.over_time.past_lag import consumed, past_lags_of
from stratalog.clients.console.question import Parameter, Question
from stratalog.clients.wire.offsets import ListedOffsets
from stratalog.clients.wire.view import WireView
from stratalog.replication.metadata.acls import ResourceType
from stratalog.server.offset_spec import UNKNOWN_OFFSET
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.delta.table import LogTable
from stratalog.storage.errors import StratalogError, UnknownTopicOrPartitionError
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import TopicPartition

READ_MS_MAX = 2_500
"""Time in which one question reads tables, or asks brokers."""
PARTITIONS_MAX, ASKED_PARTITIONS_MAX = 4_000, 50
"""Partitions that one question reads on storage, and asks brokers for. The folds of those that were read are kept."""
READ_AT_ONCE = 8
TOPICS_MAX = 100
_COUNTED = CountedFiles()


@dataclass(frozen=True, slots=True)
class RatePoint:
    """The rates from `at_ms` to `until_ms`. None: not known.

    read_per_s  records that visible groups committed as read
    """

    at_ms: int
    until_ms: int
    records_per_s: float | None
    bytes_per_s: float | None
    read_per_s: float | None


@dataclass(frozen=True, slots=True)
class TopicRate:
    """A topic in the whole window; `newest_per_s` is its rate of the last complete interval."""

    topic: str
    records: float
    size_bytes: float | None
    newest_per_s: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates over time. Records are offsets, so markers of transactions are among them.

    topics       of the cluster: those with most records, at most `TOPICS_MAX`
    now_per_s    between readings of this console, over the last `now_s`; None: there was one reading only
    partitions   that exist; `read` of them are in the numbers
    spread       records that were taken to have come evenly over the time of their file
    undated      records without a timestamp, in no interval
    source       `storage`, or `brokers`
    hidden       why the past is not shown; empty: it is
    out_hidden   why reading is not shown; empty: it is
    """

    topic: str
    window: str
    points: list[RatePoint]
    topics: list[TopicRate]
    now_per_s: float | None
    now_s: float
    partitions: int
    read: int
    spread: int
    undated: int
    source: str
    hidden: str
    out_hidden: str
    read_ms: int


@dataclass(frozen=True, slots=True)
class _Found:
    """Arrivals by partition, as far as they were read."""

    by_partition: Mapping[TopicPartition, Arrivals]
    has_sizes: bool


def rates(asker: Asker, topic: str, window: str, internal: bool) -> Rates:
    """The rates of a topic, or of all topics that the asker may see."""
    if topic:
        asker.check_topic(topic)
    view = asker.cluster.view
    view.refresh(max_age_ms=1)
    names = [topic] if topic else _visible(asker, internal)
    if topic and topic not in view.topics():
        raise UnknownTopicOrPartitionError(f"there is no topic {topic}")
    now = begin_rate(asker)()
    if now is not None:  # where not all can be read, the busiest count
        names.sort(key=lambda name: -now.by_topic.get(name, 0.0))
    wanted = [each for name in names for each in view.image.partitions_of(name)]
    is_served = isinstance(view, WireView)
    intervals = Intervals.of(window, asker.now_ms, is_coarse=is_served)
    limit = ASKED_PARTITIONS_MAX if is_served else PARTITIONS_MAX
    hidden = ""
    if is_served and len(wanted) > limit:
        hidden = f"brokers are asked for up to {limit} partitions, and these are {len(wanted)}: choose a topic"
        found = _Found({}, has_sizes=False)
    else:
        found = _asked(view, wanted, intervals) if isinstance(view, WireView) else _stored(view, wanted, intervals)
    total = Arrivals.nothing(intervals.count)
    for each in found.by_partition.values():
        total.add(each)
    read, out_hidden = _read_rates(asker, names, intervals)
    return Rates(
        topic,
        window,
        [] if hidden else _points(total, read, intervals, has_sizes=found.has_sizes),
        [] if topic else _topics(found, intervals),
        None if now is None else now.total(set(names)),
        0.0 if now is None else now.seconds,
        len(wanted),
        len(found.by_partition),
        total.spread,
        total.undated,
        "brokers" if is_served else "storage",
        hidden,
        out_hidden,
        asker.now_ms,
    )


def _visible(asker: Asker, internal: bool) -> list[str]:
    names = asker.visible(ResourceType.TOPIC, asker.cluster.view.topics())
    return sorted(name for name in names if internal or not is_internal(name))


def _points(total: Arrivals, read: Sequence[float | None], intervals: Intervals, *, has_sizes: bool) -> list[RatePoint]:
    return [
        RatePoint(
            intervals.start_ms(index),
            intervals.end_ms(index),
            total.offsets[index] / intervals.seconds(index),
            total.size[index] / intervals.seconds(index) if has_sizes else None,
            read[index],
        )
        for index in range(intervals.count)
    ]


def _topics(found: _Found, intervals: Intervals) -> list[TopicRate]:
    by_topic: dict[str, Arrivals] = {}
    for named, each in found.by_partition.items():
        by_topic.setdefault(named.topic, Arrivals.nothing(intervals.count)).add(each)
    newest = max(0, intervals.count - 2)
    rows = [
        TopicRate(
            topic,
            sum(each.offsets),
            sum(each.size) if found.has_sizes else None,
            each.offsets[newest] / intervals.seconds(newest),
        )
        for topic, each in by_topic.items()
    ]
    return sorted(rows, key=lambda row: (-row.records, row.topic))[:TOPICS_MAX]


# -- by storage ------------------------------------------------------------------------------------------------------


def _stored(view: object, wanted: Sequence[TopicPartition], intervals: Intervals) -> _Found:
    """What the leaders' tables say, of as many partitions as can be read in time."""
    assert isinstance(view, ClusterView)
    deadline_ms = view.clock.monotonic_ms() + READ_MS_MAX
    view.changes.poll()

    def has_time() -> bool:
        return view.clock.monotonic_ms() < deadline_ms

    def look(log: LogReader) -> tuple[LogTable, list[FileEntry]]:
        recent = [each for each in log.files if (each.file.max_timestamp_ms or 0) >= intervals.from_ms]
        undated = [each for each in log.files if each.file.max_timestamp_ms is None]
        return log.table, [*undated, *recent]

    def read(named: TopicPartition) -> Arrivals | None:
        if not has_time():
            return None
        owner = f"{view.image.topic_ids.get(named.topic, '')}-{named.partition}"
        try:
            table, files = view.records.read_from_log(named, look, 0, poll=False)
            return arrivals_of(
                files, intervals, lambda entry: _COUNTED.minutes(table, owner, entry, may_read=has_time())
            )
        except StratalogError:
            return None

    with ThreadPoolExecutor(READ_AT_ONCE) as threads:
        places = wanted[:PARTITIONS_MAX]
        answers = dict(zip(places, threads.map(read, places), strict=True))
    return _Found({named: each for named, each in answers.items() if each is not None}, has_sizes=True)


def _read_rates(asker: Asker, topics: Sequence[str], intervals: Intervals) -> tuple[list[float | None], str]:
    """What visible groups read of these topics, or why it is not known."""
    unknown: list[float | None] = [None] * intervals.count
    view = asker.cluster.view
    if not isinstance(view, ClusterView):
        return unknown, "what groups read is in the table of past lags, on storage alone"
    found = past_lags_of(view, intervals)
    groups = set(asker.visible(ResourceType.GROUP, {row.group for row in found.rows}))
    names = set(topics)
    rows = [row for row in found.rows if row.topic in names and row.group in groups]
    if not rows:
        return unknown, "no group that you may see has measurements in this time"
    return consumed(rows, intervals), ""


# -- by brokers ------------------------------------------------------------------------------------------------------


def _asked(view: WireView, wanted: Sequence[TopicPartition], intervals: Intervals) -> _Found:
    """What leaders answer: the first offset from the start of each interval on."""
    listed = ListedOffsets(view.cluster)
    deadline_ms = view.clock.monotonic_ms() + READ_MS_MAX
    ends = begin_ends(view, wanted)()
    offsets: dict[TopicPartition, list[float]] = {named: [0.0] * intervals.count for named in ends}
    after = dict(ends)
    for index in reversed(range(intervals.count)):
        if view.clock.monotonic_ms() >= deadline_ms or not after:
            return _Found({}, has_sizes=False)
        found, _ = listed.now(dict.fromkeys(after, intervals.start_ms(index)), view.timeout_ms)
        begins = {named: each.offset for named, each in found.items()}
        for named in list(after):
            if named not in begins:
                del after[named]
                continue
            begin = after[named] if begins[named] == UNKNOWN_OFFSET else min(begins[named], after[named])
            offsets[named][index] = float(after[named] - begin)
            after[named] = begin
    sizes = [0.0] * intervals.count
    return _Found({named: Arrivals(offsets[named], sizes) for named in after}, has_sizes=False)


WINDOW = Parameter(str, "the time that it goes back", "1h", tuple(WINDOWS))
QUESTIONS = (
    Question(
        "rates",
        "Records and bytes a second over the last hour, day or week, in and out, of a topic or of the cluster.",
        rates,
        {
            "topic": Parameter(str, "the topic; empty: all topics together", ""),
            "window": WINDOW,
            "internal": Parameter(bool, "without a topic: the cluster's own topics, too", False),
        },
    ),
)
