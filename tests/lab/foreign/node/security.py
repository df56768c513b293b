"""The clients in JavaScript log in by SCRAM over TLS, work, and are refused with a wrong password."""

from __future__ import annotations

import pytest

from tests.lab.foreign.node.clients import NodeClient
from tests.lab.foreign.node.process import NodeError
from tests.lab.foreign.python.groups import CLASSIC
from tests.lab.foreign.python.records import read, value
from tests.lab.foreign.python.suite import SETTINGS as OPEN
from tests.lab.foreign.security.credentials import ALICE, LOGIN, PASSWORDS, Way, broker_settings, secrets
from tests.lab.foreign.security.librdkafka import allowed
from tests.lab.foreign.served import Served

LISTENERS = {LOGIN: "SASL_SSL"}
COUNT = 90


def settings() -> dict[str, object]:
    """The brokers': a listener with SASL over TLS, beside one where everybody may do everything."""
    own = broker_settings()
    both = {"super.users": f"{own['super.users']};{OPEN['super.users']}", "connections.max.reauth.ms": 0}
    return {**own, **OPEN, **both}


def log_in(client: NodeClient, served: Served) -> None:
    way = Way.SCRAM_SHA_512
    topic = allowed(served, way)
    login = {"ssl.ca.location": str(secrets().trusted), "sasl.mechanism": str(way), "sasl.username": ALICE}
    right, wrong = ({**login, "sasl.password": each} for each in (PASSWORDS[ALICE], "wrong"))
    address = served.bootstrap_of(LOGIN)
    with client.writer(address, right) as writer:
        for number in range(COUNT):
            writer.send(topic, value(number), number % 3)
        writer.flush()
    with client.reader(address, {"group.id": topic, **CLASSIC, **right}) as reader:
        reader.subscribe(topic)
        assert sorted(each.value or b"" for each in read(reader, COUNT)) == sorted(map(value, range(COUNT)))
        reader.commit()
        assert sum(reader.committed((topic, number)) or 0 for number in range(3)) == COUNT
    with pytest.raises(NodeError, match=r"(?i)authentication"):
        write_one(client, address, {**wrong, "retries": 0}, topic)


def write_one(client: NodeClient, address: str, login: dict[str, object], topic: str) -> None:
    """KafkaJS logs in when a producer connects, @platformatic/kafka with its first record."""
    with client.writer(address, login) as writer:
        writer.send(topic, value(0), 0)
        writer.flush()
