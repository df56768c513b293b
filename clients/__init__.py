"""How records come in and go out: the public names of stratalog.

    from clients import Admin, Cluster, Consumer, NewTopic, Producer, TopicPartition

Spark's side (`format("stratalog")`) is in `clients.spark_source` and `clients.spark_sink`: it needs pyspark,
which nothing here does. A name is imported when it is first asked for: a Python process of Spark's that only plans or
reads needs no broker, and a third less time to start.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clients.admin import (
        Admin,
        BrokerDescription,
        ClusterDescription,
        ConfigEntry,
        NewTopic,
        TopicDescription,
    )
    from clients.cluster_view import ClusterView, Fetched, Watermarks
    from clients.configs import ConfigInForce
    from clients.consumer import Consumer
    from clients.erasure import ErasureReport, ReplicaErasure
    from clients.group_admin import GroupAdmin, LiveGroups, StoredGroups
    from clients.group_member import ConsumerGroupMetadata
    from clients.history_recorder import History, RecordingConsumer, RecordingProducer
    from clients.log_dirs import LogDirDescription, ReplicaInfo
    from clients.partitioner import Partitioner, RoundRobinPartitioner, StickyPartitioner
    from clients.producer import Producer
    from clients.rebalance_listener import ConsumerRebalanceListener
    from clients.records import (
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        OffsetRange,
        RecordFuture,
        RecordMetadata,
        TableMetadata,
    )
    from clients.replica_verification import PartitionVerified, ReplicaVerification
    from replication.cluster import Cluster
    from replication.reassignment import PartitionReassignment
    from storage.errors import StratalogError
    from storage.records import Header, TopicPartition

__all__ = [
    "Admin",
    "BrokerDescription",
    "Cluster",
    "ClusterDescription",
    "ClusterView",
    "ConfigEntry",
    "ConfigInForce",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ErasureReport",
    "Fetched",
    "GroupAdmin",
    "Header",
    "History",
    "LiveGroups",
    "LogDirDescription",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetRange",
    "PartitionReassignment",
    "PartitionVerified",
    "Partitioner",
    "Producer",
    "RecordFuture",
    "RecordMetadata",
    "RecordingConsumer",
    "RecordingProducer",
    "ReplicaErasure",
    "ReplicaInfo",
    "ReplicaVerification",
    "RoundRobinPartitioner",
    "StickyPartitioner",
    "StoredGroups",
    "StratalogError",
    "TableMetadata",
    "TopicDescription",
    "TopicPartition",
    "Watermarks",
]

_MODULES = {
    "clients.admin": (
        "Admin",
        "BrokerDescription",
        "ClusterDescription",
        "ConfigEntry",
        "NewTopic",
        "TopicDescription",
    ),
    "clients.cluster_view": ("ClusterView", "Fetched", "Watermarks"),
    "clients.configs": ("ConfigInForce",),
    "clients.consumer": ("Consumer",),
    "clients.group_admin": ("GroupAdmin", "LiveGroups", "StoredGroups"),
    "clients.group_member": ("ConsumerGroupMetadata",),
    "clients.rebalance_listener": ("ConsumerRebalanceListener",),
    "clients.erasure": ("ErasureReport", "ReplicaErasure"),
    "clients.history_recorder": ("History", "RecordingConsumer", "RecordingProducer"),
    "clients.log_dirs": ("LogDirDescription", "ReplicaInfo"),
    "clients.partitioner": ("Partitioner", "RoundRobinPartitioner", "StickyPartitioner"),
    "clients.producer": ("Producer",),
    "clients.records": (
        "ConsumerRecord",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "OffsetRange",
        "RecordFuture",
        "RecordMetadata",
        "TableMetadata",
    ),
    "clients.replica_verification": ("PartitionVerified", "ReplicaVerification"),
    "replication.cluster": ("Cluster",),
    "replication.reassignment": ("PartitionReassignment",),
    "storage.errors": ("StratalogError",),
    "storage.records": ("Header", "TopicPartition"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """The public name `name`, from the module that has it (PEP 562)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
