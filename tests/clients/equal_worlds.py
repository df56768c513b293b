"""Two clusters that differ in what one user may not see, and that user's requests to both.

In one of them topics, groups, transactional ids and users are named `secret-…`, in the other `elsewhere-…`, and the
topic has another number of partitions. The user has rights on names that begin with `plain-` alone. So each of the
user's requests must have equal answers in both, also those that name something `secret-…`, and those that name nothing.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from typing import Any

from stratalog.clients.admin.admin import Admin
from stratalog.replication.coordinator.runtime.kinds import COORDINATOR_KINDS
from stratalog.replication.metadata.acls import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourceType,
)
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import RandomIds
from stratalog.wire.api_keys import ApiKey
from tests.clients.coordinating_cluster import CoordinatingCluster
from tests.clients.kafka_client import Answer, ClosedError, KafkaClient
from tests.clients.memory_cluster import ROOT

USER, OWNER = Principal("User:mallory", "10.0.0.7"), Principal("User:root")
SETTINGS = {
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": "User:root",
    "max.incremental.fetch.session.cache.slots": 0,
}
HIDDEN, ELSEWHERE = "secret-", "elsewhere-"
LATE = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}
"""Answered in this thread, when others have joined, or later."""

TOPIC_OPERATIONS = (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.CREATE,
                    Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)  # fmt: skip
GROUP_OPERATIONS = (Operation.READ, Operation.DESCRIBE, Operation.DELETE)
CLUSTER_OPERATIONS = (Operation.CREATE, Operation.CLUSTER_ACTION, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
                      Operation.IDEMPOTENT_WRITE)  # fmt: skip
"""Without those that alter rights and users."""

REVEALED_BY = {
    ApiKey.LIST_GROUPS: Operation.DESCRIBE,
    ApiKey.CREATE_TOPICS: Operation.CREATE,
    ApiKey.ADD_PARTITIONS_TO_TXN: Operation.CLUSTER_ACTION,
    ApiKey.WRITE_TXN_MARKERS: Operation.CLUSTER_ACTION,
    ApiKey.DESCRIBE_ACLS: Operation.DESCRIBE,
    ApiKey.DESCRIBE_LOG_DIRS: Operation.DESCRIBE,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Operation.DESCRIBE,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Operation.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Operation.DESCRIBE,
    ApiKey.DESCRIBE_QUORUM: Operation.DESCRIBE,
    ApiKey.LIST_CONFIG_RESOURCES: Operation.DESCRIBE_CONFIGS,
}
"""APIs that show everything to a user with that right on the cluster, as Kafka's do."""


class World(KafkaClient):
    """One of the two clusters. `hidden`: how the names begin that the user may not see."""

    def __init__(self, hidden: str, rights: Iterable[AclBinding]) -> None:
        self.cluster = CoordinatingCluster({kind: each.make for kind, each in COORDINATOR_KINDS.items()})
        self.cluster.ids = _SeededIds()
        self.is_secret = hidden == HIDDEN
        self.hidden = hidden
        for kind in CoordinatorType:
            self.cluster.create_topic(kind.topic)
        self.cluster.create_topic("plain-a", 2)
        self.cluster.create_topic("plain-b", 3)
        self.cluster.create_topic(f"{hidden}payroll", 5 if self.is_secret else 1)
        super().__init__(self.cluster, stores=self.cluster.stores, settings=SETTINGS)
        for handler in self.handlers.values():
            handler.broker.view.ids = _SeededIds()
            handler.broker.admin = Admin(self.cluster, view=handler.broker.view, rng=random.Random(7))
        admin = Admin(ROOT, view=ClusterView(ROOT, stores=self.cluster.stores))
        admin.create_acls([*rights, _binding(ResourceType.TOPIC, f"{hidden}payroll", Operation.READ, who="User:alice")])
        self.ids = _Ids(self.cluster.metadata.image.topic_ids[f"{hidden}payroll"])
        self.principal = OWNER
        self._furnish()
        self.principal = USER

    def _furnish(self) -> None:
        """What other users have."""
        hidden, partition = self.hidden, {"partition_index": 0, "committed_offset": 7}
        topics = [{"name": name, "partitions": [partition]} for name in ("plain-a", f"{hidden}payroll")]
        for group in ("plain-offsets", f"{hidden}group"):
            self.ask(ApiKey.OFFSET_COMMIT, 9, {"group_id": group, "topics": topics})
        joining = {"member_id": "m", "member_epoch": 0, "rebalance_timeout": 60_000, "topic_partitions": ()}
        names = ("plain-a", f"{hidden}payroll")
        for group in ("plain-shared", f"{hidden}modern"):
            values = {"group_id": group, **joining, "subscribed_topic_names": names}
            self.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, values)
        for name in ("plain-tx", f"{hidden}tx"):
            known = self.ask(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": name, "transaction_timeout": 60_000})
            producer = {"producer_id": known.producer_id, "producer_epoch": known.producer_epoch}
            added = [{"name": each, "partitions": [0]} for each in names]
            transaction = {"transactional_id": name, **producer, "verify_only": False, "topics": added}
            self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 5, {"transactions": [transaction]})
        quota = {"key": "producer_byte_rate", "value": 1e9, "remove": False}
        entries = [{"entity": [{"entity_type": "user", "entity_name": f"{hidden}user"}], "ops": [quota]}]
        self.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validate_only": False})
        password = {"mechanism": 1, "iterations": 4_096, "salt": b"s" * 16, "salted_password": b"p" * 32}
        self.ask(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            0,
            {"deletions": (), "upsertions": [{"name": f"{hidden}user", **password}]},
        )
        config = {"name": "retention.ms", "config_operation": 0, "value": "9999999"}
        resource = {"resource_type": 2, "resource_name": f"{hidden}payroll", "configs": [config]}
        self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})

    def answered(self, key: int, version: int, values: dict[str, Any]) -> str:
        """The answer to the user's request, without what differs from cluster to cluster by chance."""
        answer: Answer = self.asked(key, version, self.ids.real(values))
        if key in LATE and not answer.is_there.is_set():
            self.cluster.expire()
            if not answer.is_there.is_set():
                return "waits"
        try:
            return self.ids.masked(str(answer()))
        except ClosedError as reason:
            return f"closed: {reason}"


class _SeededIds(RandomIds):
    """Equal ids in both clusters: the order of topics in an assignment depends on theirs."""

    def __init__(self) -> None:
        self._rng = random.Random(7)

    def new_id(self) -> str:
        return f"{self._rng.getrandbits(128):032x}"


class _Ids:
    """Ids of one cluster, and their stand-ins: `<0>`, `<1>`, … in the order in which the user met them."""

    _FORMS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
    _TIMES = re.compile(
        r"datetime\.(?:timedelta|datetime)\([^)]*\)+|(?:timestamp|_time|session_id|_ms)=-?\d+|(?<![\d-])1[6-9]\d{11}\b"
    )
    HIDDEN_TOPIC = "<hidden>"

    def __init__(self, hidden_topic_id: str) -> None:
        self._known: dict[str, str] = {}
        self._hidden_topic_id = hidden_topic_id

    @property
    def stand_ins(self) -> list[str]:
        """Those that the user may send."""
        return [*self._known.values(), self.HIDDEN_TOPIC]

    def masked(self, text: str) -> str:
        """The text with stand-ins for ids, and without times."""
        text = self._FORMS.sub(lambda found: self._stand_in(found[0]), text)
        return self._TIMES.sub("<time>", text)

    def _stand_in(self, found: str) -> str:
        plain = found.replace("-", "")
        if plain == self._hidden_topic_id:
            return self.HIDDEN_TOPIC
        if plain.startswith("0000000000000000"):
            return found
        return self._known.setdefault(plain, f"<{len(self._known)}>")

    def real(self, value: Any) -> Any:
        """A request's values with ids for stand-ins."""
        if isinstance(value, dict):
            return {name: self.real(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.real(each) for each in value]
        if not isinstance(value, str) or "<" not in value:
            return value
        by_stand_in = {stand_in: real for real, stand_in in self._known.items()}
        by_stand_in[self.HIDDEN_TOPIC] = self._hidden_topic_id
        return re.sub(r"<\w+>", lambda found: by_stand_in.get(found[0], found[0]), value)


def rights(rng: random.Random) -> tuple[list[AclBinding], set[Operation]]:
    """Some of the user's rights on what is `plain-…`; the operations that it may do on the cluster."""
    given = [_binding(ResourceType.TOPIC, "plain-", each) for each in _some(rng, TOPIC_OPERATIONS, 0.5)]
    given += [_binding(ResourceType.GROUP, "plain-", each) for each in _some(rng, GROUP_OPERATIONS, 0.8)]
    for each in _some(rng, (Operation.WRITE, Operation.DESCRIBE), 0.8):
        given.append(_binding(ResourceType.TRANSACTIONAL_ID, "plain-", each))
    on_cluster = set(_some(rng, CLUSTER_OPERATIONS, 0.15))
    given += [_binding(ResourceType.CLUSTER, CLUSTER_NAME, each, pattern=PatternType.LITERAL) for each in on_cluster]
    return given, on_cluster


def _some(rng: random.Random, operations: Iterable[Operation], share: float) -> list[Operation]:
    return [each for each in operations if rng.random() < share]


def _binding(
    kind: ResourceType,
    name: str,
    operation: Operation,
    who: str = USER.name,
    pattern: PatternType = PatternType.PREFIXED,
) -> AclBinding:
    return AclBinding(kind, name, pattern, who, "*", operation, Permission.ALLOW)
