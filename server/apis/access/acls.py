"""CreateAcls, DescribeAcls, DeleteAcls. I/O: the metadata log, for changes.

Source: Kafka's `AclApis`, `AclControlManager`, `CreateAclsRequest`, `AclBindingFilter` (KIP-140, KIP-290).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, TypeVar

from stratalog.replication.metadata.acls import (
    OPERATION_CODES,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    ResourceType,
    create_each_acl,
    delete_each_acl,
    describe_acls,
)
from stratalog.server.apis.access.acl_codes import (
    ANY,
    MATCH,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
)
from stratalog.server.request.api import Api, Call, failed
from stratalog.server.request.broker import ApiFamily
from stratalog.storage.errors import InvalidRequestError, SecurityDisabledError, StratalogError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.values import Values

_UNUSED = {
    "resourceType": {6: "DELEGATION_TOKEN", 7: "USER"},
    "operation": {13: "CREATE_TOKENS", 14: "DESCRIBE_TOKENS", 15: "TWO_PHASE_COMMIT"},
}
"""Kafka's values that nothing here can be allowed by: a binding of one is refused, a filter by one matches nothing."""
_NOTHING = AclFilter(resource_name="")
"""A filter that no binding matches: bindings have names."""

T = TypeVar("T")


class AclApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.DESCRIBE_ACLS, self._describe),
            Api(ApiKey.CREATE_ACLS, self._create, _creations_refused, is_slow=True),
            Api(ApiKey.DELETE_ACLS, self._delete, _deletions_refused, is_slow=True),
        ]

    def _describe(self, call: Call) -> Values:
        self._broker.check(call, Operation.DESCRIBE, ResourceType.CLUSTER)
        if self._broker.authorizer is None:
            raise SecurityDisabledError("No Authorizer is configured on the broker")
        wanted = filter_of(call.request)
        if isinstance(wanted, StratalogError):
            raise wanted
        found = describe_acls(self._broker.image(0), wanted)
        by_pattern = groupby(found, key=lambda each: (each.resource_type, each.resource_name, each.pattern_type))
        resources = [
            {**_pattern_values(kind, name, pattern), "acls": [_entry_values(each) for each in bindings]}
            for (kind, name, pattern), bindings in by_pattern
        ]
        return {**failed(None), "resources": resources}

    def _create(self, call: Call) -> Values:
        self._check_alteration(call)
        bindings = [binding_of(each) for each in call.request.creations]
        view = self._broker.view
        errors = view.propose(lambda image: create_each_acl(image, bindings, view.ids))
        return {"results": [failed(each) for each in errors]}

    def _delete(self, call: Call) -> Values:
        self._check_alteration(call)
        filters = [filter_of(each) for each in call.request.filters]
        answers = self._broker.view.propose(lambda image: delete_each_acl(image, filters))
        return {"filter_results": [_deleted(each) for each in answers]}

    def _check_alteration(self, call: Call) -> None:
        self._broker.check(call, Operation.ALTER, ResourceType.CLUSTER)
        if self._broker.authorizer is None:
            raise SecurityDisabledError("No Authorizer is configured.")


def binding_of(creation: Any) -> AclBinding | StratalogError:
    """The binding of a request's creation, or why it is none, in Kafka's words."""
    try:
        return AclBinding(
            _value("resourceType", creation.resource_type, RESOURCE_TYPES),
            creation.resource_name,
            _value("patternType", getattr(creation, "resource_pattern_type", 3), PATTERN_TYPES),
            creation.principal,
            creation.host,
            _value("operation", creation.operation, OPERATIONS),
            _value("permissionType", creation.permission_type, PERMISSIONS),
        )
    except InvalidRequestError as reason:
        return reason.as_value()


def _value(what: str, code: int, values: Mapping[int, T]) -> T:
    if code not in values:
        names = {ANY: "ANY", **({MATCH: "MATCH"} if what == "patternType" else {}), **_UNUSED.get(what, {})}
        raise InvalidRequestError(f"Invalid {what} {names.get(code, 'UNKNOWN')}")
    return values[code]


def filter_of(asked: Any) -> AclFilter | StratalogError:
    """The filter of a request; an error where a field is UNKNOWN."""
    pattern_code = getattr(asked, "pattern_type_filter", 3)
    fields: dict[str, Any] = {}
    unused = False
    for what, name, code, values in (
        ("resourceType", "resource_type", asked.resource_type_filter, RESOURCE_TYPES),
        ("patternType", "pattern_type", ANY if pattern_code == MATCH else pattern_code, PATTERN_TYPES),
        ("operation", "operation", asked.operation, OPERATIONS),
        ("permissionType", "permission_type", asked.permission_type, PERMISSIONS),
    ):
        if code in values:
            fields[name] = values[code]
        elif code in _UNUSED.get(what, {}):
            unused = True
        elif code != ANY:
            which = "entryFilter" if name in ("operation", "permission_type") else "patternFilter"
            return InvalidRequestError(f"Unknown {which}.")
    if unused:
        return _NOTHING
    return AclFilter(
        resource_name=asked.resource_name_filter,
        principal=asked.principal_filter,
        host=asked.host_filter,
        match_pattern=pattern_code == MATCH,
        **fields,
    )


def _pattern_values(kind: ResourceType, name: str, pattern: PatternType) -> Values:
    return {
        "resource_type": _code(RESOURCE_TYPES, kind),
        "resource_name": name,
        "pattern_type": _code(PATTERN_TYPES, pattern),
    }


def _entry_values(binding: AclBinding) -> Values:
    return {
        "principal": binding.principal,
        "host": binding.host,
        "operation": OPERATION_CODES[binding.operation],
        "permission_type": _code(PERMISSIONS, binding.permission_type),
    }


def _code(values: Mapping[int, T], value: T) -> int:
    return next(code for code, each in values.items() if each == value)


def _deleted(answer: tuple[AclBinding, ...] | StratalogError) -> Values:
    if isinstance(answer, StratalogError):
        return {**failed(answer), "matching_acls": []}
    matched = [
        {
            **failed(None),
            **_pattern_values(each.resource_type, each.resource_name, each.pattern_type),
            **_entry_values(each),
        }
        for each in answer
    ]
    return {**failed(None), "matching_acls": matched}


def _creations_refused(call: Call, error: StratalogError) -> Values:
    return {"results": [failed(error) for _ in call.request.creations]}


def _deletions_refused(call: Call, error: StratalogError) -> Values:
    return {"filter_results": [_deleted(error) for _ in call.request.filters]}
