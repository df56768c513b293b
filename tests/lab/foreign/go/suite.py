"""The checks of clients in Go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tests.lab.foreign.checks import Check, Suite, fresh
from tests.lab.foreign.go.program import GO, version
from tests.lab.foreign.java.suite import SETTINGS
from tests.lab.foreign.python.records import CODECS, KEPT, topic_of
from tests.lab.foreign.served import Served

FRANZ, SARAMA, SEGMENTIO = "franz-go", "sarama", "kafka-go"
VERSIONS = {
    FRANZ: f"{version('github.com/twmb/franz-go')}, kadm {version('github.com/twmb/franz-go/pkg/kadm')}",
    SARAMA: version("github.com/IBM/sarama"),
    SEGMENTIO: version("github.com/segmentio/kafka-go"),
}
OLDER = {"2.8.0": "its default", "2.1.0": "the oldest that Kafka 4 serves"}
"""Versions of Kafka that sarama is set to."""
GROUP_PARTITIONS = 4
TRANSACTIONS = "read, process, write with offsets; every third one aborted; read_committed"
FENCED = "transactions: a producer is fenced by its successor"
CLASSIC, NEXT_GEN = "classic groups", "next-gen groups (KIP-848)"

Run = Callable[[Served], None]


def do(client: str, program: str, partitions: int, served: Served, **given: str) -> None:
    """Run a program with a new topic and names for whatever else it makes."""
    names = {name: fresh(name) for name in ("group", "new", "id")}
    own = {"topic": topic_of(served, partitions, **KEPT), **names, **given}
    GO.run(client, program, served.bootstrap, **own)


def transact(client: str, balancer: str, served: Served) -> None:
    out = topic_of(served, GROUP_PARTITIONS, **KEPT)
    do(client, "transactions", GROUP_PARTITIONS, served, out=out, balancer=balancer)


def grouped(client: str, program: str, balancer: str, *, is_eager: bool = True, **more: str) -> Run:
    given = {"balancer": balancer, **({"eager": "yes"} if is_eager else {})}
    return partial(do, client, program, GROUP_PARTITIONS, **given, **more)


def records(client: str) -> dict[str, Run]:
    found: dict[str, Run] = {
        f"produce with compression.type={codec}, acks=all, 1 and 0, and read by assignment: null keys and values, "
        "headers, timestamps": partial(do, client, "produce", 3, codec=codec)
        for codec in CODECS
    }
    found["read by assignment: from an offset, from a time, ends"] = partial(do, client, "assign", 1)
    return found


def groups(client: str, balancers: Sequence[str]) -> dict[str, Run]:
    found: dict[str, Run] = {}
    for balancer in balancers:
        is_eager = balancer != "cooperative-sticky"
        what = "members join and leave" if is_eager else "only what moves is revoked"
        found[f"{CLASSIC}, {balancer}: {what}"] = grouped(client, "share", balancer, is_eager=is_eager)
    found[f"{CLASSIC}: commit, and go on after a restart"] = grouped(client, "go-on", "range")
    return found


def franz() -> dict[str, Run]:
    found = {
        **records(FRANZ),
        "produce idempotently: small batches, several requests under way": partial(do, FRANZ, "idempotent", 1),
        **groups(FRANZ, ("range", "roundrobin", "sticky", "cooperative-sticky")),
        f"{CLASSIC}: a static member comes back": grouped(FRANZ, "come-back", "range"),
    }
    for assignor in ("uniform", "range"):
        share = grouped(FRANZ, "share", f"next-gen {assignor}", is_eager=False)
        found[f"{NEXT_GEN}, {assignor}: members join and leave"] = share
    found[f"{NEXT_GEN}: commit, and go on after a restart"] = grouped(FRANZ, "go-on", "next-gen uniform")
    for balancer in ("range", "next-gen uniform"):
        found[f"GroupTransactSession, {balancer}: {TRANSACTIONS}"] = partial(transact, FRANZ, balancer)
    return found | {FENCED: partial(do, FRANZ, "fence", 1)} | admin(FRANZ, "kadm", KADM)


def sarama() -> dict[str, Run]:
    found = {
        **records(SARAMA),
        "produce idempotently: small batches": partial(do, SARAMA, "idempotent", 1),
        **groups(SARAMA, ("range", "roundrobin", "sticky", "cooperative-sticky")),
        f"{CLASSIC}: a static member comes back": grouped(SARAMA, "come-back", "range"),
        f"transactions: {TRANSACTIONS}": partial(transact, SARAMA, "range"),
        FENCED: partial(do, SARAMA, "fence", 1),
    }
    for kafka, why in OLDER.items():
        does = f"Version {kafka}, {why}"
        found[f"{does}: produce and read"] = partial(do, SARAMA, "produce", 3, codec="lz4", version=kafka)
        found[f"{does}: members join and leave"] = grouped(SARAMA, "share", "range", version=kafka)
    return found | admin(SARAMA, "admin", ADMIN)


def segmentio() -> dict[str, Run]:
    found = {**records(SEGMENTIO), **groups(SEGMENTIO, ("range", "roundrobin"))}
    found["transactions: requests: offsets of a group are aborted, and committed"] = partial(transact, SEGMENTIO, "")
    return found | admin(SEGMENTIO, "admin", REQUESTS)


def admin(client: str, name: str, programs: Mapping[str, str]) -> dict[str, Run]:
    return {f"{name}: {does}": partial(do, client, program, GROUP_PARTITIONS) for does, program in programs.items()}


KADM: Mapping[str, str] = {
    "create, describe and delete topics, more partitions, refusals": "admin-topics",
    "describe, alter (incremental and whole) configs of a topic; those of a broker": "admin-configs",
    "list, describe, delete groups of both kinds; list, alter, delete offsets; lag of a classic one": "admin-groups",
    "delete records; list offsets by time, newest, committed, by leader epoch": "admin-records",
    "cluster, API versions, log dirs, coordinators, leader election, reassignment": "admin-cluster",
    "list and describe transactions, describe producers": "admin-transactional",
    "create, describe, delete ACLs": "admin-acls",
    "create, describe, delete SCRAM credentials and quotas": "admin-users",
}
ADMIN: Mapping[str, str] = {
    "create, describe and delete topics, more partitions, refusals": "admin-topics",
    "describe, alter (incremental and whole), reset configs of a topic; those of a broker": "admin-configs",
    "list, describe, delete groups; list, alter, delete their offsets": "admin-groups",
    "delete records, list offsets": "admin-records",
    "cluster, log dirs, a coordinator, leader election, reassignment": "admin-cluster",
    "create, describe, delete ACLs": "admin-acls",
    "create, describe, delete SCRAM credentials and quotas": "admin-users",
}
REQUESTS: Mapping[str, str] = {
    "create, describe and delete topics, more partitions, refusals": "admin-topics",
    "describe, alter (incremental and whole) configs of a topic; those of a broker": "admin-configs",
    "list, describe, delete groups; list, alter, delete their offsets": "admin-groups",
    "cluster, API versions, a coordinator, leader election, reassignment": "admin-cluster",
    "create, describe, delete ACLs": "admin-acls",
    "create, describe, delete SCRAM credentials": "admin-users",
}
CHECKS = {FRANZ: franz, SARAMA: sarama, SEGMENTIO: segmentio}


def suite() -> Suite:
    """Without checks, and with the reason, where Go is not there."""
    if not GO.can_be_built():
        return Suite({}, (), left_out=GO.left_out)
    GO.build()
    checks = [Check(client, does, run) for client, found in CHECKS.items() for does, run in found().items()]
    return Suite(VERSIONS, tuple(checks), SETTINGS)
