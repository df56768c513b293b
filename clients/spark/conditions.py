"""The error conditions of the Kafka connector, with its names and texts. Pure.

Source: spark-sql-kafka-0-10's `error/kafka-error-conditions.json`. A message starts with the condition in
brackets, because only the text of a Python data source's error reaches the query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stratalog.storage.errors import InvalidConfigError, InvalidRecordError, OffsetOutOfRangeError, UnknownServerError
from stratalog.storage.records import TopicPartition

Offsets = Mapping[TopicPartition, int]


class DataLossError(OffsetOutOfRangeError):
    """KAFKA_DATA_LOSS: records that the query has not read are gone."""

    def __init__(self, condition: str, reason: str, what_to_do: str = "") -> None:
        remedy = what_to_do or "To go on without these records, set failOnDataLoss to false."
        super().__init__(f"[KAFKA_DATA_LOSS.{condition}] {_DATA_LOSS} {reason}\n{remedy}")
        self.reason = reason


class TopicRecreatedError(DataLossError):
    """A topic was deleted and another one of its name was created. Kafka's connector does not notice."""

    def __init__(self, topic: str, read_id: str, topic_id: str) -> None:
        super().__init__(
            "TOPIC_RECREATED",
            f"Topic {topic} was deleted and created again: the query read the topic with id {read_id}, the one with id "
            f"{topic_id} has other records at the same offsets.",
            "Begin with a new checkpoint, or set failOnDataLoss to false: the query then goes on with the first record "
            "of the new topic.",
        )


class OffsetMismatchError(UnknownServerError):
    """The offsets of a query contradict what the topic has."""


_DATA_LOSS = (
    "Some data may have been lost because they are not available in Kafka any more;\n"
    "either the data was aged out by Kafka or the topic may have been deleted before all the data in the\n"
    "topic was processed.\n"
    "If you don't want your streaming query to fail on such cases, set the source option failOnDataLoss to false.\n"
    "Reason:"
)
WITHOUT_FAIL_ON_DATA_LOSS = (
    "Some data may have been lost because they are not available in Kafka any more; either the data was aged out by "
    "Kafka or the topic may have been deleted before all the data in the topic was processed. If you want your "
    'streaming query to fail on such cases, set the source option "failOnDataLoss" to "true".'
)
_TRANSIENT = "The error could be transient - restart your query, and report if you still see the same issue."


def _set(partitions: Iterable[TopicPartition]) -> str:
    return f"Set({', '.join(str(tp) for tp in sorted(partitions))})"


def _map(offsets: Offsets) -> str:
    return f"Map({', '.join(f'{tp} -> {offsets[tp]}' for tp in sorted(offsets))})"


def added_partition_does_not_start_from_zero(topic_partition: TopicPartition, start: int) -> DataLossError:
    return DataLossError(
        "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
        f"Added partition {topic_partition} starts from {start} instead of 0.",
    )


def could_not_read_offset_range(topic_partition: TopicPartition, start: int, end: int, why: str) -> DataLossError:
    """`why` replaces the connector's consumer group."""
    return DataLossError(
        "COULD_NOT_READ_OFFSET_RANGE",
        f"Could not read records in offset [{start}, {end}) for topic partition {topic_partition}: {why}.",
    )


def initial_offset_not_found(partitions: Iterable[TopicPartition]) -> DataLossError:
    return DataLossError(
        "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS",
        f"Cannot find initial offsets for partitions {_set(partitions)}. They may have been deleted.",
    )


def partitions_deleted(partitions: Iterable[TopicPartition]) -> DataLossError:
    return DataLossError("PARTITIONS_DELETED", f"Partitions {_set(partitions)} have been deleted.")


def partition_offset_changed(topic_partition: TopicPartition, previous: int, new: int) -> DataLossError:
    return DataLossError(
        "PARTITION_OFFSET_CHANGED",
        f"Partition {topic_partition} offset was changed from {previous} to {new}.\n"
        "This could either be a user error that the start offset is set too high and this is the first batch, or the "
        "kafka topic-partition is broken, and some data may have been missed.",
    )


def start_offset_does_not_match_assigned(
    specified: Iterable[TopicPartition], assigned: Iterable[TopicPartition]
) -> OffsetMismatchError:
    return OffsetMismatchError(
        "[KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED] Partitions specified for Kafka start offsets don't match what "
        "are assigned. Maybe topic partitions are created \nor deleted while the query is running. Use -1 for latest, "
        f"-2 for earliest.\nSpecified: {_set(specified)} Assigned: {_set(assigned)}\n"
        "Give an offset for each assigned partition, -2 for one that is new."
    )


def timestamp_offset_does_not_match_assigned(
    specified: Iterable[TopicPartition], assigned: Iterable[TopicPartition], *, starting: bool
) -> OffsetMismatchError:
    position = "start" if starting else "end"
    return OffsetMismatchError(
        f"[KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED] Partitions specified for Kafka timestamp based {position} "
        "offsets don't match what are assigned. Maybe topic partitions are created \nor deleted while the query is "
        "running, or you didn't specify all the partitions.\n"
        f"Specified: {_set(specified)} Assigned: {_set(assigned)}\nGive a time for each assigned partition."
    )


def no_offset_matched(topic_partition: TopicPartition, timestamp_ms: int) -> InvalidConfigError:
    return InvalidConfigError(
        f"No offset matched from request of topic-partition {topic_partition} and timestamp {timestamp_ms}. "
        "Give an earlier time, or set startingOffsetsByTimestampStrategy to latest."
    )


def mismatched_start_and_end(start: Offsets, end: Offsets) -> OffsetMismatchError:
    return OffsetMismatchError(
        "[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET] The specified start offset and end offset "
        "should have the same topic-partitions.\n"
        f"Topic-partitions for start offset: {_set(start)}, topic-partitions for end offset: {_set(end)}.\n"
        "Name the same partitions in both."
    )


def unresolved_start_past_end(topic_partition: TopicPartition, start: int, end: int) -> OffsetMismatchError:
    return OffsetMismatchError(
        f"[UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] The specified start offset {start} is greater than the end "
        f"offset {end} for topic {topic_partition.topic} partition {topic_partition.partition}. "
        "Give an end at or above the start."
    )


def unresolved_timestamp_start_past_end(topic_partition: TopicPartition, start: int, end: int) -> OffsetMismatchError:
    return OffsetMismatchError(
        f"[UNRESOLVED_START_TIMESTAMP_GREATER_THAN_END_TIMESTAMP] The specified start timestamp {start} is greater "
        f"than the end timestamp {end} for topic {topic_partition.topic} partition {topic_partition.partition}. "
        "Give an end at or after the start."
    )


def resolved_start_past_end(topic_partition: TopicPartition, start: int, end: int) -> OffsetMismatchError:
    return OffsetMismatchError(
        f"[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] The resolved start offset {start} is greater than the "
        f"resolved end offset {end} for topic {topic_partition.topic} partition {topic_partition.partition}.\n"
        "There may be multiple reasons:\n"
        "1. Start offset is set to too big a value that after resolution, end offset is smaller than it. There are "
        "multiple input cases:\n"
        "  (a) Start offset is set to a timestamp, and the end offset is set to an index.\n"
        "  (b) Start offset is set to an index, and the end offset is set to a timestamp.\n"
        "  (c) Start offset is set, and the end offset is set to latest.\n"
        "2. The Kafka topic partition is broken.\n"
        "Give a start at or below the end: strata get-offsets shows the offsets of the partition."
    )


def mismatched_with_prefetched(prefetched: Offsets, end: Offsets) -> OffsetMismatchError:
    return OffsetMismatchError(
        "[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED] Kafka data source in Trigger.AvailableNow "
        "should provide the same topic partitions in pre-fetched offset to end offset for each microbatch. "
        f"{_TRANSIENT}\n"
        f"topic-partitions for pre-fetched offset: {_set(prefetched)}, topic-partitions for end offset: {_set(end)}. "
        "Start the query again."
    )


def end_offset_past_prefetched(prefetched: Offsets, end: Offsets) -> OffsetMismatchError:
    return OffsetMismatchError(
        "[END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED] For Kafka data source with "
        "Trigger.AvailableNow, end offset should have lower or equal offset per each topic partition than pre-fetched "
        f"offset. {_TRANSIENT}\npre-fetched offset: {_map(prefetched)}, end offset: {_map(end)}. Start the query again."
    )


def lost_partitions_in_end_offset(latest: Offsets, end: Offsets) -> OffsetMismatchError:
    return OffsetMismatchError(
        "[LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW] Some of partitions in Kafka topic(s) have "
        f"been lost during running query with Trigger.AvailableNow. {_TRANSIENT}\n"
        f"topic-partitions for latest offset: {_set(latest)}, topic-partitions for end offset: {_set(end)}. "
        "Start the query again."
    )


def end_offset_past_latest(latest: Offsets, end: Offsets) -> OffsetMismatchError:
    return OffsetMismatchError(
        "[END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW] Some of partitions "
        "in Kafka topic(s) report available offset which is less than end offset during running query with "
        f"Trigger.AvailableNow. {_TRANSIENT}\nlatest offset: {_map(latest)}, end offset: {_map(end)}. "
        "Start the query again."
    )


def null_topic_in_data() -> InvalidRecordError:
    return InvalidRecordError(
        "[KAFKA_NULL_TOPIC_IN_DATA] The Kafka message data sent to the producer contains a null topic. Use the `topic` "
        "option for setting a default topic."
    )
