"""The topics in which coordinators keep their state: names, configs, and the partition of a key. Pure.

The first request for a coordinator of a type creates its topic. Kafka: `Topic`, `AutoTopicCreationManager`,
`GroupCoordinatorService.groupMetadataTopicConfigs`, `TransactionStateManager.transactionTopicConfigs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stratalog.replication.config import BrokerConfig
from stratalog.wire.java_strings import string_hash

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, "__share_group_state"})
"""The topics that clients neither write to nor delete. The last one, of share groups, is only a reserved name."""

_INT_MIN = -(1 << 31)


def is_internal(topic: str) -> bool:
    """Whether the topic holds state of the cluster (Kafka's `Topic.isInternal`)."""
    return topic in INTERNAL_TOPICS


def partition_of_key(key: str, partitions: int) -> int:
    """The partition of a group id or a transactional id among `partitions`: `Utils.abs(key.hashCode) % partitions`.

    Kafka's `abs` of the smallest integer is 0; Java's own is negative.

    >>> partition_of_key("my-group", 50)
    12
    """
    hashed = string_hash(key)
    return 0 if hashed == _INT_MIN else abs(hashed) % partitions


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """The arguments of an internal topic's creation. `factor_setting`: the setting of its replication factor."""

    name: str
    partitions: int
    replication_factor: int
    factor_setting: str
    configs: Mapping[str, str]


def internal_topic(name: str, config: BrokerConfig) -> InternalTopic:
    """The arguments for `name`, one of the two internal topics, by the broker's settings."""
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
