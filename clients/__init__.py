"""How records come in and go out: the public names of stratalog.

    from clients import Admin, Cluster, Consumer, NewTopic, Producer, TopicPartition

Spark's side (`format("stratalog")`) is in `clients.spark_source` and `clients.spark_sink`: it needs pyspark,
which nothing here does.
"""

from __future__ import annotations

from clients.admin import (
    Admin,
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    NewTopic,
    TopicDescription,
)
from clients.cluster_view import ClusterView, Fetched, Watermarks
from clients.consumer import Consumer
from clients.partitioner import Partitioner, RoundRobinPartitioner, StickyPartitioner
from clients.producer import Producer
from clients.records import (
    ConsumerRecord,
    OffsetAndTimestamp,
    OffsetRange,
    RecordFuture,
    RecordMetadata,
    TableMetadata,
)
from replication.cluster import Cluster
from storage.errors import StratalogError
from storage.records import Header, TopicPartition

__all__ = [
    "Admin",
    "BrokerDescription",
    "Cluster",
    "ClusterDescription",
    "ClusterView",
    "ConfigEntry",
    "Consumer",
    "ConsumerRecord",
    "Fetched",
    "Header",
    "NewTopic",
    "OffsetAndTimestamp",
    "OffsetRange",
    "Partitioner",
    "Producer",
    "RecordFuture",
    "RecordMetadata",
    "RoundRobinPartitioner",
    "StickyPartitioner",
    "StratalogError",
    "TableMetadata",
    "TopicDescription",
    "TopicPartition",
    "Watermarks",
]
