"""The topics in which coordinators keep their state: names, how they are made, which partition a key belongs to. Pure.

They are there once somebody asks for a coordinator of their kind, never before. Kafka: `Topic`,
`AutoTopicCreationManager`, `GroupCoordinatorService.groupMetadataTopicConfigs`,
`TransactionStateManager.transactionTopicConfigs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stratalog.replication.config import BrokerConfig
from stratalog.replication.java_strings import string_hash

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, "__share_group_state"})
"""What clients neither write to nor delete. The last is of share groups, which are not here; but its name is taken."""

_INT_MIN = -(1 << 31)


def is_internal(topic: str) -> bool:
    """Whether the cluster keeps its own state there (Kafka's `Topic.isInternal`)."""
    return topic in INTERNAL_TOPICS


def partition_of_key(key: str, partitions: int) -> int:
    """The partition of a group id or a transactional id among `partitions`: `Utils.abs(key.hashCode) % partitions`.

    Kafka's `abs` makes the smallest integer 0, where Java's own would leave it negative.

    >>> partition_of_key("my-group", 50)
    12
    """
    hashed = string_hash(key)
    return 0 if hashed == _INT_MIN else abs(hashed) % partitions


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """How an internal topic is made. `factor_setting` is the setting that says how many replicas it has."""

    name: str
    partitions: int
    replication_factor: int
    factor_setting: str
    configs: Mapping[str, str]


def internal_topic(name: str, config: BrokerConfig) -> InternalTopic:
    """How the cluster's settings want `name`, one of the two internal topics, to be made."""
    if name == GROUP_METADATA_TOPIC:
        return InternalTopic(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            "offsets.topic.replication.factor",
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    return InternalTopic(
        name,
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        "transaction.state.log.replication.factor",
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )
