"""The checks of clients in Go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tests.foreign.checks import Check, Suite, fresh
from tests.foreign.go.program import LEFT_OUT, executable, has_go, run, version
from tests.foreign.java.suite import SETTINGS
from tests.foreign.python.records import CODECS, KEPT, topic_of
from tests.foreign.served import Served

FRANZ = "franz-go"
VERSIONS = {
    FRANZ: f"{version('github.com/twmb/franz-go')}, kadm {version('github.com/twmb/franz-go/pkg/kadm')}",
}
BALANCERS = {FRANZ: ("range", "roundrobin", "sticky", "cooperative-sticky")}
NEXT_GEN = ("uniform", "range")
GROUP_PARTITIONS = 4


def do(client: str, program: str, partitions: int, served: Served, **given: str) -> None:
    """Run a program with a new topic and names for whatever else it makes."""
    names = {name: fresh(name) for name in ("group", "new", "id")}
    own = {"topic": topic_of(served, partitions, **KEPT), **names, **given}
    run(client, program, served.bootstrap, **own)


def transact(client: str, balancer: str, served: Served) -> None:
    out = topic_of(served, GROUP_PARTITIONS, **KEPT)
    do(client, "transactions", GROUP_PARTITIONS, served, out=out, balancer=balancer)


def grouped(client: str, program: str, balancer: str, *, is_eager: bool = True) -> Callable[[Served], None]:
    given = {"balancer": balancer, **({"eager": "yes"} if is_eager else {})}
    return partial(do, client, program, GROUP_PARTITIONS, **given)


def records(client: str) -> dict[str, Callable[[Served], None]]:
    found: dict[str, Callable[[Served], None]] = {
        f"produce with compression.type={codec}, acks=all, 1 and 0, and read by assignment: null keys and values, "
        "headers, timestamps": partial(do, client, "produce", 3, codec=codec)
        for codec in CODECS
    }
    found["read by assignment: from an offset, from a time, ends"] = partial(do, client, "assign", 1)
    return found


def groups(client: str) -> dict[str, Callable[[Served], None]]:
    found: dict[str, Callable[[Served], None]] = {}
    for balancer in BALANCERS[client]:
        what = "only what moves is revoked" if balancer == "cooperative-sticky" else "members join and leave"
        is_eager = balancer != "cooperative-sticky"
        found[f"classic groups, {balancer}: {what}"] = grouped(client, "share", balancer, is_eager=is_eager)
    found["classic groups: commit, and go on after a restart"] = grouped(client, "go-on", "range")
    return found


def franz() -> dict[str, Callable[[Served], None]]:
    kind = "next-gen groups (KIP-848)"
    found = {
        **records(FRANZ),
        "produce idempotently: small batches, several requests under way": partial(do, FRANZ, "idempotent", 1),
        **groups(FRANZ),
        "classic groups: a static member comes back": grouped(FRANZ, "come-back", "range"),
    }
    for assignor in NEXT_GEN:
        share = grouped(FRANZ, "share", f"next-gen {assignor}", is_eager=False)
        found[f"{kind}, {assignor}: members join and leave"] = share
    found[f"{kind}: commit, and go on after a restart"] = grouped(FRANZ, "go-on", "next-gen uniform")
    words = "read, process, write with offsets; every third one aborted; read_committed"
    for balancer in ("range", "next-gen uniform"):
        found[f"GroupTransactSession, {balancer}: {words}"] = partial(transact, FRANZ, balancer)
    found["transactions: a producer is fenced by its successor"] = partial(do, FRANZ, "fence", 1)
    return found | {f"kadm: {does}": partial(do, FRANZ, name, GROUP_PARTITIONS) for does, name in KADM.items()}


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
CHECKS = {FRANZ: franz}


def suite() -> Suite:
    """Without checks, and with the reason, where Go is not there."""
    if not has_go():
        return Suite({}, (), left_out=LEFT_OUT)
    executable()
    checks = [Check(client, does, run) for client, found in CHECKS.items() for does, run in found().items()]
    return Suite(VERSIONS, tuple(checks), SETTINGS)
