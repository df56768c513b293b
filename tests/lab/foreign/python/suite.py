"""The checks of the clients in Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.lab.foreign.checks import Check, Suite
from tests.lab.foreign.python import (
    aiokafka_admin,
    confluent_admin,
    groups,
    kafka_python_admin,
    records,
    schema_registry,
    serializers,
    transactions,
)
from tests.lab.foreign.python.clients import Aiokafka, Confluent, KafkaPython, PythonClient

CLIENTS = (Confluent(), KafkaPython(), Aiokafka())
ADMIN = {
    Confluent.name: confluent_admin.CHECKS,
    KafkaPython.name: kafka_python_admin.CHECKS,
    Aiokafka.name: aiokafka_admin.CHECKS,
}
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
}
"""ACLs can be made, and members of KIP-848 groups learn within half a second what they should do."""


def suite() -> Suite:
    checks = tuple(check for client in CLIENTS for check in checks_of(client))
    checks += tuple(Check("a schema registry's requests", does, run) for does, run in schema_registry.CHECKS.items())
    checks += tuple(Check(Confluent.name, does, run) for does, run in serializers.CHECKS.items())
    return Suite({client.name: client.version for client in CLIENTS}, checks, SETTINGS)


def checks_of(client: PythonClient) -> list[Check]:
    made: list[tuple[str, Callable]] = [
        (
            f"produce with compression.type={codec}, acks=all, 1 and 0, and read by assignment",
            partial(records.produce_and_read, client, compression_type=codec),
        )
        for codec in records.CODECS
    ]
    made += [
        ("produce with enable.idempotence=true", partial(records.produce_idempotently, client)),
        ("read by assignment: from an offset, from a time, seek, ends", partial(records.read_by_assignment, client)),
        *groups_of(client),
        (
            "transactions: read, process, write with offsets; every third one aborted; read_committed",
            partial(transactions.read_process_write, client),
        ),
        ("transactions: a producer is fenced by its successor", partial(transactions.be_fenced, client)),
        *ADMIN[client.name].items(),
    ]
    return [Check(client.name, does, run) for does, run in made]


def groups_of(client: PythonClient) -> list[tuple[str, Callable]]:
    eager = groups.classic(client, "range")
    found = [
        ("classic groups, range: members join and leave", partial(groups.share, client, settings=eager, is_eager=True))
    ]
    if "cooperative-sticky" in client.assignors:
        settings = groups.classic(client, "cooperative-sticky")
        found.append(
            (
                "classic groups, cooperative-sticky: only what moves is revoked",
                partial(groups.share, client, settings=settings, is_eager=False),
            )
        )
    found.append(("classic groups: a static member comes back", partial(groups.come_back, client, settings=eager)))
    if isinstance(client, Confluent):
        for assignor in ("uniform", "range"):
            settings = {**groups.MODERN, "group.remote.assignor": assignor}
            found.append(
                (
                    f"group.protocol=consumer (KIP-848), {assignor}: members join and leave",
                    partial(groups.share, client, settings=settings, is_eager=False),
                )
            )
        found.append(
            (
                "group.protocol=consumer (KIP-848): a static member comes back",
                partial(groups.come_back, client, settings=groups.MODERN),
            )
        )
        found.append(
            (
                "a group changes from the classic protocol to KIP-848 and back, one member after the other",
                partial(groups.migrate, client),
            )
        )
    return found
