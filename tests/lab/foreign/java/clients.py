"""Kafka's Java clients, by `Clients.java`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from confluent_kafka.admin import NewTopic

from tests.lab.foreign.admin import admin_client
from tests.lab.foreign.checks import fresh
from tests.lab.foreign.java.jvm import ToolError, jvm
from tests.lab.foreign.python.records import CODECS, topic_of
from tests.lab.foreign.served import Served

ASSIGNORS = "org.apache.kafka.clients.consumer"
CLASSIC = {"session.timeout.ms": "10000", "heartbeat.interval.ms": "500"}
EAGER = {**CLASSIC, "partition.assignment.strategy": f"{ASSIGNORS}.RangeAssignor"}
COOPERATIVE = {**CLASSIC, "partition.assignment.strategy": f"{ASSIGNORS}.CooperativeStickyAssignor"}
MODERN = {"group.protocol": "consumer"}
WAIT_S = 60


def client(served: Served, what: str, *arguments: str) -> None:
    """Run the program. ToolError with what it printed when it fails."""
    ended = jvm().run("Clients", what, served.bootstrap, *arguments)
    if ended.code:
        raise ToolError(f"{what}: {ended.errors}")


def produce(codec: str, served: Served) -> None:
    client(served, "produce", topic_of(served), codec)


def idempotence(served: Served) -> None:
    client(served, "idempotence", topic_of(served))


def group(what: str, configs: Mapping[str, str], served: Served) -> None:
    """A check of a group, whose members have these configs."""
    topic = topic_of(served, 4)
    if what == "pattern":
        admin = admin_client({"bootstrap.servers": served.bootstrap})
        admin.create_topics([NewTopic(f"{topic}-2", 1, 3)])[f"{topic}-2"].result(WAIT_S)
    own = {"group.id": fresh("group"), **configs}
    client(served, what, topic, *(f"{name}={value}" for name, value in own.items()))


def transactions(served: Served) -> None:
    client(served, "transactions", topic_of(served), topic_of(served))


def fence(served: Served) -> None:
    client(served, "fence", topic_of(served, 1))


CHECKS: dict[str, Callable[[Served], None]] = {
    **{
        f"produce with compression.type={codec}, acks=all, 1 and 0, and read by assignment": partial(produce, codec)
        for codec in CODECS
    },
    "produce with enable.idempotence=true: small batches, five requests under way": idempotence,
    "classic groups, range: members join and leave": partial(group, "share", EAGER),
    "classic groups, cooperative-sticky: only what moves is revoked": partial(group, "share", COOPERATIVE),
    "classic groups: a static member comes back": partial(group, "come-back", EAGER),
    "classic groups: a subscription by a pattern": partial(group, "pattern", EAGER),
    **{
        f"group.protocol=consumer (KIP-848), {assignor}: members join and leave": partial(
            group, "share", {**MODERN, "group.remote.assignor": assignor}
        )
        for assignor in ("uniform", "range")
    },
    "group.protocol=consumer (KIP-848): a static member comes back": partial(group, "come-back", MODERN),
    "group.protocol=consumer (KIP-848): a subscription by a pattern": partial(group, "pattern", MODERN),
    "a group changes from the classic protocol to KIP-848 and back, one member after the other": partial(
        group, "migrate", {}
    ),
    "transactions: read, process, write with offsets; every third one aborted; read_committed": transactions,
    "transactions: a producer is fenced by its successor": fence,
}
