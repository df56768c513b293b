"""Access control lists: who may do what on which topic, group, transactional id or the cluster. Pure.

Bindings are metadata records (`AccessControlEntryRecord`), so every broker folds the same ones. `Authorizer` follows
Kafka's StandardAuthorizer: super users first, then any matching deny, then any matching allow, then, only where no
binding names the resource at all, `allow.everyone.if.no.acl.found`. It is off unless `authorizer.class.name` is set.
Calls within a process are the process's own and are not asked; the Kafka endpoint asks for each request.

Source: Kafka's StandardAuthorizerData and Authorizer.authorizeByResourceType (KIP-290, KIP-430, KIP-679).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from stratalog.replication.config import parse_principals
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)
from stratalog.storage.clock import Ids
from stratalog.storage.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    InvalidRequestError,
    StratalogError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)

WILDCARD = "*"
CLUSTER_NAME = "kafka-cluster"
"""The only resource of type cluster (Kafka's Resource.CLUSTER_NAME)."""
ANONYMOUS = "User:ANONYMOUS"
"""Who a connection without authentication is."""
EVERYONE = "User:*"


class Operation(StrEnum):
    """Kafka's AclOperation; `ALL` in a binding stands for each of them."""

    ALL = "ALL"
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    CLUSTER_ACTION = "CLUSTER_ACTION"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"
    IDEMPOTENT_WRITE = "IDEMPOTENT_WRITE"


class ResourceType(StrEnum):
    """Kafka's ResourceType, without users and delegation tokens."""

    TOPIC = "TOPIC"
    GROUP = "GROUP"
    CLUSTER = "CLUSTER"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"


class PatternType(StrEnum):
    """LITERAL: this name, or with `*` every name. PREFIXED: every name that begins so."""

    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Permission(StrEnum):
    """Kafka's AclPermissionType; a deny beats every allow."""

    ALLOW = "ALLOW"
    DENY = "DENY"


_CODES = {operation: code for code, operation in enumerate(Operation, start=2)}
"""Kafka's codes of operations: ALL is 2, IDEMPOTENT_WRITE 12."""

_DESCRIBE = (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
_IMPLIED_BY: dict[Operation, tuple[Operation, ...]] = {
    Operation.DESCRIBE: _DESCRIBE,
    Operation.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
}
"""What an allow for one operation allows besides; a deny denies itself alone."""

_CONFIGS = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
_OPERATIONS_OF: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (*_DESCRIBE, Operation.CREATE, *_CONFIGS),
    ResourceType.GROUP: (Operation.READ, Operation.DESCRIBE, Operation.DELETE, *_CONFIGS),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.CLUSTER_ACTION, *_CONFIGS, Operation.IDEMPOTENT_WRITE, Operation.ALTER,
        Operation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE),
}  # fmt: skip
"""AclEntry.supportedOperations."""


def supported_operations(resource_type: ResourceType) -> frozenset[Operation]:
    """What a binding of this type may name, `ALL` besides."""
    return frozenset((*_OPERATIONS_OF[resource_type], Operation.ALL))


_REFUSALS: dict[ResourceType, type[StratalogError]] = {
    ResourceType.TOPIC: TopicAuthorizationFailedError,
    ResourceType.GROUP: GroupAuthorizationFailedError,
    ResourceType.CLUSTER: ClusterAuthorizationFailedError,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailedError,
}


@dataclass(frozen=True, slots=True)
class Resource:
    """One thing that is acted on, by its own name: no pattern."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.value}:{self.name}"


CLUSTER = Resource(ResourceType.CLUSTER, CLUSTER_NAME)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a connection belongs to, `User:alice`, and the address it comes from."""

    name: str = ANONYMOUS
    host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One rule. `principal` is `User:alice` or `User:*`, `host` an address or `*`."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission_type: Permission

    @classmethod
    def from_record(cls, record: AccessControlEntryRecord) -> Self:
        return cls(
            ResourceType(record.resource_type),
            record.resource_name,
            PatternType(record.pattern_type),
            record.principal,
            record.host,
            Operation(record.operation),
            Permission(record.permission_type),
        )

    def names(self, resource: Resource) -> bool:
        """Whether the binding's pattern is one of the resource's."""
        if self.resource_type != resource.type:
            return False
        if self.pattern_type == PatternType.PREFIXED:
            return resource.name.startswith(self.resource_name)
        return self.resource_name in (WILDCARD, resource.name)

    def is_for(self, principal: Principal) -> bool:
        return self.principal in (principal.name, EVERYONE) and self.host in (principal.host, WILDCARD)

    def says(self, operation: Operation) -> bool:
        """Whether the binding speaks of `operation`: an allow implies describe, a deny implies nothing."""
        if self.operation in (Operation.ALL, operation):
            return True
        return self.permission_type == Permission.ALLOW and self.operation in _IMPLIED_BY.get(operation, ())


class Authorizer:
    """Decides over one set of bindings; make a new one when they change.

    Literal bindings are looked up by name and prefixed ones by each prefix that the name has, so a decision takes as
    long as the name is, not as there are bindings.
    """

    def __init__(
        self,
        bindings: Iterable[AclBinding],
        super_users: Iterable[str] = (),
        *,
        allow_everyone_if_no_acl_found: bool = False,
    ) -> None:
        self._super_users = frozenset(super_users)
        self._default = allow_everyone_if_no_acl_found
        self._by_pattern: dict[tuple[ResourceType, PatternType, str], list[AclBinding]] = {}
        for binding in bindings:
            key = (binding.resource_type, binding.pattern_type, binding.resource_name)
            self._by_pattern.setdefault(key, []).append(binding)

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Whether `principal` may do this.

        With only `allow User:bob READ on prefix orders-`, bob may READ and DESCRIBE orders-1 and nobody else anything.
        """
        if principal.name in self._super_users:
            return True
        found = self._naming(resource)
        if not found:
            return self._default
        telling = [b for b in found if b.is_for(principal) and b.says(operation)]
        return bool(telling) and all(b.permission_type == Permission.ALLOW for b in telling)

    def _naming(self, resource: Resource) -> list[AclBinding]:
        name, found = resource.name, self._by_pattern
        literal = [(resource.type, PatternType.LITERAL, pattern) for pattern in {name, WILDCARD}]
        prefixed = [(resource.type, PatternType.PREFIXED, name[:end]) for end in range(len(name) + 1)]
        return [binding for key in (*literal, *prefixed) for binding in found.get(key, ())]

    def authorize_by_resource_type(
        self, principal: Principal, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether `principal` may do this on at least one resource of the type that could exist (KIP-679).

        By it a producer that may write to any topic may be idempotent without IDEMPOTENT_WRITE.
        """
        if self.authorize(principal, operation, Resource(resource_type, "hardcode")):
            return True
        telling = [
            b
            for bindings in self._by_pattern.values()
            for b in bindings
            if b.resource_type == resource_type and b.is_for(principal) and b.operation in (operation, Operation.ALL)
        ]
        denied = {(b.pattern_type, b.resource_name) for b in telling if b.permission_type == Permission.DENY}
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(b.permission_type == Permission.ALLOW and not _is_dominated(b, denied) for b in telling)

    def authorized_operations(self, principal: Principal, resource: Resource) -> int:
        """Which of the operations that its type knows are allowed: a bit for each code, as describe requests answer it
        (KIP-430). Of a topic that may be read only: bits 3 and 8, 264."""
        allowed = (each for each in _OPERATIONS_OF[resource.type] if self.authorize(principal, each, resource))
        return sum(1 << _CODES[each] for each in allowed)

    def may_write_idempotently(self, principal: Principal) -> bool:
        """What InitProducerId without a transactional id asks for (KafkaApis.handleInitProducerIdRequest)."""
        return self.authorize(principal, Operation.IDEMPOTENT_WRITE, CLUSTER) or self.authorize_by_resource_type(
            principal, Operation.WRITE, ResourceType.TOPIC
        )

    def refusal(self, principal: Principal, operation: Operation, resource: Resource) -> StratalogError | None:
        """None when it is allowed, else the error to answer; it says nothing of what exists."""
        if self.authorize(principal, operation, resource):
            return None
        return _REFUSALS[resource.type](f"{principal.name} is not allowed to {operation.value} {resource}")


def _is_dominated(allow: AclBinding, denied: set[tuple[PatternType, str]]) -> bool:
    if allow.pattern_type == PatternType.LITERAL:
        if allow.resource_name == WILDCARD:
            return False
        if (PatternType.LITERAL, allow.resource_name) in denied:
            return True
    name = allow.resource_name
    return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))


def authorizer_of(image: ClusterImage, settings: Mapping[str, object]) -> Authorizer | None:
    """The authorizer by a broker's settings (`BrokerConfig.properties`); None, the default: everything is allowed."""
    if not settings["authorizer.class.name"]:
        return None
    bindings = (AclBinding.from_record(record) for record in image.acls.values())
    users = parse_principals(str(settings["super.users"]))
    default = settings["allow.everyone.if.no.acl.found"] is True
    return Authorizer(bindings, users, allow_everyone_if_no_acl_found=default)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which bindings are meant; None stands for any.

    `match_pattern` True takes `resource_name` for a resource's own name and finds every pattern that names it
    (Kafka's PatternType.MATCH).
    """

    resource_type: ResourceType | None = None
    resource_name: str | None = None
    pattern_type: PatternType | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission_type: Permission | None = None
    match_pattern: bool = False

    def matches(self, binding: AclBinding) -> bool:
        if self.match_pattern and self.resource_name is not None:
            if not binding.names(Resource(binding.resource_type, self.resource_name)):
                return False
            return replace(self, resource_name=None, match_pattern=False).matches(binding)
        wanted = (
            self.resource_type,
            self.resource_name,
            self.pattern_type,
            self.principal,
            self.host,
            self.operation,
            self.permission_type,
        )
        has = (
            binding.resource_type,
            binding.resource_name,
            binding.pattern_type,
            binding.principal,
            binding.host,
            binding.operation,
            binding.permission_type,
        )
        return all(want is None or want == is_ for want, is_ in zip(wanted, has, strict=True))


def create_acls(image: ClusterImage, bindings: Sequence[AclBinding], ids: Ids) -> Result[None]:
    """Add bindings; those that are there already stay as they are. InvalidRequestError for one that means nothing."""
    known = {AclBinding.from_record(record) for record in image.acls.values()}
    records: list[MetadataRecord] = []
    for binding in dict.fromkeys(bindings):
        _check(binding)
        if binding not in known:
            records.append(
                AccessControlEntryRecord(
                    ids.new_id(),
                    binding.resource_type.value,
                    binding.resource_name,
                    binding.pattern_type.value,
                    binding.principal,
                    binding.host,
                    binding.operation.value,
                    binding.permission_type.value,
                )
            )
    return Result(tuple(records), None)


def _check(binding: AclBinding) -> None:
    if binding.operation not in supported_operations(binding.resource_type):
        supported = ", ".join(sorted(each.value for each in _OPERATIONS_OF[binding.resource_type]))
        raise InvalidRequestError(
            f"ResourceType {binding.resource_type.value} only supports operations {supported} and ALL; "
            f"found {binding.operation.value}"
        )
    if binding.resource_type == ResourceType.CLUSTER and binding.resource_name not in (CLUSTER_NAME, WILDCARD):
        raise InvalidRequestError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not binding.resource_name:
        raise InvalidRequestError("Resource name should not be empty")
    parse_principals(binding.principal)


def delete_acls(image: ClusterImage, filters: Sequence[AclFilter]) -> Result[tuple[AclBinding, ...]]:
    """Remove what any of the filters matches; the answer is what was removed."""
    found = {
        acl_id: binding
        for acl_id, record in image.acls.items()
        if any(each.matches(binding := AclBinding.from_record(record)) for each in filters)
    }
    return Result(tuple(RemoveAccessControlEntryRecord(acl_id) for acl_id in found), tuple(found.values()))


def describe_acls(image: ClusterImage, wanted: AclFilter) -> tuple[AclBinding, ...]:
    """The bindings that the filter matches, in order of resource, pattern and principal."""
    found = [AclBinding.from_record(record) for record in image.acls.values()]
    return tuple(sorted((b for b in found if wanted.matches(b)), key=_order))


def _order(binding: AclBinding) -> tuple[str, ...]:
    pattern = (binding.resource_type.value, binding.resource_name, binding.pattern_type.value)
    return (*pattern, binding.principal, binding.host, binding.operation.value, binding.permission_type.value)
