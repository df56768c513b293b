"""A replicated, partitioned log with Apache Kafka's semantics on Delta tables and Spark Structured Streaming.

    from stratalog import Admin, Cluster, Consumer, NewTopic, Producer, TopicPartition

The names in `__all__` are the public ones, and this module is the only door to them. Behind it are the packages

    stratalog.storage       one replica of one partition as one Delta table
    stratalog.wire          Kafka's requests, answers and record batches as bytes
    stratalog.replication   brokers, controller, metadata log, follower fetch, coordinators
    stratalog.server        brokers as processes, listeners, Kafka's APIs, brokers elsewhere
    stratalog.clients       producer, consumer, admin client, Spark source and sink, typed tables
    stratalog.jobs          entries for spark-submit and the command line

`spark.readStream.format("stratalog")` needs no import. A name's module is imported when the name is first used
(PEP 562), so that a Python worker of Spark's loads no broker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stratalog.clients.admin.admin import Admin
    from stratalog.clients.admin.group_lag import GroupLag, PartitionLag
    from stratalog.clients.admin.groups import GroupAdmin, LiveGroups, StoredGroups
    from stratalog.clients.admin.replica_verification import PartitionVerified, ReplicaVerification
    from stratalog.clients.consumer.consumer import Consumer
    from stratalog.clients.consumer.rebalance_listener import ConsumerRebalanceListener
    from stratalog.clients.producer.partitioner import Partitioner, RoundRobinPartitioner, StickyPartitioner
    from stratalog.clients.producer.producer import Producer
    from stratalog.clients.records import (
        ConsumerGroupMetadata,
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetRange,
        RecordFuture,
        RecordMetadata,
        TableMetadata,
    )
    from stratalog.clients.schemas.avro import AvroDeserializer, AvroSerializer
    from stratalog.clients.schemas.json_schema import JsonDeserializer, JsonSerializer
    from stratalog.clients.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
    from stratalog.clients.schemas.rest_client import SchemaRegistryClient
    from stratalog.clients.schemas.schema import RegisteredSchema, Schema, SchemaReference, SchemaType
    from stratalog.clients.schemas.schema_folder import SchemaFolder
    from stratalog.clients.spark.progress.listener import ProgressListener
    from stratalog.clients.spark.progress.offsets_behind import QueryLag, lag_of
    from stratalog.clients.spark.registration import register_data_source
    from stratalog.clients.spark.sql.cluster_views import cluster_frame, create_cluster_views
    from stratalog.clients.spark.sql.committed_view import create_committed_view
    from stratalog.clients.spark.sql.read_topic import TopicRead, read_topic
    from stratalog.clients.spark.sql.registry_columns import from_registry, registry_header, to_registry
    from stratalog.clients.typed_tables.erasure import TableErasure
    from stratalog.clients.typed_tables.layout import QueryProgress
    from stratalog.clients.typed_tables.replay import ReplayOutcome
    from stratalog.clients.typed_tables.typed_table import TypedTable, TypedTableState
    from stratalog.replication.controller.election.preferred_leaders import ElectionType
    from stratalog.replication.controller.reassignment import PartitionReassignment
    from stratalog.replication.metadata.acls import (
        AclBinding,
        AclFilter,
        Operation,
        PatternType,
        Permission,
        ResourceType,
    )
    from stratalog.replication.metadata.history.leaders import LeaderOfOffset
    from stratalog.replication.spark.session import stratalog_session
    from stratalog.server.admin.admin import (
        BrokerDescription,
        ClusterDescription,
        ConfigEntry,
        NewTopic,
        TopicDescription,
    )
    from stratalog.server.admin.configs import ConfigInForce
    from stratalog.server.admin.erasure import ErasureLeftover, ErasureReport, ReplicaErasure
    from stratalog.server.admin.log_dirs import LogDirDescription, ReplicaInfo
    from stratalog.server.cluster import Cluster
    from stratalog.server.offset_spec import OffsetAndTimestamp, OffsetSpec
    from stratalog.server.remote.remote_cluster import RemoteCluster
    from stratalog.server.view.cluster_view import ClusterView
    from stratalog.server.view.committed_table import CommittedTable, committed_table
    from stratalog.server.view.marks import Watermarks
    from stratalog.server.view.records import Fetched
    from stratalog.storage.errors import StratalogError
    from stratalog.storage.records import Header, TopicPartition

__version__ = "0.1.0"

# fmt: off
__all__ = [
    "__version__",
    # clusters and topics
    "Cluster", "RemoteCluster", "stratalog_session", "TopicPartition", "Header", "StratalogError",
    # producer
    "Producer", "Partitioner", "RoundRobinPartitioner", "StickyPartitioner",
    # consumer
    "Consumer", "ConsumerGroupMetadata", "ConsumerRebalanceListener",
    # what both return and accept
    "ConsumerRecord", "OffsetAndMetadata", "OffsetAndTimestamp", "OffsetRange", "RecordFuture", "RecordMetadata",
    "TableMetadata",
    # schemas: registries, serializers
    "Schema", "SchemaReference", "SchemaType", "RegisteredSchema", "SchemaFolder", "SchemaRegistryClient",
    "AvroSerializer", "AvroDeserializer", "JsonSerializer", "JsonDeserializer", "ProtobufSerializer",
    "ProtobufDeserializer",
    # admin: the client, what it accepts, what it returns
    "Admin", "GroupAdmin", "LiveGroups", "StoredGroups",
    "NewTopic", "ElectionType", "OffsetSpec", "AclBinding", "AclFilter", "Operation", "PatternType", "Permission",
    "ResourceType",
    "BrokerDescription", "ClusterDescription", "ConfigEntry", "ConfigInForce", "ErasureLeftover", "ErasureReport",
    "GroupLag", "LeaderOfOffset", "LogDirDescription", "PartitionLag",
    "PartitionReassignment", "PartitionVerified", "ReplicaErasure", "ReplicaInfo", "ReplicaVerification",
    "TopicDescription",
    # views and Spark
    "ClusterView", "CommittedTable", "Fetched", "Watermarks", "committed_table",
    "ProgressListener", "QueryLag", "TopicRead", "cluster_frame", "create_cluster_views", "lag_of",
    "create_committed_view", "from_registry", "read_topic", "register_data_source", "registry_header", "to_registry",
    # typed tables
    "TypedTable", "TypedTableState", "QueryProgress", "ReplayOutcome", "TableErasure",
]
# fmt: on

_MODULES = {
    "clients.admin.admin": "Admin",
    "server.admin.admin": "BrokerDescription ClusterDescription ConfigEntry NewTopic TopicDescription",
    "server.admin.configs": "ConfigInForce",
    "server.admin.erasure": "ErasureLeftover ErasureReport ReplicaErasure",
    "clients.admin.group_lag": "GroupLag PartitionLag",
    "clients.admin.groups": "GroupAdmin LiveGroups StoredGroups",
    "server.admin.log_dirs": "LogDirDescription ReplicaInfo",
    "clients.admin.replica_verification": "PartitionVerified ReplicaVerification",
    "server.cluster": "Cluster",
    "clients.consumer.consumer": "Consumer",
    "clients.consumer.rebalance_listener": "ConsumerRebalanceListener",
    "server.offset_spec": "OffsetAndTimestamp OffsetSpec",
    "clients.producer.partitioner": "Partitioner RoundRobinPartitioner StickyPartitioner",
    "clients.producer.producer": "Producer",
    "clients.records": "ConsumerGroupMetadata ConsumerRecord OffsetAndMetadata OffsetRange RecordFuture RecordMetadata "
    "TableMetadata",
    "server.remote.remote_cluster": "RemoteCluster",
    "clients.schemas.avro": "AvroDeserializer AvroSerializer",
    "clients.schemas.json_schema": "JsonDeserializer JsonSerializer",
    "clients.schemas.protobuf": "ProtobufDeserializer ProtobufSerializer",
    "clients.schemas.rest_client": "SchemaRegistryClient",
    "clients.schemas.schema": "RegisteredSchema Schema SchemaReference SchemaType",
    "clients.schemas.schema_folder": "SchemaFolder",
    "clients.spark.sql.cluster_views": "cluster_frame create_cluster_views",
    "clients.spark.sql.committed_view": "create_committed_view",
    "clients.spark.sql.read_topic": "TopicRead read_topic",
    "clients.spark.sql.registry_columns": "from_registry registry_header to_registry",
    "clients.spark.progress.listener": "ProgressListener",
    "clients.spark.progress.offsets_behind": "QueryLag lag_of",
    "clients.spark.registration": "register_data_source",
    "clients.typed_tables.layout": "QueryProgress",
    "clients.typed_tables.erasure": "TableErasure",
    "clients.typed_tables.replay": "ReplayOutcome",
    "clients.typed_tables.typed_table": "TypedTable TypedTableState",
    "server.view.cluster_view": "ClusterView",
    "server.view.committed_table": "CommittedTable committed_table",
    "server.view.records": "Fetched",
    "server.view.marks": "Watermarks",
    "replication.controller.election.preferred_leaders": "ElectionType",
    "replication.controller.reassignment": "PartitionReassignment",
    "replication.metadata.acls": "AclBinding AclFilter Operation PatternType Permission ResourceType",
    "replication.metadata.history.leaders": "LeaderOfOffset",
    "replication.spark.session": "stratalog_session",
    "storage.errors": "StratalogError",
    "storage.records": "Header TopicPartition",
}
_MODULE_OF = {name: f"stratalog.{module}" for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """The public name `name`, from the module that has it (PEP 562)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value: object = getattr(import_module(_MODULE_OF[name]), name)
    except ImportError as reason:
        raise import_module("stratalog.storage.extras").explained(f"stratalog.{name}", reason) from reason
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
