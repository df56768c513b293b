"""Access control lists: principals' permitted operations on topics, groups, transactional ids and the cluster. Pure.

Bindings are metadata records (`AccessControlEntryRecord`), so every broker folds the same ones. `Authorizer` follows
Kafka's StandardAuthorizer: super users first, then any matching deny, then any matching allow, then, only where no
binding names the resource at all, `allow.everyone.if.no.acl.found`. It is off unless `authorizer.class.name` is set.
The Kafka endpoint authorizes each request; calls within a process are not authorized.

Source: Kafka's StandardAuthorizerData and Authorizer.authorizeByResourceType (KIP-290, KIP-430, KIP-679).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Self

from stratalog.replication.config import parse_principals
from stratalog.replication.host_address import host_address
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)
from stratalog.storage import errors
from stratalog.storage.clock import Ids
from stratalog.storage.errors import StratalogError

WILDCARD = "*"
CLUSTER_NAME = "kafka-cluster"
"""The only resource of type cluster (Kafka's Resource.CLUSTER_NAME)."""
ANONYMOUS = "User:ANONYMOUS"
"""The principal of a connection without authentication."""
EVERYONE = "User:*"
PRINCIPALS_KEPT_MAX, SETS_KEPT_MAX = 1_000, 16
"""Numbers of principals whose visible topics are kept, and of sets of names for each of them."""


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


OPERATION_CODES = {operation: code for code, operation in enumerate(Operation, start=2)}
"""Kafka's codes of operations: ALL is 2, IDEMPOTENT_WRITE 12."""

_DESCRIBE = (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
_IMPLIED_BY: dict[Operation, tuple[Operation, ...]] = {
    Operation.DESCRIBE: _DESCRIBE,
    Operation.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
}
"""The operations whose allow implies another one; a deny implies none."""

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
    """The operations that a binding of this type may name."""
    return frozenset((*_OPERATIONS_OF[resource_type], Operation.ALL))


_REFUSALS: dict[ResourceType, type[StratalogError]] = {
    ResourceType.TOPIC: errors.TopicAuthorizationFailedError,
    ResourceType.GROUP: errors.GroupAuthorizationFailedError,
    ResourceType.CLUSTER: errors.ClusterAuthorizationFailedError,
    ResourceType.TRANSACTIONAL_ID: errors.TransactionalIdAuthorizationFailedError,
}


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource by its own name, not a pattern."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.value}:{self.name}"


CLUSTER = Resource(ResourceType.CLUSTER, CLUSTER_NAME)


@dataclass(frozen=True, slots=True)
class Principal:
    """The user of a connection, `User:alice`, and its address."""

    name: str = ANONYMOUS
    host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One rule. `principal` is `User:alice` or `User:*`, `host` an address, in any of its forms, or `*`."""

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

    @property
    def words(self) -> tuple[str, ...]:
        """The fields as strings, in order: those of the record, and the sort key."""
        return (
            self.resource_type.value,
            self.resource_name,
            self.pattern_type.value,
            self.principal,
            self.host,
            self.operation.value,
            self.permission_type.value,
        )

    def names(self, resource: Resource) -> bool:
        """Whether the binding's pattern matches the resource."""
        if self.resource_type != resource.type:
            return False
        if self.pattern_type == PatternType.PREFIXED:
            return resource.name.startswith(self.resource_name)
        return self.resource_name in (WILDCARD, resource.name)

    def is_for(self, principal: Principal) -> bool:
        if self.principal not in (principal.name, EVERYONE):
            return False
        return self.host == WILDCARD or host_address(self.host) == host_address(principal.host)

    def covers(self, operation: Operation) -> bool:
        """Whether the binding is about `operation`: an allow implies describe, a deny implies nothing."""
        if self.operation in (Operation.ALL, operation):
            return True
        return self.permission_type == Permission.ALLOW and self.operation in _IMPLIED_BY.get(operation, ())


class Authorizer:
    """Decides by one set of bindings; make a new one when they change.

    Literal bindings are found by name and prefixed ones by each prefix of the name, so the time of a decision depends
    on the length of the name, not on the number of bindings.
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
        self._visible: dict[Principal, VisibleTopics] = {}
        self._by_pattern: dict[tuple[ResourceType, PatternType, str], list[AclBinding]] = {}
        for binding in bindings:
            key = (binding.resource_type, binding.pattern_type, binding.resource_name)
            self._by_pattern.setdefault(key, []).append(binding)

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Whether `principal` may do this.

        With only `allow User:bob READ on prefix orders-`, bob may READ and DESCRIBE orders-1; nothing else is allowed.
        """
        if principal.name in self._super_users:
            return True
        found = self._naming(resource)
        if not found:
            return self._default
        relevant = [b for b in found if b.is_for(principal) and b.covers(operation)]
        return bool(relevant) and all(b.permission_type == Permission.ALLOW for b in relevant)

    def _naming(self, resource: Resource) -> list[AclBinding]:
        name, found = resource.name, self._by_pattern
        literal = [(resource.type, PatternType.LITERAL, pattern) for pattern in {name, WILDCARD}]
        prefixed = [(resource.type, PatternType.PREFIXED, name[:end]) for end in range(len(name) + 1)]
        return [binding for key in (*literal, *prefixed) for binding in found.get(key, ())]

    def authorize_by_resource_type(
        self, principal: Principal, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether `principal` may do this on at least one possible resource of the type (KIP-679).

        So a producer that may write to any topic may be idempotent without IDEMPOTENT_WRITE.
        """
        if self.authorize(principal, operation, Resource(resource_type, "hardcode")):
            return True
        relevant = [
            b
            for bindings in self._by_pattern.values()
            for b in bindings
            if b.resource_type == resource_type and b.is_for(principal) and b.operation in (operation, Operation.ALL)
        ]
        denied = {(b.pattern_type, b.resource_name) for b in relevant if b.permission_type == Permission.DENY}
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(b.permission_type == Permission.ALLOW and not _is_dominated(b, denied) for b in relevant)

    def authorized_operations(self, principal: Principal, resource: Resource) -> int:
        """The allowed operations of the resource's type: a bit for each code, as in answers to describe requests.

        For a topic that may only be read: bits 3 and 8, 264. Source: KIP-430.
        """
        allowed = (each for each in _OPERATIONS_OF[resource.type] if self.authorize(principal, each, resource))
        return sum(1 << OPERATION_CODES[each] for each in allowed)

    def visible_topics(self, principal: Principal) -> VisibleTopics:
        """The topics that `principal` may describe; the same object each time."""
        found = self._visible.get(principal)
        if found is None:
            if len(self._visible) >= PRINCIPALS_KEPT_MAX:
                self._visible = {}
            found = self._visible.setdefault(principal, VisibleTopics(self, principal))
        return found

    def may_write_idempotently(self, principal: Principal) -> bool:
        """The authorization of InitProducerId without a transactional id (KafkaApis.handleInitProducerIdRequest)."""
        return self.authorize(principal, Operation.IDEMPOTENT_WRITE, CLUSTER) or self.authorize_by_resource_type(
            principal, Operation.WRITE, ResourceType.TOPIC
        )

    def refusal(self, principal: Principal, operation: Operation, resource: Resource) -> StratalogError | None:
        """None if it is allowed, else the error to answer, which does not reveal whether the resource exists."""
        if self.authorize(principal, operation, resource):
            return None
        return _REFUSALS[resource.type](f"{principal.name} is not allowed to {operation.value} {resource}")


class VisibleTopics:
    """Which topics a principal may describe, by the bindings of one authorizer. Any thread may call it.

    Requests carry it to coordinators. A group asks for the same sets of names at every heartbeat, so the last ones are
    kept.
    """

    def __init__(self, authorizer: Authorizer, principal: Principal) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._known: dict[frozenset[str], frozenset[str]] = {}

    def __call__(self, names: frozenset[str]) -> frozenset[str]:
        """Those of the names that are visible."""
        found = self._known.get(names)
        if found is None:
            if len(self._known) >= SETS_KEPT_MAX:
                self._known = {}
            found = self._known[names] = frozenset(name for name in names if self.has(name))
        return found

    def has(self, name: str) -> bool:
        return self._authorizer.authorize(self._principal, Operation.DESCRIBE, Resource(ResourceType.TOPIC, name))


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
    """A filter of bindings; None stands for any value.

    `match_pattern`: `resource_name` is a resource's own name, and every pattern that names it matches (Kafka's
    PatternType.MATCH).
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
        if self.host is not None:
            same = host_address(self.host) == host_address(binding.host)
            return same and replace(self, host=None).matches(binding)
        wanted = {each.name: getattr(self, each.name) for each in fields(AclBinding)}
        return all(value is None or value == getattr(binding, name) for name, value in wanted.items())


def create_acls(image: ClusterImage, bindings: Sequence[AclBinding], ids: Ids) -> Result[None]:
    """Add bindings; existing ones stay as they are. InvalidRequestError for an invalid one."""
    known = {AclBinding.from_record(record) for record in image.acls.values()}
    records: list[MetadataRecord] = []
    for binding in dict.fromkeys(bindings):
        _check(binding)
        if binding not in known:
            records.append(AccessControlEntryRecord(ids.new_id(), *binding.words))
    return Result(tuple(records), None)


def _check(binding: AclBinding) -> None:
    if binding.operation not in supported_operations(binding.resource_type):
        supported = ", ".join(sorted(each.value for each in _OPERATIONS_OF[binding.resource_type]))
        raise errors.InvalidRequestError(
            f"ResourceType {binding.resource_type.value} only supports operations {supported} and ALL; "
            f"found {binding.operation.value}"
        )
    if binding.resource_type == ResourceType.CLUSTER and binding.resource_name not in (CLUSTER_NAME, WILDCARD):
        raise errors.InvalidRequestError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not binding.resource_name:
        raise errors.InvalidRequestError("Resource name should not be empty")
    parse_principals(binding.principal)


def create_each_acl(
    image: ClusterImage, bindings: Sequence[AclBinding | StratalogError], ids: Ids
) -> Result[list[StratalogError | None]]:
    """Add those bindings that are valid; the answer is the error of each, None for one that is there now.

    A binding that could not be read stands as its error already. As Kafka's broker, unlike its tool, this does not ask
    whether the operation exists on the resource. Source: `AclApis.handleCreateAcls`, `AclControlManager.createAcls`.
    """
    known = {AclBinding.from_record(record) for record in image.acls.values()}
    records: list[MetadataRecord] = []
    answers: list[StratalogError | None] = []
    for binding in bindings:
        error = binding if isinstance(binding, StratalogError) else _error_of(binding)
        if error is None and binding not in known:
            assert isinstance(binding, AclBinding)
            known.add(binding)
            records.append(AccessControlEntryRecord(ids.new_id(), *binding.words))
        answers.append(error)
    return Result(tuple(records), answers)


def _error_of(binding: AclBinding) -> StratalogError | None:
    if binding.resource_type == ResourceType.CLUSTER and binding.resource_name != CLUSTER_NAME:
        return errors.InvalidRequestError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not binding.resource_name:
        return errors.InvalidRequestError("Invalid empty resource name")
    if ":" not in binding.principal:
        return errors.InvalidRequestError(
            f"Could not parse principal from `{binding.principal}` (no colon is present separating the principal type"
            " from the principal name)"
        )
    return None


def delete_each_acl(
    image: ClusterImage, filters: Sequence[AclFilter | StratalogError]
) -> Result[list[tuple[AclBinding, ...] | StratalogError]]:
    """Remove bindings; the answer is what each filter matched. A filter that could not be read is its error already."""
    found = {acl_id: AclBinding.from_record(record) for acl_id, record in image.acls.items()}
    answers: list[tuple[AclBinding, ...] | StratalogError] = [
        one if isinstance(one, StratalogError) else tuple(each for each in found.values() if one.matches(each))
        for one in filters
    ]
    removed = {binding for matched in answers if isinstance(matched, tuple) for binding in matched}
    records = tuple(RemoveAccessControlEntryRecord(acl_id) for acl_id, each in found.items() if each in removed)
    return Result(records, answers)


def delete_acls(image: ClusterImage, filters: Sequence[AclFilter]) -> Result[tuple[AclBinding, ...]]:
    """Remove the bindings that any of the filters matches; the answer is the removed bindings."""
    found = {
        acl_id: binding
        for acl_id, record in image.acls.items()
        if any(each.matches(binding := AclBinding.from_record(record)) for each in filters)
    }
    return Result(tuple(RemoveAccessControlEntryRecord(acl_id) for acl_id in found), tuple(found.values()))


def describe_acls(image: ClusterImage, wanted: AclFilter) -> tuple[AclBinding, ...]:
    """The bindings that the filter matches, in order of resource, pattern and principal."""
    found = [AclBinding.from_record(record) for record in image.acls.values()]
    return tuple(sorted((b for b in found if wanted.matches(b)), key=lambda binding: binding.words))
