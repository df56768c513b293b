"""`kafka-acls` for stratalog: add, remove and list access control lists, with Kafka's flags and output.

I/O: the metadata log or brokers, through an admin client. Answers are read from standard input.
Source: Kafka's AclCommand and the texts of ResourcePattern, AccessControlEntry and AclBinding. Different: no
delegation tokens and users as resources; ACLs count only where brokers have an `authorizer.class.name`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product

from stratalog import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    StratalogError,
)
from stratalog.clients.admin.cluster_admin import ClusterAdmin
from stratalog.jobs.command.arguments import CLUSTER
from stratalog.jobs.command.flags import NOT_TOGETHER, Flag, Rule, switch
from stratalog.jobs.command.opened import open_cluster
from stratalog.jobs.command.output import JSON, OUTPUT, print_rows
from stratalog.jobs.command.terminal import DONE, FAILED, UsageError
from stratalog.jobs.command.tool import Command
from stratalog.jobs.command.words import Words
from stratalog.replication.config import parse_principals
from stratalog.replication.metadata.acls import CLUSTER_NAME, WILDCARD, supported_operations

PURPOSE = "This tool helps to manage acls on kafka."
EPILOG = """examples (for --root ROOT also --bootstrap-server HOST:PORT):
  {prog} --root ROOT --add --allow-principal User:bob --operation Read --topic events
  {prog} --root ROOT --add --allow-principal User:bob --consumer --topic events --group readers
  {prog} --root ROOT --list --topic events
  {prog} --root ROOT --remove --topic events --force

exit code: 0; 1 when something failed or the command line is wrong
"""
ANY, MATCH = "ANY", "MATCH"
PATTERN_TYPES = (ANY, MATCH, *(each.value for each in PatternType))
_OPERATIONS = {each.value.replace("_", "").lower(): each for each in Operation}
_ROLE = {
    "producer": {
        ResourceType.TOPIC: frozenset((Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)),
        ResourceType.TRANSACTIONAL_ID: frozenset((Operation.WRITE, Operation.DESCRIBE)),
        ResourceType.CLUSTER: frozenset((Operation.IDEMPOTENT_WRITE,)),
    },
    "consumer": {
        ResourceType.TOPIC: frozenset((Operation.READ, Operation.DESCRIBE)),
        ResourceType.GROUP: frozenset((Operation.READ,)),
    },
}
"""Operations that `--producer` and `--consumer` stand for; that of the cluster only with `--idempotent`."""


@dataclass(frozen=True, slots=True, order=True)
class Pattern:
    """Kafka's ResourcePatternFilter; `pattern_type` may be ANY or MATCH."""

    resource_type: ResourceType
    name: str
    pattern_type: str

    def __str__(self) -> str:
        return f"ResourcePattern(resourceType={self.resource_type}, name={self.name}, patternType={self.pattern_type})"

    @property
    def filter(self) -> AclFilter:
        """Every binding of the pattern."""
        exact = PatternType(self.pattern_type) if self.pattern_type not in (ANY, MATCH) else None
        return AclFilter(self.resource_type, self.name, exact, match_pattern=self.pattern_type == MATCH)


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """Kafka's AccessControlEntry."""

    principal: str
    host: str
    operation: Operation
    permission_type: Permission

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation}, "
            f"permissionType={self.permission_type})"
        )


Wanted = dict[Pattern, set[Entry]]


# fmt: off
FLAGS = {**CLUSTER, "": (
    switch("add", "Indicates you are trying to add ACLs."),
    switch("remove", "Indicates you are trying to remove ACLs."),
    switch("list", "List ACLs for the specified resource, use --topic or --group or --cluster to specify a resource."),
    switch("cluster", "Add/Remove cluster ACLs."),
    switch("idempotent", "Enable idempotence for the producer. To be used in combination with --producer."),
    switch("producer", "Convenience option to add/remove ACLs for producer role: WRITE, DESCRIBE, CREATE on topic."),
    switch("consumer", "Convenience option for consumer role: READ, DESCRIBE on topic and READ on group."),
    OUTPUT,
    switch("force", "Assume Yes to all queries and do not prompt."),
    *(Flag(name, name.upper(), f"{text} Repeatable.", is_repeated=True) for name, text in (
        ("topic", "Topic to which ACLs should be added or removed; '*' applies to all topics."),
        ("group", "Consumer group likewise."),
        ("transactional-id", "Transactional id likewise."),
        ("operation", "Operation that is being allowed or denied: All, Read, Write, … Default All."),
        ("allow-principal", "Principal in principalType:name format, User:'*' is everybody."),
        ("deny-principal", "Likewise; deny rules take precedence over allow rules."),
        ("principal", "List ACLs for the specified principal."),
        ("allow-host", "Host from which principals in --allow-principal have access; all by default."),
        ("deny-host", "Host from which principals in --deny-principal are denied access; all by default."),
    )),
    Flag("resource-pattern-type", "|".join(PATTERN_TYPES), "LITERAL or PREFIXED; when listing or removing also ANY, "
         "any type of exactly this name, or MATCH, all that affect the resource. Default LITERAL.",
         str.upper, PatternType.LITERAL.value, choices=PATTERN_TYPES),
)}
_OF_CONSUMER = (
    "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option should be "
    "specified."
)
RULES = (
    *Rule.exactly_one(("add", "remove", "list"), "Command must include exactly one action: --list, --add, --remove. "),
    *(Rule(NOT_TOGETHER.format(one, other), f"{one} {other}") for one, others in (
        ("list", "producer consumer allow-host allow-principal deny-host deny-principal"),
        ("producer", "operation deny-principal deny-host"),
        ("consumer", "operation deny-principal deny-host"),
    ) for other in others.split()),
    Rule("The --principal option is only available if --list is set", "principal", "list"),
    Rule("With --producer you must specify a --topic", "producer", "topic"),
    Rule("The --idempotent option is only available if --producer is set", "idempotent", "producer"),
    *Rule.required("topic group", "consumer", _OF_CONSUMER),
    Rule(_OF_CONSUMER, "consumer cluster", "producer"),
    Rule(_OF_CONSUMER, "consumer transactional-id", "producer"),
)
# fmt: on


def patterns(given: argparse.Namespace) -> list[Pattern]:
    """The resources that the flags name, sorted."""
    kind = given.resource_pattern_type
    found = [Pattern(ResourceType.TOPIC, name.strip(), kind) for name in given.topic]
    if kind == PatternType.LITERAL and (given.cluster or given.idempotent):
        found.append(Pattern(ResourceType.CLUSTER, CLUSTER_NAME, kind))
    found += [Pattern(ResourceType.GROUP, name.strip(), kind) for name in given.group]
    found += [Pattern(ResourceType.TRANSACTIONAL_ID, name, kind) for name in given.transactional_id]
    return sorted(set(found))


def entries(given: argparse.Namespace, operations: Iterable[Operation]) -> set[Entry]:
    """The entries that allow or deny these operations, for each principal and host."""
    found: set[Entry] = set()
    for permission, named, hosts in (
        (Permission.ALLOW, given.allow_principal, given.allow_host),
        (Permission.DENY, given.deny_principal, given.deny_host),
    ):
        principals = parse_principals(";".join(named))
        where = [host.strip() for host in hosts] or [WILDCARD]
        found |= {Entry(*each, permission) for each in product(principals, where, operations)}
    return found


def wanted(given: argparse.Namespace) -> Wanted:
    """The entries by resource. UsageError for an operation that the resource does not have, or no resource."""
    named = patterns(given)
    if not named:
        raise UsageError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    found: Wanted = {}
    roles = [role for role in _ROLE if getattr(given, role)]
    for pattern in named:
        if not roles:
            found[pattern] = entries(given, [_operation(name) for name in given.operation or ["All"]])
        for role in roles:
            operations = _ROLE[role].get(pattern.resource_type)
            is_meant = pattern.resource_type is not ResourceType.CLUSTER or given.idempotent
            if operations is not None and is_meant:
                found.setdefault(pattern, set()).update(entries(given, operations))
    for pattern, rules in found.items():
        supported = supported_operations(pattern.resource_type)
        if any(rule.operation not in supported for rule in rules):
            names = ", ".join(sorted(supported))
            raise UsageError(f"ResourceType {pattern.resource_type} only supports operations [{names}]")
    return found


def _operation(name: str) -> Operation:
    found = _OPERATIONS.get(name.strip().replace("_", "").lower())
    if found is None:
        raise UsageError(f"Unknown operation: {name}; known: {', '.join(sorted(Operation))}")
    return found


def add(admin: ClusterAdmin, given: argparse.Namespace) -> None:
    """Add the entries that do not exist yet."""
    if given.resource_pattern_type in (ANY, MATCH):
        kind = given.resource_pattern_type
        raise UsageError(f"A '--resource-pattern-type' value of '{kind}' is not valid when adding acls.")
    rules = wanted(given)
    if not all(rules.values()):
        raise UsageError("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    for pattern, new in rules.items():
        known = {_entry(binding) for binding in admin.describe_acls(pattern.filter)}
        for entry in sorted(new & known):
            print(f"Acl (pattern={pattern}, entry={entry}) already exists.")
        if new - known:
            print(f"Adding ACLs for resource `{pattern}`: \n {_lines(new - known)}\n")
            admin.create_acls([_binding(pattern, entry) for entry in sorted(new - known)])


def remove(admin: ClusterAdmin, given: argparse.Namespace) -> None:
    """Remove these entries, or all of a resource, after a question."""
    for pattern, rules in wanted(given).items():
        question = f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)"
        if rules:
            question = (
                f"Are you sure you want to remove ACLs: \n {_lines(rules)}\n from resource filter `{pattern}`? (y/n)"
            )
        if given.force or _is_confirmed(question):
            admin.delete_acls([_filter(pattern, rule) for rule in sorted(rules)] or [pattern.filter])


def show(admin: ClusterAdmin, given: argparse.Namespace) -> None:
    """Print the entries by resource, of some principals where they are named."""
    filters = [pattern.filter for pattern in patterns(given)] or [AclFilter()]
    found: dict[Pattern, list[Entry]] = {}
    for binding in dict.fromkeys(each for one in filters for each in admin.describe_acls(one)):
        pattern = Pattern(binding.resource_type, binding.resource_name, binding.pattern_type.value)
        found.setdefault(pattern, []).append(_entry(binding))
    if given.output == JSON:
        principals = parse_principals(";".join(given.principal)) if given.principal else None
        print_rows(
            _values(pattern, rule)
            for pattern in sorted(found)
            for rule in sorted(found[pattern])
            if principals is None or rule.principal in principals
        )
        return
    if not given.principal:
        _print(found)
    for principal in sorted(parse_principals(";".join(given.principal))):
        print(f"ACLs for principal `{principal}`")
        own = {pattern: [each for each in rules if each.principal == principal] for pattern, rules in found.items()}
        _print({pattern: rules for pattern, rules in own.items() if rules})


def _values(pattern: Pattern, rule: Entry) -> dict[str, object]:
    """One binding for `--output json`."""
    return {
        "resourceType": pattern.resource_type.value,
        "resourceName": pattern.name,
        "patternType": pattern.pattern_type,
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation.value,
        "permissionType": rule.permission_type.value,
    }


def _print(found: Mapping[Pattern, Iterable[Entry]]) -> None:
    for pattern in sorted(found):
        print(f"Current ACLs for resource `{pattern}`:\n{_lines(found[pattern])}\n")


def _lines(rules: Iterable[Entry]) -> str:
    return "\n".join(f"\t{rule}" for rule in sorted(rules))


def _is_confirmed(question: str) -> bool:
    print(question, flush=True)
    return sys.stdin.readline().strip().lower() == "y"


def _entry(binding: AclBinding) -> Entry:
    return Entry(binding.principal, binding.host, binding.operation, binding.permission_type)


def _binding(pattern: Pattern, entry: Entry) -> AclBinding:
    resource = (pattern.resource_type, pattern.name, PatternType(pattern.pattern_type))
    return AclBinding(*resource, entry.principal, entry.host, entry.operation, entry.permission_type)


def _filter(pattern: Pattern, entry: Entry) -> AclFilter:
    return replace(
        pattern.filter,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )


def perform(given: argparse.Namespace, admin: ClusterAdmin) -> int:
    """Do what the flags ask for; the exit code."""
    try:
        (add if given.add else remove if given.remove else show)(admin, given)
    except StratalogError as reason:
        print(f"Error while executing ACL command: {reason}")
        return FAILED
    return DONE


def acls(given: argparse.Namespace) -> int:
    """`perform` on the cluster that the flags name."""
    with open_cluster(given) as opened:
        return perform(given, opened.admin)


main = Command("acls", PURPOSE, EPILOG, FLAGS, acls, RULES, Words(("add", "remove", "list"), "list"))
