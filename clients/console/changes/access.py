"""ACLs are added and removed, users are set and removed. I/O: the cluster."""

from __future__ import annotations

from collections.abc import Mapping

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.changes.change import ClusterChange, Preview, PreviewLine
from stratalog.clients.console.question import Parameter
from stratalog.replication.metadata.acls import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    supported_operations,
)
from stratalog.replication.metadata.scram import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import InvalidRequestError, ResourceNotFoundError

PASSWORD_LENGTH_MIN = 8


def _access_page(_: Mapping[str, object]) -> str:
    return "/access"


def _binding(values: Mapping[str, str]) -> AclBinding:
    """The rule that a form names. InvalidRequestError."""
    principal = values["principal"]
    found = AclBinding(
        ResourceType(values["resource_type"]),
        values["resource_name"],
        PatternType(values["pattern_type"]),
        principal,
        values["host"],
        Operation(values["operation"]),
        Permission(values["permission"]),
    )
    if ":" not in principal:
        raise InvalidRequestError(f"a principal is User:NAME, not {principal!r}")
    if found.operation not in supported_operations(found.resource_type):
        raise InvalidRequestError(f"{found.operation.value} is no operation on a {found.resource_type.value}")
    return found


def _rule(found: AclBinding) -> str:
    kind = f"{found.pattern_type.value.lower()} {found.resource_type.value.lower()} {found.resource_name}"
    return f"{found.permission_type.value} {found.principal} from {found.host} to {found.operation.value} {kind}"


def preview_create_acl(asker: Asker, **values: str) -> Preview:
    asker.check(Operation.ALTER, ResourceType.CLUSTER)
    found = _binding(values)
    asker.cluster.view.refresh()
    known = asker.cluster.admin.describe_acls()
    warnings = []
    if found in known:
        warnings.append("This rule is there already.")
    if not known:
        warnings.append("It is the first rule: where brokers have an authorizer, what no rule allows is refused.")
    return Preview([PreviewLine("rule", "", _rule(found))], warnings)


def create_acl(asker: Asker, **values: str) -> str:
    asker.check(Operation.ALTER, ResourceType.CLUSTER)
    found = _binding(values)
    asker.cluster.admin.create_acls([found])
    return f"Added: {_rule(found)}."


def _filter(found: AclBinding) -> AclFilter:
    return AclFilter(
        found.resource_type,
        found.resource_name,
        found.pattern_type,
        found.principal,
        found.host,
        found.operation,
        found.permission_type,
    )


def preview_delete_acl(asker: Asker, **values: str) -> Preview:
    asker.check(Operation.ALTER, ResourceType.CLUSTER)
    found = _binding(values)
    asker.cluster.view.refresh()
    if found not in asker.cluster.admin.describe_acls():
        raise ResourceNotFoundError(f"there is no such rule: {_rule(found)}")
    return Preview([PreviewLine("rule", _rule(found), "")])


def delete_acl(asker: Asker, **values: str) -> str:
    asker.check(Operation.ALTER, ResourceType.CLUSTER)
    found = _binding(values)
    asker.cluster.admin.delete_acls([_filter(found)])
    return f"Removed: {_rule(found)}."


def _credentials(asker: Asker, user: str) -> dict[str, int]:
    asker.cluster.view.refresh()
    found = [each for each in asker.cluster.admin.describe_user_scram_credentials() if each.user == user]
    return {mechanism.value: iterations for each in found for mechanism, iterations in each.credentials}


def _check_password(password: str, iterations: int) -> None:
    if len(password) < PASSWORD_LENGTH_MIN:
        raise InvalidRequestError(f"a password has at least {PASSWORD_LENGTH_MIN} characters")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise InvalidRequestError(f"iterations are from {ITERATIONS_MIN} to {ITERATIONS_MAX}, not {iterations}")


def preview_set_user(asker: Asker, user: str, mechanism: str, password: str, iterations: int) -> Preview:
    asker.check(Operation.ALTER, ResourceType.CLUSTER)
    _check_password(password, iterations)
    before = _credentials(asker, user).get(mechanism)
    shown = "" if before is None else f"{before} iterations"
    warnings = [] if before is None else ["Its clients need the new password from then on."]
    return Preview([PreviewLine(f"{mechanism} of {user}", shown, f"{iterations} iterations, a new password")], warnings)


def set_user(asker: Asker, user: str, mechanism: str, password: str, iterations: int) -> str:
    asker.check(Operation.ALTER, ResourceType.CLUSTER)
    _check_password(password, iterations)
    kind = ScramMechanism(mechanism)
    salt = bytes.fromhex(RandomIds().new_id())
    salted = kind.salted_password(password, salt, iterations)
    wanted = ScramUpsertion(user, kind.code, iterations, salt, salted)
    _raise_first(asker.cluster.admin.alter_user_scram_credentials(upsertions=[wanted]))
    return f"User {user} has a new password for {mechanism}."


def preview_delete_user(asker: Asker, user: str, mechanism: str) -> Preview:
    asker.check(Operation.ALTER, ResourceType.CLUSTER)
    before = _credentials(asker, user).get(mechanism)
    if before is None:
        raise ResourceNotFoundError(f"user {user} has no password for {mechanism}")
    warning = "Connections that are open stay; new ones are refused."
    return Preview([PreviewLine(f"{mechanism} of {user}", f"{before} iterations", "")], [warning])


def delete_user(asker: Asker, user: str, mechanism: str) -> str:
    asker.check(Operation.ALTER, ResourceType.CLUSTER)
    deletion = ScramDeletion(user, ScramMechanism(mechanism).code)
    _raise_first(asker.cluster.admin.alter_user_scram_credentials(deletions=[deletion]))
    return f"User {user} has no password for {mechanism} any more."


def _raise_first(answers: Mapping[str, Exception | None]) -> None:
    error = next((each for each in answers.values() if each is not None), None)
    if error is not None:
        raise error


def _choices(kind: type[ResourceType] | type[PatternType] | type[Operation] | type[Permission]) -> tuple[str, ...]:
    return tuple(each.value for each in kind)


_RULE = {
    "principal": Parameter(str, "User:NAME, or User:* for everybody"),
    "permission": Parameter(str, "a DENY beats every ALLOW", "ALLOW", _choices(Permission)),
    "operation": Parameter(str, "what it is about", "READ", _choices(Operation)),
    "resource_type": Parameter(str, "of the resource", "TOPIC", _choices(ResourceType)),
    "resource_name": Parameter(str, "the resource, or * for all; of the cluster kafka-cluster"),
    "pattern_type": Parameter(str, "PREFIXED: all names that begin so", "LITERAL", _choices(PatternType)),
    "host": Parameter(str, "an address, or * for any", "*"),
}
_MECHANISMS = tuple(each.value for each in ScramMechanism)
_USER = Parameter(str, "the user's name, without User:")
CHANGES = (
    ClusterChange(
        "create_acl",
        "Add an ACL",
        "Adds a rule on what a user may do.",
        _RULE,
        preview_create_acl,
        create_acl,
        _access_page,
    ),
    ClusterChange(
        "delete_acl",
        "Remove an ACL",
        "Removes one rule.",
        _RULE,
        preview_delete_acl,
        delete_acl,
        _access_page,
    ),
    ClusterChange(
        "set_user",
        "Set a user's password",
        "Adds a user of SCRAM logins, or gives one a new password.",
        {
            "user": _USER,
            "mechanism": Parameter(str, "of the login", "SCRAM-SHA-512", _MECHANISMS),
            "password": Parameter(str, f"at least {PASSWORD_LENGTH_MIN} characters"),
            "iterations": Parameter(int, f"from {ITERATIONS_MIN} to {ITERATIONS_MAX}", ITERATIONS_DEFAULT),
        },
        preview_set_user,
        set_user,
        _access_page,
        secrets=frozenset({"password"}),
    ),
    ClusterChange(
        "delete_user",
        "Remove a user's password",
        "Removes a user's password for one mechanism.",
        {"user": _USER, "mechanism": Parameter(str, "of the login", "SCRAM-SHA-512", _MECHANISMS)},
        preview_delete_user,
        delete_user,
        _access_page,
        is_final=True,
    ),
)
