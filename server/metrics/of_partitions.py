"""Gauges of each partition, by the names of Kafka's brokers and of kafka_exporter. Pure.

A dashboard sums them over brokers, so one broker shows a series: a partition's leader, the controller for a partition
without one and for topics. Source: Kafka's `Partition`; kafka_exporter, whose names Strimzi's dashboard asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.replication.metrics import GAUGE, Labels, Metric
from stratalog.server.metrics.of_image import MinIsrs, is_under_replicated
from stratalog.storage.records import TopicPartition

Values = dict[Labels, float]


class ReadableOffsets(NamedTuple):
    """The half-open offsets `[log_start_offset, high_watermark)` of a led partition."""

    log_start_offset: int
    high_watermark: int


def partition_labels(topic_partition: TopicPartition) -> Labels:
    """Topic and partition as labels."""
    return (("topic", topic_partition.topic), ("partition", str(topic_partition.partition)))


def partition_metrics(
    image: ClusterImage, broker_id: int, offsets: Mapping[TopicPartition, ReadableOffsets]
) -> list[Metric]:
    """Those that broker `broker_id` shows. `offsets`: of the partitions that it leads and has started."""
    is_controller = image.controller_id == broker_id
    led = [state for state in image.partitions.values() if state.leader == broker_id]
    shown = led
    if is_controller:
        shown = [*led, *(state for state in image.partitions.values() if state.leader == NO_LEADER)]
    return [
        *_as_kafka(led, MinIsrs(image)),
        *_as_exporter(shown),
        *_offsets(offsets),
        *(_of_cluster(image) if is_controller else ()),
    ]


def _gauges(prefix: str, rows: Iterable[tuple[str, str, Mapping[Labels, float]]]) -> list[Metric]:
    return [Metric(f"{prefix}{name}", GAUGE, doc, values) for name, doc, values in rows]


def _as_kafka(led: Sequence[PartitionRecord], min_isrs: MinIsrs) -> list[Metric]:
    under: Values = {}
    at: Values = {}
    replicas: Values = {}
    for state in led:
        labels, isr, min_isr = partition_labels(state.topic_partition), len(state.isr), min_isrs.of(state)
        under[labels], at[labels] = isr < min_isr, isr == min_isr
        replicas[labels] = len(state.replicas)
    return _gauges(
        "kafka_cluster_partition_",
        (
            ("underminisr", "1 while the ISR is smaller than min.insync.replicas; of led partitions.", under),
            ("atminisr", "1 while the ISR is just min.insync.replicas; of led partitions.", at),
            ("replicascount", "Replicas of a led partition.", replicas),
        ),
    )


def _as_exporter(shown: Sequence[PartitionRecord]) -> list[Metric]:
    columns: list[Values] = [{} for _ in range(5)]
    for state in shown:
        labels = partition_labels(state.topic_partition)
        values = (
            len(state.replicas),
            len(state.isr),
            is_under_replicated(state),
            state.leader == state.replicas[0],
            state.leader,
        )
        for column, value in zip(columns, values, strict=True):
            column[labels] = value
    names = (
        ("replicas", "Replicas of a partition."),
        ("in_sync_replica", "In-sync replicas of a partition."),
        ("under_replicated_partition", "1 while fewer replicas are in sync than there are."),
        ("leader_is_preferred", "1 while the preferred replica leads."),
        ("leader", "The leader of a partition; -1: none."),
    )
    rows = [(name, doc, column) for (name, doc), column in zip(names, columns, strict=True)]
    return _gauges("kafka_topic_partition_", rows)


def _offsets(offsets: Mapping[TopicPartition, ReadableOffsets]) -> list[Metric]:
    newest: Values = {}
    oldest: Values = {}
    for topic_partition, readable in offsets.items():
        labels = partition_labels(topic_partition)
        newest[labels], oldest[labels] = readable.high_watermark, readable.log_start_offset
    return _gauges(
        "kafka_topic_partition_",
        (
            ("current_offset", "The high watermark: the offset behind the last record that consumers read.", newest),
            ("oldest_offset", "The log start: the offset of the first record that consumers read.", oldest),
        ),
    )


def _of_cluster(image: ClusterImage) -> list[Metric]:
    brokers = image.live_brokers()
    info: Values = {
        (("id", str(broker_id)), ("address", _address(each.registration.endpoint or ""))): 1
        for broker_id, each in sorted(brokers.items())
    }
    partitions: Values = {
        (("topic", topic),): len(image.partitions_by_topic.get(topic, ())) for topic in sorted(image.topic_ids)
    }
    return _gauges(
        "kafka_",
        (
            ("brokers", "Brokers that are not fenced; on the controller.", {(): len(brokers)}),
            ("broker_info", "1 for each broker that is not fenced, with its address; on the controller.", info),
            ("topic_partitions", "Partitions of a topic; on the controller.", partitions),
        ),
    )


def _address(endpoint: str) -> str:
    """Host and port of the first listener that a broker has registered.

    >>> _address("INSIDE://b1:9092,OUTSIDE://b1.example:9093"), _address("")
    ('b1:9092', '')
    """
    return endpoint.partition(",")[0].rpartition("://")[2]
