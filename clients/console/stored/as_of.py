"""A topic, a group and the cluster as they were at a time, and what differs now.

I/O: the metadata log, its history, the table of past lags; records' timestamps. No broker is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from stratalog.clients.admin.groups import GroupAdmin, StoredGroups
from stratalog.clients.console.asker import Asker
from stratalog.clients.console.question import Parameter, Question
from stratalog.clients.console.stored.differences import (
    StateDifference,
    cluster_config_differences,
    cluster_differences,
    config_differences,
    image_at,
    partition_differences,
    removed_ms,
    unknown_configs,
    with_past_partitions,
)
from stratalog.clients.console.stored.past import past_lags, recorded_metadata, states_by_topic, states_of_topic
from stratalog.clients.console.stored.storage import stored_view
from stratalog.clients.console.times import TIME_DOC, time_ms
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import InvalidRequestError, StratalogError, UnknownTopicOrPartitionError
from stratalog.storage.records import TopicPartition

OFFSETS_MAX = 200
"""Partitions of which the log end at the time is looked up."""
LAG_WINDOW_MS = 86_400_000
"""Time before the one asked for in which a measurement of a group counts."""
WAIT_MS = 1_000
"""Time to wait for a partition's leader."""


@dataclass(frozen=True, slots=True)
class PartitionThen:
    """A partition at the time.

    end_offset  the first offset whose record has the time or a later one, or the log end: about where the log ended
                then; null: not looked up
    """

    partition: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    end_offset: int | None


@dataclass(frozen=True, slots=True)
class TopicAsOf:
    """A topic at a time.

    existed         whether there was a topic of the name; `topic_id` is empty otherwise
    configs         those that were set for the topic; null: the asker may not see configs
    unknown_configs those whose value at the time is not known any more
    exact_from_ms   from this time on everything is known; before it only states of partitions are
    """

    topic: str
    at_ms: int
    existed: bool
    topic_id: str
    partitions: tuple[PartitionThen, ...]
    configs: Mapping[str, str] | None
    unknown_configs: tuple[str, ...]
    differences: tuple[StateDifference, ...]
    exact_from_ms: int


@dataclass(frozen=True, slots=True)
class GroupPartitionThen:
    """A group in one partition at the time, and now. Null: not known, or nothing was committed."""

    topic: str
    partition: int
    committed_then: int | None
    end_then: int | None
    lag_then: int | None
    lag_seconds_then: float | None
    committed_now: int | None
    end_now: int | None
    lag_now: int | None


@dataclass(frozen=True, slots=True)
class GroupAsOf:
    """A group at a time.

    measured_ms  when the group was last measured before the time; null: it was not, within a day
    members      at that measurement
    """

    group_id: str
    at_ms: int
    measured_ms: int | None
    members: int | None
    lag_then: int | None
    lag_now: int | None
    partitions: tuple[GroupPartitionThen, ...]


@dataclass(frozen=True, slots=True)
class BrokerThen:
    """A broker at the time."""

    broker_id: int
    is_running: bool
    rack: str | None
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ClusterAsOf:
    """The cluster at a time; topics and partitions are those that the asker may see.

    brokers, controller_id  empty and -1 for those who may not describe the cluster
    unsure_topics           they were deleted since, or by then: nothing says when
    exact_from_ms           from this time on everything is known; before it brokers and configs may be missing
    """

    at_ms: int
    brokers: tuple[BrokerThen, ...]
    controller_id: int
    topics: int
    partitions: int
    offline: int
    under_replicated: int
    unsure_topics: tuple[str, ...]
    differences: tuple[StateDifference, ...]
    exact_from_ms: int


def topic_as_of(asker: Asker, topic: str, at: str) -> TopicAsOf:
    """A topic at a time. UnknownTopicOrPartitionError when nothing was ever known of it."""
    asker.check_topic(topic)
    view = stored_view(asker, "the past of topics is")
    at_ms = time_asked(at, asker.now_ms)
    recorded = recorded_metadata(view)
    states = states_of_topic(view, topic, rows=recorded.rows)
    if not states:
        raise UnknownTopicOrPartitionError(f"{topic}: neither the metadata log nor its history has a state of it")
    now = view.image
    past = {topic: states}
    then, _ = with_past_partitions(image_at(recorded.rows, at_ms), past, now, removed_ms(recorded.rows), at_ms)
    topic_id = then.topic_ids.get(topic, "")
    places = then.partitions_of(topic)
    ends = _ends_at(view, places, at_ms) if topic_id and now.topic_ids.get(topic) == topic_id else {}
    differences = _topic_differences(then, now, topic)
    configs: Mapping[str, str] | None = None
    unknown: list[str] = []
    if asker.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic):
        unknown = unknown_configs(recorded.rows, topic, at_ms, recorded.exact_from_ms)
        configs = {name: value for name, value in then.topic_overrides(topic).items() if name not in unknown}
        present = {name: value for name, value in now.topic_overrides(topic).items() if name not in unknown}
        differences += config_differences("config", configs, present)
    return TopicAsOf(
        topic,
        at_ms,
        bool(topic_id),
        topic_id,
        tuple(_partition_then(then.partitions[place], ends.get(place)) for place in places),
        configs,
        tuple(unknown),
        tuple(differences),
        recorded.exact_from_ms,
    )


def _topic_differences(then: ClusterImage, now: ClusterImage, topic: str) -> list[StateDifference]:
    old_id, new_id = (image.topic_ids.get(topic, "-") for image in (then, now))
    states = [{place: image.partitions[place] for place in image.partitions_of(topic)} for image in (then, now)]
    changed = [] if old_id == new_id else [StateDifference("topic id", topic, old_id, new_id)]
    return changed + partition_differences(*states)


def _partition_then(state: PartitionRecord, end_offset: int | None) -> PartitionThen:
    return PartitionThen(state.partition, state.leader, state.leader_epoch, state.isr, state.replicas, end_offset)


def _ends_at(view: ClusterView, places: Sequence[TopicPartition], at_ms: int) -> dict[TopicPartition, int]:
    """About where the logs ended, by the timestamps of records."""
    ends: dict[TopicPartition, int] = {}
    for place in places[:OFFSETS_MAX]:
        with suppress(StratalogError):
            found = view.offsets.offset_for_timestamp(place, at_ms + 1, WAIT_MS)
            ends[place] = view.offsets.end_offsets([place], WAIT_MS)[place] if found is None else found.offset
    return ends


def group_as_of(asker: Asker, group: str, at: str) -> GroupAsOf:
    """A group at a time, by the table of past lags, in the topics that the asker may see."""
    asker.check_group(group)
    view = stored_view(asker, "the table of past lags is")
    at_ms = time_asked(at, asker.now_ms)
    rows = past_lags(view, group, at_ms - LAG_WINDOW_MS, at_ms).to_pylist()
    measured = rows[-1]["timestamp"] if rows else None
    then = {
        TopicPartition(row["topic"], row["partition"]): row
        for row in rows
        if row["timestamp"] == measured and asker.may(Operation.DESCRIBE, ResourceType.TOPIC, row["topic"])
    }
    view.refresh()
    lag = GroupAdmin(StoredGroups(view), view).lag(group)
    now = {
        each.topic_partition: each
        for each in lag.partitions
        if asker.may(Operation.DESCRIBE, ResourceType.TOPIC, each.topic_partition.topic)
    }
    partitions = []
    for place in sorted(then.keys() | now.keys()):
        old, new = then.get(place, {}), now.get(place)
        partitions.append(
            GroupPartitionThen(
                *place,
                old.get("current_offset"),
                old.get("end_offset"),
                old.get("lag"),
                old.get("lag_seconds"),
                None if new is None else new.committed_offset,
                None if new is None else new.high_watermark,
                None if new is None else new.lag,
            )
        )
    return GroupAsOf(
        group,
        at_ms,
        None if measured is None else round(measured.timestamp() * 1_000),
        rows[-1]["members"] if rows else None,
        sum(each.lag_then or 0 for each in partitions) if rows else None,
        sum(each.lag_now or 0 for each in partitions) if now else None,
        tuple(partitions),
    )


def cluster_as_of(asker: Asker, at: str) -> ClusterAsOf:
    """The cluster at a time."""
    view = stored_view(asker, "the past of the cluster is")
    at_ms = time_asked(at, asker.now_ms)
    recorded = recorded_metadata(view)
    now, then = view.image, image_at(recorded.rows, at_ms)
    unsure: list[str] = []
    if at_ms < recorded.exact_from_ms:
        past = states_by_topic(view)
        then, unsure = with_past_partitions(then, past, now, removed_ms(recorded.rows), at_ms)
    visible = set(asker.visible(ResourceType.TOPIC, then.topic_ids.keys() | now.topic_ids.keys()))
    states = [state for place, state in then.partitions.items() if place.topic in visible]
    differences = cluster_differences(then, now, visible)
    may_describe = asker.may(Operation.DESCRIBE, ResourceType.CLUSTER)
    if not may_describe:
        differences = [each for each in differences if each.what not in ("broker", "controller")]
    if asker.may(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        differences += cluster_config_differences(then, now)
    brokers = sorted(then.brokers.items()) if may_describe else []
    return ClusterAsOf(
        at_ms,
        tuple(
            BrokerThen(broker_id, not each.fenced, each.registration.rack, each.broker_epoch)
            for broker_id, each in brokers
        ),
        then.controller_id if may_describe else NO_LEADER,
        len(visible & then.topic_ids.keys()),
        len(states),
        sum(state.leader == NO_LEADER for state in states),
        sum(len(state.isr) < len(state.replicas) for state in states),
        tuple(topic for topic in unsure if topic in visible),
        tuple(differences),
        recorded.exact_from_ms,
    )


def time_asked(at: str, now_ms: int) -> int:
    """The time of a question in milliseconds; empty: now. InvalidRequestError for one that is to come.

    >>> time_asked("1970-01-01T00:00:02Z", now_ms=5_000)
    2000
    """
    at_ms = time_ms(at) if at else now_ms
    if not 0 <= at_ms <= now_ms:
        raise InvalidRequestError(f"{at} is not in the past, which ends at {now_ms} ms: it is {TIME_DOC}")
    return at_ms


_AT = Parameter(str, f"the time: {TIME_DOC}; empty: now", "")
QUESTIONS = (
    Question(
        "topic_as_of",
        "A topic at a time: leaders, ISRs, configs, where its logs ended, and what differs now.",
        topic_as_of,
        {"topic": Parameter(str, "the topic"), "at": _AT},
    ),
    Question(
        "group_as_of",
        "A group at a time: committed offsets and lag, beside those of now.",
        group_as_of,
        {"group": Parameter(str, "the group"), "at": _AT},
    ),
    Question(
        "cluster_as_of",
        "The cluster at a time: brokers, topics, partitions, and what differs now.",
        cluster_as_of,
        {"at": _AT},
    ),
)
