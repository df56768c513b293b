"""Topics that a request makes, by CreateTopics or on demand by Metadata: rights, quota, the bound of a request.

I/O: the metadata log, through the admin client.
Source: `ReplicationControlManager.createTopics`, `AutoTopicCreationManager`, which sends a CreateTopics (KIP-599).
"""

from __future__ import annotations

from stratalog.replication.controller.topics import check_new_partitions
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.server.admin.admin import NewTopic
from stratalog.server.request.api import Call
from stratalog.server.request.broker import ServedBroker
from stratalog.storage.errors import StratalogError


class NewTopics:
    """The topics that one request makes. `strict_from`: the first version whose clients know
    THROTTLING_QUOTA_EXCEEDED; before it, their connection is only throttled."""

    def __init__(self, broker: ServedBroker, call: Call, strict_from: int) -> None:
        self._broker = broker
        self._call = call
        self._strict_from = strict_from
        self._partition_count = 0

    def refusal(self, name: str) -> StratalogError | None:
        """None if the caller may make a topic of that name."""
        if self._broker.refusal(self._call, Operation.CREATE, ResourceType.CLUSTER) is None:
            return None
        return self._broker.refusal(self._call, Operation.CREATE, ResourceType.TOPIC, name)

    def reserve(self, num_partitions: int, assigned: int = 0) -> None:
        """Count a topic of so many partitions (below 1: the default) that the caller may make. `assigned`: the number
        of those with an assignment, which then counts. Raises PolicyViolationError for too many in one request."""
        self._partition_count += self._count(num_partitions, assigned)
        check_new_partitions(self._partition_count)

    def create(self, topic: NewTopic, *, validate_only: bool = False) -> str:
        """Make a topic, or with `validate_only` see whether it could be made; its topic id. Raises the refusal,
        ThrottlingQuotaExceededError, and what `Admin.create_topics` raises."""
        refusal = self.refusal(topic.name)
        if refusal is not None:
            raise refusal
        count = self._count(topic.partitions, len(topic.replica_assignment or ()))
        self._call.mutates(count, strict_from=self._strict_from)
        return self._broker.admin.create_topics([topic], wait=False, validate_only=validate_only)[topic.name]

    def _count(self, num_partitions: int, assigned: int) -> int:
        if assigned:
            return assigned
        return num_partitions if num_partitions > 0 else int(self._broker.image().cluster_config("num.partitions", "1"))
