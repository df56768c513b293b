"""A replicated, partitioned log with Apache Kafka's semantics on Delta tables and Spark Structured Streaming.

    from stratalog import Admin, Cluster, Consumer, NewTopic, Producer, TopicPartition

These names are the public ones, and this module is the only door to them; the packages behind it are

    stratalog.storage       one replica of one partition as one Delta table
    stratalog.replication   brokers, controller, metadata log, follower fetch, coordinators
    stratalog.clients       producer, consumer, admin client, Spark source and sink, Kafka's protocol
    stratalog.jobs          entries for spark-submit and the command line

`spark.readStream.format("stratalog")` needs no import at all. A name is imported when it is first asked for (PEP 562):
a Python process of Spark's that only plans or reads loads no broker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stratalog.clients.admin.admin import (
        Admin,
        BrokerDescription,
        ClusterDescription,
        ConfigEntry,
        NewTopic,
        TopicDescription,
    )
    from stratalog.clients.admin.configs import ConfigInForce
    from stratalog.clients.admin.erasure import ErasureReport, ReplicaErasure
    from stratalog.clients.admin.groups import GroupAdmin, LiveGroups, StoredGroups
    from stratalog.clients.admin.log_dirs import LogDirDescription, ReplicaInfo
    from stratalog.clients.admin.replica_verification import PartitionVerified, ReplicaVerification
    from stratalog.clients.consumer.consumer import Consumer
    from stratalog.clients.consumer.rebalance_listener import ConsumerRebalanceListener
    from stratalog.clients.history.recorder import History, RecordingConsumer, RecordingProducer
    from stratalog.clients.producer.partitioner import Partitioner, RoundRobinPartitioner, StickyPartitioner
    from stratalog.clients.producer.producer import Producer
    from stratalog.clients.records import (
        ConsumerGroupMetadata,
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        OffsetRange,
        RecordFuture,
        RecordMetadata,
        TableMetadata,
    )
    from stratalog.clients.spark.committed_view import create_committed_view
    from stratalog.clients.view.cluster_view import ClusterView, Fetched, Watermarks
    from stratalog.replication.controller.reassignment import PartitionReassignment
    from stratalog.replication.process.cluster import Cluster
    from stratalog.replication.spark.session import stratalog_session
    from stratalog.storage.errors import StratalogError
    from stratalog.storage.records import Header, TopicPartition

__version__ = "0.1.0"

__all__ = [
    "__version__",
    # clusters and topics
    "Cluster",
    "stratalog_session",
    "TopicPartition",
    "Header",
    "StratalogError",
    # producer
    "Producer",
    "Partitioner",
    "RoundRobinPartitioner",
    "StickyPartitioner",
    # consumer
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    # values
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetRange",
    "RecordFuture",
    "RecordMetadata",
    "TableMetadata",
    # admin
    "Admin",
    "BrokerDescription",
    "ClusterDescription",
    "ConfigEntry",
    "NewTopic",
    "TopicDescription",
    "ConfigInForce",
    "ErasureReport",
    "ReplicaErasure",
    "GroupAdmin",
    "LiveGroups",
    "StoredGroups",
    "LogDirDescription",
    "ReplicaInfo",
    "PartitionVerified",
    "ReplicaVerification",
    "PartitionReassignment",
    # views
    "ClusterView",
    "Fetched",
    "Watermarks",
    "create_committed_view",
    # histories
    "History",
    "RecordingConsumer",
    "RecordingProducer",
]

_NAMES = {
    "stratalog.clients.admin.admin": (
        "Admin",
        "BrokerDescription",
        "ClusterDescription",
        "ConfigEntry",
        "NewTopic",
        "TopicDescription",
    ),
    "stratalog.clients.admin.configs": ("ConfigInForce",),
    "stratalog.clients.admin.erasure": (
        "ErasureReport",
        "ReplicaErasure",
    ),
    "stratalog.clients.admin.groups": (
        "GroupAdmin",
        "LiveGroups",
        "StoredGroups",
    ),
    "stratalog.clients.admin.log_dirs": (
        "LogDirDescription",
        "ReplicaInfo",
    ),
    "stratalog.clients.admin.replica_verification": (
        "PartitionVerified",
        "ReplicaVerification",
    ),
    "stratalog.clients.consumer.consumer": ("Consumer",),
    "stratalog.clients.consumer.group_member": ("ConsumerGroupMetadata",),
    "stratalog.clients.consumer.rebalance_listener": ("ConsumerRebalanceListener",),
    "stratalog.clients.history.recorder": (
        "History",
        "RecordingConsumer",
        "RecordingProducer",
    ),
    "stratalog.clients.producer.partitioner": (
        "Partitioner",
        "RoundRobinPartitioner",
        "StickyPartitioner",
    ),
    "stratalog.clients.producer.producer": ("Producer",),
    "stratalog.clients.records": (
        "ConsumerRecord",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "OffsetRange",
        "RecordFuture",
        "RecordMetadata",
        "TableMetadata",
    ),
    "stratalog.clients.spark.committed_view": ("create_committed_view",),
    "stratalog.clients.view.cluster_view": (
        "ClusterView",
        "Fetched",
        "Watermarks",
    ),
    "stratalog.replication.controller.reassignment": ("PartitionReassignment",),
    "stratalog.replication.process.cluster": ("Cluster",),
    "stratalog.replication.spark.session": ("stratalog_session",),
    "stratalog.storage.errors": ("StratalogError",),
    "stratalog.storage.records": (
        "TopicPartition",
        "Header",
    ),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    """The public name `name`, from the module that has it (PEP 562)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
