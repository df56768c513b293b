"""The checks of Kafka's clients and tools in Java."""

from __future__ import annotations

from tests.lab.foreign.checks import CHECK_S_MAX, Check, Suite
from tests.lab.foreign.java import clients, cluster, connect, groups, records, streams, topics
from tests.lab.foreign.java.jvm import close_jvm, java_version
from tests.lab.foreign.java.programs import end_programs

CHECKS = {
    "Kafka's Java clients": clients.CHECKS,
    "Kafka's tools": {**topics.CHECKS, **records.CHECKS, **groups.CHECKS, **cluster.CHECKS},
    "Kafka Streams": streams.CHECKS,
    "Kafka Connect": connect.CHECKS,
}
S_MAX = {"Kafka Streams": 300, "Kafka Connect": 300}
"""Two JVMs of their own are started, and a killed member must be missed."""
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
}
"""ACLs can be made, and members of KIP-848 groups learn within half a second what they should do."""


def suite() -> Suite:
    version = java_version()
    checks = [
        Check(client, does, run, s_max=S_MAX.get(client, CHECK_S_MAX))
        for client, found in CHECKS.items()
        for does, run in found.items()
    ]
    return Suite(dict.fromkeys(CHECKS, version), tuple(checks), SETTINGS, close=close)


def close() -> None:
    end_programs()
    close_jvm()
