"""The checks of the clients in JavaScript."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial

from tests.lab.foreign.checks import Check, Suite
from tests.lab.foreign.node import kafkajs_admin, platformatic_admin, security
from tests.lab.foreign.node import records as own
from tests.lab.foreign.node.clients import KafkaJs, NodeClient, Platformatic
from tests.lab.foreign.python import groups, records, transactions
from tests.lab.foreign.security.credentials import remove_secrets

PROGRAMS = ("node", "npm")
LEFT_OUT = "the clients in JavaScript are left out: the commands node and npm were not found"
CLIENTS: tuple[NodeClient, ...] = (KafkaJs(), Platformatic())
ADMIN = {KafkaJs.name: kafkajs_admin.CHECKS, Platformatic.name: platformatic_admin.CHECKS}


def suite() -> Suite:
    """Without checks, and with the reason, where Node.js is not there."""
    if not all(map(shutil.which, PROGRAMS)):
        return Suite({}, (), left_out=LEFT_OUT)
    checks = tuple(check for client in CLIENTS for check in checks_of(client))
    versions = {client.name: client.version for client in CLIENTS}
    return Suite(versions, checks, security.settings(), security.LISTENERS, close)


def close() -> None:
    for client in CLIENTS:
        client.close()
    remove_secrets()


def checks_of(client: NodeClient) -> list[Check]:
    made: list[tuple[str, Callable]] = [
        (
            f"produce with compression {codec}, acks all, 1 and 0, and read from the beginning",
            partial(records.produce_and_read, client, compression_type=codec),
        )
        for codec in records.CODECS
    ]
    made += [
        (f"an idempotent producer, {client.sends}", partial(records.produce_idempotently, client)),
        ("null keys and values, several headers, timestamps", partial(own.null_keys_and_values, client)),
        ("read from an offset, from a time; seek; ends", partial(records.read_by_assignment, client)),
        ("a group goes on where it committed, after a restart", partial(own.go_on, client)),
        *groups_of(client),
        *transactions_of(client),
        ("transactions: a producer is fenced by its successor", partial(transactions.be_fenced, client)),
    ]
    made += [(does, partial(run, client)) for does, run in ADMIN[client.name].items()]
    made.append(("SCRAM-SHA-512 over TLS: produce, and read in a group", partial(security.log_in, client)))
    return [Check(client.name, does, run) for does, run in made]


def transactions_of(client: NodeClient) -> list[tuple[str, Callable]]:
    """@platformatic/kafka filters one aborted transaction of a producer in a fetch: KafkaJS reads what it wrote."""
    does = "transactions: read, process, write with offsets; every third one aborted; read_committed"
    if not isinstance(client, Platformatic):
        return [(does, partial(transactions.read_process_write, client))]
    return [
        (f"{does} by KafkaJS", partial(transactions.read_process_write, client, output=CLIENTS[0])),
        ("transactions: one is aborted between two; read_committed", partial(own.skip_an_aborted_transaction, client)),
    ]


def groups_of(client: NodeClient) -> list[tuple[str, Callable]]:
    """@platformatic/kafka leaves the fetches of an eager rebalance's generation under way, and gives what they bring
    beside what it fetches again: with Kafka 4.3.1 in five of eight runs, too."""
    eager = groups.classic(client, "round robin")
    found: list[tuple[str, Callable]] = [
        (
            "classic groups, round robin: members join and leave",
            partial(groups.share, client, settings=eager, is_eager=True, repeats=isinstance(client, Platformatic)),
        )
    ]
    if isinstance(client, Platformatic):
        settings = groups.classic(client, "cooperative-sticky")
        found.append(
            (
                "classic groups, cooperative-sticky: only what moves is revoked",
                partial(groups.share, client, settings=settings, is_eager=False),
            )
        )
        for assignor in ("uniform", "range"):
            modern = {**groups.MODERN, "group.remote.assignor": assignor}
            found.append(
                (
                    f"KIP-848 groups, {assignor}: members join and leave",
                    partial(groups.share, client, settings=modern, is_eager=False),
                )
            )
        found.append(
            (
                "KIP-848 groups: a static member comes back",
                partial(groups.come_back, client, settings=groups.MODERN),
            )
        )
    return found
