"""What an administrator asks of a cluster, wherever it is known from: its storage, or its brokers' addresses.

I/O: that of the two clients.
`clients.admin.admin.Admin` commits to the metadata log itself, `clients.wire.wire_admin.WireAdmin` asks brokers to.
`Admin` and `server.admin.admin.MetadataAdmin` have the words on each call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from stratalog.replication.controller.election.preferred_leaders import Answers, ElectionType
from stratalog.replication.controller.reassignment import PartitionReassignment
from stratalog.replication.controller.topic_deletion import TopicDeletion
from stratalog.replication.metadata.acls import AclBinding, AclFilter
from stratalog.replication.metadata.client_quotas import QuotaEntity, QuotaMatch, Quotas
from stratalog.replication.metadata.scram import ScramDeletion, ScramDescription, ScramUpsertion
from stratalog.replication.requests.delete_records import DeletedRecords
from stratalog.server.admin.admin import ClusterDescription, NewTopic, TopicDescription
from stratalog.server.admin.configs import ConfigInForce
from stratalog.server.admin.log_dirs import LogDirDescription
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition


class ClusterAdmin(Protocol):
    """Calls block; errors are Kafka's."""

    # -- topics ------------------------------------------------------------------------------------------------

    def list_topics(self) -> list[str]: ...

    def create_topics(self, new_topics: Iterable[NewTopic], *, wait: bool = True) -> object: ...

    def await_leaders(self, topic: str, timeout_ms: int | None = None) -> None: ...

    def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]: ...

    def delete_topics(self, names: Iterable[str]) -> None: ...

    def list_topic_deletions(self) -> list[TopicDeletion]: ...

    def create_partitions(
        self, name: str, count: int, new_assignments: Sequence[Sequence[int]] | None = None, *, wait: bool = True
    ) -> int: ...

    # -- partitions --------------------------------------------------------------------------------------------

    def elect_leaders(
        self, election_type: ElectionType, topic_partitions: Iterable[TopicPartition] | None = None
    ) -> Answers: ...

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, allow_replication_factor_change: bool = True
    ) -> dict[TopicPartition, StratalogError | None]: ...

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]: ...

    def throttle(self, proposed: Mapping[TopicPartition, Sequence[int]], bytes_per_s: int) -> None: ...

    def unthrottle(self, topics: Collection[str]) -> None: ...

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, DeletedRecords]: ...

    # -- configs -----------------------------------------------------------------------------------------------

    def topic_configs(self, topic: str) -> list[ConfigInForce]: ...

    def topic_overrides(self, topic: str) -> dict[str, str]: ...

    def broker_configs(self, broker_id: int) -> list[ConfigInForce]: ...

    def describe_cluster_configs(self) -> list[ConfigInForce]: ...

    def groups_with_configs(self) -> list[str]: ...

    def describe_group_configs(self, group_id: str) -> list[ConfigInForce]: ...

    def alter_configs(self, topic: str, changes: Mapping[str, object | None]) -> object: ...

    def alter_cluster_configs(self, changes: Mapping[str, object | None]) -> object: ...

    def alter_group_configs(self, group_id: str, changes: Mapping[str, object | None]) -> object: ...

    # -- access, the cluster -----------------------------------------------------------------------------------

    def create_acls(self, bindings: Sequence[AclBinding]) -> None: ...

    def describe_acls(self, wanted: AclFilter | None = None) -> tuple[AclBinding, ...]: ...

    def delete_acls(self, filters: Sequence[AclFilter]) -> tuple[AclBinding, ...]: ...

    def alter_user_scram_credentials(
        self, deletions: Sequence[ScramDeletion] = (), upsertions: Sequence[ScramUpsertion] = ()
    ) -> dict[str, StratalogError | None]: ...

    def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> list[ScramDescription]: ...

    def alter_client_quota(
        self, entity: QuotaEntity, changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None: ...

    def describe_client_quotas(self, wanted: Sequence[QuotaMatch] = (), *, is_strict: bool = False) -> Quotas: ...

    def describe_cluster(self) -> ClusterDescription: ...

    def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None, topics: Iterable[str] | None = None
    ) -> dict[int, LogDirDescription]: ...
