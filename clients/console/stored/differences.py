"""The cluster as it was at a time, and two states of it compared. Pure.

The metadata log is compacted: of what a later record replaced only that is left. What it has lost of partitions is in
the history of their states; of the rest it is said that it is not known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from stratalog.clients.console.stored.timeline import StateInTime
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import (
    CLUSTER_WIDE,
    DYNAMIC_DEFAULT,
    NO_LEADER,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from stratalog.storage.records import TopicPartition

ABSENT = "-"
"""Stands for what there was not, in a difference."""
MetadataRow = tuple[int, int, MetadataRecord]


@dataclass(frozen=True, slots=True)
class StateDifference:
    """A value that has changed since a moment: before and now, as texts; `-` stands for no value."""

    what: str
    name: str
    then: str
    now: str


def image_at(rows: Iterable[MetadataRow], at_ms: int) -> ClusterImage:
    """The fold of the records up to a time."""
    return ClusterImage().fold(*(record for _, time, record in rows if time <= at_ms))


def newest_states(states: Iterable[StateInTime], at_ms: int) -> dict[tuple[str, int], StateInTime]:
    """The state of each (topic id, partition) at a time."""
    found: dict[tuple[str, int], StateInTime] = {}
    for state in sorted(states):
        if state.timestamp_ms <= at_ms:
            found[state.topic_id, state.partition] = state
    return found


def removed_ms(rows: Iterable[MetadataRow]) -> dict[str, int]:
    """When topics were deleted, by topic id, as far as the log says."""
    return {record.topic_id: time for _, time, record in rows if isinstance(record, RemoveTopicRecord)}


def with_past_partitions(
    image: ClusterImage,
    past: Mapping[str, Iterable[StateInTime]],
    present: ClusterImage,
    removals: Mapping[str, int],
    at_ms: int,
) -> tuple[ClusterImage, list[str]]:
    """An image of a time with the partitions that compaction took from the log; and the topics that may have been
    deleted by then, since nothing says when they were.

    past      topic -> the states that partitions of the name had, of the history
    removals  as from `removed_ms`
    """
    added: list[MetadataRecord] = []
    unsure: list[str] = []
    for topic, states in past.items():
        newest = newest_states(states, at_ms)
        if not newest:
            continue
        topic_id = max(newest.values(), key=lambda each: each.metadata_offset).topic_id
        if removals.get(topic_id, at_ms + 1) <= at_ms:
            continue
        if topic_id not in removals and present.topic_ids.get(topic) != topic_id:
            unsure.append(topic)
        if image.topic_ids.get(topic) != topic_id:
            added.append(TopicRecord(topic, topic_id))
        own = (state for (known_id, _), state in newest.items() if known_id == topic_id)
        added += (_partition(topic, state) for state in own)
    return image.fold(*added), sorted(unsure)


def _partition(topic: str, state: StateInTime) -> PartitionRecord:
    place = topic, state.partition, state.replicas, state.leader, state.leader_epoch, state.isr
    return PartitionRecord(*place, state.partition_epoch, 0)


def unknown_configs(rows: Iterable[MetadataRow], topic: str, at_ms: int, exact_from_ms: int) -> list[str]:
    """The configs of a topic whose value at a time is not known: they were changed after it, and what they were before
    may be gone from the log."""
    if at_ms >= exact_from_ms:
        return []
    later = {
        record.name
        for _, time, record in rows
        if isinstance(record, ConfigRecord) and record.topic == topic and time > at_ms
    }
    return sorted(later)


# -- differences ---------------------------------------------------------------------------------------------------


def config_differences(what: str, then: Mapping[str, str], now: Mapping[str, str]) -> list[StateDifference]:
    """Configs that differ, by name.

    >>> config_differences("config", {"retention.ms": "5"}, {"retention.ms": "9", "segment.bytes": "1"})[0].then
    '5'
    """
    names = sorted(then.keys() | now.keys())
    return [
        StateDifference(what, name, then.get(name, ABSENT), now.get(name, ABSENT))
        for name in names
        if then.get(name) != now.get(name)
    ]


def partition_differences(
    then: Mapping[TopicPartition, PartitionRecord], now: Mapping[TopicPartition, PartitionRecord]
) -> list[StateDifference]:
    """What differs of partitions: their leader, ISR and replicas; those that came or are gone."""
    found: list[StateDifference] = []
    for place in sorted(then.keys() | now.keys()):
        before, after = then.get(place), now.get(place)
        if before is None or after is None:
            found.append(StateDifference("partition", str(place), _there(before), _there(after)))
            continue
        pairs = (
            ("leader", _leader(before), _leader(after)),
            ("ISR", _brokers(sorted(before.isr)), _brokers(sorted(after.isr))),
            ("replicas", _brokers(before.replicas), _brokers(after.replicas)),
        )
        found += [StateDifference(what, str(place), old, new) for what, old, new in pairs if old != new]
    return found


def cluster_differences(then: ClusterImage, now: ClusterImage, topics: Collection[str]) -> list[StateDifference]:
    """What differs between two images: brokers, the controller, and of `topics` which there are and their partitions.

    Partitions of a topic that came or is gone are not listed one by one.
    """
    found = _broker_differences(then, now)
    if then.controller_id != now.controller_id:
        old, new = _broker(then.controller_id), _broker(now.controller_id)
        found.append(StateDifference("controller", "", old, new))
    stay: list[str] = []
    for topic in sorted(topics):
        old_id, new_id = then.topic_ids.get(topic), now.topic_ids.get(topic)
        if old_id == new_id:
            stay += [topic] if old_id else []
            continue
        old, new = (_topic(image, topic) for image in (then, now))
        found.append(StateDifference("topic", topic, old, new))
    states = [
        {tp: image.partitions[tp] for topic in stay for tp in image.partitions_of(topic)} for image in (then, now)
    ]
    return found + partition_differences(*states)


def cluster_config_differences(then: ClusterImage, now: ClusterImage) -> list[StateDifference]:
    """Cluster-wide configs that differ: those that the cluster was started with, and those that were altered since."""
    configs = [
        {**image.configs.get(CLUSTER_WIDE, {}), **image.configs.get(DYNAMIC_DEFAULT, {})} for image in (then, now)
    ]
    return config_differences("cluster config", *configs)


def _broker_differences(then: ClusterImage, now: ClusterImage) -> list[StateDifference]:
    found: list[StateDifference] = []
    for broker_id in sorted(then.brokers.keys() | now.brokers.keys()):
        old, new = (_broker_state(image, broker_id) for image in (then, now))
        if old != new:
            found.append(StateDifference("broker", str(broker_id), old, new))
    return found


def _broker_state(image: ClusterImage, broker_id: int) -> str:
    broker = image.brokers.get(broker_id)
    if broker is None:
        return ABSENT
    return f"{'stopped' if broker.fenced else 'running'}, broker epoch {broker.broker_epoch}"


def _topic(image: ClusterImage, topic: str) -> str:
    topic_id = image.topic_ids.get(topic)
    return ABSENT if topic_id is None else f"{len(image.partitions_of(topic))} partitions, id {topic_id}"


def _there(state: PartitionRecord | None) -> str:
    return ABSENT if state is None else f"leader {_leader(state)}, ISR {_brokers(sorted(state.isr))}"


def _leader(state: PartitionRecord) -> str:
    return _broker(state.leader)


def _broker(broker_id: int) -> str:
    return "none" if broker_id == NO_LEADER else str(broker_id)


def _brokers(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
