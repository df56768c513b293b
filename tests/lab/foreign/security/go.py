"""Go's clients log in, work, and are refused, over TLS: the programs of tests/lab/foreign/go."""

from __future__ import annotations

from tests.lab.foreign.go.program import GO, version
from tests.lab.foreign.security.credentials import ALICE, PASSWORDS, Way, make_users, secrets
from tests.lab.foreign.security.librdkafka import allowed
from tests.lab.foreign.served import Served

NAME = "Go clients with security"
CLIENTS = {
    "franz-go": "github.com/twmb/franz-go",
    "sarama": "github.com/IBM/sarama",
    "kafka-go": "github.com/segmentio/kafka-go",
}
VERSION = ", ".join(f"{client} {version(module)}" for client, module in CLIENTS.items())
WRONG = "wr0ng"


def given_of(way: Way, password: str = PASSWORDS[ALICE]) -> dict[str, str]:
    """What a program needs to be alice."""
    found = {"authority": str(secrets().trusted)}
    if way is Way.CERTIFICATE:
        return found | {"certificate": str(secrets().certificates[ALICE])}
    return found | {"user": ALICE, "password": password}


def work(client: str, way: Way, served: Served) -> None:
    """Produce, and read in a group."""
    name = allowed(served, way)
    names = {"topic": name, "group": name, "balancer": "range"}
    GO.run(client, "secured", served.bootstrap_of(way.listener), **names, **given_of(way))


def be_refused(client: str, way: Way, served: Served) -> None:
    """A wrong password: the client's error gives the reason."""
    make_users(served)
    GO.run(client, "refused", served.bootstrap_of(way.listener), topic="any", **given_of(way, WRONG))
