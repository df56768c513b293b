"""Access: ACLs, users and quotas. I/O: metadata, or brokers."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.question import Question
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.storage.errors import SecurityDisabledError

QUOTA_UNITS = {
    "producer_byte_rate": "bytes/s",
    "consumer_byte_rate": "bytes/s",
    "request_percentage": "% of a thread",
    "controller_mutation_rate": "changes/s",
}


@dataclass(frozen=True, slots=True)
class AclRow:
    """One rule, in Kafka's words."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


@dataclass(frozen=True, slots=True)
class Acls:
    """All rules. `is_off`: brokers have no authorizer, so that everybody may do everything; empty: they have one."""

    acls: list[AclRow]
    is_off: str
    read_ms: int


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user with the mechanisms of its passwords and their iterations."""

    name: str
    mechanisms: dict[str, int]


@dataclass(frozen=True, slots=True)
class Users:
    """Users of SCRAM logins."""

    users: list[UserRow]
    read_ms: int


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """A quota of a user, a client id or both. An empty name: all that have none of their own; None: not part of it."""

    user: str | None
    client_id: str | None
    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class QuotaList:
    """All quotas."""

    quotas: list[QuotaRow]
    read_ms: int


def acls(asker: Asker) -> Acls:
    """All ACLs, for those who may describe the cluster."""
    asker.check(Operation.DESCRIBE, ResourceType.CLUSTER)
    asker.cluster.view.refresh(max_age_ms=1)
    try:
        found = asker.cluster.admin.describe_acls()
    except SecurityDisabledError as reason:
        return Acls([], str(reason), asker.now_ms)
    rows = [AclRow(*each.words) for each in sorted(found, key=lambda each: each.words)]
    return Acls(rows, "", asker.now_ms)


def users(asker: Asker) -> Users:
    """All users of SCRAM logins, for those who may describe the cluster."""
    asker.check(Operation.DESCRIBE, ResourceType.CLUSTER)
    asker.cluster.view.refresh(max_age_ms=1)
    found = asker.cluster.admin.describe_user_scram_credentials()
    rows = [
        UserRow(each.user, {mechanism.value: iterations for mechanism, iterations in each.credentials})
        for each in found
    ]
    return Users(sorted(rows, key=lambda row: row.name), asker.now_ms)


def quotas(asker: Asker) -> QuotaList:
    """All quotas of clients, for those who may describe the cluster's configs."""
    asker.check(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
    rows = []
    for entity, values in asker.cluster.admin.describe_client_quotas().items():
        parts = {kind: name or "" for kind, name in entity}
        for name, value in sorted(values.items()):
            rows.append(QuotaRow(parts.get("user"), parts.get("client-id"), name, value, QUOTA_UNITS.get(name, "")))
    rows.sort(key=lambda row: (row.user or "", row.client_id or "", row.name))
    return QuotaList(rows, asker.now_ms)


QUESTIONS = (
    Question("acls", "The ACLs: who may do what, from where.", acls),
    Question("users", "The users of SCRAM logins and their mechanisms.", users),
    Question("quotas", "The quotas of users and client ids.", quotas),
)
