"""Quotas of users and clients as `kafka-configs` names and prints them. Pure.

Source: Kafka's `ConfigCommand.describeClientQuotaAndUserScramCredentialConfigs`, `alterQuotaConfigs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stratalog.jobs.command.terminal import UsageError
from stratalog.replication.metadata.client_quotas import (
    CLIENT_ID,
    KEYS,
    MATCH_DEFAULT,
    MATCH_EXACT,
    MATCH_SPECIFIED,
    USER,
    QuotaEntity,
    QuotaMatch,
)
from stratalog.wire.java_strings import double_text, hash_order

USERS, CLIENTS = "users", "clients"
TYPES = {USERS: USER, CLIENTS: CLIENT_ID}
"""Entity type of the tool -> entity type of a quota."""
_WORDS = {USER: "user-principal", CLIENT_ID: "client-id"}

NamedEntity = tuple[str, str | None]
"""An entity type of the tool with a name: "" stands for the default, None for all."""


def matches_of(entities: Sequence[NamedEntity]) -> list[QuotaMatch]:
    """The filter that finds these entities' quotas.

    >>> [tuple(each) for each in matches_of([("users", "alice"), ("clients", "")])]
    [('user', 0, 'alice'), ('client-id', 1, None)]
    """
    return [
        QuotaMatch(
            TYPES[kind], MATCH_SPECIFIED if name is None else MATCH_EXACT if name else MATCH_DEFAULT, name or None
        )
        for kind, name in entities
    ]


def quota_entity(entities: Sequence[NamedEntity]) -> QuotaEntity:
    """The entity whose quotas are altered.

    >>> quota_entity([("users", "alice"), ("clients", "")])
    (('client-id', None), ('user', 'alice'))
    """
    return tuple(sorted((TYPES[kind], name or None) for kind, name in entities))


def quota_changes(added: Mapping[str, str], removed: Iterable[str]) -> dict[str, float | None]:
    """Quota -> its new value, None to remove it. UsageError in Kafka's words.

    >>> quota_changes({"producer_byte_rate": "1024"}, ["request_percentage"])
    {'request_percentage': None, 'producer_byte_rate': 1024.0}
    """
    changes: dict[str, float | None] = dict.fromkeys(removed)
    for name, value in added.items():
        try:
            changes[name] = float(value)
        except ValueError as reason:
            raise UsageError(f"Cannot parse quota configuration value for {name}: {value}") from reason
    return changes


def check_only_quotas(added: Iterable[str], removed: Iterable[str]) -> None:
    """UsageError in Kafka's words unless all are quotas: a client id has nothing else."""
    for names, what in ((added, "added"), (removed, "deleted")):
        unknown = [name for name in names if name not in KEYS]
        if unknown:
            raise UsageError(
                f"Only quota configs can be {what} for '{CLIENTS}'. Unexpected config names: {', '.join(unknown)}"
            )


def of_quotas(names: Iterable[str]) -> list[str]:
    """Those of these names that are quotas."""
    return [name for name in names if name in KEYS]


def quota_line(entity: QuotaEntity, values: Mapping[str, float]) -> str:
    """An entity's quotas as Kafka prints them.

    >>> quota_line((("client-id", None), ("user", "alice")), {"producer_byte_rate": 1024.0})
    "Quota configs for user-principal 'alice', the default client-id are producer_byte_rate=1024.0"
    """
    parts = dict(entity)
    named = ", ".join(
        f"the default {word}" if parts[kind] is None else f"{word} '{parts[kind]}'"
        for kind, word in _WORDS.items()
        if kind in parts
    )
    in_order = hash_order(values, capacity=1 << (len(values) - 1).bit_length())  # as `DescribeClientQuotasResponse`
    listed = ", ".join(f"{name}={double_text(values[name])}" for name in in_order)
    return f"Quota configs for {named} are {listed}"
