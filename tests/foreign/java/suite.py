"""The checks of Kafka's clients and tools in Java."""

from __future__ import annotations

from tests.foreign.checks import Check, Suite
from tests.foreign.java import cluster, groups, records, topics
from tests.foreign.java.jvm import close_jvm, java_version

TOOLS = "Kafka's tools"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.consumer.heartbeat.interval.ms": 500,
}
"""ACLs can be made, and members of KIP-848 groups learn within half a second what they should do."""


def suite() -> Suite:
    version = java_version()
    found = {**topics.CHECKS, **records.CHECKS, **groups.CHECKS, **cluster.CHECKS}
    checks = [Check(TOOLS, does, run) for does, run in found.items()]
    return Suite({TOOLS: version}, tuple(checks), SETTINGS, close=close_jvm)
