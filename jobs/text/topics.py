"""What the topics tool reads and prints: assignments, configs, descriptions, in Kafka's format. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence

from stratalog.jobs.command.terminal import UsageError
from stratalog.replication.controller.topic_deletion import TopicDeletion
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.server.admin.admin import TopicDescription
from stratalog.storage.errors import InvalidReplicaAssignmentError
from stratalog.storage.topic_config import LogConfig

COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)


def parse_replica_assignment(text: str) -> dict[int, tuple[int, ...]]:
    """`1:2,2:3` as partition -> brokers, the preferred leader first. InvalidReplicaAssignmentError.

    >>> parse_replica_assignment("1:2,2:3")
    {0: (1, 2), 1: (2, 3)}
    """
    assignment: dict[int, tuple[int, ...]] = {}
    for partition, part in enumerate(text.split(",")):
        brokers = tuple(_broker_id(name, text) for name in part.split(":"))
        twice = sorted({b for b in brokers if brokers.count(b) > 1})
        if twice:
            raise InvalidReplicaAssignmentError(
                f"Partition replica lists may not contain duplicate entries: {_listed(twice)}"
            )
        assignment[partition] = brokers
        if len(brokers) != len(assignment[0]):
            raise InvalidReplicaAssignmentError(
                f"Partition {partition} has different replication factor: [{', '.join(map(str, brokers))}]"
            )
    return assignment


def _broker_id(name: str, text: str) -> int:
    try:
        return int(name)
    except ValueError as reason:
        raise InvalidReplicaAssignmentError(
            f"Invalid replica assignment '{text}': '{name.strip()}' is not a broker id (format: 1:2,2:3)"
        ) from reason


def parse_topic_configs(pairs: Iterable[str]) -> dict[str, str]:
    """`name=value` arguments as checked topic configs. UsageError, InvalidConfigError."""
    split = [re.split(r"\s*=\s*", pair.strip()) for pair in pairs]
    if any(len(pair) != 2 or not all(pair) for pair in split):
        raise UsageError(
            'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
        )
    configs = {pair[0]: pair[1] for pair in split}
    LogConfig.validated(configs)
    return configs


def kafka_uuid(topic_id: str) -> str:
    """A 32-digit hexadecimal id as Kafka prints it: 22 characters of URL-safe Base64.

    >>> kafka_uuid("00000000000000000000000000000001")
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    return base64.urlsafe_b64encode(bytes.fromhex(topic_id)).decode().rstrip("=")


def topic_line(topic: TopicDescription) -> str:
    """The line on the topic itself."""
    configs = ",".join(f"{name}={value}" for name, value in sorted(topic.configs.items()))
    return (
        f"Topic: {topic.name}\tTopicId: {kafka_uuid(topic.topic_id)}\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {replication_factor(topic.partitions[0])}\tConfigs: {configs}"
    )


def partition_line(partition: PartitionRecord) -> str:
    """The line on one partition."""
    leader = "none" if partition.leader == NO_LEADER else str(partition.leader)
    moving = ""
    if partition.adding or partition.removing:
        moving = f"\tAdding Replicas: {_listed(partition.adding)}\tRemoving Replicas: {_listed(partition.removing)}"
    return (
        f"\tTopic: {partition.topic}\tPartition: {partition.partition}\tLeader: {leader}"
        f"\tReplicas: {_listed(partition.replicas)}\tIsr: {_listed(partition.isr)}{moving}"
        f"\tElr: {_listed(partition.elr)}\tLastKnownElr: {_listed(partition.last_known_elr)}"
    )


def partition_values(partition: PartitionRecord) -> dict[str, object]:
    """One partition for `--output json`."""
    found: dict[str, object] = {
        "partition": partition.partition,
        "leader": None if partition.leader == NO_LEADER else partition.leader,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "elr": partition.elr,
        "lastKnownElr": partition.last_known_elr,
    }
    if partition.adding or partition.removing:
        found |= {"addingReplicas": partition.adding, "removingReplicas": partition.removing}
    return found


def deletion_line(deletion: TopicDeletion) -> str:
    """The line on a deleted topic whose replicas are not all gone. Kafka 4 shows none, earlier versions the mark."""
    states = ",".join(f"{broker_id}:{state}" for broker_id, state in deletion.replica_states.items())
    return (
        f"Topic: {deletion.topic}\tTopicId: {kafka_uuid(deletion.topic_id)}\tPartitionCount: {deletion.partitions}"
        f"\tMarkedForDeletion: true\tReplicas: {states}"
    )


def replication_factor(partition: PartitionRecord) -> int:
    """The number of replicas without those that a reassignment adds."""
    return len(partition.replicas) - len(partition.adding)


def is_under_replicated(partition: PartitionRecord) -> bool:
    return replication_factor(partition) > len(partition.isr)


def is_unavailable(partition: PartitionRecord, live_brokers: Iterable[int]) -> bool:
    """It has no leader, or one that is down."""
    return partition.leader not in set(live_brokers)


def is_under_min_isr(partition: PartitionRecord, configs: Mapping[str, str]) -> bool:
    return partition.leader == NO_LEADER or len(partition.isr) < _min_isr(configs)


def is_at_min_isr(partition: PartitionRecord, configs: Mapping[str, str]) -> bool:
    return len(partition.isr) == _min_isr(configs)


def _min_isr(configs: Mapping[str, str]) -> int:
    return LogConfig.from_properties(configs).min_insync_replicas


def _listed(broker_ids: Sequence[int]) -> str:
    return ",".join(map(str, broker_ids))
