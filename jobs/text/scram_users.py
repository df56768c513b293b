"""SCRAM credentials as configs of `kafka-configs`: `SCRAM-SHA-256=[iterations=8192,password=secret]`. Pure.

Source: Kafka's `ConfigCommand.alterUserScramCredentialConfigs`, `describeClientQuotaAndUserScramCredentialConfigs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from stratalog.jobs.command.terminal import UsageError
from stratalog.replication.metadata.client_quotas import KEYS
from stratalog.replication.metadata.scram import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MIN,
    ScramDeletion,
    ScramDescription,
    ScramMechanism,
    ScramUpsertion,
)

_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)", re.DOTALL)


def upsertions_of(user: str, added: Mapping[str, str], salt: bytes) -> list[ScramUpsertion]:
    """Credentials to be set, by mechanism and value. UsageError in Kafka's words, without the password.

    >>> upsertions_of("alice", {"SCRAM-SHA-256": "iterations=8192,password=secret"}, b"salt")[0].iterations
    8192
    """
    _check_names(added, "added")
    return [_upsertion(user, ScramMechanism(name), value, salt) for name, value in added.items()]


def _upsertion(user: str, mechanism: ScramMechanism, value: str, salt: bytes) -> ScramUpsertion:
    found = _CREDENTIAL.fullmatch(value)
    if found is None or not found[2]:
        raise UsageError(f"Invalid credential property {mechanism}: it must be [iterations=<number>,password=<text>]")
    given = found[1]
    iterations = int(given) if given and given not in ("-", "-1") else ITERATIONS_DEFAULT
    if iterations < ITERATIONS_MIN:
        raise UsageError(f"Iterations {iterations} is less than the minimum {ITERATIONS_MIN} required for {mechanism}")
    salted = mechanism.salted_password(found[2], salt, iterations)
    return ScramUpsertion(user, mechanism.code, iterations, salt, salted)


def deletions_of(user: str, removed: Iterable[str]) -> list[ScramDeletion]:
    """Credentials to be removed, by mechanism. UsageError for another name."""
    names = list(removed)
    _check_names(names, "deleted")
    return [ScramDeletion(user, ScramMechanism(name).code) for name in names]


def check_users_names(added: Iterable[str], removed: Iterable[str]) -> None:
    """UsageError in Kafka's words unless all are quotas or credentials."""
    _check_names([name for name in added if name not in KEYS], "added")
    _check_names([name for name in removed if name not in KEYS], "deleted")


def _check_names(names: Iterable[str], what: str) -> None:
    unknown = [name for name in names if name not in tuple(ScramMechanism)]
    if unknown:
        raise UsageError(
            f"Only quota and SCRAM credential configs can be {what} for 'users'. Unexpected config names: "
            f"{', '.join(unknown)}"
        )


def description_line(described: ScramDescription) -> str:
    """A user's credentials as Kafka prints them."""
    if described.error is not None:
        reason = f"{type(described.error).__name__.removesuffix('Error')}Exception: {described.error}"
        return f"Error retrieving SCRAM credential configs for user-principal '{described.user}': {reason}"
    listed = ", ".join(f"{mechanism}=iterations={iterations}" for mechanism, iterations in described.credentials)
    return f"SCRAM credential configs for user-principal '{described.user}' are {listed}"
