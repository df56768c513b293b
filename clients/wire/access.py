"""ACLs, SCRAM credentials and quotas in messages. Pure.

Source: Kafka's `DescribeAclsRequest`, `CreateAclsRequest`, `DeleteAclsRequest`, `AlterUserScramCredentialsRequest`,
`AlterClientQuotasRequest` (KIP-140, KIP-290, KIP-554, KIP-546).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from stratalog.replication.metadata.acls import OPERATION_CODES, AclBinding, AclFilter
from stratalog.replication.metadata.client_quotas import QuotaEntity, QuotaMatch, Quotas
from stratalog.replication.metadata.scram import ScramDeletion, ScramDescription, ScramMechanism, ScramUpsertion
from stratalog.server.apis.access.acl_codes import ANY, MATCH, OPERATIONS, PATTERN_TYPES, PERMISSIONS, RESOURCE_TYPES
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import Message
from stratalog.wire.messages.layouts import error_of
from stratalog.wire.messages.schema import Entity
from stratalog.wire.messages.values import Values

ACLS_VERSION, SCRAM_VERSION, QUOTAS_VERSION = 3, 0, 1

T = TypeVar("T")


def create_acls_message(bindings: Sequence[AclBinding]) -> Message:
    """A request to add bindings."""
    creations = [
        {
            "resource_type": _code(RESOURCE_TYPES, each.resource_type),
            "resource_name": each.resource_name,
            "resource_pattern_type": _code(PATTERN_TYPES, each.pattern_type),
            "principal": each.principal,
            "host": each.host,
            "operation": OPERATION_CODES[each.operation],
            "permission_type": _code(PERMISSIONS, each.permission_type),
        }
        for each in bindings
    ]
    return Message({"creations": creations}, ApiKey.CREATE_ACLS, ACLS_VERSION)


def describe_acls_message(wanted: AclFilter) -> Message:
    """A request for the bindings that a filter matches."""
    return Message(_filter_values(wanted), ApiKey.DESCRIBE_ACLS, ACLS_VERSION)


def delete_acls_message(filters: Sequence[AclFilter]) -> Message:
    """A request to remove the bindings that any of the filters matches."""
    return Message({"filters": [_filter_values(each) for each in filters]}, ApiKey.DELETE_ACLS, ACLS_VERSION)


def _filter_values(wanted: AclFilter) -> Values:
    pattern = ANY if wanted.pattern_type is None else _code(PATTERN_TYPES, wanted.pattern_type)
    return {
        "resource_type_filter": ANY if wanted.resource_type is None else _code(RESOURCE_TYPES, wanted.resource_type),
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": MATCH if wanted.match_pattern else pattern,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": ANY if wanted.operation is None else OPERATION_CODES[wanted.operation],
        "permission_type": ANY if wanted.permission_type is None else _code(PERMISSIONS, wanted.permission_type),
    }


def _code(values: Mapping[int, T], value: T) -> int:
    return next(code for code, each in values.items() if each == value)


def described_acls(resources: Iterable[Entity]) -> tuple[AclBinding, ...]:
    """The bindings of a DescribeAcls response."""
    return tuple(binding_of(resource, entry) for resource in resources for entry in resource.acls)


def binding_of(resource: Entity, entry: Entity) -> AclBinding:
    """A binding of a resource and an entry of a response, which may be the same."""
    return AclBinding(
        RESOURCE_TYPES[resource.resource_type],
        resource.resource_name,
        PATTERN_TYPES[resource.pattern_type],
        entry.principal,
        entry.host,
        OPERATIONS[entry.operation],
        PERMISSIONS[entry.permission_type],
    )


# -- SCRAM ---------------------------------------------------------------------------------------------------------


def alter_scram_message(deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]) -> Message:
    """A request to remove, add and replace credentials."""
    values = {
        "deletions": [{"name": each.user, "mechanism": each.mechanism} for each in deletions],
        "upsertions": [
            {
                "name": each.user,
                "mechanism": each.mechanism,
                "iterations": each.iterations,
                "salt": each.salt,
                "salted_password": each.salted_password,
            }
            for each in upsertions
        ],
    }
    return Message(values, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, SCRAM_VERSION)


def describe_scram_message(users: Iterable[str] | None) -> Message:
    """A request for the credentials of these users, or of all."""
    named = None if users is None else [{"name": user} for user in users]
    return Message({"users": named}, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, SCRAM_VERSION)


def described_scram(result: Entity) -> ScramDescription:
    """The credentials of one user."""
    found = ((ScramMechanism.of_code(each.mechanism), each.iterations) for each in result.credential_infos)
    known = tuple((mechanism, count) for mechanism, count in found if mechanism is not None)
    return ScramDescription(result.user, known, error_of(result))


def alter_quota_message(entity: QuotaEntity, changes: Mapping[str, float | None], *, validate_only: bool) -> Message:
    """A request to set quotas of one entity, and to remove those that are None."""
    changed = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in changes.items()]
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
    values = {"entries": [{"entity": parts, "ops": changed}], "validate_only": validate_only}
    return Message(values, ApiKey.ALTER_CLIENT_QUOTAS, QUOTAS_VERSION)


def describe_quotas_message(wanted: Sequence[QuotaMatch], *, is_strict: bool) -> Message:
    """A request for the quotas that a filter matches."""
    components = [each._asdict() for each in wanted]
    return Message({"components": components, "strict": is_strict}, ApiKey.DESCRIBE_CLIENT_QUOTAS, QUOTAS_VERSION)


def described_quotas(answer: Entity) -> Quotas:
    """The quotas of an answer, by entity."""
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)): {
            each.key: each.value for each in entry.values
        }
        for entry in answer.entries or ()
    }
