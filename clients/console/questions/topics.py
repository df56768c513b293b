"""Topics: their partitions, records and configs. I/O: metadata, leaders' bounds, and sizes of replicas where asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from stratalog.clients.console.asker import Asker, is_internal
from stratalog.clients.console.over_time.ends import newest_rate
from stratalog.clients.console.question import Parameter, Question
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.server.admin.configs import ConfigInForce
from stratalog.server.view.marks import Watermarks
from stratalog.storage.errors import StratalogError, UnknownTopicOrPartitionError
from stratalog.storage.records import TopicPartition

PAGE_ROWS = 100
PAGE_ROWS_MAX = 1_000
UNKNOWN = -1
ORDERS = ("name", "records", "partitions", "offline")


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in a list.

    records           offsets between the partitions' starts and ends, markers and gaps of compaction among them; of
                      partitions whose leader answers
    unknown           partitions whose bounds nobody published
    under_replicated  partitions with fewer members in the ISR than replicas
    size_bytes        of the leaders' data files; -1: not asked for, or not known
    records_per_s     between readings of this console; None: it has read once only
    """

    name: str
    partitions: int
    replication_factor: int
    records: int
    unknown: int
    offline: int
    under_replicated: int
    is_internal: bool
    size_bytes: int
    records_per_s: float | None


@dataclass(frozen=True, slots=True)
class TopicList:
    """Topics from number `first` on, of `count` that fit and that the asker may see."""

    topics: list[TopicRow]
    first: int
    count: int
    read_ms: int


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition. Offsets are -1 while nobody leads; `leader` is -1 then, too.

    size_bytes  of the leader's data files; -1: not asked for, or not known
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    eligible: list[int]
    adding: list[int]
    removing: list[int]
    start_offset: int
    end_offset: int
    size_bytes: int

    @property
    def records(self) -> int:
        """Offsets between start and end; -1 while nobody leads."""
        return UNKNOWN if self.end_offset == UNKNOWN else self.end_offset - self.start_offset

    @property
    def state(self) -> str:
        """`offline`, `under-replicated` or `in sync`."""
        if self.leader == NO_LEADER:
            return "offline"
        return "under-replicated" if len(self.isr) < len(self.replicas) else "in sync"


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """A config in force; `source` is Kafka's ConfigSource, `others` what would be in force without it."""

    name: str
    value: str | None
    source: str
    others: list[str]
    is_sensitive: bool

    @property
    def is_override(self) -> bool:
        """Whether it was set on this very resource."""
        return self.source in ("DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_GROUP_CONFIG")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. `configs` is empty, and `configs_hidden` says why, for those who may not describe them.

    sizes_hidden  why sizes are not known; empty: they are
    """

    name: str
    topic_id: str
    partitions: list[PartitionRow]
    configs: list[ConfigRow]
    configs_hidden: str
    sizes_hidden: str
    read_ms: int

    @property
    def records(self) -> int:
        """Of all partitions whose leader answers."""
        return sum(max(0, each.records) for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Of the leaders' data files; -1 where any is not known."""
        sizes = [each.size_bytes for each in self.partitions]
        return UNKNOWN if UNKNOWN in sizes else sum(sizes)


def topics(asker: Asker, contains: str, internal: bool, order: str, first: int, limit: int, sizes: bool) -> TopicList:
    """A page of the topics that the asker may describe."""
    wanted = contains.lower()
    asker.cluster.view.refresh()
    image = asker.cluster.view.image
    fitting = [name for name in image.topic_ids if wanted in name.lower() and (internal or not is_internal(name))]
    names = sorted(asker.visible(ResourceType.TOPIC, fitting))
    limit = max(1, min(limit, PAGE_ROWS_MAX))
    by_topic = {name: [image.partitions[each] for each in image.partitions_by_topic[name]] for name in names}
    if order == "records":
        found = _rows(asker, by_topic)
        found.sort(key=lambda row: (-row.records, row.name))
        shown = found[first : first + limit]
        return TopicList(_sized(asker, shown, by_topic) if sizes else shown, first, len(names), asker.now_ms)
    if order == "partitions":
        names.sort(key=lambda name: (-len(by_topic[name]), name))
    elif order == "offline":
        names.sort(key=lambda name: (-_wrong(by_topic[name]), name))
    shown = _rows(asker, {name: by_topic[name] for name in names[first : first + limit]})
    return TopicList(_sized(asker, shown, by_topic) if sizes else shown, first, len(names), asker.now_ms)


def _wrong(states: Iterable[PartitionRecord]) -> int:
    return sum(1_000_000 * (each.leader == NO_LEADER) + (len(each.isr) < len(each.replicas)) for each in states)


def _rows(asker: Asker, by_topic: Mapping[str, list[PartitionRecord]]) -> list[TopicRow]:
    named = [each.topic_partition for states in by_topic.values() for each in states]
    marks = bounds(asker, named)
    rate = newest_rate(asker)
    rows = []
    for name, states in by_topic.items():
        known = [found for each in states if (found := marks.get(each.topic_partition)) is not None]
        rows.append(
            TopicRow(
                name,
                len(states),
                max((len(each.replicas) for each in states), default=0),
                sum(each.high_watermark - each.log_start_offset for each in known),
                len(states) - len(known),
                sum(each.leader == NO_LEADER for each in states),
                sum(len(each.isr) < len(each.replicas) for each in states),
                is_internal(name),
                UNKNOWN,
                None if rate is None else rate.by_topic.get(name, 0.0),
            )
        )
    return rows


def _sized(asker: Asker, rows: Sequence[TopicRow], by_topic: Mapping[str, list[PartitionRecord]]) -> list[TopicRow]:
    """The rows with sizes, as far as the asker may know them and every leader's replica can be read."""
    found, _ = _sizes(asker, [row.name for row in rows])
    sized = []
    for row in rows:
        sizes = [found.get((each.leader, each.topic_partition), UNKNOWN) for each in by_topic[row.name]]
        sized.append(replace(row, size_bytes=UNKNOWN if UNKNOWN in sizes else sum(sizes)))
    return sized


def bounds(asker: Asker, named: Iterable[TopicPartition]) -> Mapping[TopicPartition, Watermarks | None]:
    """The readable bounds of partitions, as far as they are known without waiting."""
    return asker.cluster.view.watermarks.published_now(sorted(named))


def topic(asker: Asker, topic: str, sizes: bool) -> Topic:
    """A topic with its partitions and configs. UnknownTopicOrPartitionError."""
    asker.check_topic(topic)
    view = asker.cluster.view
    view.refresh(max_age_ms=1)
    described = asker.cluster.admin.describe_topics([topic]).get(topic)
    if described is None:
        raise UnknownTopicOrPartitionError(f"there is no topic {topic}")
    marks = bounds(asker, [TopicPartition(topic, each.partition) for each in described.partitions])
    found, hidden = _sizes(asker, [topic]) if sizes else ({}, "not asked for")
    configs, configs_hidden = _configs(asker, topic)
    partitions = [
        _partition(each, marks.get(each.topic_partition), found.get((each.leader, each.topic_partition), UNKNOWN))
        for each in described.partitions
    ]
    return Topic(topic, described.topic_id, partitions, configs, configs_hidden, hidden, asker.now_ms)


def _partition(state: PartitionRecord, marks: Watermarks | None, size_bytes: int) -> PartitionRow:
    start, end = (UNKNOWN, UNKNOWN) if marks is None else (marks.log_start_offset, marks.high_watermark)
    return PartitionRow(
        state.partition,
        state.leader,
        state.leader_epoch,
        list(state.replicas),
        list(state.isr),
        list(state.elr),
        list(state.adding),
        list(state.removing),
        start,
        end,
        size_bytes,
    )


def _sizes(asker: Asker, topics: Sequence[str]) -> tuple[dict[tuple[int, TopicPartition], int], str]:
    """(broker, partition) -> bytes, or why they are not known."""
    if not asker.may(Operation.DESCRIBE, ResourceType.CLUSTER):
        return {}, "you may not DESCRIBE the cluster"
    try:
        found = asker.cluster.admin.describe_log_dirs(topics=topics)
    except StratalogError as reason:
        return {}, str(reason)
    broken = [f"broker {broker_id}: {each.error}" for broker_id, each in found.items() if each.error is not None]
    sizes = {
        (broker_id, named): replica.size_bytes
        for broker_id, each in found.items()
        for named, replica in each.replicas.items()
    }
    return sizes, "; ".join(broken)


def _configs(asker: Asker, topic: str) -> tuple[list[ConfigRow], str]:
    if not asker.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic):
        return [], f"{asker.principal.name} is not allowed to DESCRIBE_CONFIGS of {topic}"
    try:
        return config_rows(asker.cluster.admin.topic_configs(topic)), ""
    except StratalogError as reason:
        return [], str(reason)


def config_rows(found: Iterable[ConfigInForce]) -> list[ConfigRow]:
    """Configs in force as rows, overrides first."""
    rows = []
    for each in found:
        synonyms = [str(one) for one in each.synonyms[1:]]
        value = None if each.is_sensitive else each.value
        hidden = [] if each.is_sensitive else synonyms
        rows.append(ConfigRow(each.name, value, each.source, hidden, each.is_sensitive))
    return sorted(rows, key=lambda row: (row.source == "DEFAULT_CONFIG", not row.is_override, row.name))


TOPIC = Parameter(str, "the topic")
QUESTIONS = (
    Question(
        "topics",
        "The topics with their partitions and records, a page at a time.",
        topics,
        {
            "contains": Parameter(str, "a part of the name, in any case", ""),
            "internal": Parameter(bool, "the cluster's own topics, too", False),
            "order": Parameter(str, "by what the list is sorted", "name", ORDERS),
            "first": Parameter(int, "the number of the first topic to show, from 0", 0),
            "limit": Parameter(int, f"how many topics to show, at most {PAGE_ROWS_MAX}", PAGE_ROWS),
            "sizes": Parameter(bool, "sizes, which takes longer", False),
        },
    ),
    Question(
        "topic",
        "A topic: partitions with leaders, ISR and offsets, and configs with where they come from.",
        topic,
        {"topic": TOPIC, "sizes": Parameter(bool, "sizes of the partitions, which takes longer", True)},
    ),
)
